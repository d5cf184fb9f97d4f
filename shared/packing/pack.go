package packing

import (
	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Options changes how Pack decides. The zero value is what provisioning uses.
type Options struct {
	// MinAgeSeconds is how old a pod must be that the scheduler has not called unschedulable yet.
	MinAgeSeconds int64
	// IgnoreReadiness takes pools as they are, whatever their conditions say.
	IgnoreReadiness bool
	// IgnorePreferences plans for what pods require only (S-090).
	IgnorePreferences bool
	// BestEffortMinValues lowers a pool's minValues to what can be had, instead of leaving pods without a node (S-096).
	BestEffortMinValues bool
	// Steps bounds the search for a cheaper plan than the first, in numbers looked at: 0 stands for as many as the number of
	// pods is worth, at most about a CPU-second's; a negative number takes the first plan.
	Steps int
	// LeavingNodes and LeavingClaims are treated as if they were being deleted: no target, and their pods are placed anew.
	LeavingNodes  []cluster.NodeName
	LeavingClaims []string
}

// packer is one run of Pack.
type packer struct {
	snap        *cluster.Snapshot
	o           Options
	dims        *dims
	views       map[string]*sets
	daemons     []daemon
	volumes     *volumes
	pools       []pool // in the order in which they are tried
	softTaints  bool   // some pool or host has a PreferNoSchedule taint
	hosts       []host // in the order in which they are tried
	hostOf      map[cluster.NodeName]int32
	leaving     map[cluster.NodeName]bool
	seated      map[cluster.PodUID]int32 // nominated pods, by the host whose room they have taken
	topology    *topology
	anyTopology bool
	labelKeys   []string // labels that some selector reads
	shapes      []shape
	bins        []bin
	reserved    map[string]int // by reservation: how many claims of this plan may take one
	plan        plan.Plan
}

// Pack places pods on room in snap, then on claims to make. It is deterministic, does not depend on the order of anything in
// snap, leaves its arguments unchanged, and puts a pod that fits nowhere in Plan.Unplaced with its reasons.
func Pack(snap cluster.Snapshot, o Options) plan.Plan {
	k := &packer{
		snap: &snap, o: o, views: map[string]*sets{}, topology: newTopology(),
		hostOf: map[cluster.NodeName]int32{}, leaving: map[cluster.NodeName]bool{}, reserved: map[string]int{},
	}
	// 1. Compile: names to numbers, pools with their types and daemons, hosts with their room, pods to shapes.
	k.dims = k.findDims()
	k.daemons = newDaemons(k.dims, snap.Daemons)
	k.volumes = newVolumes(&snap)
	for _, p := range sortedPools(snap.NodePools) {
		k.pools = append(k.pools, k.newPool(p))
	}
	k.findHosts()
	k.seatNominated()
	k.findLabelKeys()
	k.classify()
	k.ownBound()
	k.group(k.wanted())
	// 2. Claims in flight whose pods are known.
	k.fillPlanned()
	// 3. Room that exists or is on its way, then claims to make: first with all wishes, then with fewer and fewer.
	k.place()
	// 4. Write down.
	k.finish()
	return k.plan
}

// findDims collects the resources that pods or daemons request, or that a pool limits.
func (k *packer) findDims() *dims {
	names := map[string]bool{}
	learn := func(r *cluster.Resources) {
		for name, n := range r.Extended {
			if n > 0 {
				names[name] = true
			}
		}
	}
	for i := range k.snap.Pods {
		learn(&k.snap.Pods[i].Spec.Requests)
	}
	for i := range k.snap.Daemons {
		learn(&k.snap.Daemons[i].Spec.Requests)
	}
	for i := range k.snap.NodePools {
		for name := range k.snap.NodePools[i].Limits {
			if name != "nodes" {
				names[name] = true
			}
		}
	}
	d := newDims()
	d.learn(names)
	return d
}

// sets returns the interned sets of a pool. Pools of one class share them, unless overlays make them differ.
func (k *packer) sets(pool, class string) *sets {
	view := "class " + class
	if _, differs := k.snap.Overlaid[pool]; differs {
		view = "pool " + pool
	}
	s := k.views[view]
	if s == nil {
		s = newSets(newCatalog(k.dims, k.snap.TypesOf(pool, class)))
		k.views[view] = s
	}
	return s
}
