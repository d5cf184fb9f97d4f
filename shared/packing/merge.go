package packing

import (
	"cmp"
	"encoding/binary"
	"math/bits"
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
	first := f.fitTypes(f.realise(planned, classes, demands))
	better := f.fitTypes(f.realise(f.improve(planned), classes, demands))
	// A better plan for the classes may be a worse one for their members.
	if f.costOf(better) < f.costOf(first) {
		return better
	}
	return first
}

// mergedRows is how many classes there may be. More would be closer to the true sizes, but the programme would not get as far.
const mergedRows = 400

// merge puts demands into at most mergedRows classes, on the finest grid of sizes that does it. Demands with rules inside a node
// keep a class of their own.
func merge(demands []demand) []class {
	for steps := int64(48); ; steps = steps * 2 / 3 {
		if classes := onGrid(demands, steps); len(classes) <= mergedRows || steps <= 1 {
			return classes
		}
	}
}

// onGrid merges demands whose CPU and memory fall into the same of so many steps between a power of two and the next.
func onGrid(demands []demand, steps int64) []class {
	at := map[string]int{}
	var out []class
	var key []byte
	for i := range demands {
		d := &demands[i]
		key = d.cell(key[:0], steps, i)
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

// cell appends a key that is equal for demands that may share a class; i is the number of the demand.
func (d *demand) cell(key []byte, steps int64, i int) []byte {
	if !d.free {
		key = binary.AppendVarint(key, int64(i)+1)
	}
	key = binary.AppendVarint(key, int64(d.set))
	for j, n := range d.requests {
		if j == cpu || j == memory {
			n = gridStep(n, steps)
		}
		key = binary.AppendVarint(key, n)
	}
	return key
}

// gridStep returns the number of the step that n is in. It is exact, so that it is the same on every machine.
func gridStep(n, steps int64) int64 {
	if n <= 0 {
		return 0
	}
	octave := int64(bits.Len64(uint64(n)) - 1)
	high, _ := bits.Mul64(uint64(n)<<(63-octave), 2*uint64(steps)) // steps times n over its power of two
	return octave*steps + int64(high)
}

// realise gives the places of planned bins to true pods, and what room is left to more of them.
func (f *filler) realise(planned []bin, classes []class, demands []demand) []bin {
	left := make([]int64, len(demands))
	for i := range demands {
		left[i] = demands[i].n
	}
	rest := make([]class, len(classes)) // members that are not placed yet
	for i := range classes {
		rest[i] = class{demand: classes[i].demand, members: slices.Clone(classes[i].members)}
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
				f.take(&one, &rest[it.from], demands, left, it.n)
			}
			if len(one.items) == 0 {
				continue
			}
			for _, c := range bySize {
				if rest[c].free {
					f.take(&one, &rest[c], demands, left, unlimited)
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
