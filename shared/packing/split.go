package packing

import (
	"cmp"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// piece is some pods of a shape whose new nodes must all be in the same domains.
type piece struct {
	pins []pin
	n    int64
	in   []int32 // by pool: the set of a bin that holds only pods of the piece
}

// pin is a domain chosen for a topology key.
type pin struct{ key, domain int32 }

// split divides at most limit pods of a shape into pieces, by choosing a domain for each pod that topology cares about. Each
// choice is counted at once, so that the next pod sees it; release takes the counts back. Pods that may go nowhere are in no
// piece; s.denied then says why.
func (k *packer) split(i int32, l *level, limit int64) []piece {
	s := &k.shapes[i]
	keys := k.pinnedKeys(s, l)
	n := min(limit, int64(len(s.pods)))
	if len(keys) == 0 {
		return []piece{{n: n, in: l.in}}
	}
	choices := make([][]int32, len(keys))
	for j, key := range keys {
		choices[j] = k.reachable(s, l, key)
	}
	pins := make([]pin, len(keys))
	var pieces []piece
	for range n {
		for j, key := range keys {
			d := k.choose(s, l, key, choices[j])
			if d == unknown {
				return pieces
			}
			pins[j] = pin{key, d}
		}
		k.reserve(s, l, pins, 1)
		at := slices.IndexFunc(pieces, func(p piece) bool { return slices.Equal(p.pins, pins) })
		if at < 0 {
			at = len(pieces)
			pieces = append(pieces, piece{pins: slices.Clone(pins), in: k.pinned(l, pins)})
		}
		pieces[at].n++
	}
	return pieces
}

// pinnedKeys returns the topology keys, other than hostname, for which a new node of the shape must have one certain domain:
// those of its rules and those of groups that count its pods.
func (k *packer) pinnedKeys(s *shape, l *level) []int32 {
	var keys []int32
	add := func(key int32) {
		if key != hostname && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for i := range l.rules {
		add(l.rules[i].key)
	}
	for _, id := range s.selectedBy {
		add(k.topology.groups[id].key)
	}
	slices.Sort(keys)
	return keys
}

// reachable returns the domains of a key, by name, in which some pool can make a node now that holds a pod of the shape.
func (k *packer) reachable(s *shape, l *level, key int32) []int32 {
	var out []int32
	for p := range k.pools {
		pool := &k.pools[p]
		if l.in[p] == none || pool.fault.Rule != "" {
			continue
		}
		for _, d := range k.domainsOf(pool, l.in[p], key) {
			if slices.Contains(out, d) {
				continue
			}
			if set := k.pinned(l, []pin{{key, d}})[p]; set != none && !pool.holding(set, s.requests).empty() {
				out = append(out, d)
			}
		}
	}
	slices.SortFunc(out, func(a, b int32) int {
		return cmp.Compare(k.topology.keys[key].values[a], k.topology.keys[key].values[b])
	})
	return out
}

// choose returns the domain that the next pod of the shape should go to: of those that all rules allow the one with the
// fewest pods (S-111).
func (k *packer) choose(s *shape, l *level, key int32, domains []int32) int32 {
	best, fewest := unknown, int32(0)
	s.denied = plan.Reason{Rule: "topology", Detail: "no pool can make a node for it in any domain of " + k.topology.keys[key].name + " now"}
	for _, d := range domains {
		count, ok := k.judge(s, l, key, d)
		if ok && (best == unknown || count < fewest) {
			best, fewest = d, count
		}
	}
	return best
}

// judge reports whether the rules of a key allow the domain for one more pod, and how many pods are there already.
func (k *packer) judge(s *shape, l *level, key, domain int32) (count int32, ok bool) {
	for i := range l.rules {
		r := &l.rules[i]
		if r.key != key {
			continue
		}
		if k.allows(r, domain, 1) == 0 {
			s.denied = k.denial(r)
			return 0, false
		}
		if r.kind == spread {
			count += at(k.topology.groups[r.group].matched, domain)
		}
	}
	for _, id := range s.selectedBy {
		g := &k.topology.groups[id]
		if g.key == key && at(g.owners, domain) > 0 {
			s.denied = plan.Reason{Rule: "affinity", Detail: "pods that must be apart from it, by " + k.topology.keys[key].name + ", are everywhere"}
			return 0, false
		}
	}
	return count, true
}

// reserve counts n pods of a shape in the pinned domains; a negative n takes them back.
func (k *packer) reserve(s *shape, l *level, pins []pin, n int32) {
	domain := func(key int32) int32 {
		for _, p := range pins {
			if p.key == key {
				return p.domain
			}
		}
		return unknown
	}
	for _, id := range s.selectedBy {
		g := &k.topology.groups[id]
		if d := domain(g.key); d != unknown {
			g.add(&g.matched, d, n)
			g.total += n
		}
	}
	for i := range l.rules {
		r := &l.rules[i]
		if r.kind != apart || !r.required {
			continue
		}
		if d := domain(r.key); d != unknown {
			g := &k.topology.groups[r.group]
			g.add(&g.owners, d, n)
		}
	}
}

// release takes back what split counted.
func (k *packer) release(s *shape, l *level, pieces []piece) {
	for i := range pieces {
		k.reserve(s, l, pieces[i].pins, -int32(pieces[i].n))
	}
}

// pinned returns, by pool, the set of the level narrowed to the pinned domains.
func (k *packer) pinned(l *level, pins []pin) []int32 {
	out := make([]int32, len(l.in))
	for p, set := range l.in {
		out[p] = none
		if set != none {
			out[p] = k.narrow(&k.pools[p], set, pins)
		}
	}
	return out
}

// narrow returns the set that is left of a pool's set in the pinned domains.
func (k *packer) narrow(p *pool, set int32, pins []pin) int32 {
	expressions := make([]cluster.Expression, 0, len(pins))
	for _, pin := range pins {
		key := &k.topology.keys[pin.key]
		expressions = append(expressions, cluster.Expression{Key: key.name, Operator: cluster.In, Values: []string{key.values[pin.domain]}})
	}
	return p.sets.meet(set, p.sets.intern(cluster.NewRequirements(nil, expressions...)))
}
