// Package ledger remembers what EC2 refused, so that plans ask for something else for a while.
//
// A refusal is remembered for three minutes, longer each time the same offering is refused again soon after, and a quota for
// longer still. The memory is that of one warm function: forgetting costs a refused call, never a node.
package ledger
