// Package joining decides how a launched instance becomes a node that pods run on: registration, initialisation and the
// deadlines of both. It is pure: a look at the cluster and at the instances in, moves out.
//
// Registration joins a Node to its NodeClaim and gives it the claim's labels, annotations and taints; initialisation
// says that the node is ready, has its devices and has lost its startup taints. Rows L-077 to L-091 of Karpenter's behaviour.
package joining
