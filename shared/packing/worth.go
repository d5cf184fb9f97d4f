package packing

import (
	"cmp"
	"slices"
)

// appraise prices the resources: the dual solution of the linear programme that buys enough of each resource for all
// demands at the lowest cost. It sets the worth of each demand's pod, and the sequence of the demands, the largest first.
func (f *filler) appraise(usable bitset) {
	total := make([]float64, len(f.k.dims.names))
	for i := range f.demands {
		for j, n := range f.demands[i].requests {
			total[j] += float64(float64(n) * float64(f.demands[i].n))
		}
	}
	price := f.priceResources(usable, total)
	for i := range f.demands {
		f.demands[i].appraise(total, price)
		f.sequence = append(f.sequence, int32(i))
	}
	slices.SortFunc(f.sequence, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.demands[b].share, f.demands[a].share), cmp.Compare(a, b))
	})
}

// priceResources returns what the whole demand for each resource is worth where the cheapest mix of types serves it. Each
// resource is scaled by its total, so that all numbers are of one size.
func (f *filler) priceResources(usable bitset, total []float64) []float64 {
	types := members(usable)
	var lp tableau
	lp.reset(len(types), len(total))
	for i, t := range types {
		row := lp.row(i)
		for j, n := range f.pool.free[t] {
			if total[j] > 0 && n > 0 {
				row[j] = float64(n) / total[j]
			}
		}
		row[len(total)] = f.cheapest(t)
	}
	for j := range total {
		if total[j] > 0 {
			lp.want(j, 1)
		}
	}
	lp.solve(50 * (len(types) + len(total)))
	return lp.amounts()
}

// appraise sets the worth and the size of a pod of the demand.
func (d *demand) appraise(total, price []float64) {
	for j, n := range d.requests {
		if total[j] > 0 && n > 0 {
			part := float64(n) / total[j]
			d.value += float64(part * price[j])
			d.share = max(d.share, part)
		}
	}
	// No pod is worthless, even if nothing that it asks for is scarce.
	d.value = max(d.value, tiny)
}

// cheapest returns the lowest price of type t under any of the demands' sets.
func (f *filler) cheapest(t int32) float64 {
	best := int64(unlimited)
	for i := range f.demands {
		if s := &f.pool.sets.all[f.demands[i].set]; f.demands[i].types.has(t) {
			best = min(best, s.price[t])
		}
	}
	return float64(best)
}
