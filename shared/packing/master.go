package packing

import (
	"cmp"
	"slices"
)

// column is a way to fill one node: how many pods of which demands, on which type, at which price.
type column struct {
	typ   int32
	set   int32
	items []item // in order of their demands
	cost  float64
}

// master is the linear programme that chooses how many nodes to fill in each way: least cost, every demand covered. It keeps
// a basis with its inverse and lets columns enter as they are found. Products are converted explicitly so that no platform
// fuses them: plans are equal everywhere.
type master struct {
	m       int
	columns []column
	basis   []int32     // by row: a column, or -1-i for the surplus of demand i
	inverse [][]float64 // of the basis matrix
	amount  []float64   // by row: how much of the basis column is used
	dual    []float64   // by demand: worth of one more pod
	ray     []float64
}

// newMaster starts with one column for each demand that holds only its pods.
func newMaster(counts []float64, single []column) *master {
	m := len(counts)
	p := &master{m: m, columns: single, basis: make([]int32, m), inverse: make([][]float64, m), amount: make([]float64, m), dual: make([]float64, m), ray: make([]float64, m)}
	for i := range m {
		n := float64(single[i].items[0].n)
		p.basis[i] = int32(i)
		p.inverse[i] = make([]float64, m)
		p.inverse[i][i] = 1 / n
		p.amount[i] = counts[i] / n
		p.dual[i] = single[i].cost / n
	}
	return p
}

const tiny = 1e-9

// gain returns what one use of a column is worth beyond its cost.
func (p *master) gain(c *column) float64 {
	gain := -c.cost
	for _, it := range c.items {
		gain += float64(p.dual[it.from] * float64(it.n))
	}
	return gain
}

// add offers a column to the programme, and reports whether it would lower the cost.
func (p *master) add(c column) bool {
	if p.gain(&c) <= float64(1e-7*c.cost) {
		return false
	}
	p.columns = append(p.columns, c)
	return true
}

// optimise lets columns, and surplus of demands, enter the basis until none lowers the cost. It returns how many numbers it
// looked at.
func (p *master) optimise() int {
	work := 0
	for range 20 * p.m {
		entering, most := int32(0), 0.0
		found := false
		for j := range p.columns {
			c := &p.columns[j]
			if g := p.gain(c); g > float64(1e-7*c.cost) && (!found || g > most) {
				entering, most, found = int32(j), g, true
			}
			work += len(c.items)
		}
		for i, d := range p.dual {
			if -d > tiny && (!found || -d > most) {
				entering, most, found = int32(-1-i), -d, true
			}
		}
		if !found {
			break
		}
		p.aim(entering)
		if !p.pivot(entering, -most) {
			break
		}
		work += p.m * p.m / 8
	}
	return work
}

// aim sets the ray: by how much each basis column is used less for each use of the entering one.
func (p *master) aim(entering int32) {
	for i, row := range p.inverse {
		if entering < 0 {
			p.ray[i] = -row[-1-entering]
			continue
		}
		sum := 0.0
		for _, it := range p.columns[entering].items {
			sum += float64(row[it.from] * float64(it.n))
		}
		p.ray[i] = sum
	}
}

// pivot exchanges the column whose ray is set, with the given reduced cost, for the basis column that it uses up first.
func (p *master) pivot(entering int32, reduced float64) bool {
	leave := -1
	for i, r := range p.ray {
		if r > tiny && (leave < 0 || p.amount[i]/r < p.amount[leave]/p.ray[leave]) {
			leave = i
		}
	}
	if leave < 0 {
		return false
	}
	out := p.inverse[leave]
	scale := 1 / p.ray[leave]
	for j := range out {
		out[j] *= scale
	}
	step := float64(p.amount[leave] * scale)
	for i, r := range p.ray {
		if i == leave || r == 0 {
			continue
		}
		row := p.inverse[i]
		for j, x := range out {
			if x != 0 {
				row[j] -= float64(r * x)
			}
		}
		p.amount[i] = max(0, p.amount[i]-float64(step*r))
	}
	p.amount[leave] = step
	for j, x := range out {
		p.dual[j] += float64(reduced * x)
	}
	p.basis[leave] = entering
	return true
}

// cost returns what the present solution costs.
func (p *master) cost() float64 {
	sum := 0.0
	for i, c := range p.basis {
		if c >= 0 {
			sum += float64(p.columns[c].cost * p.amount[i])
		}
	}
	return sum
}

// byAmount returns the rows of the basis, those whose columns are used most first.
func (p *master) byAmount() []int {
	order := make([]int, p.m)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.amount[b], p.amount[a]) })
	return order
}
