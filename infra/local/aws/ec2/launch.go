package ec2

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// The capacity types of pools.
const (
	spot     = "spot"
	onDemand = "on-demand"
	reserved = "reserved"
)

// choice is one way to launch an instance: a type in a subnet, with all else that the launch says.
type choice struct {
	data     types.RequestLaunchTemplateData // template, with what the request says over it
	template *template                       // nil without one
	pool     fault.Pool
	typ      *Type
	subnet   *subnet
	image    *image
	groups   []*group
	userData []byte
	profile  string
	reserved *reservation
}

// resolve finds what a launch refers to and checks that it fits together, as EC2 does when it launches.
func (s *Service) resolve(data types.RequestLaunchTemplateData, capacity string, subnetID, zone string) (*choice, *wire.Error) {
	c := &choice{data: data}
	name := string(data.InstanceType)
	var ok bool
	if name == "" {
		return nil, missing("InstanceType")
	}
	if c.typ, ok = LookupType(name); !ok {
		return nil, invalid("Invalid value '%s' for InstanceType.", name)
	}
	if data.InstanceRequirements != nil {
		return nil, unsupported("choosing instance types by requirements")
	}
	if refused := s.resolvePlace(c, subnetID, zone); refused != nil {
		return nil, refused
	}
	c.pool = fault.Pool{Type: name, Zone: c.subnet.Zone, Capacity: capacity}
	for _, step := range []func(*choice) *wire.Error{s.resolveImage, s.resolveGroups, s.resolveProfile, s.resolvePlacement, s.resolveReservation} {
		if refused := step(c); refused != nil {
			return nil, refused
		}
	}
	if data.IamInstanceProfile != nil && c.profile == "" {
		return nil, invalid("Value () for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name")
	}
	b, err := decodeUserData(data.UserData)
	if err != nil {
		return nil, err.(*wire.Error) //nolint:errorlint,forcetypeassert // decodeUserData makes no other
	}
	c.userData = b
	return c, nil
}

// resolvePlace finds the subnet: the one named, or else the default one of the zone, or else the zone's with most room.
func (s *Service) resolvePlace(c *choice, subnetID, zone string) *wire.Error {
	if subnetID == "" && len(c.data.NetworkInterfaces) > 0 {
		subnetID = deref(c.data.NetworkInterfaces[0].SubnetId)
	}
	if p := c.data.Placement; p != nil && zone == "" {
		zone = cmp.Or(deref(p.AvailabilityZone), zoneOf(deref(p.AvailabilityZoneId)))
	}
	if zone != "" && zoneIDs[zone] == "" {
		return invalid("Invalid availability zone: [%s]", zone)
	}
	if subnetID == "" {
		if c.subnet = s.subnetIn(zone, c.typ); c.subnet == nil {
			return wire.Errorf("MissingInput", "No subnet found for the Availability Zone '%s'.", zone)
		}
		return nil
	}
	n, ok := s.subnets.byID[subnetID]
	if !ok {
		return subnetNotFound(subnetID)
	}
	if zone != "" && n.Zone != zone {
		return wire.Errorf("InvalidParameterCombination", "The subnet '%s' is in Availability Zone %s, not in %s", subnetID, n.Zone, zone)
	}
	c.subnet = n
	return nil
}

// subnetIn chooses a subnet in a zone, or with an empty one in any zone that has the type; nil if there is none.
func (s *Service) subnetIn(zone string, t *Type) *subnet {
	fits := keep(s.subnets.all(), func(n *subnet) bool {
		return (zone == "" || n.Zone == zone) && slices.Contains(t.Zones, n.Zone)
	})
	if len(fits) == 0 {
		return nil
	}
	return slices.MaxFunc(fits, func(a, b *subnet) int {
		return cmp.Or(btoi(a.DefaultFor)-btoi(b.DefaultFor), a.free-b.free)
	})
}

func (s *Service) resolveImage(c *choice) *wire.Error {
	id := deref(c.data.ImageId)
	if id == "" {
		return missing("ImageId")
	}
	// A template may name an image through a public parameter.
	if path, ok := strings.CutPrefix(id, "resolve:ssm:"); ok {
		if id, ok = s.ssm[path]; !ok {
			return invalid("Could not resolve the SSM parameter '%s'", path)
		}
	}
	if !strings.HasPrefix(id, "ami-") {
		return wire.Errorf("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", id)
	}
	m, ok := s.images.byID[id]
	if !ok {
		return imageNotFound(id)
	}
	if m.Arch != c.typ.Arch {
		return invalid("The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI.",
			architecture(c.typ.Arch), architecture(m.Arch))
	}
	c.image = m
	return nil
}

func (s *Service) resolveGroups(c *choice) *wire.Error {
	ids := c.data.SecurityGroupIds
	if len(c.data.NetworkInterfaces) > 0 {
		ids = c.data.NetworkInterfaces[0].Groups
	}
	for _, id := range ids {
		g, ok := s.groups.byID[id]
		if !ok {
			return groupNotFound(id)
		}
		if g.VPC != c.subnet.VPC {
			return wire.Errorf("InvalidParameter", "Security group %s and subnet %s belong to different networks.", id, c.subnet.ID)
		}
		c.groups = append(c.groups, g)
	}
	return nil
}

func (s *Service) resolveProfile(c *choice) *wire.Error {
	p := c.data.IamInstanceProfile
	if p == nil {
		return nil
	}
	c.profile = deref(p.Name)
	if arn := deref(p.Arn); arn != "" {
		c.profile = arn[strings.LastIndexByte(arn, '/')+1:]
	}
	if s.cfg.ProfileExists != nil && !s.cfg.ProfileExists(c.profile) {
		return invalid("Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", c.profile)
	}
	return nil
}

func (s *Service) resolvePlacement(c *choice) *wire.Error {
	p := c.data.Placement
	if p == nil {
		return nil
	}
	if id := deref(p.GroupId); id != "" && s.placements.byID[id] == nil {
		return placementGroupNotFound(id)
	}
	if name := deref(p.GroupName); name != "" && !slices.ContainsFunc(s.placements.all(), func(g *placementGroup) bool { return g.Name == name }) {
		return placementGroupNotFound(name)
	}
	return nil
}

// resolveReservation finds the reservation that a launch names, or an open one that an On-Demand launch falls into.
func (s *Service) resolveReservation(c *choice) *wire.Error {
	preference := types.CapacityReservationPreferenceOpen
	if spec := c.data.CapacityReservationSpecification; spec != nil {
		if spec.CapacityReservationPreference != "" {
			preference = spec.CapacityReservationPreference
		}
		if target := spec.CapacityReservationTarget; target != nil {
			id := deref(target.CapacityReservationId)
			r, ok := s.reservations.byID[id]
			switch {
			case !ok:
				return reservationNotFound(id)
			case r.Type != c.typ.Name || r.Zone != c.subnet.Zone:
				return invalid("The capacity reservation %s does not match the instance's type and Availability Zone", id)
			case r.state(time.Now()) != types.CapacityReservationStateActive:
				return wire.Errorf("InvalidCapacityReservationState", "The capacity reservation %s is not active", id)
			}
			c.reserved, c.pool.Capacity = r, reserved
			return nil
		}
	}
	if c.pool.Capacity == reserved {
		return wire.Errorf("InvalidParameterCombination", "Launching into reserved capacity needs a capacity reservation target.")
	}
	if c.pool.Capacity != onDemand || preference == types.CapacityReservationPreferenceNone {
		return nil
	}
	for _, r := range s.reservations.all() {
		if !r.Targeted && !r.Block && r.Type == c.typ.Name && r.Zone == c.subnet.Zone && r.used < r.Count &&
			r.state(time.Now()) == types.CapacityReservationStateActive {
			c.reserved = r
			return nil
		}
	}
	if preference == types.CapacityReservationPreferenceCapacityReservationsOnly {
		return wire.Errorf("ReservationCapacityExceeded", "No open capacity reservation matches %s in %s.", c.typ.Name, c.subnet.Zone)
	}
	return nil
}

// hold is what one launch has taken and would give back if it did not come about.
type hold struct {
	*choice
	stocks    []string
	addresses int
	undo      func()
}

// acquire takes the capacity for one instance.
func (s *Service) acquire(action string, c *choice) (*hold, *fault.Refusal) {
	switch {
	case !slices.Contains(c.typ.Zones, c.pool.Zone) || s.cfg.Faults.Withdrawn(action, c.pool):
		return nil, &fault.Refusal{Code: "Unsupported", Message: fmt.Sprintf(
			"Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", c.typ.Name, c.pool.Zone)}
	case c.pool.Capacity == spot && !c.typ.SpotCapable:
		return nil, &fault.Refusal{Code: "Unsupported", Message: "The requested instance type " + c.typ.Name + " is not available as Spot."}
	}
	count := max(s.cfg.AddressesPer(c.typ), 1)
	if c.subnet.free < count || s.cfg.Faults.SubnetFull(action, c.subnet.ID) {
		return nil, &fault.Refusal{Code: "InsufficientFreeAddressesInSubnet", Message: fmt.Sprintf(
			"There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", c.subnet.ID)}
	}
	r := c.reserved
	if r != nil && r.used >= r.Count {
		if c.pool.Capacity == reserved {
			return nil, &fault.Refusal{Code: "ReservationCapacityExceeded", Message: "The requested reservation does not have sufficient available capacity."}
		}
		r = nil
	}
	stocks, refused := s.cfg.Faults.Take(c.pool)
	if refused != nil {
		return nil, refused
	}
	if r != nil {
		r.used++
	}
	held := *c
	held.reserved = r
	h := &hold{choice: &held, stocks: stocks, addresses: count}
	c.subnet.free -= count
	h.undo = func() {
		c.subnet.free += count
		if r != nil {
			r.used--
		}
		s.cfg.Faults.Give(stocks, false)
	}
	return h, nil
}

// launch turns a hold into an instance. token is what the instance's client token shall be.
func (s *Service) launch(h *hold, reservationID, token string, tags map[string]string) *instance {
	h.subnet.free += h.addresses
	addr, _ := h.subnet.take(h.addresses)
	now := time.Now()
	i := &instance{
		id: s.mint("i-"), pool: h.pool, typ: h.typ, reservationID: reservationID, userData: h.userData, profile: h.profile,
		tags: map[string]string{}, state: types.InstanceStateNamePending, launched: now, stocks: h.stocks, subnet: h.subnet, addr: addr,
		addresses: h.addresses, reserved: h.reserved, impaired: map[string]time.Time{},
	}
	s.launches++
	i.seq = s.launches
	if h.template != nil {
		i.tags["aws:ec2launchtemplate:id"] = h.template.id
		i.tags["aws:ec2launchtemplate:version"] = "1"
	}
	for _, spec := range h.data.TagSpecifications {
		if spec.ResourceType == types.ResourceTypeInstance {
			maps.Copy(i.tags, tagMap(spec.Tags))
		}
	}
	maps.Copy(i.tags, tags)
	i.shown = s.shown(h, i, token)
	i.boot = s.cfg.Faults.Boot(h.pool, i.id)
	s.instances[i.id] = i
	s.order = append(s.order, i)
	s.begin(i)
	return i
}

// shown is what describing an instance says of it for all its life.
func (s *Service) shown(h *hold, i *instance, token string) types.Instance {
	groups := []types.GroupIdentifier{}
	for _, g := range h.groups {
		groups = append(groups, types.GroupIdentifier{GroupId: new(g.ID), GroupName: new(g.Name)})
	}
	name := privateDNSName(i.addr)
	v := types.Instance{
		InstanceId: new(i.id), ImageId: new(h.image.ID), InstanceType: types.InstanceType(h.typ.Name), AmiLaunchIndex: new(int32(0)),
		Architecture: architecture(h.typ.Arch), LaunchTime: new(i.launched), SubnetId: new(h.subnet.ID), VpcId: new(h.subnet.VPC),
		PrivateIpAddress: new(i.addr.String()), PrivateDnsName: new(name), PublicDnsName: new(""), SecurityGroups: groups,
		RootDeviceName: new(h.image.Device), RootDeviceType: types.DeviceTypeEbs, VirtualizationType: types.VirtualizationTypeHvm,
		Hypervisor: types.HypervisorTypeXen, EnaSupport: new(true), EbsOptimized: new(deref(h.data.EbsOptimized)), SourceDestCheck: new(true),
		PlatformDetails: new("Linux/UNIX"), UsageOperation: new("RunInstances"), Monitoring: &types.Monitoring{State: types.MonitoringStateDisabled},
		Placement: &types.Placement{
			AvailabilityZone: new(h.pool.Zone), AvailabilityZoneId: new(zoneIDs[h.pool.Zone]), GroupName: new(""), Tenancy: types.TenancyDefault,
		},
		MetadataOptions: &types.InstanceMetadataOptionsResponse{
			State: types.InstanceMetadataOptionsStateApplied, HttpEndpoint: types.InstanceMetadataEndpointStateEnabled,
			HttpTokens: types.HttpTokensStateOptional, HttpPutResponseHopLimit: new(int32(1)),
			HttpProtocolIpv6: types.InstanceMetadataProtocolStateDisabled, InstanceMetadataTags: types.InstanceMetadataTagsStateDisabled,
		},
		CapacityReservationSpecification: &types.CapacityReservationSpecificationResponse{
			CapacityReservationPreference: types.CapacityReservationPreferenceOpen,
		},
		NetworkInterfaces: []types.InstanceNetworkInterface{{
			NetworkInterfaceId: new("eni-" + hexOf(17, i.id)), SubnetId: new(h.subnet.ID), VpcId: new(h.subnet.VPC), OwnerId: new(s.cfg.Account),
			PrivateIpAddress: new(i.addr.String()), PrivateDnsName: new(name), Status: types.NetworkInterfaceStatusInUse, Groups: groups,
			InterfaceType: new("interface"), SourceDestCheck: new(true),
		}},
	}
	if token != "" {
		v.ClientToken = new(token)
	}
	if h.image.Windows {
		v.Platform, v.PlatformDetails, v.UsageOperation = types.PlatformValuesWindows, new("Windows"), new("RunInstances:0002")
	}
	switch h.pool.Capacity {
	case spot:
		v.InstanceLifecycle, v.SpotInstanceRequestId = types.InstanceLifecycleTypeSpot, new("sir-"+hexOf(8, i.id))
	case reserved:
		if h.reserved.Block {
			v.InstanceLifecycle = types.InstanceLifecycleTypeCapacityBlock
		}
	}
	if h.reserved != nil {
		v.CapacityReservationId = new(h.reserved.ID)
	}
	s.applyData(&v, h)
	return v
}

// applyData shows what the launch said beyond where and what.
func (s *Service) applyData(v *types.Instance, h *hold) {
	d := h.data
	if h.profile != "" {
		v.IamInstanceProfile = &types.IamInstanceProfile{
			Arn: new("arn:aws:iam::" + s.cfg.Account + ":instance-profile/" + h.profile), Id: new("AIPA" + strings.ToUpper(hexOf(17, h.profile))),
		}
	}
	if p := d.Placement; p != nil {
		overlay(v.Placement, p)
	}
	if m := d.MetadataOptions; m != nil {
		overlay(v.MetadataOptions, m)
	}
	if d.CapacityReservationSpecification != nil {
		overlay(v.CapacityReservationSpecification, d.CapacityReservationSpecification)
	}
	if d.Monitoring != nil && deref(d.Monitoring.Enabled) {
		v.Monitoring.State = types.MonitoringStateEnabled
	}
	if d.CpuOptions != nil {
		v.CpuOptions = new(convert[types.CpuOptions](d.CpuOptions))
	}
	if d.EnclaveOptions != nil {
		v.EnclaveOptions = new(convert[types.EnclaveOptions](d.EnclaveOptions))
	}
	v.KeyName = d.KeyName
	v.BlockDeviceMappings = []types.InstanceBlockDeviceMapping{}
	devices := []string{h.image.Device}
	for _, m := range d.BlockDeviceMappings {
		if name := deref(m.DeviceName); m.Ebs != nil && !slices.Contains(devices, name) {
			devices = append(devices, name)
		}
	}
	for _, device := range devices {
		v.BlockDeviceMappings = append(v.BlockDeviceMappings, types.InstanceBlockDeviceMapping{
			DeviceName: new(device),
			Ebs: &types.EbsInstanceBlockDevice{
				VolumeId: new("vol-" + hexOf(17, *v.InstanceId+device)), Status: types.AttachmentStatusAttached,
				AttachTime: v.LaunchTime, DeleteOnTermination: new(true),
			},
		})
	}
}

// overlay copies the members that are set in over onto the members of the same names in base, both pointers to shapes.
func overlay(base, over any) {
	to, from := reflect.ValueOf(base).Elem(), reflect.ValueOf(over).Elem()
	for n := range from.NumField() {
		name := from.Type().Field(n).Name
		field, target := from.Field(n), to.FieldByName(name)
		if !from.Type().Field(n).IsExported() || field.IsZero() || !target.IsValid() {
			continue
		}
		switch {
		case field.Type() == target.Type():
			target.Set(field)
		case field.Kind() == reflect.String && target.Kind() == reflect.String:
			target.SetString(field.String())
		default:
			target.Set(converted(field, target.Type()))
		}
	}
}
