package packing

import (
	"cmp"
	"slices"
)

// growWork bounds the steps of grow.
const growWork = 8_000_000

// grow fills bins the way that a scheduler does which takes pods one by one, by size, and adds each to an open bin while any
// type is left that the bin can still be. For a few pods that is at times better than prices, which speak of the many. If
// emptiest is set a pod goes to the bin with the fewest pods, else to the first. It returns nil where it would take too long,
// or where rules inside a node matter.
func (f *filler) grow(emptiest bool) []bin {
	order := make([]int32, len(f.demands))
	for i := range order {
		order[i] = int32(i)
		if !f.demands[i].free {
			return nil
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &f.demands[a], &f.demands[b]
		return cmp.Or(cmp.Compare(y.requests[cpu], x.requests[cpu]), cmp.Compare(y.requests[memory], x.requests[memory]), cmp.Compare(a, b))
	})
	g := grower{f: f}
	for _, i := range order {
		for range f.demands[i].n {
			if !g.add(i, emptiest) || g.work > growWork {
				return nil
			}
		}
	}
	return g.bins
}

// grower is the state of grow.
type grower struct {
	f     *filler
	bins  []bin
	count []int64 // by bin: pods
	work  int
}

// add puts one pod into a bin, and reports whether it could.
func (g *grower) add(i int32, emptiest bool) bool {
	d := &g.f.demands[i]
	best, bestType, bestSet := -1, none, none
	for j := range g.bins {
		if emptiest && best >= 0 && g.count[j] >= g.count[best] {
			continue
		}
		if t, set := g.holder(&g.bins[j], d); t != none {
			best, bestType, bestSet = j, t, set
			if !emptiest {
				break
			}
		}
	}
	if best < 0 {
		fresh := bin{pool: g.f.p, set: d.set, typ: none, sum: make(vec, len(d.requests)), times: 1}
		if bestType, bestSet = g.holder(&fresh, d); bestType == none {
			return false
		}
		best = len(g.bins)
		g.bins, g.count = append(g.bins, fresh), append(g.count, 0)
	}
	b := &g.bins[best]
	b.typ, b.set = bestType, bestSet
	b.sum.add(d.requests)
	g.count[best]++
	if last := len(b.items) - 1; last >= 0 && b.items[last].from == i {
		b.items[last].n++
		return true
	}
	b.items = append(b.items, item{shape: d.shape, n: 1, from: i})
	return true
}

// holder returns a type that the bin can be with one more pod of the demand, the one it is already if that will do, and the
// set that it then has.
func (g *grower) holder(b *bin, d *demand) (t, set int32) {
	f := g.f
	if set = f.pool.sets.meet(b.set, d.set); set == none {
		return none, none
	}
	sum := f.load.room // as scratch
	copy(sum, b.sum)
	sum.add(d.requests)
	has := f.pool.sets.all[set].has
	if b.typ != none && has.has(b.typ) && sum.fits(f.pool.free[b.typ]) {
		return b.typ, set
	}
	for _, t := range f.types {
		g.work++
		exotic := f.pool.sets.cat.types[t].exotic
		if has.has(t) && sum.fits(f.pool.free[t]) && (!exotic || b.typ != none && f.pool.sets.cat.types[b.typ].exotic || d.types.has(t)) {
			return t, set
		}
	}
	return none, none
}
