package packing

import (
	"slices"

	"treadle/shared/cluster"
)

// fill chooses bins for the demands: again and again the instance type whose filling costs least for what the pods in it
// are worth, until nothing is left. Worth comes from the dual prices of the resources, so that pods which balance each
// other share a node. Then it looks for something cheaper.
func (k *packer) fill(p int32, demands []demand) []bin {
	if len(demands) > maxRows && !k.pools[p].picky {
		return k.fillMerged(p, demands)
	}
	f := newFiller(k, p, demands)
	out := f.greedy()
	if len(out) == 0 {
		return nil
	}
	return f.improve(out)
}

// greedy fills bins until no demand can be served.
func (f *filler) greedy() []bin {
	f.queue = f.queue[:0]
	for _, t := range f.types {
		f.queue = append(f.queue, candidate{typ: t, stale: true})
	}
	var out []bin
	for {
		b, ok := f.next()
		if !ok {
			return out
		}
		out = append(out, b)
	}
}

// filler is the state of one fill.
type filler struct {
	k        *packer
	pool     *pool
	p        int32
	demands  []demand
	sequence []int32 // demands by size, the largest first
	queue    []candidate
	groups   []int32 // hostname groups that matter, by local number
	load     load
	types    []int32 // that are worth a look: those that no other type beats
}

// candidate is an instance type with the score of its last filling. A fresh score can only become worse as demands shrink,
// or so nearly that the best fresh one may be taken.
type candidate struct {
	typ   int32
	score float64 // price over worth
	stale bool
}

// localRule is a hostname rule of a demand, for the inside of one bin.
type localRule struct {
	group int32 // local number
	kind  ruleKind
	self  bool
	cap   int32 // of a spread: how many selected pods a bin may hold beside a pod with the rule
}

// load is the bin that is being filled.
type load struct {
	room    vec
	matched []int32 // by local group: selected pods in the bin
	cap     []int32 // by local group: how many there may be
	owners  []int32 // by local group: pods that want none of them
	ports   []cluster.HostPort
}

func newFiller(k *packer, p int32, demands []demand) *filler {
	f := &filler{k: k, pool: &k.pools[p], p: p, demands: demands}
	if len(demands) == 0 {
		return f
	}
	usable := newBitset(len(f.pool.sets.cat.types))
	largest := f.pool.largestNode(demands)
	for i := range demands {
		f.localize(&demands[i])
		usable.join(f.pool.prudent(&demands[i], largest))
	}
	n := len(f.groups)
	f.load = load{room: make(vec, len(k.dims.names)), matched: make([]int32, n), cap: make([]int32, n), owners: make([]int32, n)}
	f.appraise(usable)
	f.types = f.undominated(usable)
	return f
}

// localize translates the hostname rules of a demand to the local numbers of this fill.
func (f *filler) localize(d *demand) {
	number := func(group int32) int32 {
		if at := slices.Index(f.groups, group); at >= 0 {
			return int32(at)
		}
		f.groups = append(f.groups, group)
		return int32(len(f.groups) - 1)
	}
	for i := range d.level.rules {
		if r := &d.level.rules[i]; r.key == hostname && r.kind != near {
			d.local = append(d.local, localRule{group: number(r.group), kind: r.kind, self: r.self, cap: r.maxSkew})
		}
	}
	for _, id := range f.k.shapes[d.shape].selectedBy {
		if f.k.topology.groups[id].key == hostname {
			d.selected = append(d.selected, number(id))
		}
	}
}

// undominated drops each type that another one beats: as much room of everything, no dearer, and to be had wherever it is.
func (f *filler) undominated(usable bitset) []int32 {
	var distinct []int32 // sets of the demands
	for i := range f.demands {
		if !slices.Contains(distinct, f.demands[i].set) {
			distinct = append(distinct, f.demands[i].set)
		}
	}
	beats := func(a, b int32) bool {
		for j, n := range f.pool.free[b] {
			if f.pool.free[a][j] < n {
				return false
			}
		}
		for _, id := range distinct {
			if s := &f.pool.sets.all[id]; s.has.has(b) && (!s.has.has(a) || s.price[a] > s.price[b]) {
				return false
			}
		}
		return f.pool.sets.cat.types[a].exotic == f.pool.sets.cat.types[b].exotic && len(f.pool.ports[a]) <= len(f.pool.ports[b])
	}
	var out []int32
	for t := range usable.all {
		if slices.ContainsFunc(out, func(o int32) bool { return beats(o, t) }) {
			continue
		}
		out = append(slices.DeleteFunc(out, func(o int32) bool { return beats(t, o) }), t)
	}
	return out
}

// next fills one bin, or several equal ones, with the best type for what is left.
func (f *filler) next() (bin, bool) {
	for len(f.queue) > 0 {
		best := 0
		for i := range f.queue {
			if f.queue[i].better(&f.queue[best]) {
				best = i
			}
		}
		c := &f.queue[best]
		b, worth := f.fillType(c.typ)
		if len(b.items) == 0 {
			f.queue = slices.Delete(f.queue, best, best+1)
			continue
		}
		score := float64(f.pool.sets.all[b.set].price[c.typ]) / worth
		if c.stale || score > c.score {
			c.score, c.stale = score, false
			if f.beaten(best) {
				continue
			}
		}
		f.remove(&b)
		return b, true
	}
	return bin{}, false
}

func (c *candidate) better(o *candidate) bool {
	if c.stale != o.stale {
		return c.stale
	}
	return c.score < o.score
}

// beaten reports whether another candidate may be better than the one at i, whose score is fresh.
func (f *filler) beaten(i int) bool {
	for j := range f.queue {
		if j != i && f.queue[j].better(&f.queue[i]) {
			return true
		}
	}
	return false
}

// fillType fills a bin of type t with what is left, large pods first, and returns what the pods in it are worth.
func (f *filler) fillType(t int32) (bin, float64) {
	b := bin{pool: f.p, set: none, typ: t, sum: make(vec, len(f.k.dims.names)), times: 1}
	f.load.reset(f.pool.free[t], f.pool.ports[t])
	worth := 0.0
	for _, i := range f.sequence {
		d := &f.demands[i]
		n, set := f.fitting(&b, d)
		if n == 0 {
			continue
		}
		b.set = set
		b.items = append(b.items, item{shape: d.shape, n: n, from: i})
		b.sum.addTimes(d.requests, n)
		f.load.put(f, d, n)
		worth += float64(float64(n) * d.value)
	}
	return b, worth
}

// fitting returns how many pods of a demand go into the bin that is being filled, and the set that it then has. A bin of an
// exotic type starts with a pod that no other type would do for.
func (f *filler) fitting(b *bin, d *demand) (n int64, set int32) {
	t := b.typ
	first := b.set == none
	if d.n == 0 || !f.pool.sets.all[d.set].has.has(t) || first && f.pool.sets.cat.types[t].exotic && !d.types.has(t) {
		return 0, none
	}
	if n = d.requests.times(f.load.room, d.n); n == 0 {
		return 0, none
	}
	if n = f.within(d, n); n == 0 {
		return 0, none
	}
	if set = d.set; !first {
		if set = f.pool.sets.meet(b.set, d.set); set == none || !f.pool.sets.all[set].has.has(t) {
			return 0, none
		}
	}
	if f.pool.picky {
		n = f.mostDiverse(b, d, set, n)
	}
	return n, set
}

// mostDiverse returns how many pods of a demand, at most n, the bin takes and still leaves the values that the pool asks for.
func (f *filler) mostDiverse(b *bin, d *demand, set int32, n int64) int64 {
	sum := make(vec, len(b.sum))
	for ; n > 0; n-- {
		copy(sum, b.sum)
		if sum.addTimes(d.requests, n); f.pool.diverse(set, sum) {
			break
		}
	}
	return n
}

func (l *load) reset(room vec, ports []cluster.HostPort) {
	copy(l.room, room)
	for g := range l.matched {
		l.matched[g], l.cap[g], l.owners[g] = 0, 1<<31-1, 0
	}
	l.ports = append(l.ports[:0], ports...)
}

// within returns how many pods of a demand the rules inside a bin let in, at most n.
func (f *filler) within(d *demand, n int64) int64 {
	l := &f.load
	if ports := f.k.shapes[d.shape].spec.HostPorts; len(ports) > 0 {
		if n = 1; conflicts(ports, l.ports) {
			return 0
		}
	}
	for _, r := range d.local {
		have := l.matched[r.group]
		switch {
		case r.kind == apart && have > 0, r.kind == spread && !r.self && have > r.cap:
			return 0
		case r.kind == apart && r.self:
			n = min(n, 1)
		case r.kind == spread && r.self:
			n = min(n, int64(max(0, r.cap-have)))
		}
	}
	for _, g := range d.selected {
		if l.owners[g] > 0 {
			return 0
		}
		n = min(n, int64(max(0, l.cap[g]-l.matched[g])))
	}
	return n
}

// put books n pods of a demand in the load. It returns what take needs to undo it.
func (l *load) put(f *filler, d *demand, n int64) (caps []int32) {
	l.room.addTimes(d.requests, -n)
	if ports := f.k.shapes[d.shape].spec.HostPorts; len(ports) > 0 {
		l.ports = append(l.ports, ports...)
	}
	if len(d.local) > 0 {
		caps = slices.Clone(l.cap)
	}
	for _, r := range d.local {
		if r.kind == apart {
			l.owners[r.group] += int32(n)
		} else {
			l.cap[r.group] = min(l.cap[r.group], r.cap)
		}
	}
	for _, g := range d.selected {
		l.matched[g] += int32(n)
	}
	return caps
}

// take undoes a put; puts are undone in reverse order.
func (l *load) take(f *filler, d *demand, n int64, caps []int32) {
	l.room.addTimes(d.requests, n)
	l.ports = l.ports[:len(l.ports)-len(f.k.shapes[d.shape].spec.HostPorts)]
	for _, r := range d.local {
		if r.kind == apart {
			l.owners[r.group] -= int32(n)
		}
	}
	for _, g := range d.selected {
		l.matched[g] -= int32(n)
	}
	if caps != nil {
		copy(l.cap, caps)
	}
}

// remove takes what b holds from the demands, as often as it can be repeated.
func (f *filler) remove(b *bin) {
	b.times = unlimited
	for _, it := range b.items {
		b.times = min(b.times, f.demands[it.from].n/it.n)
	}
	for _, it := range b.items {
		f.demands[it.from].n -= it.n * b.times
	}
}
