package packing

import (
	"maps"
	"slices"

	"treadle/shared/cluster"
)

// bin is a claim that this plan opens. Before it is opened it may stand for several equal ones.
type bin struct {
	pool  int32
	set   int32
	typ   int32 // the target
	items []item
	sum   vec   // what the pods of one bin request
	times int64 // how many equal bins are to be opened

	opened bool
	booked []int32 // reserved offers that the claim may be launched into
	free   vec     // what the target has left
	ports  []cluster.HostPort
	pods   []int32
}

// item is a number of pods of a shape in one bin.
type item struct {
	shape int32
	n     int64
	from  int32 // the demand that the pods were taken from
}

// demand is what is still to be placed of a piece in a pool.
type demand struct {
	shape    int32
	piece    *piece
	level    *level
	set      int32
	n        int64
	requests vec
	types    bitset  // that can hold one pod, exotic ones only where nothing else can
	free     bool    // no rule inside a node concerns the pods
	value    float64 // worth of one pod
	share    float64 // size against the whole demand
	local    []localRule
	selected []int32 // local numbers of hostname groups that select the pods
}

// openFor opens bins for what is left of the given shapes. A pod goes to the first pool that can serve it (S-047).
// It reports whether any bin was opened.
//
// All pods get their domains first and their bins then. Where a limit leaves out some of them, the domains of the rest may
// no longer be right; then everything is taken back and the shapes that topology divides are opened pod by pod.
func (k *packer) openFor(shapes []int32, round int) bool {
	before := len(k.bins)
	save := k.checkpoint(shapes)
	if k.openAll(shapes, round) {
		return len(k.bins) > before
	}
	k.restore(save, shapes)
	var free, divided []int32
	for _, i := range shapes {
		if s := &k.shapes[i]; len(k.pinnedKeys(s, s.at(round))) == 0 {
			free = append(free, i)
		} else {
			divided = append(divided, i)
		}
	}
	for _, i := range divided {
		k.openOneByOne(i, round)
	}
	k.openAll(free, round)
	return len(k.bins) > before
}

// openAll opens bins for the shapes together. It reports false if topology chose a domain for pods that were left out.
func (k *packer) openAll(shapes []int32, round int) bool {
	all := make([][]piece, len(shapes))
	whole := make([][]piece, len(shapes))
	for j, i := range shapes {
		if s := &k.shapes[i]; len(s.pods) > 0 {
			all[j] = k.split(i, s.at(round), unlimited)
			whole[j] = slices.Clone(all[j])
		}
	}
	for p := range k.pools {
		k.openIn(int32(p), shapes, all, round)
	}
	kept := true
	for j, i := range shapes {
		s := &k.shapes[i]
		k.release(s, s.at(round), whole[j])
		for _, pc := range all[j] {
			kept = kept && (pc.n == 0 || len(pc.pins) == 0)
		}
	}
	return kept
}

// openOneByOne opens bins for a shape so that every pod is counted before the next chooses its domain. Once a pod finds no
// place its equals will not either.
func (k *packer) openOneByOne(i int32, round int) {
	s := &k.shapes[i]
	l := s.at(round)
	for len(s.pods) > 0 {
		before := len(s.pods)
		if k.fillBins(s, l); len(s.pods) == before {
			all := [][]piece{k.split(i, l, 1)}
			k.release(s, l, all[0])
			for p := range k.pools {
				k.openIn(int32(p), []int32{i}, all, round)
			}
		}
		if len(s.pods) == before {
			return
		}
	}
}

// checkpoint holds what opening bins changes.
type checkpoint struct {
	bins     int
	groups   []group
	left     []vec
	nodes    []int64
	pods     [][]int32
	reserved map[string]int
}

func (k *packer) checkpoint(shapes []int32) checkpoint {
	c := checkpoint{bins: len(k.bins), reserved: maps.Clone(k.reserved)}
	for i := range k.topology.groups {
		g := k.topology.groups[i]
		g.matched, g.owners = slices.Clone(g.matched), slices.Clone(g.owners)
		c.groups = append(c.groups, g)
	}
	for i := range k.pools {
		c.left, c.nodes = append(c.left, slices.Clone(k.pools[i].left)), append(c.nodes, k.pools[i].nodes)
	}
	for _, i := range shapes {
		c.pods = append(c.pods, k.shapes[i].pods)
	}
	return c
}

func (k *packer) restore(c checkpoint, shapes []int32) {
	k.bins, k.topology.groups, k.reserved = k.bins[:c.bins], c.groups, c.reserved
	for i := range k.pools {
		k.pools[i].left, k.pools[i].nodes = c.left[i], c.nodes[i]
	}
	for j, i := range shapes {
		k.shapes[i].pods = c.pods[j]
	}
}

// openIn opens bins in one pool for all pieces that it can serve. Where a limit stops a bin, what is left is filled again
// with the types that the limit still allows.
func (k *packer) openIn(p int32, shapes []int32, pieces [][]piece, round int) {
	for k.pools[p].fault.Rule == "" {
		demands := k.demandsIn(p, shapes, pieces, round)
		bins := k.fill(p, demands)
		stopped, opened := false, false
		for i := range bins {
			booked := k.open(bins[i], round)
			for _, it := range bins[i].items {
				demands[it.from].piece.n -= it.n * booked
			}
			stopped, opened = stopped || booked < bins[i].times, opened || booked > 0
		}
		if !stopped || !opened {
			return
		}
	}
}

func (k *packer) demandsIn(p int32, shapes []int32, pieces [][]piece, round int) []demand {
	pool := &k.pools[p]
	var out []demand
	for j, i := range shapes {
		s := &k.shapes[i]
		for x := range pieces[j] {
			pc := &pieces[j][x]
			if pc.n == 0 || pc.in[p] == none {
				continue
			}
			d := demand{shape: i, piece: pc, level: s.at(round), set: pc.in[p], n: pc.n, requests: s.requests}
			d.free = len(s.selectedBy) == 0 && len(d.level.rules) == 0 && len(s.spec.HostPorts) == 0
			if d.types = pool.holding(d.set, s.requests); !d.types.empty() {
				out = append(out, d)
			}
		}
	}
	return out
}

// holding returns the types that can be had under the set and hold the request beside the daemons; exotic ones only if no
// other does (L-011).
func (p *pool) holding(set int32, requests vec) bitset {
	cat := p.sets.cat
	plain, all := newBitset(len(cat.types)), newBitset(len(cat.types))
	for t := range p.sets.all[set].has.all {
		if !requests.fits(p.free[t]) || !p.within(cat.types[t].capacity) {
			continue
		}
		all.add(t)
		if !cat.types[t].exotic {
			plain.add(t)
		}
	}
	if p.picky && !p.diverse(set, requests) {
		return newBitset(len(cat.types))
	}
	if plain.empty() || p.picky { // with minValues no type is left out (S-099)
		return all
	}
	return plain
}

// open opens as many of the equal bins as the limits allow and gives them the first pods of their shapes. It returns how
// many it opened.
func (k *packer) open(b bin, round int) int64 {
	pool := &k.pools[b.pool]
	// Options matter before the claim is written only for limits and reservations; the target itself can always be had.
	plain := !pool.limited() && len(pool.sets.ranked(b.set)[rank(cluster.Reserved)]) == 0
	opened := int64(0)
	for ; opened < b.times; opened++ {
		one := bin{pool: b.pool, set: b.set, typ: b.typ, sum: slices.Clone(b.sum), free: slices.Clone(pool.free[b.typ]), ports: slices.Clip(pool.ports[b.typ])}
		one.free.sub(b.sum)
		capacity := pool.sets.cat.types[b.typ].capacity
		if !plain {
			options := k.options(&one)
			if len(options) == 0 {
				break
			}
			if capacity = pool.largest(options); pool.within(capacity) {
				k.book(&one, options)
			}
		}
		if !pool.within(capacity) {
			break
		}
		pool.take(capacity)
		one.opened = true
		place := int32(len(k.hosts) + len(k.bins))
		k.bins = append(k.bins, one)
		last := &k.bins[len(k.bins)-1]
		for _, it := range b.items {
			s := &k.shapes[it.shape]
			last.pods = append(last.pods, s.pods[:it.n]...)
			s.pods = s.pods[it.n:]
			if len(s.spec.HostPorts) > 0 {
				last.ports = append(last.ports, s.spec.HostPorts...)
			}
			k.record(s, s.at(round), place, int32(it.n))
		}
	}
	return opened
}
