package packing

import (
	"slices"

	"treadle/shared/cluster"
)

// place finds a place for every pod that can have one. Each round reads the shapes at one level; what a round leaves over
// tries the next. Pods whose rules depend on others are tried again for as long as others find a place (S-059, S-131).
//
// Pods that do not exist come after all that do: they get the room that is left, and nodes for the rest (S-280).
func (k *packer) place() {
	k.placeAll(false)
	k.placeAll(true)
}

func (k *packer) placeAll(virtual bool) {
	rounds := 0
	for i := range k.shapes {
		if k.shapes[i].virtual == virtual {
			rounds = max(rounds, len(k.shapes[i].levels))
		}
	}
	for round := range rounds {
		k.placeRound(round, func(s *shape) bool { return s.virtual == virtual && round < len(s.levels) })
	}
	for progress := rounds > 0; progress; {
		progress = k.placeRound(rounds, func(s *shape) bool { return s.virtual == virtual && len(s.last().rules) > 0 })
	}
}

// placeRound places shapes on hosts first, then in bins that are open already, then in bins to open; those that follow
// others come after the rest, again and again while that helps. It reports whether any pod found a place.
func (k *packer) placeRound(round int, takesPart func(*shape) bool) bool {
	placed := false
	var together, following []int32
	for i := range k.shapes {
		s := &k.shapes[i]
		if len(s.pods) == 0 || s.fault.Rule != "" || !takesPart(s) {
			continue
		}
		l := s.at(round)
		if l.follows() {
			following = append(following, int32(i))
			continue
		}
		before := len(s.pods)
		k.fillHosts(s, l)
		k.fillBins(s, l)
		placed = placed || len(s.pods) < before
		together = append(together, int32(i))
	}
	placed = k.openFor(together, round) || placed
	for progress := true; progress; {
		progress = false
		for _, i := range following {
			if before := len(k.shapes[i].pods); before > 0 {
				k.follow(i, round)
				progress = progress || len(k.shapes[i].pods) < before
			}
		}
		placed = placed || progress
	}
	return placed
}

// at returns the level that a round reads the shape at: the last one once there are no more.
func (s *shape) at(round int) *level { return &s.levels[min(round, len(s.levels)-1)] }

func (s *shape) last() *level { return &s.levels[len(s.levels)-1] }

// follows reports whether the place of a pod depends on where others are: it must be near pods that its own group does not
// include, or on the very node of any.
func (l *level) follows() bool {
	for i := range l.rules {
		if r := &l.rules[i]; r.kind == near && (!r.self || r.key == hostname) {
			return true
		}
	}
	return false
}

// follow places the pods of a shape that goes where others are.
func (k *packer) follow(i int32, round int) {
	s := &k.shapes[i]
	l := s.at(round)
	if l.sticks() && k.mayStart(l) && !k.holdsAll(s, l) {
		k.openLargest(i, round)
	}
	k.fillHosts(s, l)
	k.fillBins(s, l)
	if l.sticks() {
		k.growBins(s, l)
		if len(s.pods) > 0 {
			s.denied = k.denial(&l.rules[slices.IndexFunc(l.rules, func(r rule) bool { return r.kind == near && r.key == hostname })])
		}
		return
	}
	k.openFor([]int32{i}, round)
}

// holdsAll reports whether some host has room for all pods of the shape.
func (k *packer) holdsAll(s *shape, l *level) bool {
	for h := range k.hosts {
		if k.roomOn(s, l, int32(h)) == int64(len(s.pods)) {
			return true
		}
	}
	return false
}

// sticks reports whether the pod must be on the node of other pods.
func (l *level) sticks() bool {
	for i := range l.rules {
		if r := &l.rules[i]; r.kind == near && r.key == hostname {
			return true
		}
	}
	return false
}

// mayStart reports whether the pod may be the first of those that stick together (S-125, S-126).
func (k *packer) mayStart(l *level) bool {
	for i := range l.rules {
		r := &l.rules[i]
		if r.kind == near && r.key == hostname && (!r.self || k.topology.groups[r.group].total > 0) {
			return false
		}
	}
	return true
}

// fillPlanned puts pods onto the claims in flight that were made for them, so that planning again while they start asks for
// nothing more.
func (k *packer) fillPlanned() {
	meant := map[cluster.PodUID]int32{}
	for i := range k.hosts {
		if c := k.hosts[i].claim; c != nil && !k.hosts[i].ready {
			for _, uid := range cluster.PlannedPods(c) {
				meant[uid] = int32(i)
			}
		}
	}
	if len(meant) == 0 {
		return
	}
	for i := range k.shapes {
		s := &k.shapes[i]
		if s.fault.Rule != "" || s.virtual { // pods that exist may take the room of those that do not (S-284)
			continue
		}
		var left []int32
		for _, p := range s.pods {
			if h, planned := meant[k.snap.Pods[p].UID]; !planned || !k.keepPlan(s, h, p) {
				left = append(left, p)
			}
		}
		s.pods = left
	}
}

// keepPlan places a pod on the claim that was made for it if it still goes there. Topology is not asked: it was when the
// claim was planned, and pods placed since then are where that plan put them.
func (k *packer) keepPlan(s *shape, h, p int32) bool {
	host := &k.hosts[h]
	if !s.requests.fits(host.free) || conflicts(s.spec.HostPorts, host.ports) {
		return false
	}
	for i := range s.levels {
		if l := &s.levels[i]; host.accepts(s, l) {
			k.placeOn(s, l, h, []int32{p})
			return true
		}
	}
	return false
}

// fillHosts places pods on hosts, first fit.
func (k *packer) fillHosts(s *shape, l *level) {
	for progress := true; progress && len(s.pods) > 0; {
		progress = false
		for h := range k.hosts {
			n := k.roomOn(s, l, int32(h))
			if n == 0 {
				continue
			}
			k.placeOn(s, l, int32(h), s.pods[:n])
			s.pods = s.pods[n:]
			if len(s.pods) == 0 {
				return
			}
			// Pods that count elsewhere may open a host that was closed to their equals.
			progress = progress || len(l.rules) > 0
		}
	}
}

// roomOn returns how many pods of the shape may go to a host now.
func (k *packer) roomOn(s *shape, l *level, h int32) int64 {
	host := &k.hosts[h]
	n := s.requests.times(host.free, int64(len(s.pods)))
	if n == 0 || !host.accepts(s, l) {
		return 0
	}
	if len(s.spec.HostPorts) > 0 {
		if n = 1; conflicts(s.spec.HostPorts, host.ports) {
			return 0
		}
	}
	if len(s.attached) > 0 {
		var limits map[string]int
		if host.node != nil {
			limits = host.node.VolumeLimits
		}
		if n = 1; !host.attached.fits(s.attached, limits) {
			return 0
		}
	}
	return k.mayJoin(s, l, h, none, n)
}

// placeOn writes pods down as placed on a host.
func (k *packer) placeOn(s *shape, l *level, h int32, pods []int32) {
	host := &k.hosts[h]
	host.free.addTimes(s.requests, -int64(len(pods)))
	host.ports = append(host.ports, s.spec.HostPorts...)
	if len(s.attached) > 0 {
		if host.attached == nil {
			host.attached = attach{}
		}
		host.attached.add(s.attached)
	}
	k.record(s, l, h, int32(len(pods)))
	for _, p := range pods {
		k.plan.Placed = append(k.plan.Placed, host.placement(k.snap.Pods[p].PodRef))
	}
}

// fillBins places pods in the room that open bins have left on their targets.
func (k *packer) fillBins(s *shape, l *level) {
	for progress := true; progress && len(s.pods) > 0; {
		progress = false
		for i := range k.bins {
			n, set := k.roomIn(s, l, i)
			if n == 0 {
				continue
			}
			k.addTo(s, l, i, set, n)
			if len(s.pods) == 0 {
				return
			}
			// Pods that count elsewhere may open a bin that was closed to their equals; a picky pool takes them one by one.
			progress = progress || len(l.rules) > 0 || k.pools[k.bins[i].pool].picky
		}
	}
}

// roomIn returns how many pods of the shape may go to an open bin now, and the set that it then has.
func (k *packer) roomIn(s *shape, l *level, i int) (n int64, set int32) {
	b := &k.bins[i]
	if n = s.requests.times(b.free, int64(len(s.pods))); n == 0 {
		return 0, none
	}
	pool := &k.pools[b.pool]
	set = k.settle(s, l, pool, pool.sets.meet(b.set, l.in[b.pool]))
	if set == none || !pool.sets.all[set].has.has(b.typ) || len(s.spec.HostPorts) > 0 && conflicts(s.spec.HostPorts, b.ports) {
		return 0, none
	}
	if pool.picky {
		sum := slices.Clone(b.sum)
		sum.add(s.requests)
		if n = 1; !pool.diverse(set, sum) {
			return 0, none
		}
	}
	return k.mayJoin(s, l, int32(len(k.hosts)+i), set, min(n, l.perNode(s))), set
}

// perNode is how many pods of the shape host ports and its own rules let onto one node.
func (l *level) perNode(s *shape) int64 {
	n := int64(unlimited)
	if len(s.spec.HostPorts) > 0 {
		n = 1
	}
	for i := range l.rules {
		switch r := &l.rules[i]; {
		case r.key != hostname || !r.self || r.kind == near:
		case r.kind == apart:
			n = 1
		default:
			n = min(n, int64(r.maxSkew))
		}
	}
	return n
}

// addTo puts n pods of the shape into an open bin.
func (k *packer) addTo(s *shape, l *level, i int, set int32, n int64) {
	b := &k.bins[i]
	b.set = set
	b.free.addTimes(s.requests, -n)
	b.sum.addTimes(s.requests, n)
	b.ports = append(b.ports, s.spec.HostPorts...)
	b.pods = append(b.pods, s.pods[:n]...)
	s.pods = s.pods[n:]
	k.record(s, l, int32(len(k.hosts)+i), int32(n))
}

// growBins adds pods that must be on the nodes of others to bins, moving the bins to larger types where that is needed.
func (k *packer) growBins(s *shape, l *level) {
	for i := range k.bins {
		for len(s.pods) > 0 {
			b := &k.bins[i]
			pool := &k.pools[b.pool]
			set := k.settle(s, l, pool, pool.sets.meet(b.set, l.in[b.pool]))
			if set == none || conflicts(s.spec.HostPorts, b.ports) || k.mayJoin(s, l, int32(len(k.hosts)+i), set, 1) == 0 {
				break
			}
			sum := make(vec, len(b.sum))
			sum.add(b.sum)
			sum.add(s.requests)
			typ := pool.cheapestFor(set, sum)
			if typ == none || pool.picky && !pool.diverse(set, sum) {
				break
			}
			// The bin has been booked with the largest of its options; a larger type must keep to the limits beside it.
			if typ != b.typ && pool.limited() && !pool.within(pool.sets.cat.types[typ].capacity) {
				break
			}
			b.typ = typ
			b.free = make(vec, len(b.sum))
			b.free.add(pool.free[typ])
			b.free.sub(b.sum)
			k.addTo(s, l, i, set, 1)
		}
	}
}

// cheapestFor returns the cheapest type that can be had under the set and holds the request beside its daemons.
func (p *pool) cheapestFor(set int32, requests vec) int32 {
	best := none
	price := p.sets.all[set].price
	for t := range p.holding(set, requests).all {
		if best == none || price[t] < price[best] {
			best = t
		}
	}
	return best
}

// openLargest opens a bin for as many pods of the shape as one node can hold, as they must all be on it.
func (k *packer) openLargest(i int32, round int) {
	s := &k.shapes[i]
	l := s.at(round)
	pieces := k.split(i, l, 1)
	k.release(s, l, pieces)
	for n := min(int64(len(s.pods)), l.perNode(s)); n > 0 && len(pieces) > 0; n-- {
		sum := make(vec, len(s.requests))
		sum.addTimes(s.requests, n)
		for p := range k.pools {
			pool := &k.pools[p]
			set := pieces[0].in[p]
			if set == none || pool.fault.Rule != "" {
				continue
			}
			typ := pool.cheapestFor(set, sum)
			if typ == none {
				continue
			}
			b := bin{pool: int32(p), set: set, typ: typ, items: []item{{shape: i, n: n}}, sum: sum, times: 1}
			if k.open(b, round) > 0 {
				return
			}
		}
	}
}
