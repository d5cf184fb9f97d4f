package packing

import (
	"cmp"
	"slices"
	"strings"

	"treadle/shared/cluster"
)

// catalog is the instance types that one class offers, laid out for set operations. Types are in order of their names,
// offerings in order of type, zone, capacity type and reservation.
type catalog struct {
	types  []ctype
	offers []offer
	// columns holds each label of the types, as the number of its value by type; -1 where the type lacks the label.
	columns map[string]*labelColumn
}

type ctype struct {
	*cluster.InstanceType
	capacity, allocatable vec
	first, last           int32 // its offers
	exotic                bool  // bare metal or accelerated: launched only for pods that need it (L-011)
}

type offer struct {
	*cluster.Offering
	typ int32
}

type labelColumn struct {
	values []string
	of     []int32
}

func newCatalog(d *dims, types []cluster.InstanceType) *catalog {
	c := &catalog{columns: map[string]*labelColumn{}}
	for i := range types {
		c.types = append(c.types, ctype{InstanceType: &types[i]})
	}
	slices.SortStableFunc(c.types, func(a, b ctype) int { return cmp.Compare(a.Name, b.Name) })
	c.types = slices.CompactFunc(c.types, func(a, b ctype) bool { return a.Name == b.Name })
	for i := range c.types {
		t := &c.types[i]
		t.capacity, t.allocatable = d.vec(t.Capacity), d.vec(t.Allocatable)
		t.exotic = exotic(t.InstanceType)
		t.first = int32(len(c.offers))
		for j := range t.Offerings {
			c.offers = append(c.offers, offer{&t.Offerings[j], int32(i)})
		}
		t.last = int32(len(c.offers))
		slices.SortStableFunc(c.offers[t.first:], compareOffers)
		for key, value := range t.Labels {
			c.column(key).set(i, len(c.types), value)
		}
		c.column(cluster.LabelInstanceType).set(i, len(c.types), t.Name)
	}
	return c
}

func compareOffers(a, b offer) int {
	return cmp.Or(
		cmp.Compare(a.Zone, b.Zone),
		cmp.Compare(a.CapacityType, b.CapacityType),
		cmp.Compare(a.ReservationID, b.ReservationID),
	)
}

func (c *catalog) column(key string) *labelColumn {
	col := c.columns[key]
	if col == nil {
		col = &labelColumn{}
		c.columns[key] = col
	}
	return col
}

func (col *labelColumn) set(i, n int, value string) {
	for len(col.of) < n {
		col.of = append(col.of, -1)
	}
	at := slices.Index(col.values, value)
	if at < 0 {
		at = len(col.values)
		col.values = append(col.values, value)
	}
	col.of[i] = int32(at)
}

// exotic reports whether t is bare metal or carries accelerators (L-011).
func exotic(t *cluster.InstanceType) bool {
	_, size, _ := strings.Cut(t.Name, ".")
	if strings.HasPrefix(size, "metal") {
		return true
	}
	for _, name := range []string{"nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi"} {
		if t.Capacity.Extended[name] > 0 {
			return true
		}
	}
	return false
}

// meeting returns the types that meet r; a type without the label meets r only if it may be absent (S-227). Keys that no
// type knows and that are not the catalogue's to decide are met by all.
func (c *catalog) meeting(r cluster.Requirement) bitset {
	out := newBitset(len(c.types))
	col := c.columns[r.Key]
	if col == nil {
		if !absentFromTypes(r) {
			for i := range c.types {
				out.add(int32(i))
			}
		}
		return out
	}
	allowed := make([]bool, len(col.values))
	for i, value := range col.values {
		allowed[i] = r.Has(value)
	}
	for i, v := range col.of {
		if v >= 0 && allowed[v] || v < 0 && r.AllowsAbsent() {
			out.add(int32(i))
		}
	}
	return out
}

// absentFromTypes reports whether r asks for a label that a node would get from its type but that no type has.
func absentFromTypes(r cluster.Requirement) bool {
	if r.AllowsAbsent() || !cluster.WellKnown(r.Key) {
		return false
	}
	switch r.Key {
	case cluster.LabelNodePool, cluster.LabelRegion, cluster.LabelZone, cluster.LabelZoneID, cluster.LabelCapacityType,
		cluster.LabelReservationID, labelReservationType, labelReservationInterruptible, labelTenancy, labelPlacementGroup,
		labelPlacementPartition:
		return false
	}
	return true
}

// Labels that an offering or the launch decides, not the type.
const (
	labelReservationType          = "karpenter.k8s.aws/capacity-reservation-type"
	labelReservationInterruptible = "karpenter.k8s.aws/capacity-reservation-interruptible"
	labelTenancy                  = "karpenter.k8s.aws/instance-tenancy"
	labelPlacementGroup           = "karpenter.k8s.aws/placement-group-id"
	labelPlacementPartition       = "karpenter.k8s.aws/placement-group-partition"
)

// meets reports whether the offering meets the requirements that are about offerings.
func (o *offer) meets(rs cluster.Requirements) bool {
	if !rs.Allows(cluster.LabelZone, o.Zone) || !rs.Allows(cluster.LabelCapacityType, string(o.CapacityType)) {
		return false
	}
	if r, found := rs.Get(cluster.LabelZoneID); found && (o.ZoneID != "" || !r.AllowsAbsent()) && !r.Has(o.ZoneID) {
		return false
	}
	if r, found := rs.Get(cluster.LabelReservationID); found {
		if o.ReservationID == "" {
			return r.AllowsAbsent()
		}
		return r.Has(o.ReservationID)
	}
	if r, found := rs.Get(cluster.LabelRegion); found && o.Zone != "" && !r.Has(region(o.Zone)) {
		return false
	}
	return true
}

// region returns the region of a zone: its name up to the first number, so that us-west-2-lax-1a is in us-west-2.
func region(zone string) string {
	digit := strings.IndexAny(zone, "0123456789")
	if digit < 0 {
		return zone
	}
	end := digit
	for end < len(zone) && zone[end] >= '0' && zone[end] <= '9' {
		end++
	}
	return zone[:end]
}

// usable reports whether a launch may ask for the offering.
func (o *offer) usable() bool {
	return o.Available && (o.CapacityType != cluster.Reserved || o.ReservationLeft > 0)
}
