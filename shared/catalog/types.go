package catalog

import (
	"cmp"
	"slices"
	"strings"

	"treadle/shared/cluster"
)

// DefaultVMMemoryOverheadPercent is the share of an instance's memory that its virtual machine is assumed to keep for itself.
const DefaultVMMemoryOverheadPercent = 0.075

// Options is what besides the class decides how instance types look. The zero value is usable.
type Options struct {
	// VMMemoryOverheadPercent is a share: 0.075 is 7.5 %. Zero means DefaultVMMemoryOverheadPercent, below zero none.
	VMMemoryOverheadPercent float64
	// ReservedENIs is how many interfaces are kept from pods, as custom networking of the VPC CNI does.
	ReservedENIs int64
	// LearnedMemory returns the memory capacity that nodes of a type under an image were seen to report; it replaces the
	// estimate. nil: nothing is known.
	LearnedMemory func(instanceType, imageID string) (bytes int64, known bool)
	// Refused reports whether EC2 refused an offering lately. place is its zone; a reserved one is asked for by zone and by the
	// id of its reservation. nil: nothing was refused.
	Refused func(instanceType, place string, capacityType cluster.CapacityType) bool
}

// InstanceTypes returns the types of c as class sees them, in the order of c: what pods can use of each, its labels, and an
// offering for each capacity type and zone that EC2 sells it under and class has a subnet in: a zone without one is no domain that
// pods could be spread over. An offering is available if its price is known, an image runs on the type, the type can do what the
// class asks for, and it was not refused; the others are listed too, so that a plan can say why they were not taken. Nothing is
// mutated.
func InstanceTypes(c Catalog, class cluster.NodeClass, o Options) []cluster.InstanceType {
	if o.VMMemoryOverheadPercent == 0 {
		o.VMMemoryOverheadPercent = DefaultVMMemoryOverheadPercent
	}
	v := view{
		class:   &class,
		family:  familyOf(&class),
		options: o,
		zones:   make(map[string]string, len(class.Status.Subnets)),
	}
	for _, subnet := range class.Status.Subnets {
		v.zones[subnet.Zone] = subnet.ZoneID
	}
	for _, ami := range class.Status.AMIs {
		v.images = append(v.images, cluster.NewRequirements(nil, ami.Requirements...))
	}
	out := make([]cluster.InstanceType, 0, len(c.Types))
	for i := range c.Types {
		out = append(out, v.instanceType(&c.Types[i], c.Region))
	}
	return out
}

// view is a class and the options, made ready for use type by type.
type view struct {
	class   *cluster.NodeClass
	family  family
	options Options
	zones   map[string]string      // zone id by zone that has a subnet
	images  []cluster.Requirements // of the class's images, in their order
}

func (v *view) instanceType(t *Type, region string) cluster.InstanceType {
	it := cluster.InstanceType{Name: t.Name, Labels: labels(t, region, v.family)}
	image, hasImage := v.image(it.Labels)
	it.Capacity = v.capacity(t, image)
	it.Overhead = v.overhead(t, it.Capacity)
	it.Allocatable = it.Capacity.Minus(it.Overhead)
	it.Offerings = v.offerings(t, hasImage && v.suits(t))
	return it
}

// image returns the newest image of the class that runs on a type with the given labels (C-064).
func (v *view) image(labels map[string]string) (cluster.AMI, bool) {
	for i, needs := range v.images {
		if _, ok := needs.MeetsLabels(labels); ok {
			return v.class.Status.AMIs[i], true
		}
	}
	return cluster.AMI{}, false
}

// suits reports whether the hardware can do what the class asks of it (S-203).
func (v *view) suits(t *Type) bool {
	spec := &v.class.Spec
	if strings.HasPrefix(t.Name, "a1.") && familyName(*spec) == "al2023" {
		return false
	}
	if spec.NestedVirtualization == "enabled" && !t.NestedVirtualization {
		return false
	}
	if spec.ConnectionTracking != nil && t.Hypervisor != "nitro" {
		return false
	}
	return v.interfacesFit(t)
}

func (v *view) interfacesFit(t *Type) bool {
	cards := t.CardENIs
	if len(cards) == 0 {
		cards = []int{int(t.ENIs)}
	}
	used := make([]int, len(cards))
	var efas int64
	for _, n := range v.class.Spec.NetworkInterfaces {
		if int(n.NetworkCardIndex) >= len(cards) {
			return false
		}
		used[n.NetworkCardIndex]++
		if n.Type == "efa-only" {
			efas++
		}
	}
	for card, n := range used {
		if n > cards[card] {
			return false
		}
	}
	return efas <= t.EFAs
}

func (v *view) offerings(t *Type, usable bool) []cluster.Offering {
	out := make([]cluster.Offering, 0, 2*len(t.Zones))
	add := func(zone string, kind cluster.CapacityType, price int64) {
		id, subnet := v.zones[zone]
		if !subnet {
			return
		}
		out = append(out, cluster.Offering{
			Zone: zone, ZoneID: id, CapacityType: kind, PriceMicroUSDPerHour: price,
			Available: usable && price > 0 && !v.refused(t.Name, zone, kind),
		})
	}
	for _, z := range t.Zones {
		if t.OnDemand {
			add(z.Name, cluster.OnDemand, t.OnDemandMicroUSDPerHour)
		}
		if t.Spot {
			add(z.Name, cluster.Spot, z.SpotMicroUSDPerHour)
		}
	}
	for _, r := range v.class.Status.Reservations {
		if _, subnet := v.zones[r.Zone]; subnet && r.InstanceType == t.Name {
			out = append(out, v.reserved(t, r, usable))
		}
	}
	slices.SortStableFunc(out, func(a, b cluster.Offering) int {
		return cmp.Or(
			cmp.Compare(a.Zone, b.Zone),
			cmp.Compare(a.CapacityType, b.CapacityType),
			cmp.Compare(a.ReservationID, b.ReservationID))
	})
	return out
}

// reservedDiscount makes paid-for capacity cheaper than anything else, and dear types still dearer than small ones (S-210).
const reservedDiscount = 10_000_000

func (v *view) reserved(t *Type, r cluster.Reservation, usable bool) cluster.Offering {
	return cluster.Offering{
		Zone: r.Zone, ZoneID: v.zones[r.Zone], CapacityType: cluster.Reserved,
		PriceMicroUSDPerHour: t.OnDemandMicroUSDPerHour / reservedDiscount,
		Available: usable && r.Available > 0 &&
			!v.refused(t.Name, r.Zone, cluster.Reserved) && !v.refused(t.Name, r.ID, cluster.Reserved),
		ReservationID:   r.ID,
		ReservationLeft: r.Available,
	}
}

func (v *view) refused(instanceType, place string, kind cluster.CapacityType) bool {
	return v.options.Refused != nil && v.options.Refused(instanceType, place, kind)
}
