// Package packing decides which pods go where and which node claims to make for the rest. It is the core of Treadle: a pure
// function from a snapshot to a plan. It reads no clock, dials nothing and draws no random numbers, so equal snapshots give
// equal plans on any machine.
//
// Pack is the entry point. It compiles the snapshot into small integers, then places pods in four steps: the nodes that a
// record says they were planned for, room on existing nodes and claims in flight, and claims to make, pool by pool.
//
// Terms: a shape is a set of pods that ask for the same; a set is an interned set of requirements together with the instance
// types and offerings that meet it; a host is a node or a claim in flight; a bin is a claim that this plan opens; the target
// of a bin is the instance type that it was filled for.
package packing
