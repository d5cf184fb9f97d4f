// Package disruption decides which nodes leave, when and for what, and takes a leaving node through its drain to the end of its
// instance. It is pure: a look at the cluster and at the instances in, moves out.
//
// What is under way stands in the cluster, never in memory: a taint and a condition for a node that is about to leave, a deletion
// for one that is leaving, conditions for how far its drain has come. So whoever looks next goes on where the last one stopped.
//
// Empty finds nodes that nobody needs, Drain takes deleted ones apart, Orphans finds instances that nobody owns.
package disruption
