package ec2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// Subnet is a subnet to add. ID, VPC and tags may be left empty; an empty VPC is the default one.
type Subnet struct {
	ID         string
	VPC        string
	Zone       string
	CIDR       string // IPv4; EC2 keeps five addresses of it for itself
	Public     bool   // instances get public addresses
	DefaultFor bool   // the one that is used where only the zone is named
	Tags       map[string]string
}

// subnet is a Subnet with the addresses in use.
type subnet struct {
	Subnet
	tags  map[string]string
	block netip.Prefix
	next  uint32       // offset of the first address that was never used
	back  []netip.Addr // addresses given back
	free  int
	taken int // addresses in use that no instance shows, such as a CNI's
}

func (n *subnet) key() string { return n.ID }

// reserved is how many addresses EC2 keeps of each subnet: the first four and the last.
const reservedAddresses = 5

// AddSubnet adds a subnet, or replaces the one with the same id, and returns its id.
func (s *Service) AddSubnet(v Subnet) (string, error) {
	block, err := netip.ParsePrefix(v.CIDR)
	switch {
	case err != nil:
		return "", fmt.Errorf("add subnet: %w", err)
	case !block.Addr().Is4() || block.Bits() > 28 || block.Bits() < 16:
		return "", fmt.Errorf("add subnet: %s is not an IPv4 block between /16 and /28", v.CIDR)
	case zoneIDs[v.Zone] == "":
		return "", fmt.Errorf("add subnet: no zone %q", v.Zone)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.ID == "" {
		v.ID = s.mint("subnet-")
	}
	if v.VPC == "" {
		v.VPC = defaultVPC
	}
	size := 1 << (32 - block.Bits())
	s.subnets.add(&subnet{
		Subnet: v, tags: cloneTags(v.Tags), block: block.Masked(), next: 4, free: size - reservedAddresses,
	})
	return v.ID, nil
}

// SetFreeAddresses leaves a subnet with n free addresses, by taking or giving back addresses that no instance has.
func (s *Service) SetFreeAddresses(id string, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.subnets.byID[id]
	if !ok {
		return fmt.Errorf("set free addresses: no subnet %s", id)
	}
	if spare := v.free + v.taken; n < 0 || n > spare {
		return fmt.Errorf("set free addresses: %s can have 0 to %d", id, spare)
	}
	v.taken += v.free - n
	v.free = n
	return nil
}

// take takes count addresses and returns the first; ok is false, and nothing taken, if there are not so many.
func (n *subnet) take(count int) (addr netip.Addr, ok bool) {
	if n.free < count {
		return netip.Addr{}, false
	}
	n.free -= count
	// An address that was given back is used again as late as can be: the name of a node follows from it, and the Node of a machine that is
	// gone may stand for a while.
	if size := uint32(1) << (32 - n.block.Bits()); n.next == size-1 {
		addr, n.back = n.back[0], n.back[1:]
		return addr, true
	}
	base := n.block.Addr().As4()
	binary.BigEndian.PutUint32(base[:], binary.BigEndian.Uint32(base[:])+n.next)
	n.next++
	return netip.AddrFrom4(base), true
}

func (n *subnet) give(addr netip.Addr, count int) {
	n.free += count
	n.back = append(n.back, addr)
}

func subnetNotFound(id string) *wire.Error {
	return wire.Errorf("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
}

func groupNotFound(id string) *wire.Error {
	return wire.Errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
}

func (s *Service) describeSubnets(_ *fault.Call, in *sdk.DescribeSubnetsInput) (*sdk.DescribeSubnetsOutput, error) {
	pass, err := subnetFilters.compile(in.Filters, func(n *subnet) map[string]string { return n.tags })
	if err != nil {
		return nil, err
	}
	all, err := s.subnets.pick(in.SubnetIds, func(id string) error { return subnetNotFound(id) })
	if err != nil {
		return nil, err
	}
	all, next, err := page(keep(all, pass), in.MaxResults, in.NextToken, limits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeSubnetsOutput{NextToken: next, Subnets: []types.Subnet{}}
	for _, n := range all {
		free := n.free
		if s.cfg.Faults.SubnetFull("DescribeSubnets", n.ID) {
			free = 0
		}
		out.Subnets = append(out.Subnets, types.Subnet{
			SubnetId: new(n.ID), VpcId: new(n.VPC), AvailabilityZone: new(n.Zone), AvailabilityZoneId: new(zoneIDs[n.Zone]),
			AvailableIpAddressCount: new(int32(free)), CidrBlock: new(n.CIDR), DefaultForAz: new(n.DefaultFor), //nolint:gosec // a /16 at most
			MapPublicIpOnLaunch: new(n.Public), State: types.SubnetStateAvailable, OwnerId: new(s.cfg.Account),
			SubnetArn: new(s.arn("subnet", n.ID)), Tags: tagList(n.tags), Ipv6Native: new(false),
			AssignIpv6AddressOnCreation: new(false),
		})
	}
	return out, nil
}

//nolint:gochecknoglobals // a table
var subnetFilters = filters[*subnet]{
	"subnet-id":                  func(n *subnet) []string { return one(n.ID) },
	"vpc-id":                     func(n *subnet) []string { return one(n.VPC) },
	"availability-zone":          func(n *subnet) []string { return one(n.Zone) },
	"availabilityZone":           func(n *subnet) []string { return one(n.Zone) },
	"availability-zone-id":       func(n *subnet) []string { return one(zoneIDs[n.Zone]) },
	"cidr-block":                 func(n *subnet) []string { return one(n.CIDR) },
	"state":                      func(*subnet) []string { return one("available") },
	"default-for-az":             func(n *subnet) []string { return one(strconv.FormatBool(n.DefaultFor)) },
	"map-public-ip-on-launch":    func(n *subnet) []string { return one(strconv.FormatBool(n.Public)) },
	"available-ip-address-count": func(n *subnet) []string { return one(strconv.Itoa(n.free)) },
}

// SecurityGroup is a security group to add. ID and VPC may be left empty, as in Subnet.
type SecurityGroup struct {
	ID, Name, VPC string
	Tags          map[string]string
}

type group struct {
	SecurityGroup
	tags map[string]string
}

func (g *group) key() string { return g.ID }

// AddSecurityGroup adds a security group, or replaces the one with the same id, and returns its id.
func (s *Service) AddSecurityGroup(v SecurityGroup) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.ID == "" {
		v.ID = s.mint("sg-")
	}
	if v.VPC == "" {
		v.VPC = defaultVPC
	}
	s.groups.add(&group{v, cloneTags(v.Tags)})
	return v.ID
}

func (s *Service) describeSecurityGroups(_ *fault.Call, in *sdk.DescribeSecurityGroupsInput) (*sdk.DescribeSecurityGroupsOutput, error) {
	pass, err := groupFilters.compile(in.Filters, func(g *group) map[string]string { return g.tags })
	if err != nil {
		return nil, err
	}
	all, err := s.groups.pick(in.GroupIds, func(id string) error { return groupNotFound(id) })
	if err != nil {
		return nil, err
	}
	if len(in.GroupNames) > 0 {
		named := anyLike(in.GroupNames)
		all = keep(all, func(g *group) bool { return named(g.Name) })
		if len(all) == 0 {
			return nil, groupNotFound(in.GroupNames[0])
		}
	}
	all, next, err := page(keep(all, pass), in.MaxResults, in.NextToken, limits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeSecurityGroupsOutput{NextToken: next, SecurityGroups: []types.SecurityGroup{}}
	for _, g := range all {
		out.SecurityGroups = append(out.SecurityGroups, types.SecurityGroup{
			GroupId: new(g.ID), GroupName: new(g.Name), VpcId: new(g.VPC), OwnerId: new(s.cfg.Account),
			Description: new(g.Name), SecurityGroupArn: new(s.arn("security-group", g.ID)), Tags: tagList(g.tags),
		})
	}
	return out, nil
}

//nolint:gochecknoglobals // a table
var groupFilters = filters[*group]{
	"group-id":   func(g *group) []string { return one(g.ID) },
	"group-name": func(g *group) []string { return one(g.Name) },
	"vpc-id":     func(g *group) []string { return one(g.VPC) },
}

// CapacityReservation is a reservation to add. An empty ID is made up.
type CapacityReservation struct {
	ID            string
	Type          string
	Zone          string
	Count         int
	Targeted      bool      // only launches that name it use it; otherwise any matching one does
	Block         bool      // a capacity block
	Interruptible bool      // EC2 may take the capacity back
	End           time.Time // zero: until it is cancelled
	Tags          map[string]string
}

type reservation struct {
	CapacityReservation
	tags    map[string]string
	created time.Time
	used    int
}

func (r *reservation) key() string { return r.ID }

func (r *reservation) state(now time.Time) types.CapacityReservationState {
	if !r.End.IsZero() && !now.Before(r.End) {
		return types.CapacityReservationStateExpired
	}
	return types.CapacityReservationStateActive
}

// AddCapacityReservation adds a reservation, or replaces the one with the same id, and returns its id.
func (s *Service) AddCapacityReservation(v CapacityReservation) (string, error) {
	if _, ok := LookupType(v.Type); !ok || zoneIDs[v.Zone] == "" || v.Count < 1 {
		return "", errors.New("add capacity reservation: a known type, a known zone and a count are needed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.ID == "" {
		v.ID = s.mint("cr-")
	}
	s.reservations.add(&reservation{CapacityReservation: v, tags: cloneTags(v.Tags), created: time.Now()})
	return v.ID, nil
}

func reservationNotFound(id string) *wire.Error {
	return wire.Errorf("InvalidCapacityReservationId.NotFound", "The capacity reservation ID '%s' does not exist", id)
}

func (s *Service) describeCapacityReservations(_ *fault.Call, in *sdk.DescribeCapacityReservationsInput) (*sdk.DescribeCapacityReservationsOutput, error) {
	pass, err := reservationFilters.compile(in.Filters, func(r *reservation) map[string]string { return r.tags })
	if err != nil {
		return nil, err
	}
	all, err := s.reservations.pick(in.CapacityReservationIds, func(id string) error { return reservationNotFound(id) })
	if err != nil {
		return nil, err
	}
	all, next, err := page(keep(all, pass), in.MaxResults, in.NextToken, limits{1, 1000, 1000})
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeCapacityReservationsOutput{NextToken: next, CapacityReservations: []types.CapacityReservation{}}
	for _, r := range all {
		out.CapacityReservations = append(out.CapacityReservations, s.showReservation(r))
	}
	return out, nil
}

func (s *Service) showReservation(r *reservation) types.CapacityReservation {
	v := types.CapacityReservation{
		CapacityReservationId: new(r.ID), CapacityReservationArn: new(s.arn("capacity-reservation", r.ID)), OwnerId: new(s.cfg.Account),
		InstanceType: new(r.Type), AvailabilityZone: new(r.Zone), AvailabilityZoneId: new(zoneIDs[r.Zone]),
		TotalInstanceCount: new(int32(r.Count)), AvailableInstanceCount: new(int32(r.Count - r.used)), //nolint:gosec // small counts
		InstancePlatform: types.CapacityReservationInstancePlatformLinuxUnix, State: r.state(time.Now()),
		Tenancy: types.CapacityReservationTenancyDefault, InstanceMatchCriteria: types.InstanceMatchCriteriaOpen,
		ReservationType: types.CapacityReservationTypeDefault, EndDateType: types.EndDateTypeUnlimited,
		CreateDate: new(r.created), StartDate: new(r.created), Interruptible: new(r.Interruptible), Tags: tagList(r.tags),
	}
	if r.Targeted {
		v.InstanceMatchCriteria = types.InstanceMatchCriteriaTargeted
	}
	if r.Block {
		v.ReservationType = types.CapacityReservationTypeCapacityBlock
	}
	if !r.End.IsZero() {
		v.EndDate, v.EndDateType = new(r.End), types.EndDateTypeLimited
	}
	return v
}

//nolint:gochecknoglobals // a table
var reservationFilters = filters[*reservation]{
	"instance-type":     func(r *reservation) []string { return one(r.Type) },
	"availability-zone": func(r *reservation) []string { return one(r.Zone) },
	"state":             func(r *reservation) []string { return one(string(r.state(time.Now()))) },
	"tenancy":           func(*reservation) []string { return one("default") },
	"instance-match-criteria": func(r *reservation) []string {
		if r.Targeted {
			return one("targeted")
		}
		return one("open")
	},
}

// PlacementGroup is a placement group to add. An empty ID is made up.
type PlacementGroup struct {
	ID, Name   string
	Strategy   types.PlacementStrategy
	Partitions int
	Tags       map[string]string
}

type placementGroup struct {
	PlacementGroup
	tags map[string]string
}

func (g *placementGroup) key() string { return g.ID }

// AddPlacementGroup adds a placement group, or replaces the one with the same id, and returns its id.
func (s *Service) AddPlacementGroup(v PlacementGroup) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.ID == "" {
		v.ID = s.mint("pg-")
	}
	s.placements.add(&placementGroup{v, cloneTags(v.Tags)})
	return v.ID
}

func placementGroupNotFound(name string) *wire.Error {
	return wire.Errorf("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", name)
}

func (s *Service) describePlacementGroups(_ *fault.Call, in *sdk.DescribePlacementGroupsInput) (*sdk.DescribePlacementGroupsOutput, error) {
	pass, err := placementFilters.compile(in.Filters, func(g *placementGroup) map[string]string { return g.tags })
	if err != nil {
		return nil, err
	}
	all, err := s.placements.pick(in.GroupIds, func(id string) error { return placementGroupNotFound(id) })
	if err != nil {
		return nil, err
	}
	if len(in.GroupNames) > 0 {
		named := anyLike(in.GroupNames)
		all = keep(all, func(g *placementGroup) bool { return named(g.Name) })
		if len(all) == 0 {
			return nil, placementGroupNotFound(in.GroupNames[0])
		}
	}
	out := &sdk.DescribePlacementGroupsOutput{PlacementGroups: []types.PlacementGroup{}}
	for _, g := range keep(all, pass) {
		v := types.PlacementGroup{
			GroupId: new(g.ID), GroupName: new(g.Name), GroupArn: new(s.arn("placement-group", g.Name)), Strategy: g.Strategy,
			State: types.PlacementGroupStateAvailable, Tags: tagList(g.tags),
		}
		if g.Strategy == types.PlacementStrategyPartition {
			v.PartitionCount = new(int32(g.Partitions)) //nolint:gosec // seven at most
		}
		out.PlacementGroups = append(out.PlacementGroups, v)
	}
	return out, nil
}

//nolint:gochecknoglobals // a table
var placementFilters = filters[*placementGroup]{
	"group-name": func(g *placementGroup) []string { return one(g.Name) },
	"strategy":   func(g *placementGroup) []string { return one(string(g.Strategy)) },
	"state":      func(*placementGroup) []string { return one("available") },
}

func (s *Service) describeAvailabilityZones(_ *fault.Call, in *sdk.DescribeAvailabilityZonesInput) (*sdk.DescribeAvailabilityZonesOutput, error) {
	pass, err := zoneFilters.compile(in.Filters, nil)
	if err != nil {
		return nil, err
	}
	chosen := map[string]bool{}
	for _, zone := range in.ZoneNames {
		if zoneIDs[zone] == "" {
			return nil, invalid("Invalid availability zone: [%s]", zone)
		}
		chosen[zone] = true
	}
	for _, id := range in.ZoneIds {
		zone := zoneOf(id)
		if zone == "" {
			return nil, invalid("Invalid availability zone-id: [%s]", id)
		}
		chosen[zone] = true
	}
	out := &sdk.DescribeAvailabilityZonesOutput{AvailabilityZones: []types.AvailabilityZone{}}
	for _, letter := range "abcdef" {
		zone := region + string(letter)
		if len(chosen) > 0 && !chosen[zone] || !pass(zone) {
			continue
		}
		out.AvailabilityZones = append(out.AvailabilityZones, types.AvailabilityZone{
			ZoneName: new(zone), ZoneId: new(zoneIDs[zone]), RegionName: new(region), GroupName: new(region + "-zg-1"),
			NetworkBorderGroup: new(region), OptInStatus: types.AvailabilityZoneOptInStatusOptInNotRequired,
			State: types.AvailabilityZoneStateAvailable, ZoneType: new("availability-zone"),
		})
	}
	return out, nil
}

//nolint:gochecknoglobals // a table
var zoneFilters = filters[string]{
	"zone-name":     one,
	"zone-id":       func(zone string) []string { return one(zoneIDs[zone]) },
	"zone-type":     func(string) []string { return one("availability-zone") },
	"region-name":   func(string) []string { return one(region) },
	"opt-in-status": func(string) []string { return one("opt-in-not-required") },
	"state":         func(string) []string { return one("available") },
}

// zoneOf returns the name of the zone with an id, or nothing.
func zoneOf(id string) string {
	for zone, have := range zoneIDs {
		if have == id {
			return zone
		}
	}
	return ""
}

// defaultVPC is the VPC of the default world.
var defaultVPC = "vpc-" + hexOf(17, "default vpc") //nolint:gochecknoglobals // a constant that Go cannot say as one

// addNetwork adds three private subnets of 16,379 addresses, three public ones and a security group. What a cluster's nodes may
// use carries the discovery tag: the private subnets and the group.
func (s *Service) addNetwork(cluster string) {
	for i, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		private := Subnet{
			ID: "subnet-" + hexOf(17, "private/"+zone), Zone: zone, CIDR: fmt.Sprintf("10.0.%d.0/18", i*64),
			Tags: map[string]string{
				"Name": cluster + "-private-" + zone, "karpenter.sh/discovery": cluster, "kubernetes.io/role/internal-elb": "1",
			},
		}
		public := Subnet{
			ID: "subnet-" + hexOf(17, "public/"+zone), Zone: zone, CIDR: fmt.Sprintf("10.0.%d.0/20", 192+i*16), Public: true,
			DefaultFor: true,
			Tags:       map[string]string{"Name": cluster + "-public-" + zone, "kubernetes.io/role/elb": "1"},
		}
		for _, v := range []Subnet{private, public} {
			if _, err := s.AddSubnet(v); err != nil {
				panic(err) // the literals above
			}
		}
	}
	s.AddSecurityGroup(SecurityGroup{
		ID: "sg-" + hexOf(17, "nodes"), Name: "eks-cluster-sg-" + cluster,
		Tags: map[string]string{
			"Name": "eks-cluster-sg-" + cluster, "karpenter.sh/discovery": cluster, "aws:eks:cluster-name": cluster,
			"kubernetes.io/cluster/" + cluster: "owned",
		},
	})
}

func cloneTags(tags map[string]string) map[string]string {
	own := map[string]string{}
	for k, v := range tags {
		own[k] = v
	}
	return own
}

// privateDNSName is the name that EC2 gives an address in us-east-1.
func privateDNSName(addr netip.Addr) string {
	return "ip-" + strings.ReplaceAll(addr.String(), ".", "-") + ".ec2.internal"
}
