// Command conformance holds Treadle against Karpenter itself: it runs Karpenter's own end-to-end suites, unmodified and straight from
// Karpenter's module, against Treadle on the local stack, and says spec by spec how they went. Its tests compare the hashes that both write.
package main
