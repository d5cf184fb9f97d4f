// Package fingerprint makes the hashes by which Karpenter tells that a node was made from an older version of its NodePool or
// EC2NodeClass, bit for bit: a cluster that moves over from Karpenter, or back to it, has no drifted node by that alone (N-032, C-116).
//
// Karpenter hashes its Go types with github.com/mitchellh/hashstructure/v2, which takes in the names of types and fields. The types here
// therefore have the names, the fields and the order of Karpenter's, as far as they are hashed; infra/karpenter holds them against the
// originals. The library is not developed any more, and neither may its hashes change.
package fingerprint
