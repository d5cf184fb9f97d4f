package plan

import "treadle/shared/cluster"

// Move is what happens next to one NodeClaim, to its node and to its instance. Applying a move does its parts in the order of the
// fields below, each only if it is set, and stops at the first that fails: the next look decides again from what is there.
type Move struct {
	// Reason is one word for logs and metrics: register, initialize, empty, drain, terminate, release, launch_timeout, …
	Reason string
	// Claim and Node are the objects as they were read. Node is nil where there is none, Claim where a node has none.
	Claim *cluster.NodeClaim
	Node  *cluster.Node

	// WantNode and WantClaim are the objects as they should be: what differs is written.
	WantNode  *cluster.Node
	WantClaim *cluster.NodeClaim
	// Events are for people, written before anything that cannot be undone.
	Events []Event
	// Nominate tells the scheduler that these pods are expected on Node.
	Nominate []cluster.PodRef
	// DeleteClaim and DeleteNode delete the object; its finalizer makes that the start of a drain.
	DeleteClaim, DeleteNode bool
	// Evict asks for evictions, which disruption budgets may refuse; Kill deletes pods whatever budgets say.
	Evict []cluster.PodRef
	Kill  []Kill
	// Terminate ends the instance.
	Terminate cluster.InstanceID
	// Release takes Treadle's finalizer off the node and then off the claim, which makes them go. It is never set beside Evict,
	// Kill or Terminate.
	Release bool
}

// Kill is a pod to delete with the given grace.
type Kill struct {
	Pod          cluster.PodRef
	GraceSeconds int64
}

// Decision is what a look at a cluster decided.
type Decision struct {
	Moves []Move
	// NextUnix is the next instant at which time alone changes the decision; zero: only a change in the cluster does.
	NextUnix int64
	// Waiting says that something is under way whose end has to be watched.
	Waiting bool
}

// Merge adds another decision to d.
func (d *Decision) Merge(o Decision) {
	d.Moves = append(d.Moves, o.Moves...)
	d.Waiting = d.Waiting || o.Waiting
	d.Again(o.NextUnix)
}

// Again asks for another look at the given instant; zero asks for none.
func (d *Decision) Again(unix int64) {
	if unix != 0 && (d.NextUnix == 0 || unix < d.NextUnix) {
		d.NextUnix = unix
	}
}

// Event is a Kubernetes Event about an object. Warning says that it is of type Warning, else Normal.
type Event struct {
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
	UID        string
	Reason     string
	Warning    bool
	Note       string
}

// ClaimEvent returns an Event about a NodeClaim.
func ClaimEvent(c *cluster.NodeClaim, reason string, warning bool, note string) Event {
	return Event{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: c.Name, UID: c.UID, Reason: reason, Warning: warning, Note: note}
}

// NodeEvent returns an Event about a Node.
func NodeEvent(n *cluster.Node, reason string, warning bool, note string) Event {
	// kubelet and the node controllers use the node's name as its uid in events, and "kubectl describe node" looks for that.
	return Event{APIVersion: "v1", Kind: "Node", Name: string(n.Name), UID: string(n.Name), Reason: reason, Warning: warning, Note: note}
}

// PodEvent returns an Event about a Pod.
func PodEvent(p cluster.PodRef, reason string, warning bool, note string) Event {
	return Event{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Reason: reason, Warning: warning, Note: note}
}

// PoolEvent returns an Event about a NodePool.
func PoolEvent(p *cluster.NodePool, reason string, warning bool, note string) Event {
	return Event{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: p.Name, UID: p.UID, Reason: reason, Warning: warning, Note: note}
}
