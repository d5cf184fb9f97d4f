package packing

import (
	"slices"
	"treadle/shared/plan"
)

// bin is a claim, or several equal ones, that this plan opens.
type bin struct {
	pool    int32
	set     int32
	typ     int32 // the target
	items   []item
	sum     vec   // what the pods of one bin request
	times   int64 // how many equal bins there are
	options []plan.Option
}

// item is a number of pods of a shape in one bin.
type item struct {
	shape int32
	n     int64
	pods  []int32 // those of all equal bins, once they are booked
}

// demand is what is still to be placed of a shape in a pool.
type demand struct {
	shape    int32
	set      int32
	n        int64
	requests vec
	types    bitset  // that can hold one pod, exotic ones only where nothing else can
	value    float64 // worth of one pod at the dual prices of resources
	share    float64 // size against the average node
}

// openClaims opens bins for the pods that no host had room for. A pod goes to the first pool that can serve it (S-047), by
// its first alternative that any pool can serve (S-048, S-086).
func (k *packer) openClaims() {
	rounds := 0
	for i := range k.shapes {
		rounds = max(rounds, len(k.shapes[i].wants))
	}
	for alternative := range rounds {
		for p := range k.pools {
			k.openIn(int32(p), alternative)
		}
	}
}

// openIn opens bins in one pool for all shapes that it can serve by the given alternative. Where a limit stops a bin, what
// is left is filled again with the types that the limit still allows.
func (k *packer) openIn(p int32, alternative int) {
	for k.pools[p].fault.Rule == "" {
		bins := k.fill(p, k.demandsIn(p, alternative))
		stopped, opened := false, false
		for i := range bins {
			asked := bins[i].times
			booked := k.open(bins[i])
			stopped, opened = stopped || booked < asked, opened || booked > 0
		}
		if !stopped || !opened {
			return
		}
	}
}

func (k *packer) demandsIn(p int32, alternative int) []demand {
	pool := &k.pools[p]
	var out []demand
	for i := range k.shapes {
		s := &k.shapes[i]
		if len(s.pods) == 0 || alternative >= len(s.wants) || s.in[p][alternative] == none {
			continue
		}
		d := demand{shape: int32(i), set: s.in[p][alternative], n: int64(len(s.pods)), requests: s.requests}
		if d.types = pool.holding(d.set, s.requests); !d.types.empty() {
			out = append(out, d)
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
	if plain.empty() {
		return all
	}
	return plain
}

// open books the bins of b, as many as the limits allow, and takes their pods from the shapes. It returns how many.
func (k *packer) open(b bin) int64 {
	pool := &k.pools[b.pool]
	b.options = k.options(&b)
	booked := int64(0)
	if len(b.options) > 0 {
		largest := pool.largest(b.options)
		for booked < b.times && pool.within(largest) {
			pool.take(largest)
			booked++
		}
	}
	if booked == 0 {
		return 0
	}
	b.times = booked
	for i := range b.items {
		it := &b.items[i]
		s := &k.shapes[it.shape]
		it.pods, s.pods = s.pods[:it.n*booked], s.pods[it.n*booked:]
	}
	k.bins = append(k.bins, b)
	return booked
}

// fill chooses bins for the demands: again and again the instance type whose filling costs least for what the pods in it
// are worth, until nothing is left. Worth comes from the dual prices of the resources, so that pods which balance each
// other share a node.
func (k *packer) fill(p int32, demands []demand) []bin {
	f := newFiller(k, p, demands)
	var out []bin
	for {
		b, ok := f.next()
		if !ok {
			return out
		}
		out = append(out, b)
	}
}

// filler is the state of one fill.
type filler struct {
	k       *packer
	pool    *pool
	p       int32
	demands []demand
	queue   []candidate // by score; scores of all but the first may be too good, never too bad for long
}

// candidate is an instance type with the score of its last filling.
type candidate struct {
	typ   int32
	score float64 // price over worth
	stale bool
}

func newFiller(k *packer, p int32, demands []demand) *filler {
	f := &filler{k: k, pool: &k.pools[p], p: p, demands: demands}
	if len(demands) == 0 {
		return f
	}
	usable := newBitset(len(f.pool.sets.cat.types))
	for i := range demands {
		for w := range usable {
			usable[w] |= demands[i].types[w]
		}
	}
	f.appraise(usable)
	for t := range usable.all {
		f.queue = append(f.queue, candidate{typ: t, stale: true})
	}
	return f
}

// next fills one bin, or several equal ones, with the best type for what is left.
func (f *filler) next() (bin, bool) {
	for len(f.queue) > 0 {
		best := 0
		for i := range f.queue {
			if f.queue[i].better(&f.queue[best]) {
				best = i
			}
		}
		c := &f.queue[best]
		b, worth := f.load(c.typ)
		if len(b.items) == 0 {
			f.queue = slices.Delete(f.queue, best, best+1)
			continue
		}
		score := float64(f.pool.sets.all[b.set].price[c.typ]) / worth
		if c.stale || score > c.score {
			c.score, c.stale = score, false
			if f.beaten(best) {
				continue
			}
		}
		f.remove(&b)
		return b, true
	}
	return bin{}, false
}

func (c *candidate) better(o *candidate) bool {
	if c.stale != o.stale {
		return c.stale
	}
	return c.score < o.score
}

// beaten reports whether another candidate may be better than the one at i, whose score is fresh.
func (f *filler) beaten(i int) bool {
	for j := range f.queue {
		if j != i && f.queue[j].better(&f.queue[i]) {
			return true
		}
	}
	return false
}

// load fills a bin of type t with what is left, large pods first.
func (f *filler) load(t int32) (bin, float64) {
	b := bin{pool: f.p, set: none, typ: t, sum: make(vec, len(f.k.dims.names)), times: 1}
	room := slices.Clone(f.pool.free[t])
	needed := !f.pool.sets.cat.types[t].exotic
	worth := 0.0
	for i := range f.demands {
		d := &f.demands[i]
		if d.n == 0 || !f.pool.sets.all[d.set].has.has(t) || !needed && !d.types.has(t) {
			continue
		}
		n := d.requests.times(room, d.n)
		if n == 0 {
			continue
		}
		set := d.set
		if b.set != none {
			if set = f.pool.sets.meet(b.set, d.set); set == none || !f.pool.sets.all[set].has.has(t) {
				continue
			}
		}
		needed = true
		b.set = set
		b.items = append(b.items, item{shape: d.shape, n: n})
		b.sum.addTimes(d.requests, n)
		room.addTimes(d.requests, -n)
		worth += float64(float64(n) * d.value)
	}
	return b, worth
}

// remove takes what b holds from the demands, as often as it can be repeated.
func (f *filler) remove(b *bin) {
	b.times = unlimited
	at := 0
	for _, it := range b.items {
		for f.demands[at].shape != it.shape {
			at++
		}
		b.times = min(b.times, f.demands[at].n/it.n)
	}
	at = 0
	for _, it := range b.items {
		for f.demands[at].shape != it.shape {
			at++
		}
		f.demands[at].n -= it.n * b.times
	}
}
