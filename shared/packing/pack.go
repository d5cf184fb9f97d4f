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
	// LeavingNodes and LeavingClaims are treated as if they were being deleted: no target, and their pods are placed anew.
	LeavingNodes  []cluster.NodeName
	LeavingClaims []string
}

// packer is one run of Pack.
type packer struct {
	snap    *cluster.Snapshot
	o       Options
	dims    *dims
	byClass map[string]*sets
	daemons []daemon
	pools   []pool // in the order in which they are tried
	hosts   []host // in the order in which they are tried
	leaving map[cluster.NodeName]bool
	shapes  []shape
	bins    []bin
	plan    plan.Plan
}

// Pack places pods on room in snap, then on claims to make. It is deterministic, does not depend on the order of anything in
// snap, leaves its arguments unchanged, and puts a pod that fits nowhere in Plan.Unplaced with its reasons.
func Pack(snap cluster.Snapshot, o Options) plan.Plan {
	k := &packer{snap: &snap, o: o, byClass: map[string]*sets{}, leaving: map[cluster.NodeName]bool{}}
	// 1. Compile: names to numbers, pools with their types and daemons, hosts with their room.
	k.dims = k.findDims()
	k.daemons = newDaemons(k.dims, snap.Daemons)
	for _, p := range sortedPools(snap.NodePools) {
		k.pools = append(k.pools, k.newPool(p))
	}
	k.findHosts()
	k.group(k.wanted())
	// 2. Room that exists or is on its way.
	k.fillPlanned()
	k.fillHosts()
	// 3. Claims to make.
	k.openClaims()
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

// sets returns the interned sets of a class.
func (k *packer) sets(class string) *sets {
	s := k.byClass[class]
	if s == nil {
		s = newSets(newCatalog(k.dims, k.snap.Types[class]))
		k.byClass[class] = s
	}
	return s
}

// fillPlanned puts pods onto the claims in flight that were made for them, so that planning again while they start asks for
// nothing more.
func (k *packer) fillPlanned() {
	meant := map[cluster.PodUID]int{}
	for i := range k.hosts {
		if c := k.hosts[i].claim; c != nil && !k.hosts[i].ready {
			for _, uid := range cluster.PlannedPods(c) {
				meant[uid] = i
			}
		}
	}
	if len(meant) == 0 {
		return
	}
	for i := range k.shapes {
		s := &k.shapes[i]
		left := s.pods[:0]
		for _, p := range s.pods {
			at, planned := meant[k.snap.Pods[p].UID]
			if !planned || s.fault.Rule != "" || !s.requests.fits(k.hosts[at].free) || !k.hosts[at].accepts(s) {
				left = append(left, p)
				continue
			}
			k.placeOn(&k.hosts[at], s, p)
		}
		s.pods = left
	}
}

// fillHosts places pods on hosts, first fit. Pods of one shape that found a host full will find it full again, so each
// shape passes over the hosts once.
func (k *packer) fillHosts() {
	for i := range k.shapes {
		s := &k.shapes[i]
		if s.fault.Rule != "" {
			continue
		}
		for j := range k.hosts {
			if len(s.pods) == 0 {
				break
			}
			h := &k.hosts[j]
			n := s.requests.times(h.free, int64(len(s.pods)))
			if n == 0 || !h.accepts(s) {
				continue
			}
			for _, p := range s.pods[:n] {
				k.placeOn(h, s, p)
			}
			s.pods = s.pods[n:]
		}
	}
}

func (k *packer) placeOn(h *host, s *shape, p int32) {
	h.free.sub(s.requests)
	k.plan.Placed = append(k.plan.Placed, h.placement(k.snap.Pods[p].PodRef))
}
