package packing

import (
	"encoding/binary"
	"slices"
	"strings"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// options returns the offerings that a bin may be launched as, in the order of their prices (L-007 to L-016): those of the
// first capacity type that has any (L-016), of types that are not exotic if there are such (L-011), and no spot offering that
// is dearer than on demand (L-012). The last two do not hold where the user asked for a number of values (S-099).
func (k *packer) options(b *bin) []int32 {
	p := &k.pools[b.pool]
	ranked := p.sets.ranked(b.set)
	picky := hasMinValues(p.sets.all[b.set].reqs)
	holds := p.holder(b)
	exotic := picky || p.onlyExotic(ranked, holds)
	take := func(t int32) bool { return (exotic || !p.sets.cat.types[t].exotic) && holds(t) }
	dearest := int64(unlimited)
	if !picky {
		for _, i := range ranked[rank(cluster.OnDemand)] {
			if o := &p.sets.cat.offers[i]; take(o.typ) {
				dearest = o.PriceMicroUSDPerHour
				break
			}
		}
	}
	for r, offers := range ranked {
		limit := int64(unlimited)
		switch r {
		case rank(cluster.Spot):
			limit = dearest
		case rank(cluster.Reserved):
			if offers = b.booked; !b.opened {
				offers = k.unreserved(p, ranked[r])
			}
		}
		out := p.choose(b.set, offers, take, limit, picky)
		if len(out) == 0 {
			continue
		}
		if r == rank(cluster.Spot) && !picky {
			out = p.near(out)
		}
		return out
	}
	return nil
}

// near cuts spot options down to those that cost hardly more than the cheapest: EC2 chooses among what it is offered by the depth of
// its pools first, so that an offering twice as dear is paid for and not just kept in reserve. While they are fewer types and
// families than the pool wants to choose from, options at half as much again stay in.
func (p *pool) near(options []int32) []int32 {
	wantedTypes, wantedFamilies := p.spotChoice()
	cat := p.sets.cat
	cheapest := cat.offers[options[0]].PriceMicroUSDPerHour
	types, families := map[int32]bool{}, map[string]bool{}
	for n, i := range options {
		o := &cat.offers[i]
		enough := len(types) >= wantedTypes && len(families) >= wantedFamilies
		if percent := o.PriceMicroUSDPerHour * 100; percent > cheapest*(100+spotReserve) || enough && percent > cheapest*(100+spotPremium) {
			return options[:n]
		}
		types[o.typ] = true
		family, _, _ := strings.Cut(cat.types[o.typ].Name, ".")
		families[family] = true
	}
	return options
}

// unreserved returns those of the reserved offers that the claims of this plan leave something of (S-242, S-246).
func (k *packer) unreserved(p *pool, offers []int32) []int32 {
	if len(offers) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(offers), func(i int32) bool {
		o := &p.sets.cat.offers[i]
		return k.reserved[o.ReservationID] >= o.ReservationLeft
	})
}

// book notes the reserved offers that a bin may be launched into, and counts every reservation among them: until the claim is
// launched nobody knows which it takes (S-242).
func (k *packer) book(b *bin, options []int32) {
	cat := k.pools[b.pool].sets.cat
	if len(options) == 0 || cat.offers[options[0]].CapacityType != cluster.Reserved {
		return
	}
	b.booked = options
	var ids []string
	for _, i := range options {
		if id := cat.offers[i].ReservationID; !slices.Contains(ids, id) {
			ids = append(ids, id)
			k.reserved[id]++
		}
	}
}

// choose returns the first MaxOptions of the offers that are taken and cost no more than limit. Where the pool asks for a
// number of values, the cheapest offering of each value that is still needed goes before others (S-098).
func (p *pool) choose(set int32, offers []int32, take func(t int32) bool, limit int64, picky bool) []int32 {
	cat := p.sets.cat
	var out []int32
	for _, i := range offers {
		if cat.offers[i].PriceMicroUSDPerHour > limit || len(out) == plan.MaxOptions && !picky {
			break
		}
		if take(cat.offers[i].typ) {
			out = append(out, i)
		}
	}
	if len(out) <= plan.MaxOptions {
		return out
	}
	return p.cut(p.sets.all[set].reqs, out)
}

// holder returns a test for the types that hold all pods of a bin. In a pool with limits they must be no larger than the
// target in what is limited, so that flexibility does not eat the limit. Each type is looked at once.
func (p *pool) holder(b *bin) func(t int32) bool {
	cat := p.sets.cat
	limited, target := p.limited(), cat.types[b.typ].capacity
	known := p.sets.scratch
	clear(known)
	return func(t int32) bool {
		if known[t] == 0 {
			known[t] = 1
			if b.sum.fits(p.free[t]) && (!limited || p.noLarger(cat.types[t].capacity, target)) {
				known[t] = 2
			}
		}
		return known[t] == 2
	}
}

// onlyExotic reports whether no type but exotic ones holds the bin.
func (p *pool) onlyExotic(ranked [][]int32, holds func(t int32) bool) bool {
	for _, offers := range ranked {
		for _, i := range offers {
			if t := p.sets.cat.offers[i].typ; !p.sets.cat.types[t].exotic && holds(t) {
				return false
			}
		}
	}
	return true
}

func (p *pool) noLarger(capacity, target vec) bool {
	for i, n := range capacity {
		if p.left[i] != unlimited && n > target[i] {
			return false
		}
	}
	return true
}

// largest returns the largest amount of each resource among the types of the options, which is what a claim counts against
// the limits until it is launched (S-052).
func (p *pool) largest(options []int32) vec {
	cat := p.sets.cat
	most := slices.Clone(cat.types[cat.offers[options[0]].typ].capacity)
	for _, i := range options[1:] {
		most.maxWith(cat.types[cat.offers[i].typ].capacity)
	}
	return most
}

// cut keeps MaxOptions of the options, the cheapest of each value that is needed first.
func (p *pool) cut(reqs cluster.Requirements, options []int32) []int32 {
	keep := make([]bool, len(options))
	kept := 0
	mark := func(i int) {
		if !keep[i] {
			keep[i] = true
			kept++
		}
	}
	for _, r := range reqs {
		seen := map[string]bool{}
		for i, o := range options {
			if len(seen) >= r.MinValues || kept >= plan.MaxOptions {
				break
			}
			if value := p.valueOf(o, r.Key); value != "" && !seen[value] {
				seen[value] = true
				mark(i)
			}
		}
	}
	out := make([]int32, 0, plan.MaxOptions)
	for i, o := range options {
		if kept < plan.MaxOptions {
			mark(i)
		}
		if keep[i] {
			out = append(out, o)
		}
	}
	return out
}

// valueOf returns the value that a label of the node will have if the offering is launched, "" if it will lack it.
func (p *pool) valueOf(i int32, key string) string {
	o := &p.sets.cat.offers[i]
	switch key {
	case cluster.LabelZone, cluster.LabelZoneID, cluster.LabelCapacityType:
		return o.label(key)
	case cluster.LabelInstanceType:
		return p.sets.cat.types[o.typ].Name
	}
	return p.sets.cat.types[o.typ].Labels[key]
}

// lacking returns the first requirement of which the types expose fewer values than the pool asks for, and how many (S-092).
func (p *pool) lacking(set int32, types bitset) (r cluster.Requirement, values int, lacking bool) {
	s := &p.sets.all[set]
	for _, r := range s.reqs {
		if r.MinValues == 0 {
			continue
		}
		if n := p.distinct(s, types, r); n < r.MinValues {
			return r, n, true
		}
	}
	return cluster.Requirement{}, 0, false
}

// distinct counts the values that the types expose under the set, up to those that r needs.
func (p *pool) distinct(s *set, types bitset, r cluster.Requirement) int {
	cat := p.sets.cat
	seen := map[string]bool{}
	for t := range types.all {
		switch r.Key {
		case cluster.LabelZone, cluster.LabelZoneID, cluster.LabelCapacityType:
			for i := cat.types[t].first; i < cat.types[t].last; i++ {
				if s.offers.has(i) {
					seen[cat.offers[i].label(r.Key)] = true
				}
			}
		default:
			if value := cat.types[t].Labels[r.Key]; value != "" {
				seen[value] = true
			}
		}
		if len(seen) >= r.MinValues {
			break
		}
	}
	return len(seen)
}

// diverse reports whether a bin with the given requests leaves as many values as the pool asks for.
func (p *pool) diverse(set int32, requests vec) bool {
	if !p.picky {
		return true
	}
	types := newBitset(len(p.sets.cat.types))
	for t := range p.sets.all[set].has.all {
		if requests.fits(p.free[t]) {
			types.add(t)
		}
	}
	_, _, lacking := p.lacking(set, types)
	return !lacking
}

func hasMinValues(rs cluster.Requirements) bool {
	return slices.ContainsFunc(rs, func(r cluster.Requirement) bool { return r.MinValues > 0 })
}

// finish writes the bins and what is left over into the plan.
func (k *packer) finish() {
	known := map[string]*plan.Claim{}
	for i := range k.bins {
		k.writeClaim(&k.bins[i], known)
	}
	for i := range k.shapes {
		s := &k.shapes[i]
		if len(s.pods) == 0 {
			continue
		}
		reasons := k.reasons(s)
		for _, p := range s.pods {
			k.plan.Unplaced = append(k.plan.Unplaced, plan.Unplaced{Pod: k.snap.Pods[p].PodRef, Reasons: reasons})
		}
	}
	k.plan.ID = identify(&k.plan)
}

// writeClaim writes the claim of a bin. Bins that hold the same share what does not differ.
func (k *packer) writeClaim(b *bin, known map[string]*plan.Claim) {
	key := b.key()
	like := known[key]
	if like == nil {
		like = k.newClaim(b)
		known[key] = like
	}
	c := *like
	c.Pods = make([]cluster.PodRef, len(b.pods))
	for i, p := range b.pods {
		c.Pods[i] = k.snap.Pods[p].PodRef
	}
	k.plan.Claims = append(k.plan.Claims, c)
}

// key is equal for bins whose claims differ only in their pods.
func (b *bin) key() string {
	text := make([]byte, 0, 64)
	for _, n := range []int32{b.pool, b.set, b.typ} {
		text = binary.AppendVarint(text, int64(n))
	}
	for _, n := range b.sum {
		text = binary.AppendVarint(text, n)
	}
	for _, i := range b.booked {
		text = binary.AppendVarint(text, int64(i))
	}
	return string(text)
}

// newClaim writes what a bin's claim asks for, without its pods.
func (k *packer) newClaim(b *bin) *plan.Claim {
	pool := &k.pools[b.pool]
	cat := pool.sets.cat
	options := k.options(b)
	c := &plan.Claim{NodePool: pool.Name, Options: make([]plan.Option, len(options))}
	types := newBitset(len(cat.types))
	for j, i := range options {
		o := &cat.offers[i]
		types.add(o.typ)
		c.Options[j] = plan.Option{
			InstanceType: cat.types[o.typ].Name, Zone: o.Zone, CapacityType: o.CapacityType,
			PriceMicroUSDPerHour: o.PriceMicroUSDPerHour, ReservationID: o.ReservationID, Overlaid: o.Overlaid,
		}
	}
	// The claim requests its pods and the smallest overhead of daemons (S-073).
	var names []string
	var overhead vec
	for t := range types.all {
		names = append(names, cat.types[t].Name)
		if overhead == nil {
			overhead = slices.Clone(pool.daemon[t])
		}
		overhead.minWith(pool.daemon[t])
	}
	overhead.add(b.sum)
	c.Requests = k.dims.resources(overhead)
	reqs := pool.sets.all[b.set].reqs.Intersect(cluster.NewRequirements(nil, cluster.Expression{
		Key: cluster.LabelInstanceType, Operator: cluster.In, Values: names,
	}))
	reqs, c.MinValuesRelaxed = pool.lowerMinValues(reqs, b.set, types)
	c.Requirements = reqs.Expressions()
	return c
}

// lowerMinValues lowers what the pool asks for to what the types of a claim expose, and reports whether it had to (S-096).
// That happens only where the caller accepts it; else no such bin is filled.
func (p *pool) lowerMinValues(reqs cluster.Requirements, set int32, types bitset) (cluster.Requirements, bool) {
	if !hasMinValues(reqs) {
		return reqs, false
	}
	lowered := false
	out := slices.Clone(reqs)
	for i := range out {
		if out[i].MinValues == 0 {
			continue
		}
		if n := p.distinct(&p.sets.all[set], types, out[i]); n < out[i].MinValues {
			out[i].MinValues, lowered = n, true
		}
	}
	return out, lowered
}
