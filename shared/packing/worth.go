package packing

import (
	"cmp"
	"slices"
)

// appraise prices the resources: the dual solution of the linear programme that buys enough of each resource for all
// demands at the lowest cost. It sets the worth of each demand's pod and sorts the demands, the largest first.
func (f *filler) appraise(usable bitset) {
	dims := len(f.k.dims.names)
	total := make([]float64, dims)
	for i := range f.demands {
		for j, n := range f.demands[i].requests {
			total[j] += float64(float64(n) * float64(f.demands[i].n))
		}
	}
	// Scale each resource by its total, so that all rows are of one size.
	var rows [][]float64
	var prices []float64
	for t := range usable.all {
		row := make([]float64, dims)
		for j, n := range f.pool.free[t] {
			if total[j] > 0 && n > 0 {
				row[j] = float64(n) / total[j]
			}
		}
		rows = append(rows, row)
		prices = append(prices, f.cheapest(t))
	}
	gain := make([]float64, dims)
	for j := range gain {
		if total[j] > 0 {
			gain[j] = 1
		}
	}
	dual := maximise(gain, rows, prices)
	for i := range f.demands {
		d := &f.demands[i]
		for j, n := range d.requests {
			if total[j] > 0 && n > 0 {
				part := float64(n) / total[j]
				// A little of every resource's share keeps pods from being worthless where another resource is scarce.
				d.value += float64(part * dual[j])
				d.share = max(d.share, part)
			}
		}
		d.value = max(d.value, 1e-9)
	}
	for i := range f.demands {
		f.sequence = append(f.sequence, int32(i))
	}
	slices.SortFunc(f.sequence, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.demands[b].share, f.demands[a].share), cmp.Compare(a, b))
	})
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

// maximise solves max gain·y with rows·y ≤ limit and y ≥ 0 by the simplex method, Bland's rule breaking ties, and returns
// y. Limits must not be negative. Products are converted explicitly so that no platform fuses them: plans are equal
// everywhere.
func maximise(gain []float64, rows [][]float64, limit []float64) []float64 {
	const tiny = 1e-12
	n, m := len(gain), len(rows)
	// table[i] is row i over the n variables that are out of the basis and the right-hand side; the last row is the goal.
	table := make([][]float64, m+1)
	for i, row := range rows {
		table[i] = append(slices.Clone(row), limit[i])
	}
	table[m] = make([]float64, n+1)
	for j, g := range gain {
		table[m][j] = -g
	}
	out, in := make([]int, n), make([]int, m) // which variable each column and row stands for; n+i is the slack of row i
	for j := range out {
		out[j] = j
	}
	for i := range in {
		in[i] = n + i
	}
	for range 50 * (n + m) {
		enter := -1
		for j := range n {
			if table[m][j] < -tiny && (enter < 0 || table[m][j] < table[m][enter]) {
				enter = j
			}
		}
		if enter < 0 {
			break
		}
		leave := -1
		for i := range m {
			if table[i][enter] <= tiny {
				continue
			}
			if leave < 0 || less(table[i][n]/table[i][enter], table[leave][n]/table[leave][enter], in[i], in[leave]) {
				leave = i
			}
		}
		if leave < 0 {
			break // unbounded: a resource that no type offers; its demands have been left out before
		}
		pivot(table, leave, enter)
		in[leave], out[enter] = out[enter], in[leave]
	}
	y := make([]float64, n)
	for i, v := range in {
		if v < n {
			y[v] = table[i][n]
		}
	}
	return y
}

func less(a, b float64, i, j int) bool { return a < b || a == b && i < j }

// pivot exchanges the variable of row r with that of column c.
func pivot(table [][]float64, r, c int) {
	row := table[r]
	scale := 1 / row[c]
	for j := range row {
		row[j] *= scale
	}
	row[c] = scale
	for i, other := range table {
		factor := other[c]
		if i == r || factor == 0 {
			continue
		}
		for j := range other {
			if j != c {
				other[j] -= float64(factor * row[j])
			}
		}
		other[c] = -float64(factor * scale)
	}
}
