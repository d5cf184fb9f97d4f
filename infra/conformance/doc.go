// Package conformance holds Treadle against Karpenter itself: the hashes that both write, and Karpenter's own end-to-end suites, unmodified,
// run on the local stack.
package conformance
