package packing

import (
	"cmp"
	"math"
	"slices"
)

// class is a number of demands of nearly one size that are planned as one of the largest size among them.
type class struct {
	demand
	members []int32 // demands, the largest first
}

// fillMerged fills bins for more demands than the linear programme takes, as happens where every pod asks for an amount of
// its own. Demands of nearly one size are merged and planned as one; then true pods take the places, and the room that they
// leave, being smaller, goes to further pods.
func (k *packer) fillMerged(p int32, demands []demand) []bin {
	classes := merge(demands)
	merged := make([]demand, len(classes))
	for i := range classes {
		merged[i] = classes[i].demand
	}
	f := newFiller(k, p, merged)
	planned := f.greedy()
	if len(planned) == 0 {
		return nil
	}
	return f.realise(f.improve(planned), classes, demands)
}

// mergedRows is how many classes there may be. More would be closer to the true sizes, but the programme would not get as far.
const mergedRows = 400

// merge puts demands into at most mergedRows classes, on the finest grid of sizes that does it. Demands with rules inside a node
// keep a class of their own.
func merge(demands []demand) []class {
	for grid := 0.02; ; grid *= 1.5 {
		if classes := onGrid(demands, grid); len(classes) <= mergedRows || grid > 10 {
			return classes
		}
	}
}

func onGrid(demands []demand, grid float64) []class {
	step := 1 / math.Log1p(grid)
	at := map[string]int{}
	var out []class
	var key []byte
	for i := range demands {
		d := &demands[i]
		key = d.cell(key[:0], step, i)
		c, known := at[string(key)]
		if !known {
			c = len(out)
			at[string(key)] = c
			out = append(out, class{demand: *d})
			out[c].requests, out[c].n = slices.Clone(d.requests), 0
		}
		out[c].requests.maxWith(d.requests)
		out[c].n += d.n
		out[c].members = append(out[c].members, int32(i))
	}
	for c := range out {
		slices.SortFunc(out[c].members, func(a, b int32) int {
			return cmp.Or(cmp.Compare(demands[b].requests[cpu], demands[a].requests[cpu]),
				cmp.Compare(demands[b].requests[memory], demands[a].requests[memory]), cmp.Compare(a, b))
		})
	}
	return out
}

// cell appends a key that is equal for demands that may share a class.
func (d *demand) cell(key []byte, step float64, i int) []byte {
	number := func(n int64) {
		for ; n > 0; n >>= 8 {
			key = append(key, byte(n))
		}
		key = append(key, 0xff)
	}
	if !d.free {
		number(int64(i) + 1)
	}
	number(int64(d.set) + 1)
	for j, n := range d.requests {
		if (j == cpu || j == memory) && n > 0 {
			n = 1 + int64(math.Log(float64(n))*step)
		}
		number(n)
	}
	return key
}

// realise gives the places of planned bins to true pods, and what room is left to more of them.
func (f *filler) realise(planned []bin, classes []class, demands []demand) []bin {
	left := make([]int64, len(demands))
	for i := range demands {
		left[i] = demands[i].n
	}
	// By size, so that what is left in a bin goes to the largest pods that fit.
	bySize := make([]int32, len(classes))
	for i := range bySize {
		bySize[i] = int32(i)
	}
	slices.SortFunc(bySize, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.demands[b].share, f.demands[a].share), cmp.Compare(a, b))
	})
	var out []bin
	for _, b := range planned {
		for range b.times {
			one := bin{pool: b.pool, set: none, typ: b.typ, sum: make(vec, len(b.sum)), times: 1}
			copy(f.load.room, f.pool.free[b.typ])
			for _, it := range b.items {
				f.take(&one, &classes[it.from], demands, left, it.n)
			}
			if len(one.items) == 0 {
				continue
			}
			for _, c := range bySize {
				if classes[c].free {
					f.take(&one, &classes[c], demands, left, unlimited)
				}
			}
			out = append(out, one)
		}
	}
	return out
}

// take puts up to n members of a class into a bin, the largest that fit.
func (f *filler) take(b *bin, c *class, demands []demand, left []int64, n int64) {
	const looks = 24 // members tried in vain before the class is given up
	tried := 0
	for j := 0; j < len(c.members) && n > 0 && tried < looks; j++ {
		i := c.members[j]
		d := &demands[i]
		if left[i] == 0 {
			c.members = slices.Delete(c.members, j, j+1)
			j--
			continue
		}
		m := d.requests.times(f.load.room, min(n, left[i]))
		set := d.set
		if m > 0 && b.set != none {
			if set = f.pool.sets.meet(b.set, d.set); set == none || !f.pool.sets.all[set].has.has(b.typ) {
				return
			}
		}
		if m == 0 {
			tried++
			continue
		}
		b.set = set
		b.items = append(b.items, item{shape: d.shape, n: m, from: i})
		b.sum.addTimes(d.requests, m)
		f.load.room.addTimes(d.requests, -m)
		left[i] -= m
		n -= m
	}
}
