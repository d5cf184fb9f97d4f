// Package cluster holds the nouns of node autoscaling as plain data: pods, nodes, node pools, node claims, node classes,
// instance types and their offerings, and the snapshot that holds them all.
//
// Everything is an integer with its unit in the name, a string or a slice of those; nothing dials, reads a clock or logs. A
// snapshot prints as JSON, so a snapshot in a file is a bug report that can be replayed.
//
// Names follow Kubernetes, EC2 and Karpenter's API: an instance is EC2's, a node is Kubernetes'; an offering is an instance
// type in a zone under a capacity type. Instants are Unix seconds, durations are seconds; zero means "not set" where the
// field says so.
package cluster
