package packing

// tableau is a linear programme: maximise goal·x where rows·x ≤ limits and x ≥ 0, with limits that are not negative. It holds
// one column for each variable out of the basis and one for the limits; the last row is the goal. Products are converted
// explicitly so that no platform fuses them: plans are equal everywhere.
type tableau struct {
	cells   [][]float64
	in, out []int // which variable each row and each column stands for; n+i is the slack of row i
	m, n    int
}

// reset makes an empty programme of m rows and n variables, in the memory of the last one.
func (t *tableau) reset(m, n int) {
	t.m, t.n = m, n
	for len(t.cells) <= m {
		t.cells = append(t.cells, nil)
	}
	for i := range m + 1 {
		if cap(t.cells[i]) <= n {
			t.cells[i] = make([]float64, n+1)
		}
		t.cells[i] = t.cells[i][:n+1]
		clear(t.cells[i])
	}
	t.in, t.out = t.in[:0], t.out[:0]
	for j := range n {
		t.out = append(t.out, j)
	}
	for i := range m {
		t.in = append(t.in, n+i)
	}
}

// row returns the coefficients of row i, with its limit at the end.
func (t *tableau) row(i int) []float64 { return t.cells[i] }

// want sets what one unit of variable j is worth.
func (t *tableau) want(j int, worth float64) { t.cells[t.m][j] = -worth }

// solve runs the simplex method for at most limit steps and returns how many it took.
func (t *tableau) solve(limit int) int {
	for step := range limit {
		c := t.entering()
		if c < 0 {
			return step
		}
		r := t.leaving(c)
		if r < 0 {
			return step // unbounded: what no row limits is not asked for
		}
		t.exchange(r, c)
	}
	return limit
}

// entering returns the column that promises most, -1 if none promises anything.
func (t *tableau) entering() int {
	best, most := -1, -tiny
	for j, x := range t.cells[t.m][:t.n] {
		if x < most {
			best, most = j, x
		}
	}
	return best
}

// leaving returns the row that limits column c most, the one of the lower variable if several do.
func (t *tableau) leaving(c int) int {
	best, least := -1, 0.0
	for i, row := range t.cells[:t.m] {
		if row[c] <= tiny {
			continue
		}
		ratio := row[t.n] / row[c]
		if best < 0 || ratio < least || ratio == least && t.in[i] < t.in[best] {
			best, least = i, ratio
		}
	}
	return best
}

// exchange swaps the variable of row r with that of column c.
func (t *tableau) exchange(r, c int) {
	row := t.cells[r]
	scale := 1 / row[c]
	for j := range row {
		row[j] *= scale
	}
	row[c] = scale
	for i, other := range t.cells[:t.m+1] {
		factor := other[c]
		if i == r || factor == 0 {
			continue
		}
		other[c] = 0
		for j, x := range row {
			other[j] -= float64(factor * x)
		}
	}
	t.in[r], t.out[c] = t.out[c], t.in[r]
}

// value returns what the solution is worth.
func (t *tableau) value() float64 { return t.cells[t.m][t.n] }

// amounts returns how much of each variable the solution has.
func (t *tableau) amounts() []float64 {
	x := make([]float64, t.n)
	for i, v := range t.in {
		if v < t.n {
			x[v] = t.cells[i][t.n]
		}
	}
	return x
}

// prices appends to p what one more unit of each row's limit is worth.
func (t *tableau) prices(p []float64) []float64 {
	start := len(p)
	for range t.m {
		p = append(p, 0)
	}
	for j, v := range t.out {
		if v >= t.n {
			p[start+v-t.n] = max(0, t.cells[t.m][j])
		}
	}
	return p
}
