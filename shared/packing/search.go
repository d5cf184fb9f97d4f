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

	lp     tableau
	room   []float64 // by resource: what all of it is worth
	items  []candidatePods
	chosen []int64 // by position in items
	record []int64 // the best so far
	value  float64 // of record
	nodes  int     // branches left for this type
	limit  int     // branches for each type
	target int32
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
	bound := s.relax(room)
	s.ratio = min(1, cost/bound)
	if bound <= float64(cost*(1+1e-6)) {
		return column{}, false
	}
	for i := range s.items {
		it := &s.items[i]
		for j, n := range f.demands[it.from].requests {
			if n > 0 && room[j] > 0 {
				it.price += float64(s.room[j] * (float64(n) / float64(room[j])))
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
	for ; i < len(s.items); i++ {
		if value+float64(roomWorth*s.items[i].density) <= float64(s.value*(1+1e-9)) || s.nodes <= 0 {
			return
		}
		s.work += len(s.f.load.room)
		n, joined := s.most(&s.items[i], set)
		for ; n > 0 && s.nodes > 0; n-- {
			if !s.try(i, n, joined, value, roomWorth) {
				break
			}
		}
	}
}

// most returns how many pods of an item the bin takes now, and the set that it then has.
func (s *search) most(it *candidatePods, set int32) (n int64, joined int32) {
	f := s.f
	d := &f.demands[it.from]
	if n = d.requests.times(f.load.room, s.counts[it.from]); n == 0 {
		return 0, none
	}
	if joined = d.set; set != none && set != d.set {
		if joined = f.pool.sets.meet(set, d.set); joined == none || !f.pool.sets.all[joined].has.has(s.target) {
			return 0, none
		}
	}
	return f.within(d, n), joined
}

// try puts n pods of the item at position i into the bin and branches over what follows. It reports false if neither that nor
// fewer pods of the item can come to more than the record.
func (s *search) try(i int, n int64, set int32, value, roomWorth float64) bool {
	it := &s.items[i]
	s.nodes--
	gain := value + float64(it.worth*float64(n))
	rest := max(0, roomWorth-float64(it.price*float64(n)))
	if gain+float64(rest*s.densityAfter(i)) <= s.value {
		return false // fewer leave more room, but room is worth less to the items that follow
	}
	d := &s.f.demands[it.from]
	undo := s.f.load.put(s.f, d, n)
	s.chosen[i] = n
	if gain > s.value && s.mayEnd() {
		s.value = gain
		s.record = append(s.record[:0], s.chosen...)
	}
	s.branch(i+1, set, gain, rest)
	s.chosen[i] = 0
	s.f.load.take(s.f, d, n, undo)
	return true
}

func (s *search) densityAfter(i int) float64 {
	if i+1 < len(s.items) {
		return s.items[i+1].density
	}
	return 0
}

// mayEnd reports whether what is chosen may be a node: an exotic type needs a pod that no other type would do for.
func (s *search) mayEnd() bool {
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

// relax solves the knapsack with fractions of pods and returns what the best filling of the room is worth. It leaves what all
// the room of each resource is worth in s.room.
func (s *search) relax(room vec) float64 {
	s.lp.reset(len(room), len(s.items))
	for j, have := range room {
		row := s.lp.row(j)
		row[len(s.items)] = 1
		for i := range s.items {
			if q := s.f.demands[s.items[i].from].requests[j]; q > 0 && have > 0 {
				row[i] = float64(q) / float64(have)
			}
		}
	}
	for i := range s.items {
		s.lp.want(i, s.items[i].worth)
	}
	steps := s.lp.solve(60)
	s.work += steps * (len(s.items) + 1) * (len(room) + 1) / 2
	s.room = s.lp.prices(s.room[:0])
	return s.lp.value()
}
