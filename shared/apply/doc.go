// Package apply writes what was decided. Each kind of writing is one function with a fixed, documented order, chosen so that a
// crash between any two writes leaves something that the next look can finish: intent before the call that costs money,
// taints before deletions, finalizers last.
//
// It decides nothing. What it needs of Kubernetes and EC2 are the small interfaces of its own; what they answer comes back as the
// sentinel errors of package plan.
package apply
