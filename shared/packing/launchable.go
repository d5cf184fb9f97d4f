package packing

import (
	"cmp"
	"slices"
	"strings"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Launchable returns the offerings that a NodeClaim which is there already may be launched as: one that a user wrote, or one that
// replaces a leaving node. They meet the claim's requirements, hold what it requests, can be had, and are of the first capacity type that
// has any, in the order in which a launch prefers them (L-007 to L-016); cheapest first. types are those of the claim's class.
//
// Without options nothing that the claim allows is to be had.
func Launchable(types []cluster.InstanceType, c *cluster.NodeClaim) plan.Claim {
	wants := cluster.NewRequirements(nil, c.Requirements...)
	var fitting, plain []*cluster.InstanceType
	for i := range types {
		t := &types[i]
		if c.Requests.Fits(t.Allocatable) && ofType(wants, t) {
			fitting = append(fitting, t)
			if !exotic(t) {
				plain = append(plain, t)
			}
		}
	}
	picky := hasMinValues(wants)
	if !picky && len(offered(plain, wants, "")) > 0 {
		fitting = plain // L-011
	}
	out := plan.Claim{NodePool: c.NodePool(), Requirements: c.Requirements, Requests: c.Requests}
	for _, capacityType := range []cluster.CapacityType{cluster.Reserved, cluster.Spot, cluster.OnDemand} {
		options := offered(fitting, wants, capacityType)
		if capacityType == cluster.Spot && !picky {
			if dearest := offered(fitting, wants, cluster.OnDemand); len(dearest) > 0 { // L-012
				options = slices.DeleteFunc(options, func(o plan.Option) bool { return o.PriceMicroUSDPerHour > dearest[0].PriceMicroUSDPerHour })
			}
		}
		if len(options) > 0 {
			out.Options = options[:min(len(options), plan.MaxOptions)]
			break
		}
	}
	return out
}

// offered returns the offerings of the types that can be had and meet wants, of one capacity type or, for "", of any; cheapest first.
func offered(types []*cluster.InstanceType, wants cluster.Requirements, capacityType cluster.CapacityType) []plan.Option {
	var out []plan.Option
	for _, t := range types {
		for _, o := range t.Offerings {
			if !o.Available || capacityType != "" && o.CapacityType != capacityType || !ofOffering(wants, o) {
				continue
			}
			out = append(out, plan.Option{
				InstanceType: t.Name, Zone: o.Zone, CapacityType: o.CapacityType,
				PriceMicroUSDPerHour: o.PriceMicroUSDPerHour, ReservationID: o.ReservationID, Overlaid: o.Overlaid,
			})
		}
	}
	slices.SortFunc(out, func(a, b plan.Option) int {
		return cmp.Or(cmp.Compare(a.PriceMicroUSDPerHour, b.PriceMicroUSDPerHour), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone))
	})
	return out
}

// ofType reports whether a type meets what wants says of types. Labels of the user's own are the claim's to give, whatever the type.
func ofType(wants cluster.Requirements, t *cluster.InstanceType) bool {
	for _, want := range wants {
		if !cluster.WellKnown(want.Key) || ofPlace(want.Key) || want.Key == cluster.LabelNodePool {
			continue
		}
		value, present := t.Labels[want.Key]
		if present && !want.Has(value) || !present && !want.AllowsAbsent() {
			return false
		}
	}
	return true
}

// ofPlace reports whether a label comes from the offering and not from the type.
func ofPlace(key string) bool {
	return key == cluster.LabelZone || key == cluster.LabelZoneID || key == cluster.LabelCapacityType || key == cluster.LabelRegion ||
		strings.HasPrefix(key, "karpenter.k8s.aws/capacity-reservation-") || strings.HasPrefix(key, "karpenter.k8s.aws/placement-group-")
}

func ofOffering(wants cluster.Requirements, o cluster.Offering) bool {
	return wants.Allows(cluster.LabelZone, o.Zone) && wants.Allows(cluster.LabelZoneID, o.ZoneID) && wants.Allows(cluster.LabelCapacityType, string(o.CapacityType)) &&
		(o.ReservationID == "" || wants.Allows(cluster.LabelReservationID, o.ReservationID))
}
