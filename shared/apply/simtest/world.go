package simtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// ErrCrashed is the answer to everything that is tried after the crash.
var ErrCrashed = errors.New("the function was killed")

// World is one cluster and its EC2 account. Its methods are safe for concurrent use; its fields are not, and are for setting the
// scene and for looking at what came of it.
type World struct {
	Pools   []cluster.NodePool
	Classes []cluster.NodeClass
	Claims  map[string]*cluster.NodeClaim
	Nodes   map[cluster.NodeName]*cluster.Node
	Pods    map[cluster.PodUID]*cluster.Pod
	Types   map[string][]cluster.InstanceType

	Buffers   []cluster.CapacityBuffer
	Templates []cluster.PodTemplate
	Overlays  []cluster.NodeOverlay

	Instances map[cluster.InstanceID]*cluster.Instance
	// Give says how many of the wanted instances EC2 has, or with which error it refuses to try; nil: all of them.
	Give func(want int) (int, error)
	// NeverJoins says that instances boot and no node comes of them.
	NeverJoins bool
	// Budgeted holds the pods that a disruption budget keeps from being evicted.
	Budgeted map[cluster.PodUID]bool
	// Held says that another function has the lease.
	Held bool

	// Writes lists what was written, in order: verb, kind and name. Events lists the Events beside it.
	Writes []string
	Events []plan.Event
	// Launches counts the CreateFleet calls that started something, Misused the tokens used for another request.
	Launches, Misused int

	mu       sync.Mutex
	now      int64
	serial   int
	left     int // writes until the crash; negative: never
	lost     bool
	answered map[string]answer // by client token
	ending   map[cluster.InstanceID]int64
}

// New returns an empty world at the given instant.
func New(nowUnix int64) *World {
	return &World{
		Claims: map[string]*cluster.NodeClaim{}, Nodes: map[cluster.NodeName]*cluster.Node{}, Pods: map[cluster.PodUID]*cluster.Pod{},
		Instances: map[cluster.InstanceID]*cluster.Instance{}, Budgeted: map[cluster.PodUID]bool{},
		now: nowUnix, left: -1, answered: map[string]answer{}, ending: map[cluster.InstanceID]int64{},
	}
}

// Crash lets n more writes happen, after which everything fails with ErrCrashed until Restart. lost says that the answer to the last of
// them does not arrive either.
func (w *World) Crash(n int, lost bool) { w.left, w.lost = n, lost }

// Restart ends a crash.
func (w *World) Restart() { w.left, w.lost = -1, false }

// NowUnix returns the world's instant.
func (w *World) NowUnix() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Advance lets seconds pass: pods end, instances boot and end, nodes join and lose their kubelet.
func (w *World) Advance(seconds int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += seconds
	maps.DeleteFunc(w.Pods, func(_ cluster.PodUID, p *cluster.Pod) bool { return p.DeletionUnix != 0 && p.DeletionUnix <= w.now })
	for _, id := range slices.Sorted(maps.Keys(w.Instances)) {
		one := w.Instances[id]
		node := w.nodeOf(id)
		switch {
		case one.State == cluster.InstancePending:
			one.State = cluster.InstanceRunning
		case one.State == cluster.InstanceRunning && node == nil && !w.NeverJoins:
			w.join(one)
		case one.State == cluster.InstanceShuttingDown && w.now >= w.ending[id]:
			one.State = cluster.InstanceTerminated
		}
		if node != nil && one.State != cluster.InstanceRunning {
			node.Conditions = node.Conditions.With(cluster.Condition{Type: "Ready", Status: "Unknown", TransitionUnix: w.now})
		}
	}
}

func (w *World) nodeOf(id cluster.InstanceID) *cluster.Node {
	for _, n := range w.Nodes {
		if cluster.InstanceOf(n.ProviderID) == id {
			return n
		}
	}
	return nil
}

// join makes the node that the kubelet of an instance registers.
func (w *World) join(one *cluster.Instance) {
	room := cluster.Resources{MilliCPU: 4000, MemoryBytes: 16 << 30, EphemeralBytes: 20 << 30, Pods: 58}
	n := &cluster.Node{
		Name: cluster.NodeName("ip-" + string(one.ID)), UID: w.uid(), ProviderID: cluster.ProviderID(one.Zone, one.ID),
		Labels:   map[string]string{cluster.LabelHostname: "ip-" + string(one.ID)},
		Taints:   []cluster.Taint{{Key: cluster.TaintUnregistered, Effect: cluster.NoExecute}},
		Capacity: room, Allocatable: room, CreatedUnix: w.now,
		Conditions: cluster.Conditions{{Type: "Ready", Status: "True", TransitionUnix: w.now}},
	}
	w.Nodes[n.Name] = n
}

// Snapshot returns a copy of what the API server has, in the order of names.
func (w *World) Snapshot(nowUnix int64) cluster.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := cluster.Snapshot{Cluster: "demo", NowUnix: nowUnix, NodePools: slices.Clone(w.Pools), NodeClasses: slices.Clone(w.Classes), Types: w.Types}
	s.Buffers, s.Templates, s.Overlays = slices.Clone(w.Buffers), slices.Clone(w.Templates), slices.Clone(w.Overlays)
	for _, name := range slices.Sorted(maps.Keys(w.Claims)) {
		s.NodeClaims = append(s.NodeClaims, copyClaim(w.Claims[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Nodes)) {
		s.Nodes = append(s.Nodes, copyNode(w.Nodes[name]))
	}
	for _, uid := range slices.Sorted(maps.Keys(w.Pods)) {
		s.Pods = append(s.Pods, *w.Pods[uid])
	}
	return s
}

// AddPod puts a pod into the cluster, bound to node unless that is empty.
func (w *World) AddPod(name string, node cluster.NodeName, spec cluster.PodSpec) *cluster.Pod {
	p := &cluster.Pod{
		PodRef: cluster.PodRef{Namespace: "default", Name: name, UID: cluster.PodUID(w.uid())},
		Owner:  cluster.Owner{Kind: "ReplicaSet", Name: name}, Spec: &spec, NodeName: node, Phase: cluster.PodRunning, CreatedUnix: w.now,
	}
	if node == "" {
		p.Phase, p.Unschedulable = cluster.PodPending, true
	}
	w.Pods[p.UID] = p
	return p
}

// AddMachine puts a claim with its running instance and its joined, initialised node into the cluster.
func (w *World) AddMachine(name, pool string) (*cluster.NodeClaim, *cluster.Node) {
	one := w.start("m5.xlarge", "us-east-1a", cluster.OnDemand, nil)
	one.State = cluster.InstanceRunning
	w.join(one)
	node := w.nodeOf(one.ID)
	node.Taints = nil
	node.Finalizers = []string{cluster.FinalizerTermination}
	node.Labels[cluster.LabelNodePool] = pool
	claim := &cluster.NodeClaim{
		Name: name, UID: w.uid(), ResourceVersion: w.version(), Labels: map[string]string{cluster.LabelNodePool: pool},
		Finalizers: []string{cluster.FinalizerTermination}, NodeName: node.Name, ProviderID: node.ProviderID, CreatedUnix: w.now,
		Capacity: node.Capacity, Allocatable: node.Allocatable,
	}
	for _, kind := range []string{cluster.ConditionLaunched, cluster.ConditionRegistered, cluster.ConditionInitialized, cluster.ConditionReady} {
		claim.Conditions = claim.Conditions.With(cluster.Condition{Type: kind, Status: "True", Reason: kind, TransitionUnix: w.now})
	}
	node.OwnedBy, node.OwnedByName = claim.UID, claim.Name
	w.Claims[name] = claim
	return claim, node
}

// write runs one write, unless the function is dead by now.
func (w *World) write(what string, change func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 {
		return ErrCrashed
	}
	if w.left > 0 {
		w.left--
	}
	w.Writes = append(w.Writes, what)
	err := change()
	if w.left == 0 && w.lost {
		return ErrCrashed
	}
	return err
}

func (w *World) uid() string {
	w.serial++
	return fmt.Sprintf("uid-%04d", w.serial)
}

func (w *World) version() string {
	w.serial++
	return strconv.Itoa(w.serial)
}

func copyClaim(c *cluster.NodeClaim) cluster.NodeClaim {
	out := *c
	out.Labels, out.Annotations = maps.Clone(c.Labels), maps.Clone(c.Annotations)
	out.Finalizers, out.Conditions = slices.Clone(c.Finalizers), slices.Clone(c.Conditions)
	return out
}

func copyNode(n *cluster.Node) cluster.Node {
	out := *n
	out.Labels, out.Annotations = maps.Clone(n.Labels), maps.Clone(n.Annotations)
	out.Finalizers, out.Taints, out.Conditions = slices.Clone(n.Finalizers), slices.Clone(n.Taints), slices.Clone(n.Conditions)
	return out
}
