package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"treadle/shared/cluster"
)

// field is one thing that overlays may change: the price of an offering or, where resource is set, how much of a resource a type has.
type field struct {
	pool, typ, offering int
	resource            string
}

// whole stands for all offerings of a type.
const whole = -1

// Apply puts into snap.Overlaid what the overlays of snap make of the instance types of each pool, and returns the overlays, in the order of
// snap, with the conditions that they should have. Heavier overlays win, field by field, and of equal ones those with the later name
// (S-271). An overlay that claims a field which one of its own weight has already is not applied (S-272). snap.Types must be filled in.
//
// A resource belongs to a type, not to an offering: an overlay that is for some zones only gives it where a pool has no others.
func Apply(snap *cluster.Snapshot) []cluster.NodeOverlay {
	snap.Overlaid = nil
	if len(snap.Overlays) == 0 {
		return nil
	}
	out := slices.Clone(snap.Overlays)
	owners := map[field]int{} // by index into out
	pools := make([]cluster.Requirements, len(snap.NodePools))
	for i := range snap.NodePools {
		pools[i] = snap.NodePools[i].Requirements()
	}
	for _, i := range order(out) {
		o := &out[i]
		if o.Invalid != "" || o.DeletionUnix != 0 {
			judge(o, snap.NowUnix, "RuntimeValidation", o.Invalid)
			continue
		}
		var claims []field
		conflict := -1
		for p := range pools {
			touched(o, p, pools[p], snap.Types[snap.NodePools[p].Template.NodeClass], func(f field) {
				switch owner, taken := owners[f]; {
				case !taken:
					claims = append(claims, f)
				case out[owner].Weight == o.Weight:
					conflict = owner
				}
			})
		}
		if conflict >= 0 {
			judge(o, snap.NowUnix, "Conflict", fmt.Sprintf("it changes what nodeoverlay %s of the same weight changes already", out[conflict].Name))
			continue
		}
		judge(o, snap.NowUnix, "", "")
		for _, f := range claims {
			owners[f] = i
		}
	}
	write(snap, out, owners)
	return out
}

// order returns the indices of overlays in the order in which they claim fields.
func order(all []cluster.NodeOverlay) []int {
	out := make([]int, len(all))
	for i := range out {
		out[i] = i
	}
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[b].Weight, all[a].Weight), cmp.Compare(all[b].Name, all[a].Name))
	})
	return out
}

// judge writes the conditions of an overlay; an empty reason says that nothing is wrong with it.
func judge(o *cluster.NodeOverlay, now int64, reason, message string) {
	c := cluster.Condition{
		Type: cluster.ConditionValidationSucceeded, Status: "True", Reason: cluster.ConditionValidationSucceeded, TransitionUnix: now, ObservedGeneration: o.Generation,
	}
	if reason != "" {
		c.Status, c.Reason, c.Message = "False", reason, message
	}
	o.Conditions = o.Conditions.With(c).WithReady(now, cluster.ConditionValidationSucceeded)
}

// touched calls each for every field of a pool's types that an overlay changes.
func touched(o *cluster.NodeOverlay, p int, pool cluster.Requirements, types []cluster.InstanceType, each func(field)) {
	priced := o.Price != nil || o.Adjustment != nil
	if !priced && len(o.Capacity) == 0 {
		return // S-273
	}
	wants := cluster.NewRequirements(nil, o.Requirements...)
	for t := range types {
		matching, all := 0, 0
		for n := range types[t].Offerings {
			of := label(&types[t], &types[t].Offerings[n])
			if !meets(pool, nil, of) {
				continue
			}
			all++
			if !meets(wants, pool, of) {
				continue
			}
			matching++
			if priced {
				each(field{pool: p, typ: t, offering: n})
			}
		}
		if matching == 0 || matching < all {
			continue
		}
		for name := range o.Capacity {
			each(field{pool: p, typ: t, offering: whole, resource: name})
		}
	}
}

// label returns what a node of the offering is labelled.
func label(t *cluster.InstanceType, o *cluster.Offering) func(key string) (string, bool) {
	return func(key string) (string, bool) {
		if value, found := o.Label(key); found {
			return value, true
		}
		value, found := t.Labels[key]
		return value, found
	}
}

// meets reports whether a node of an offering, in a pool with the given requirements, may be what wants says. Labels that neither the type
// nor the offering has are the pool's to give; without a pool they are not looked at.
func meets(wants, pool cluster.Requirements, of func(key string) (string, bool)) bool {
	for _, want := range wants {
		value, present := of(want.Key)
		switch have, given := pool.Get(want.Key); {
		case present:
			if !want.Has(value) {
				return false
			}
		case given:
			if have.Intersect(want).Impossible() {
				return false
			}
		case pool != nil && !want.AllowsAbsent():
			return false
		case pool == nil && cluster.WellKnown(want.Key) && want.Key != cluster.LabelNodePool && !want.AllowsAbsent():
			return false
		}
	}
	return true
}

// write makes the types of each pool that an overlay changes anything of.
func write(snap *cluster.Snapshot, overlays []cluster.NodeOverlay, owners map[field]int) {
	type at struct{ pool, typ int }
	mine := map[at]bool{}
	for f, owner := range owners {
		pool, o := &snap.NodePools[f.pool], &overlays[owner]
		types, made := snap.Overlaid[pool.Name]
		if !made {
			types = slices.Clone(snap.Types[pool.Template.NodeClass])
			if snap.Overlaid == nil {
				snap.Overlaid = map[string][]cluster.InstanceType{}
			}
			snap.Overlaid[pool.Name] = types
		}
		t := &types[f.typ]
		if !mine[at{f.pool, f.typ}] {
			mine[at{f.pool, f.typ}] = true
			t.Offerings = slices.Clone(t.Offerings)
			t.Capacity.Extended, t.Allocatable.Extended = maps.Clone(t.Capacity.Extended), maps.Clone(t.Allocatable.Extended)
		}
		if f.resource == "" {
			reprice(&t.Offerings[f.offering], o)
			continue
		}
		n := o.Capacity[f.resource]
		t.Capacity.Set(f.resource, n)
		t.Allocatable.Set(f.resource, n)
		if strings.HasPrefix(f.resource, "hugepages-") { // S-177
			t.Allocatable.MemoryBytes = max(0, t.Allocatable.MemoryBytes-n)
		}
	}
}

func reprice(of *cluster.Offering, o *cluster.NodeOverlay) {
	of.Overlaid = true
	if o.Price != nil {
		of.PriceMicroUSDPerHour = *o.Price
		return
	}
	of.PriceMicroUSDPerHour = o.Adjustment.Apply(of.PriceMicroUSDPerHour)
}
