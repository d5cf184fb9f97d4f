package packing

import (
	"math"
	"slices"
)

// improve looks for a cheaper way to fill nodes for the demands than greedy found: it solves the linear programme over all
// ways to fill a node, generating ways as they pay, rounds down, and fills what rounding leaves over greedily at the
// programme's prices. It returns the cheaper of the two plans. A pool that insists on minValues keeps to greedy, which
// looks at them for every pod.
func (f *filler) improve(greedy []bin) []bin {
	counts := make([]int64, len(f.demands))
	for _, b := range greedy {
		for _, it := range b.items {
			counts[it.from] += it.n * b.times
		}
	}
	best, bestCost := greedy, f.costOf(greedy)
	consider := func(bins []bin) {
		if cost := f.costOf(bins); bins != nil && cost < bestCost {
			best, bestCost = bins, cost
		}
	}
	for i := range counts {
		f.demands[i].n = counts[i]
	}
	if f.k.o.Steps < 0 {
		return f.fitTypes(best)
	}
	if total(counts) <= fewPods {
		consider(f.grow(false))
		consider(f.grow(true))
	}
	if len(f.demands) > maxRows || f.pool.picky {
		return f.fitTypes(best)
	}
	p := f.newProgramme(counts)
	if p == nil {
		return f.fitTypes(best)
	}
	for _, b := range greedy {
		p.add(column{typ: b.typ, set: b.set, items: b.items, cost: float64(f.pool.sets.all[b.set].price[b.typ])})
	}
	p.optimise()
	budget := f.budget(counts)
	f.generate(p, counts, budget)
	consider(f.round(p, counts))
	consider(f.dive(p, counts, budget/2))
	return f.fitTypes(best)
}

// fitTypes makes the cheapest type that holds a bin its target.
func (f *filler) fitTypes(bins []bin) []bin {
	for i := range bins {
		bins[i].typ = f.cheapestHolder(&bins[i])
	}
	return bins
}

// budget bounds the steps of improving a plan for so many pods.
func (f *filler) budget(counts []int64) int {
	worth := int(min(workBudget, workAtLeast+total(counts)*workPerPod))
	if f.k.o.Steps > 0 {
		return min(worth, f.k.o.Steps)
	}
	return worth
}

func total(counts []int64) int64 {
	sum := int64(0)
	for _, n := range counts {
		sum += n
	}
	return sum
}

// workBudget bounds the steps of column generation, in numbers looked at. It is a number of steps and not a time, so that
// the plan does not depend on the machine.
const (
	workBudget  = 150_000_000
	workAtLeast = 4_000_000
	workPerPod  = 25_000
	fewPods     = 500 // for which pods are also placed one by one
)

// maxRows is how many demands the programme takes: its steps grow with their square.
const maxRows = 600

// costOf adds up the cheapest price of each bin.
func (f *filler) costOf(bins []bin) int64 {
	sum := int64(0)
	for i := range bins {
		b := &bins[i]
		sum += b.times * f.pool.sets.all[b.set].price[f.cheapestHolder(b)]
	}
	return sum
}

// cheapestHolder returns the cheapest type that holds all of the bin under its set.
func (f *filler) cheapestHolder(b *bin) int32 {
	set := &f.pool.sets.all[b.set]
	best := b.typ
	exotic := f.pool.sets.cat.types[b.typ].exotic
	for _, t := range f.types {
		if set.has.has(t) && set.price[t] < set.price[best] && (exotic || !f.pool.sets.cat.types[t].exotic) && b.sum.fits(f.pool.free[t]) {
			best = t
		}
	}
	return best
}

// newProgramme starts the programme with the best single-demand column of each demand; nil if some demand has none.
func (f *filler) newProgramme(counts []int64) *master {
	single := make([]column, len(f.demands))
	need := make([]float64, len(f.demands))
	for i := range f.demands {
		d := &f.demands[i]
		if counts[i] == 0 {
			// A demand that greedy could not place stays out; one pod at no cost keeps the basis regular.
			single[i] = column{typ: none, items: []item{{shape: d.shape, n: 1, from: int32(i)}}}
			continue
		}
		need[i] = float64(counts[i])
		ratio := math.Inf(1)
		price := f.pool.sets.all[d.set].price
		for _, t := range f.types {
			if !d.types.has(t) {
				continue
			}
			f.load.reset(f.pool.free[t], f.pool.ports[t])
			n := f.within(d, d.requests.times(f.load.room, counts[i]))
			if n > 0 && float64(price[t])/float64(n) < ratio {
				ratio = float64(price[t]) / float64(n)
				single[i] = column{typ: t, set: d.set, items: []item{{shape: d.shape, n: n, from: int32(i)}}, cost: float64(price[t])}
			}
		}
		if len(single[i].items) == 0 {
			return nil
		}
	}
	return newMaster(need, single)
}

// generate lets columns enter until none pays or the budget is spent. Columns are sought at prices between those of the
// present solution, which swing wildly, and a steady centre: the prices that have proved the highest lower bound so far,
// which at first are those of the resources. The centre loses its pull when it no longer helps. It returns the steps taken.
func (f *filler) generate(p *master, counts []int64, budget int) int {
	search := newSearch(f, counts)
	centre, mixed := make([]float64, p.m), make([]float64, p.m)
	for i := range f.demands {
		centre[i] = f.demands[i].value
	}
	proved, pull := 0.0, 0.8
	for search.work < budget {
		entered, ratio := false, 1.0
		for _, t := range f.types {
			for i, d := range p.dual {
				mixed[i] = float64(pull*centre[i]) + float64((1-pull)*max(0, d))
			}
			c, found := search.best(t, mixed)
			ratio = min(ratio, search.ratio)
			entered = found && p.add(c) || entered
		}
		search.work += p.optimise()
		bound := 0.0
		for i, w := range mixed {
			bound += float64(w * float64(counts[i]))
		}
		bound *= ratio
		if bound > proved {
			proved = bound
			copy(centre, mixed)
		}
		switch cost := p.cost(); {
		case cost-proved <= float64(1e-4*cost):
			return search.work
		case entered:
		case pull < 0.01 && search.limit >= thorough:
			return search.work
		case pull < 0.01:
			search.limit, pull = thorough, 0.5
		default:
			pull *= 0.5
		}
	}
	return search.work
}

// round uses each column of the solution as often as its whole part says, and fills the rest greedily at the programme's
// prices.
func (f *filler) round(p *master, counts []int64) []bin {
	left := slices.Clone(counts)
	out := f.wholeParts(p, left)
	return f.finishGreedily(p, left, out)
}

// dive uses whole parts like round, but solves the programme anew for what is left, and where no column is used once in full
// it rounds the fullest one up. It costs more steps than round and is often closer to the programme's cost.
func (f *filler) dive(p *master, counts []int64, budget int) []bin {
	left := slices.Clone(counts)
	out := f.wholeParts(p, left)
	for work := 0; work < budget && slices.ContainsFunc(left, func(n int64) bool { return n > 0 }); {
		next := f.newProgramme(left)
		if next == nil {
			break
		}
		for i := range p.columns {
			if c := clip(&p.columns[i], left); c.typ != none && len(c.items) > 0 {
				next.columns = append(next.columns, c)
			}
		}
		work += next.optimise() + len(next.columns)*next.m
		work += f.generate(next, left, budget/32)
		found := f.wholeParts(next, left)
		if len(found) == 0 {
			if found = f.roundUp(next, left); len(found) == 0 {
				break
			}
		}
		out = append(out, found...)
		p = next
	}
	return f.finishGreedily(p, left, out)
}

// clip leaves out of a column what is no longer asked for.
func clip(c *column, left []int64) column {
	out := *c
	if !slices.ContainsFunc(c.items, func(it item) bool { return it.n > left[it.from] }) {
		return out
	}
	out.items = nil
	for _, it := range c.items {
		if it.n = min(it.n, left[it.from]); it.n > 0 {
			out.items = append(out.items, it)
		}
	}
	return out
}

// wholeParts fills bins for the whole part of each column's use and takes their pods from left. The columns used most come
// first.
func (f *filler) wholeParts(p *master, left []int64) []bin {
	var out []bin
	for _, i := range p.byAmount() {
		if p.basis[i] < 0 || p.columns[p.basis[i]].typ == none {
			continue
		}
		c := &p.columns[p.basis[i]]
		times := int64(p.amount[i] + 1e-6)
		for _, it := range c.items {
			times = min(times, left[it.from]/it.n)
		}
		if times > 0 {
			out = append(out, f.use(c, times, left))
		}
	}
	return out
}

// roundUp fills one bin by the column that is used most of all that are not used once in full.
func (f *filler) roundUp(p *master, left []int64) []bin {
	for _, i := range p.byAmount() {
		if p.basis[i] < 0 || p.amount[i] < tiny {
			continue
		}
		if c := clip(&p.columns[p.basis[i]], left); c.typ != none && len(c.items) > 0 {
			return []bin{f.use(&c, 1, left)}
		}
	}
	return nil
}

// use fills bins by a column and takes their pods from left.
func (f *filler) use(c *column, times int64, left []int64) bin {
	for _, it := range c.items {
		left[it.from] -= it.n * times
	}
	return f.binOf(c, times)
}

// finishGreedily fills bins for what is left, at the programme's prices; nil if some pods find no bin.
func (f *filler) finishGreedily(p *master, left []int64, out []bin) []bin {
	for i := range f.demands {
		f.demands[i].n = left[i]
		f.demands[i].value = max(p.dual[i], tiny)
	}
	out = append(out, f.greedy()...)
	if slices.ContainsFunc(f.demands, func(d demand) bool { return d.n > 0 }) {
		return nil
	}
	return out
}

func (f *filler) binOf(c *column, times int64) bin {
	b := bin{pool: f.p, set: c.set, typ: c.typ, items: c.items, sum: make(vec, len(f.k.dims.names)), times: times}
	for _, it := range c.items {
		b.sum.addTimes(f.demands[it.from].requests, it.n)
	}
	return b
}
