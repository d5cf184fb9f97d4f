package packing

import (
	"cmp"
	"slices"
)

// search finds the fullest way to fill a node at given prices: a knapsack with several resources. It solves the relaxation
// first, whose value is a bound and whose prices say what room is worth, and then branches over the demands by how much they
// pay for their room.
type search struct {
	f      *filler
	counts []int64
	work   int     // numbers looked at so far
	ratio  float64 // least cost of the last type over the most that its filling can be worth, at most one

	lp      relaxation
	items   []candidatePods
	chosen  []int64 // by position in items
	record  []int64 // the best so far
	value   float64 // of record
	nodes   int     // branches left for this type
	limit   int     // branches for each type
	target  int32
	worthOf []float64
}

// candidatePods is a demand in the search.
type candidatePods struct {
	from    int32
	worth   float64
	density float64 // worth over the price of its room, at most about one
	price   float64 // of the room for one pod
}

func newSearch(f *filler, counts []int64) *search {
	return &search{f: f, counts: counts, limit: quick}
}

// quick and thorough are how many branches the search for one type tries: few while any improvement will do, more once the
// quick search finds none.
const quick, thorough = 250, 2500

// best returns the way to fill type t that is worth most at the given worth of each demand's pod, if it is worth more than
// it costs.
func (s *search) best(t int32, worth []float64) (column, bool) {
	f := s.f
	room := f.pool.free[t]
	s.items = s.items[:0]
	for i := range f.demands {
		d := &f.demands[i]
		if worth[i] > tiny && s.counts[i] > 0 && f.pool.sets.all[d.set].has.has(t) && d.requests.fits(room) {
			s.items = append(s.items, candidatePods{from: int32(i), worth: worth[i]})
		}
	}
	s.work += len(f.demands)
	s.ratio = 1
	if len(s.items) == 0 {
		return column{}, false
	}
	cost := s.leastCost(t)
	bound := s.lp.solve(s, room)
	s.ratio = min(1, cost/bound)
	if bound <= float64(cost*(1+1e-6)) {
		return column{}, false
	}
	for i := range s.items {
		it := &s.items[i]
		for j, n := range f.demands[it.from].requests {
			if n > 0 && room[j] > 0 {
				it.price += float64(s.lp.price[j] * (float64(n) / float64(room[j])))
			}
		}
		it.density = it.worth / max(it.price, 1e-12)
	}
	slices.SortFunc(s.items, func(a, b candidatePods) int {
		return cmp.Or(cmp.Compare(b.density, a.density), cmp.Compare(a.from, b.from))
	})
	s.chosen = append(s.chosen[:0], make([]int64, len(s.items))...)
	s.record = s.record[:0]
	s.value = float64(cost * (1 + 1e-6))
	s.nodes, s.target = s.limit, t
	f.load.reset(room, f.pool.ports[t])
	s.branch(0, none, 0, bound)
	if len(s.record) == 0 {
		return column{}, false
	}
	return s.column(t)
}

// leastCost is the lowest price of the type under any of the items' sets: the cost of a column cannot be less.
func (s *search) leastCost(t int32) float64 {
	least := int64(unlimited)
	for i := range s.items {
		least = min(least, s.f.pool.sets.all[s.f.demands[s.items[i].from].set].price[t])
	}
	return float64(least)
}

// branch tries counts for the item at position i, the largest first, and everything after it. value is what has been chosen
// so far is worth, roomWorth what is left of the room is worth.
func (s *search) branch(i int, set int32, value, roomWorth float64) {
	f := s.f
	for ; i < len(s.items); i++ {
		it := &s.items[i]
		if value+float64(roomWorth*it.density) <= float64(s.value*(1+1e-9)) || s.nodes <= 0 {
			return
		}
		s.work += len(f.load.room)
		d := &f.demands[it.from]
		n := d.requests.times(f.load.room, s.counts[it.from])
		if n == 0 {
			continue
		}
		if n = f.within(d, n); n == 0 {
			continue
		}
		joined := d.set
		if set != none && set != d.set {
			if joined = f.pool.sets.meet(set, d.set); joined == none || !f.pool.sets.all[joined].has.has(s.target) {
				continue
			}
		}
		for ; n > 0 && s.nodes > 0; n-- {
			s.nodes--
			gain := value + float64(it.worth*float64(n))
			rest := max(0, roomWorth-float64(it.price*float64(n)))
			if next := s.densityAfter(i); gain+float64(rest*next) <= s.value {
				// Fewer of this item leave more room, but room is worth less to the items that follow.
				break
			}
			undo := f.load.put(f, d, n)
			s.chosen[i] = n
			if gain > s.value && s.mayEnd(joined) {
				s.value = gain
				s.record = append(s.record[:0], s.chosen...)
			}
			s.branch(i+1, joined, gain, rest)
			s.chosen[i] = 0
			f.load.take(f, d, n, undo)
		}
	}
}

func (s *search) densityAfter(i int) float64 {
	if i+1 < len(s.items) {
		return s.items[i+1].density
	}
	return 0
}

// mayEnd reports whether what is chosen may be a node: an exotic type needs a pod that no other type would do for.
func (s *search) mayEnd(set int32) bool {
	f := s.f
	if !f.pool.sets.cat.types[s.target].exotic {
		return true
	}
	for i, n := range s.chosen {
		if n > 0 && f.demands[s.items[i].from].types.has(s.target) {
			return true
		}
	}
	return false
}

// column writes the record down.
func (s *search) column(t int32) (column, bool) {
	f := s.f
	c := column{typ: t, set: none}
	value := 0.0
	for i, n := range s.record {
		if n == 0 {
			continue
		}
		it := &s.items[i]
		d := &f.demands[it.from]
		if c.set == none {
			c.set = d.set
		} else {
			c.set = f.pool.sets.meet(c.set, d.set)
		}
		value += float64(it.worth * float64(n))
		c.items = append(c.items, item{shape: d.shape, n: n, from: it.from})
	}
	c.cost = float64(f.pool.sets.all[c.set].price[t])
	slices.SortFunc(c.items, func(a, b item) int { return cmp.Compare(a.from, b.from) })
	return c, value > c.cost
}

// relaxation is the knapsack with fractions of pods, solved by the simplex method on one row a resource.
type relaxation struct {
	table [][]float64
	basis []int
	price []float64 // by resource: worth of all room of it
}

// solve returns the worth of the best fractional filling of the room.
func (r *relaxation) solve(s *search, room vec) float64 {
	rows, n := len(room), len(s.items)
	width := n + rows + 1
	for len(r.table) <= rows {
		r.table = append(r.table, nil)
	}
	for j := range rows + 1 {
		if cap(r.table[j]) < width {
			r.table[j] = make([]float64, width)
		}
		r.table[j] = r.table[j][:width]
		clear(r.table[j])
	}
	r.basis = r.basis[:0]
	goal := r.table[rows]
	for j := range rows {
		r.table[j][n+j], r.table[j][width-1] = 1, 1
		r.basis = append(r.basis, n+j)
	}
	for i := range s.items {
		goal[i] = -s.items[i].worth
		for j, q := range s.f.demands[s.items[i].from].requests {
			if q > 0 && room[j] > 0 {
				r.table[j][i] = float64(q) / float64(room[j])
			}
		}
	}
	for range 60 {
		enter := -1
		for j := range width - 1 {
			if goal[j] < -tiny && (enter < 0 || goal[j] < goal[enter]) {
				enter = j
			}
		}
		if enter < 0 {
			break
		}
		leave := -1
		for j := range rows {
			if x := r.table[j][enter]; x > tiny && (leave < 0 || r.table[j][width-1]/x < r.table[leave][width-1]/r.table[leave][enter]) {
				leave = j
			}
		}
		if leave < 0 {
			break
		}
		eliminate(r.table[:rows+1], leave, enter)
		r.basis[leave] = enter
		s.work += width * (rows + 1) / 2
	}
	r.price = append(r.price[:0], goal[n:n+rows]...)
	for j := range r.price {
		r.price[j] = max(0, r.price[j])
	}
	return goal[width-1]
}

// eliminate makes column c a unit vector with its one in row r.
func eliminate(table [][]float64, r, c int) {
	row := table[r]
	scale := 1 / row[c]
	for j := range row {
		row[j] *= scale
	}
	for i, other := range table {
		factor := other[c]
		if i == r || factor == 0 {
			continue
		}
		for j, x := range row {
			other[j] -= float64(factor * x)
		}
	}
}
