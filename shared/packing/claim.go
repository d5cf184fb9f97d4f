package packing

import (
	"cmp"
	"fmt"
	"slices"
	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// options returns the offerings that a bin may be launched as, in the order of their prices (L-007 to L-016).
func (k *packer) options(b *bin) []plan.Option {
	pool := &k.pools[b.pool]
	set := &pool.sets.all[b.set]
	types := pool.holders(b)
	if !hasMinValues(set.reqs) {
		types = withoutExotic(pool.sets.cat, types)
	}
	var all []plan.Option
	for t := range types.all {
		ct := &pool.sets.cat.types[t]
		for i := ct.first; i < ct.last; i++ {
			if o := &pool.sets.cat.offers[i]; set.offers.has(i) {
				all = append(all, plan.Option{
					InstanceType: ct.Name, Zone: o.Zone, CapacityType: o.CapacityType,
					PriceMicroUSDPerHour: o.PriceMicroUSDPerHour, ReservationID: o.ReservationID,
				})
			}
		}
	}
	chosen := oneCapacityType(all, hasMinValues(set.reqs))
	slices.SortFunc(chosen, func(a, b plan.Option) int {
		return cmp.Or(
			cmp.Compare(a.PriceMicroUSDPerHour, b.PriceMicroUSDPerHour),
			cmp.Compare(a.InstanceType, b.InstanceType),
			cmp.Compare(a.Zone, b.Zone),
			cmp.Compare(a.ReservationID, b.ReservationID),
		)
	})
	return pool.cut(set.reqs, chosen)
}

// cut keeps the first MaxOptions options. Where the pool asks for a number of values it keeps the cheapest option of each
// value that is still needed instead of the last ones (S-098).
func (p *pool) cut(reqs cluster.Requirements, options []plan.Option) []plan.Option {
	if len(options) <= plan.MaxOptions {
		return options
	}
	keep := make([]bool, len(options))
	kept := 0
	for _, r := range reqs {
		seen := map[string]bool{}
		for i := range options {
			value := p.valueOf(&options[i], r.Key)
			if len(seen) >= r.MinValues || kept >= plan.MaxOptions || value == "" || seen[value] {
				continue
			}
			seen[value] = true
			if !keep[i] {
				keep[i] = true
				kept++
			}
		}
	}
	out := make([]plan.Option, 0, plan.MaxOptions)
	for i := range options {
		if !keep[i] && kept < plan.MaxOptions {
			keep[i] = true
			kept++
		}
		if keep[i] {
			out = append(out, options[i])
		}
	}
	return out
}

// valueOf returns the value that a label of the node will have if the option is launched, "" if it will lack it.
func (p *pool) valueOf(o *plan.Option, key string) string {
	switch key {
	case cluster.LabelZone:
		return o.Zone
	case cluster.LabelCapacityType:
		return string(o.CapacityType)
	case cluster.LabelInstanceType:
		return o.InstanceType
	}
	return p.sets.cat.types[p.sets.cat.find(o.InstanceType)].Labels[key]
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

// holders returns the types that can be had for b and hold all its pods. In a pool with limits they are no larger than the
// target in what is limited, so that flexibility does not eat the limit.
func (p *pool) holders(b *bin) bitset {
	cat := p.sets.cat
	out := newBitset(len(cat.types))
	target := cat.types[b.typ].capacity
	for t := range p.sets.all[b.set].has.all {
		if b.sum.fits(p.free[t]) && (!p.limited() || p.noLarger(cat.types[t].capacity, target)) {
			out.add(t)
		}
	}
	return out
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
func (p *pool) largest(options []plan.Option) vec {
	cat := p.sets.cat
	var most vec
	for i := range options {
		t := cat.find(options[i].InstanceType)
		if most == nil {
			most = slices.Clone(cat.types[t].capacity)
		}
		most.maxWith(cat.types[t].capacity)
	}
	return most
}

// withoutExotic drops exotic types unless nothing else is left (L-011).
func withoutExotic(cat *catalog, types bitset) bitset {
	out := newBitset(len(cat.types))
	for t := range types.all {
		if !cat.types[t].exotic {
			out.add(t)
		}
	}
	if out.empty() {
		return types
	}
	return out
}

// oneCapacityType keeps the offerings of the first capacity type that has any (L-016). Spot offerings that are dearer than
// the cheapest on-demand one go first (L-012), unless the user asked for a number of values.
func oneCapacityType(all []plan.Option, keepDear bool) []plan.Option {
	cheapest := int64(unlimited)
	for _, o := range all {
		if o.CapacityType == cluster.OnDemand {
			cheapest = min(cheapest, o.PriceMicroUSDPerHour)
		}
	}
	if !keepDear {
		all = slices.DeleteFunc(all, func(o plan.Option) bool {
			return o.CapacityType == cluster.Spot && o.PriceMicroUSDPerHour > cheapest
		})
	}
	best := rank(cluster.OnDemand)
	for _, o := range all {
		best = min(best, rank(o.CapacityType))
	}
	return slices.DeleteFunc(all, func(o plan.Option) bool { return rank(o.CapacityType) != best })
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
	key := fmt.Sprint(b.pool, b.set, b.typ, b.sum)
	like := known[key]
	if like == nil {
		like = k.newClaim(b)
		known[key] = like
	}
	c := *like
	for _, p := range b.pods {
		c.Pods = append(c.Pods, k.snap.Pods[p].PodRef)
	}
	k.plan.Claims = append(k.plan.Claims, c)
}

// newClaim writes what a bin's claim asks for, without its pods.
func (k *packer) newClaim(b *bin) *plan.Claim {
	pool := &k.pools[b.pool]
	b.options = k.options(b)
	reqs := pool.sets.all[b.set].reqs.Intersect(cluster.NewRequirements(nil, cluster.Expression{
		Key: cluster.LabelInstanceType, Operator: cluster.In, Values: typeNames(b.options),
	}))
	c := &plan.Claim{NodePool: pool.Name, Requests: k.dims.resources(k.requests(b)), Options: b.options}
	reqs, c.MinValuesRelaxed = pool.lowerMinValues(reqs, b)
	c.Requirements = reqs.Expressions()
	return c
}

// requests returns what the pods of a bin and the smallest daemon overhead of its options request (S-073).
func (k *packer) requests(b *bin) vec {
	pool := &k.pools[b.pool]
	var least vec
	for t := range pool.sets.all[b.set].has.all {
		if !slices.ContainsFunc(b.options, func(o plan.Option) bool { return o.InstanceType == pool.sets.cat.types[t].Name }) {
			continue
		}
		if least == nil {
			least = slices.Clone(pool.daemon[t])
		}
		least.minWith(pool.daemon[t])
	}
	out := slices.Clone(b.sum)
	if least != nil {
		out.add(least)
	}
	return out
}

func typeNames(options []plan.Option) []string {
	out := make([]string, 0, len(options))
	for i := range options {
		out = append(out, options[i].InstanceType)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lowerMinValues lowers what the pool asks for to what the options of a bin expose, and reports whether it had to (S-096).
// That happens only where the caller accepts it; else no such bin is filled.
func (p *pool) lowerMinValues(reqs cluster.Requirements, b *bin) (cluster.Requirements, bool) {
	types := newBitset(len(p.sets.cat.types))
	for i := range b.options {
		types.add(int32(p.sets.cat.find(b.options[i].InstanceType)))
	}
	lowered := false
	out := slices.Clone(reqs)
	for i := range out {
		if n := p.distinct(&p.sets.all[b.set], types, out[i]); n < out[i].MinValues {
			out[i].MinValues, lowered = n, true
		}
	}
	return out, lowered
}
