// Package kubelet plays the kubelets of the local stack: one Fleet drives every node, up to ten
// thousand in one process, against a real API server.
//
// An instance that boots reads its own user data the way the images do, registers a Node under its
// own identity (so that the Node authorizer and NodeRestriction judge it), keeps its Lease, reports
// its status, and runs, completes, rejects and ends the pods bound to it. No container is started:
// annotations under treadle.local/ say how long a pod takes to start, to be ready, to run and to stop. A
// pre-stop command is taken to last for the whole grace period.
//
// Capacity and allocatable come from kubelet's own arithmetic, written here a second time on purpose:
// what Treadle expects of a node is checked against it, so nothing of Treadle's is imported.
//
// It departs from real kubelets in two ways that a client could notice. Pods are watched once for the
// whole fleet, with the identity of the Fleet, instead of once per node; writes are the node's own. And
// above three thousand nodes leases are renewed less often, so that a small control plane keeps up.
package kubelet
