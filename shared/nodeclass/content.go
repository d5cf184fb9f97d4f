package nodeclass

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/shared/cluster"
)

// maxUserData is how many bytes of user data EC2 takes, before base64.
const maxUserData = 16384

// template returns the request for the launch template of group g (L-041 to L-051).
func template(o Order, g *group) (*ec2.CreateLaunchTemplateInput, error) {
	spec := &o.Class.Spec
	text, err := userData(boot(o, g))
	if err != nil {
		return nil, err
	}
	if len(text) > maxUserData {
		return nil, fmt.Errorf("%w: user data is %d bytes, EC2 takes %d", ErrInvalid, len(text), maxUserData)
	}
	data := &types.RequestLaunchTemplateData{
		ImageId:                          aws.String(g.image.ID),
		UserData:                         aws.String(base64.StdEncoding.EncodeToString([]byte(text))),
		BlockDeviceMappings:              blockDevices(spec),
		IamInstanceProfile:               &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String(o.Class.Status.InstanceProfile)},
		Monitoring:                       &types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(spec.DetailedMonitoring)},
		MetadataOptions:                  metadata(o),
		NetworkInterfaces:                interfaces(o, g),
		Placement:                        placement(o),
		CapacityReservationSpecification: reservation(g),
		TagSpecifications:                launchTags(o),
	}
	if data.NetworkInterfaces == nil {
		data.SecurityGroupIds = groupIDs(&o.Class)
	}
	if spec.NestedVirtualization != "" {
		data.CpuOptions = &types.LaunchTemplateCpuOptionsRequest{
			NestedVirtualization: types.NestedVirtualizationSpecification(spec.NestedVirtualization),
		}
	}
	if market := marketOf(g.reservation); market != "" {
		data.InstanceMarketOptions = &types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: market}
	}
	return named(&ec2.CreateLaunchTemplateInput{
		LaunchTemplateData: data,
		TagSpecifications:  []types.TagSpecification{{ResourceType: types.ResourceTypeLaunchTemplate, Tags: tags(o)}},
	})
}

func blockDevices(spec *cluster.NodeClassSpec) []types.LaunchTemplateBlockDeviceMappingRequest {
	devices := spec.BlockDevices
	if len(devices) == 0 {
		devices = familyOf(*spec).blockDevices()
	}
	var out []types.LaunchTemplateBlockDeviceMappingRequest
	for _, d := range devices {
		ebs := &types.LaunchTemplateEbsBlockDeviceRequest{
			DeleteOnTermination:      d.DeleteOnTermination,
			Encrypted:                d.Encrypted,
			KmsKeyId:                 given(d.KMSKeyID),
			SnapshotId:               given(d.SnapshotID),
			VolumeType:               types.VolumeType(d.VolumeType),
			Iops:                     narrow(d.IOPS),
			Throughput:               narrow(d.Throughput),
			VolumeInitializationRate: d.InitializationRate,
		}
		if d.VolumeSizeBytes > 0 {
			ebs.VolumeSize = aws.Int32(int32((d.VolumeSizeBytes + gib - 1) / gib)) //nolint:gosec // GiB: the API allows 59,000
		}
		out = append(out, types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: given(d.DeviceName), Ebs: ebs})
	}
	return out
}

// metadata returns the class's choice, or else the default of its API (C-021).
func metadata(o Order) *types.LaunchTemplateInstanceMetadataOptionsRequest {
	m := cluster.MetadataOptions{HTTPEndpoint: "enabled", HTTPProtocolIPv6: "disabled", HTTPTokens: "required"}
	hops := int64(1)
	if given := o.Class.Spec.Metadata; given != nil {
		m = *given
	}
	if m.HTTPPutResponseHopLimit != nil {
		hops = *m.HTTPPutResponseHopLimit
	}
	out := &types.LaunchTemplateInstanceMetadataOptionsRequest{
		HttpEndpoint:            types.LaunchTemplateInstanceMetadataEndpointState(m.HTTPEndpoint),
		HttpPutResponseHopLimit: aws.Int32(int32(hops)),
		HttpTokens:              types.LaunchTemplateHttpTokensState(m.HTTPTokens),
		InstanceMetadataTags:    types.LaunchTemplateInstanceMetadataTagsStateDisabled,
	}
	if !strings.Contains(o.Facts.Region, "-iso") { // the isolated partitions do not know the field (L-043)
		out.HttpProtocolIpv6 = types.LaunchTemplateInstanceMetadataProtocolIpv6(m.HTTPProtocolIPv6)
	}
	return out
}

type networkInterface = types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest

// interfaces returns the interfaces that have to be spelled out; nil where EC2's own will do.
func interfaces(o Order, g *group) []networkInterface {
	spec := &o.Class.Spec
	groups := groupIDs(&o.Class)
	switch {
	case len(spec.NetworkInterfaces) > 0:
		var out []networkInterface
		for _, n := range spec.NetworkInterfaces {
			out = append(out, oneInterface(o, groups, n.NetworkCardIndex, n.DeviceIndex, n.Type))
		}
		return out
	case g.efas > 0:
		var out []networkInterface
		for card := range int32(g.efas) { //nolint:gosec // interfaces of one instance
			out = append(out, oneInterface(o, groups, card, min(card, 1), "efa"))
		}
		return out
	case spec.AssociatePublicIP != nil || spec.IPPrefixCount != nil || spec.ConnectionTracking != nil || o.Facts.ipv6():
		return []networkInterface{oneInterface(o, groups, 0, 0, "interface")}
	default:
		return nil
	}
}

func oneInterface(o Order, groups []string, card, device int32, kind string) networkInterface {
	spec := &o.Class.Spec
	out := networkInterface{
		NetworkCardIndex: aws.Int32(card),
		DeviceIndex:      aws.Int32(device),
		InterfaceType:    aws.String(kind),
		Groups:           groups,
	}
	if c := spec.ConnectionTracking; c != nil && kind != "efa-only" {
		out.ConnectionTrackingSpecification = &types.ConnectionTrackingSpecificationRequest{
			TcpEstablishedTimeout: c.TCPEstablishedSeconds, UdpStreamTimeout: c.UDPStreamSeconds, UdpTimeout: c.UDPSeconds,
		}
	}
	if card != 0 || device != 0 {
		return out // addresses are for the primary interface alone
	}
	out.AssociatePublicIpAddress = spec.AssociatePublicIP
	if o.Facts.ipv6() {
		out.PrimaryIpv6 = aws.Bool(true)
		out.Ipv6AddressCount = aws.Int32(1)
		out.Ipv6PrefixCount = spec.IPPrefixCount
	} else {
		out.Ipv4PrefixCount = spec.IPPrefixCount
	}
	return out
}

// placement names the placement group of the class, and dedicated tenancy where the claim leaves no other (L-017).
func placement(o Order) *types.LaunchTemplatePlacementRequest {
	out := types.LaunchTemplatePlacementRequest{}
	if group := o.Class.Spec.PlacementGroup; group != nil {
		out.GroupId, out.GroupName = given(group.ID), given(group.Name)
	}
	if !cluster.NewRequirements(nil, o.Claim.Requirements...).Allows(labelTenancy, "default") {
		out.Tenancy = types.TenancyDedicated
	}
	if out == (types.LaunchTemplatePlacementRequest{}) {
		return nil
	}
	return &out
}

// reservation keeps instances that are not meant for a reservation out of open ones, which belong to somebody else's plan
// (L-046).
func reservation(g *group) *types.LaunchTemplateCapacityReservationSpecificationRequest {
	if g.reservation.ID == "" {
		return &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: types.CapacityReservationPreferenceNone,
		}
	}
	return &types.LaunchTemplateCapacityReservationSpecificationRequest{
		CapacityReservationPreference: types.CapacityReservationPreferenceCapacityReservationsOnly,
		CapacityReservationTarget:     &types.CapacityReservationTarget{CapacityReservationId: aws.String(g.reservation.ID)},
	}
}

func marketOf(r cluster.Reservation) types.MarketType {
	switch {
	case r.Kind == "capacity-block":
		return types.MarketTypeCapacityBlock
	case r.Interruptible:
		return types.MarketTypeInterruptibleCapacityReservation
	default:
		return ""
	}
}

// launchTags tags what only a template can: interfaces, and the requests for Spot instances, which other fleets refuse (L-029).
func launchTags(o Order) []types.LaunchTemplateTagSpecificationRequest {
	list := tags(o)
	out := []types.LaunchTemplateTagSpecificationRequest{{ResourceType: types.ResourceTypeNetworkInterface, Tags: list}}
	if len(o.Claim.Options) > 0 && o.Claim.Options[0].CapacityType == cluster.Spot {
		out = append(out, types.LaunchTemplateTagSpecificationRequest{ResourceType: types.ResourceTypeSpotInstancesRequest, Tags: list})
	}
	return out
}

// tags are those of tagsOf and the pool's name (L-050).
func tags(o Order) []types.Tag {
	all := tagsOf(o.Facts.Cluster, o.Class)
	all[cluster.LabelNodePool] = o.Pool.Name
	out := make([]types.Tag, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, types.Tag{Key: aws.String(key), Value: aws.String(all[key])})
	}
	return out
}

// tagsOf are the tags of the class, and over them what says whose it is (L-027, C-086).
func tagsOf(clusterName string, class cluster.NodeClass) map[string]string {
	all := maps.Clone(class.Spec.Tags)
	if all == nil {
		all = map[string]string{}
	}
	all["kubernetes.io/cluster/"+clusterName] = "owned"
	all["eks:eks-cluster-name"] = clusterName
	all[cluster.LabelNodeClass] = class.Name
	return all
}

func groupIDs(class *cluster.NodeClass) []string {
	out := make([]string, 0, len(class.Status.SecurityGroups))
	for _, g := range class.Status.SecurityGroups {
		out = append(out, g.ID)
	}
	return out
}

func given(s string) *string {
	if s == "" {
		return nil
	}
	return aws.String(s)
}

func narrow(n *int64) *int32 {
	if n == nil {
		return nil
	}
	return aws.Int32(int32(*n)) //nolint:gosec // bounded by the API's schema
}
