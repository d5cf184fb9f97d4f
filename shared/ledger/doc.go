// Package ledger is what all clusters of an account know together: what EC2 refused, how much memory nodes really have, and how
// many calls are left.
//
// A Ledger remembers refusals, so that plans ask for something else for a while: three minutes, longer each time the same offering
// is refused again soon after, and a quota for longer still. It also remembers the least memory that nodes of a type under an image
// were seen to have. A Budget is a token bucket for each API, so that the clusters together stay under the account's rate.
//
// Both live in one DynamoDB Table, written with conditions so that no writer undoes another's news, and in the memory of a warm
// function. While the table is out of reach, memory alone is used: forgetting costs a refused call, never a node. The calls are
// signed HTTP: DynamoDB's SDK would make every function larger and slower to start, for three calls.
//
// Entry points: New, NewTable, NewBudget. Items of the table have the keys scope and id, numbers, and the attribute forget_at as
// their time to live.
package ledger
