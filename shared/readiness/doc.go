// Package readiness decides the status of NodePools: whether a pool may make nodes, which one rule keeps it from it, and what its
// nodes add up to. It is pure.
package readiness
