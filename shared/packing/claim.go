package packing

import (
	"cmp"
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
	return chosen[:min(len(chosen), plan.MaxOptions)]
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
		t, _ := slices.BinarySearchFunc(cat.types, options[i].InstanceType, func(t ctype, name string) int {
			return cmp.Compare(t.Name, name)
		})
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
	for i := range k.bins {
		k.writeClaims(&k.bins[i])
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

// writeClaims writes the claims of one bin. All equal bins share the slices that do not differ.
func (k *packer) writeClaims(b *bin) {
	pool := &k.pools[b.pool]
	reqs := pool.sets.all[b.set].reqs.Intersect(cluster.NewRequirements(nil, cluster.Expression{
		Key: cluster.LabelInstanceType, Operator: cluster.In, Values: typeNames(b.options),
	}))
	expressions := reqs.Expressions()
	requests := k.dims.resources(k.requests(b))
	for j := range b.times {
		c := plan.Claim{NodePool: pool.Name, Requirements: expressions, Requests: requests, Options: b.options}
		for _, it := range b.items {
			for _, p := range it.pods[j*it.n : (j+1)*it.n] {
				c.Pods = append(c.Pods, k.snap.Pods[p].PodRef)
			}
		}
		k.plan.Claims = append(k.plan.Claims, c)
	}
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
