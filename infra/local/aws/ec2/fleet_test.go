package ec2_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
)

func TestCreateFleet_AppliesTheTemplate(t *testing.T) {
	t.Parallel()
	s := start(t)
	subnets, group := network(t, s.Service)
	in := s.fleet(t, s.template(t), "on-demand", 1, over("m5.large", "b"))
	in.TagSpecifications = []types.TagSpecification{{
		ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: new("karpenter.sh/nodepool"), Value: new("default & <co>")}},
	}}
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Errors)
	require.Equal(t, []string{"m5.large@b"}, launched(out))

	got, err := s.client.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{InstanceIds: ids(out)})
	require.NoError(t, err)
	i := got.Reservations[0].Instances[0]
	require.Equal(t, subnets["us-east-1b"], *i.SubnetId)
	require.Equal(t, "us-east-1b", *i.Placement.AvailabilityZone)
	require.Equal(t, "use1-az4", *i.Placement.AvailabilityZoneId)
	require.Equal(t, group, *i.SecurityGroups[0].GroupId)
	require.Contains(t, *i.IamInstanceProfile.Arn, "instance-profile/demo-node")
	require.Equal(t, types.HttpTokensStateRequired, i.MetadataOptions.HttpTokens)
	require.EqualValues(t, 2, *i.MetadataOptions.HttpPutResponseHopLimit)
	require.Regexp(t, `^ip-10-0-\d+-\d+\.ec2\.internal$`, *i.PrivateDnsName)
	require.Nil(t, i.SpotInstanceRequestId)
	tags := map[string]string{}
	for _, tag := range i.Tags {
		tags[*tag.Key] = *tag.Value
	}
	require.Equal(t, "default & <co>", tags["karpenter.sh/nodepool"])
	require.Equal(t, "template", tags["from"])
	require.Equal(t, *out.FleetId, tags["aws:ec2:fleet-id"])

	copied := s.Instances()[0]
	require.Equal(t, userData, string(copied.UserData))
	require.Equal(t, "aws:///us-east-1b/"+ids(out)[0], copied.ProviderID())
	require.Equal(t, "demo-node", copied.Profile)
}

func TestCreateFleet_ChoosesByStrategy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capacity string
		od       types.FleetOnDemandAllocationStrategy
		spot     *types.SpotOptionsRequest
		target   int
		from     []types.FleetLaunchTemplateOverridesRequest
		want     []string
	}{
		"On-Demand takes the lowest price unless told otherwise": {
			"on-demand", "", nil, 1, []types.FleetLaunchTemplateOverridesRequest{over("r5.large", "a"), over("c5.large", "a"), over("m5.large", "a")},
			[]string{"c5.large@a"},
		},
		"On-Demand by priority takes the lowest number, whatever the price": {
			"on-demand", types.FleetOnDemandAllocationStrategyPrioritized, nil, 1,
			[]types.FleetLaunchTemplateOverridesRequest{prior("c5.large", "a", 2), prior("r5.large", "a", 1), over("t3.small", "a")},
			[]string{"r5.large@a"},
		},
		"Spot at the lowest price takes the cheapest pool": {
			"spot", "", nil, 2, []types.FleetLaunchTemplateOverridesRequest{over("r5.large", "a"), over("m5.large", "a"), over("m5.2xlarge", "a")},
			[]string{"m5.large@a", "m5.large@a"},
		},
		"Spot at the lowest price over two pools takes turns": {
			"spot", "", &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyLowestPrice, InstancePoolsToUseCount: new(int32(2))}, 3,
			[]types.FleetLaunchTemplateOverridesRequest{over("m5.large", "a"), over("m5.4xlarge", "a"), over("m5.24xlarge", "a")},
			[]string{"m5.large@a", "m5.large@a", "m5.4xlarge@a"},
		},
		"Spot by price and capacity passes by a cheap pool that is often interrupted": {
			"spot", "", &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyPriceCapacityOptimized}, 1,
			[]types.FleetLaunchTemplateOverridesRequest{over("a1.2xlarge", "a"), over("d3.8xlarge", "a"), over("d3.xlarge", "a")},
			[]string{"d3.xlarge@a"},
		},
		"Spot by capacity and priority keeps to the priority among pools that are alike": {
			"spot", "", &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyCapacityOptimizedPrioritized}, 1,
			[]types.FleetLaunchTemplateOverridesRequest{prior("d3.xlarge", "a", 9), prior("d3.xlarge", "b", 1)},
			[]string{"d3.xlarge@b"},
		},
		"Spot by capacity alone takes what is interrupted least": {
			"spot", "", &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyCapacityOptimized}, 1,
			[]types.FleetLaunchTemplateOverridesRequest{over("m5.large", "a"), over("m5.large", "b"), over("d3.8xlarge", "c"), over("t3.micro", "a")},
			[]string{"t3.micro@a"},
		},
		"Spot diversified takes one of each": {
			"spot", "", &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyDiversified}, 3,
			[]types.FleetLaunchTemplateOverridesRequest{over("m5.large", "a"), over("m5.large", "b"), over("r5.large", "c")},
			[]string{"m5.large@a", "m5.large@b", "r5.large@c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			id := s.template(t, func(d *types.RequestLaunchTemplateData) {
				if c.from[0].InstanceType == "a1.2xlarge" {
					c.from[0].ImageId = new(image(t, s.Service, "arm64/standard"))
				}
			})
			in := s.fleet(t, id, c.capacity, c.target, c.from...)
			in.SpotOptions = c.spot
			if c.od != "" {
				in.OnDemandOptions = &types.OnDemandOptionsRequest{AllocationStrategy: c.od}
			}
			out, err := s.client.CreateFleet(t.Context(), in)
			require.NoError(t, err)
			require.Empty(t, errorCodes(out))
			require.ElementsMatch(t, c.want, launched(out))
		})
	}
}

func TestCreateFleet_PlacesZonesWithoutSubnets(t *testing.T) {
	t.Parallel()
	s := start(t)
	o := types.FleetLaunchTemplateOverridesRequest{InstanceType: "m5.large", AvailabilityZone: new("us-east-1c")}
	in := s.fleet(t, s.template(t), "spot", 1, over("m5.large", "c"))
	in.LaunchTemplateConfigs[0].Overrides[0] = o
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []string{"m5.large@c"}, launched(out))
	require.NotEmpty(t, s.Instances()[0].SpotRequestID)
}

func TestCreateFleet_ReportsErrorsBesideInstances(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "m5.large", Capacity: "spot"}},
		fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "m6i.large", Zone: "us-east-1b"}, Stock: new(1)})
	in := s.fleet(t, s.template(t), "spot", 3, prior("m5.large", "a", 1), prior("m5.large", "b", 2), prior("m6i.large", "b", 3), prior("r5.large", "c", 4))
	in.SpotOptions = &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyLowestPrice}
	for typeName, price := range map[string]float64{"m5.large": 0.01, "m6i.large": 0.02, "r5.large": 0.03} {
		for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
			require.NoError(t, s.SetSpotPrice(typeName, zone, price))
		}
	}
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []string{"m6i.large@b", "r5.large@c", "r5.large@c"}, launched(out))
	require.Len(t, out.Instances, 2, "ids are grouped by override")
	require.Equal(t, []string{"InsufficientInstanceCapacity", "InsufficientInstanceCapacity", "InsufficientInstanceCapacity"}, errorCodes(out))
	first := out.Errors[0]
	require.Equal(t, types.InstanceLifecycleSpot, first.Lifecycle)
	require.EqualValues(t, "m5.large", first.LaunchTemplateAndOverrides.Overrides.InstanceType)
	require.Equal(t, "us-east-1a", *first.LaunchTemplateAndOverrides.Overrides.AvailabilityZone)
	require.Equal(t, "1", *first.LaunchTemplateAndOverrides.LaunchTemplateSpecification.Version)
	require.Contains(t, *first.ErrorMessage, "sufficient m5.large capacity in the Availability Zone you requested (us-east-1a)")
	require.Len(t, s.Faults().Fired(), 3)
}

func TestCreateFleet_RepeatsAnAnswerForItsToken(t *testing.T) {
	t.Parallel()
	s := start(t)
	in := s.fleet(t, s.template(t), "spot", 1, over("m5.large", "a"))
	in.ClientToken = new("claim-1")
	first, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	again, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, ids(first), ids(again))
	require.Equal(t, first.FleetId, again.FleetId)
	require.Len(t, s.Instances(), 1)

	in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeOnDemand
	_, err = s.client.CreateFleet(t.Context(), in)
	require.Equal(t, "IdempotentParameterMismatch", code(t, err))
	in.ClientToken = new("claim-1-b")
	_, err = s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, s.Instances(), 2)
	require.Empty(t, s.Calls().TokensOfSeveralLaunches())
	calls := s.Calls().Calls("CreateFleet")
	require.Len(t, calls, 4)
	require.Equal(t, "AKIDPROVISION", calls[0].AccessKeyID)
	require.True(t, calls[1].Replayed)
	require.Equal(t, "IdempotentParameterMismatch", calls[2].Code)
}

func TestCreateFleet_DryRunLaunchesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	in := s.fleet(t, s.template(t), "on-demand", 1, over("m5.large", "a"))
	in.DryRun = new(true)
	_, err := s.client.CreateFleet(t.Context(), in)
	require.Equal(t, "DryRunOperation", code(t, err))
	require.Empty(t, s.Instances())
}

func TestCreateFleet_KeepsToItsMinimum(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "m5.large"}, Stock: new(2)})
	in := s.fleet(t, s.template(t), "on-demand", 3, over("m5.large", "a"))
	in.OnDemandOptions = &types.OnDemandOptionsRequest{MinTargetCapacity: new(int32(3)), SingleInstanceType: new(true)}
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Instances)
	require.NotEmpty(t, out.Errors)

	in.ClientToken, in.OnDemandOptions.MinTargetCapacity = new("another"), new(int32(2))
	out, err = s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, ids(out), 2, "what the first try took was given back")
}

func TestCreateFleet_RefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.template(t)
	otherVPC := s.AddSecurityGroup(ec2.SecurityGroup{Name: "elsewhere", VPC: "vpc-0elsewhere"})
	for name, c := range map[string]struct {
		change func(*sdk.CreateFleetInput)
		call   string // code of the call's error
		fleet  string // code of the only override's error
	}{
		"a fleet that is not instant":    {func(in *sdk.CreateFleetInput) { in.Type = types.FleetTypeMaintain }, "UnsupportedOperation", ""},
		"no overrides' template":         {func(in *sdk.CreateFleetInput) { in.LaunchTemplateConfigs = []types.FleetLaunchTemplateConfigRequest{} }, "MissingParameter", ""},
		"a target of nothing":            {func(in *sdk.CreateFleetInput) { in.TargetCapacitySpecification.TotalTargetCapacity = new(int32(0)) }, "InvalidParameterValue", ""},
		"more Spot than there is in all": {func(in *sdk.CreateFleetInput) { in.TargetCapacitySpecification.SpotTargetCapacity = new(int32(2)) }, "InvalidParameterValue", ""},
		"a minimum over mixed types": {
			func(in *sdk.CreateFleetInput) {
				in.OnDemandOptions = &types.OnDemandOptionsRequest{MinTargetCapacity: new(int32(1))}
			},
			"InvalidParameterCombination", "",
		},
		"user data of its own": {
			func(in *sdk.CreateFleetInput) { spec(in).LaunchTemplateSpecificationUserData = new("aGk=") }, "UnsupportedOperation", "",
		},
		"a limit on the total price": {
			func(in *sdk.CreateFleetInput) { in.SpotOptions = &types.SpotOptionsRequest{MaxTotalPrice: new("1")} }, "UnsupportedOperation", "",
		},
		"reserved capacity without a reservation": {
			func(in *sdk.CreateFleetInput) {
				in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeReservedCapacity
			}, "", "InvalidParameterCombination",
		},
		"types chosen by requirements": {
			func(in *sdk.CreateFleetInput) {
				first(in).InstanceRequirements = &types.InstanceRequirementsRequest{
					MemoryMiB: &types.MemoryMiBRequest{Min: new(int32(1))}, VCpuCount: &types.VCpuCountRangeRequest{Min: new(int32(1))},
				}
			}, "UnsupportedOperation", "",
		},
		"a template that does not exist": {func(in *sdk.CreateFleetInput) { spec(in).LaunchTemplateId = new("lt-0000") }, "InvalidLaunchTemplateId.NotFound", ""},
		"a template version never made":  {func(in *sdk.CreateFleetInput) { spec(in).Version = new("7") }, "InvalidLaunchTemplateId.VersionNotFound", ""},
		"a template name that does not exist": {
			func(in *sdk.CreateFleetInput) {
				spec(in).LaunchTemplateId, spec(in).LaunchTemplateName = nil, new("none")
			},
			"InvalidLaunchTemplateName.NotFoundException", "",
		},
		"Spot request tags on On-Demand": {
			func(in *sdk.CreateFleetInput) {
				in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeSpotInstancesRequest, Tags: []types.Tag{{Key: new("k"), Value: new("v")}}}}
			}, "InvalidParameterValue", "",
		},
		"a type that does not exist":         {func(in *sdk.CreateFleetInput) { first(in).InstanceType = "zz9.plural" }, "", "InvalidParameterValue"},
		"an image of another architecture":   {func(in *sdk.CreateFleetInput) { first(in).InstanceType = "m6g.large" }, "", "InvalidParameterValue"},
		"an image that does not exist":       {func(in *sdk.CreateFleetInput) { first(in).ImageId = new("ami-0000") }, "", "InvalidAMIID.NotFound"},
		"a subnet that does not exist":       {func(in *sdk.CreateFleetInput) { first(in).SubnetId = new("subnet-0000") }, "", "InvalidSubnetID.NotFound"},
		"a subnet of another zone":           {func(in *sdk.CreateFleetInput) { first(in).AvailabilityZone = new("us-east-1b") }, "", "InvalidParameterCombination"},
		"a type that its zone does not have": {func(in *sdk.CreateFleetInput) { first(in).InstanceType = "trn1.32xlarge" }, "", "Unsupported"},
		"a placement group not known": {
			func(in *sdk.CreateFleetInput) { first(in).Placement = &types.Placement{GroupName: new("none")} }, "", "InvalidPlacementGroup.Unknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := s.fleet(t, id, "on-demand", 1, over("m5.large", "a"))
			c.change(in)
			out, err := s.client.CreateFleet(t.Context(), in)
			if c.call != "" {
				require.Equal(t, c.call, code(t, err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{c.fleet}, errorCodes(out))
			require.Empty(t, out.Instances)
		})
	}
	require.Empty(t, s.Instances())

	t.Run("a security group of another VPC", func(t *testing.T) {
		_, err := s.client.DeleteLaunchTemplate(t.Context(), &sdk.DeleteLaunchTemplateInput{LaunchTemplateId: new(id)})
		require.NoError(t, err)
		other := s.template(t, func(d *types.RequestLaunchTemplateData) { d.SecurityGroupIds = []string{otherVPC} })
		out, err := s.client.CreateFleet(t.Context(), s.fleet(t, other, "on-demand", 1, over("m5.large", "a")))
		require.NoError(t, err)
		require.Equal(t, []string{"InvalidParameter"}, errorCodes(out))
		require.Contains(t, *out.Errors[0].ErrorMessage, "belong to different networks")
	})
}

func spec(in *sdk.CreateFleetInput) *types.FleetLaunchTemplateSpecificationRequest {
	return in.LaunchTemplateConfigs[0].LaunchTemplateSpecification
}

func first(in *sdk.CreateFleetInput) *types.FleetLaunchTemplateOverridesRequest {
	return &in.LaunchTemplateConfigs[0].Overrides[0]
}

// D18: what got nothing as Spot is asked again as On-Demand under a token of its own, and a repeated call starts no second one.
func TestCreateFleet_FallsBackUnderAnotherToken(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Capacity: "spot"}, Code: "UnfulfillableCapacity", Unnamed: true})
	id := s.template(t)
	ask := func(capacity, token string) (*sdk.CreateFleetOutput, error) {
		in := s.fleet(t, id, capacity, 1, over("m5.large", "a"), over("m5.large", "b"))
		in.ClientToken = new(token)
		return s.client.CreateFleet(t.Context(), in)
	}
	nothing, err := ask("spot", "claim-1")
	require.NoError(t, err)
	require.Empty(t, nothing.Instances)
	require.Equal(t, []string{"UnfulfillableCapacity"}, errorCodes(nothing), "an error that names no override comes once")
	_, err = ask("on-demand", "claim-1")
	require.Equal(t, "IdempotentParameterMismatch", code(t, err))
	one, err := ask("on-demand", "claim-1/on-demand")
	require.NoError(t, err)
	again, err := ask("on-demand", "claim-1/on-demand")
	require.NoError(t, err)
	require.Equal(t, ids(one), ids(again))
	require.Len(t, s.Instances(), 1)
}

func TestCreateFleet_PaysNoMoreThanAsked(t *testing.T) {
	t.Parallel()
	s := start(t)
	require.NoError(t, s.SetSpotPrice("m5.large", "us-east-1a", 0.05))
	dear, cheap := over("m5.large", "a"), over("m5.large", "a")
	dear.MaxPrice, cheap.MaxPrice = new("0.04"), new("0.06")
	id := s.template(t)
	out, err := s.client.CreateFleet(t.Context(), s.fleet(t, id, "spot", 1, dear))
	require.NoError(t, err)
	require.Equal(t, []string{"SpotMaxPriceTooLow"}, errorCodes(out))
	out, err = s.client.CreateFleet(t.Context(), s.fleet(t, id, "spot", 1, cheap))
	require.NoError(t, err)
	require.Len(t, ids(out), 1)
}

func TestCreateFleet_CountsWeights(t *testing.T) {
	t.Parallel()
	s := start(t)
	o := over("m5.xlarge", "a")
	o.WeightedCapacity = new(4.0)
	out, err := s.client.CreateFleet(t.Context(), s.fleet(t, s.template(t), "on-demand", 10, o))
	require.NoError(t, err)
	require.Len(t, ids(out), 3)
}

func TestCreateFleet_MixesCapacityTypes(t *testing.T) {
	t.Parallel()
	s := start(t)
	in := s.fleet(t, s.template(t), "spot", 3, over("m5.large", "a"))
	in.TargetCapacitySpecification.OnDemandTargetCapacity = new(int32(1))
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	got := map[types.InstanceLifecycle]int{}
	for _, i := range out.Instances {
		got[i.Lifecycle] += len(i.InstanceIds)
	}
	require.Equal(t, map[types.InstanceLifecycle]int{types.InstanceLifecycleOnDemand: 1, types.InstanceLifecycleSpot: 2}, got)
}

func TestCreateFleet_LaunchesIntoAReservation(t *testing.T) {
	t.Parallel()
	s := start(t)
	block, err := s.AddCapacityReservation(ec2.CapacityReservation{Type: "m5.large", Zone: "us-east-1a", Count: 1, Targeted: true, Block: true})
	require.NoError(t, err)
	id := s.template(t, func(d *types.RequestLaunchTemplateData) {
		d.CapacityReservationSpecification = &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &types.CapacityReservationTarget{CapacityReservationId: new(block)},
		}
	})
	in := s.fleet(t, id, "capacity-block", 2, over("m5.large", "a"))
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, ids(out), 1)
	require.Equal(t, types.InstanceLifecycleCapacityBlock, out.Instances[0].Lifecycle)
	require.Equal(t, []string{"ReservationCapacityExceeded"}, errorCodes(out))
	require.Equal(t, block, s.Instances()[0].ReservationID)
}
