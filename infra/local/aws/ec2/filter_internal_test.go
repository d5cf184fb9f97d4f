package ec2

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
)

// Each filter must find a resource by the value that the resource itself has under it, and not by another.
func TestFilters_FindAResourceByItsOwnValues(t *testing.T) {
	t.Parallel()
	s := New(Config{Cluster: "demo"})
	group := s.groups.ids[0]
	placement := s.AddPlacementGroup(PlacementGroup{Name: "ring", Strategy: types.PlacementStrategyCluster})
	reservation, err := s.AddCapacityReservation(CapacityReservation{Type: "m5.large", Zone: "us-east-1a", Count: 1})
	require.NoError(t, err)
	_, err = s.CreateLaunchTemplate(t.Context(), &sdk.CreateLaunchTemplateInput{
		LaunchTemplateName: new("one"), LaunchTemplateData: &types.RequestLaunchTemplateData{},
	})
	require.NoError(t, err)
	run := func(market *types.InstanceMarketOptionsRequest) *instance {
		out, err := s.RunInstances(t.Context(), &sdk.RunInstancesInput{
			MinCount: new(int32(1)), MaxCount: new(int32(1)), InstanceType: "m5.large", SubnetId: new(s.subnets.ids[0]),
			ImageId: new(s.images.ids[0]), SecurityGroupIds: []string{group}, ClientToken: new("token-" + string(rune('a'+len(s.order)))),
			IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: new("node")}, InstanceMarketOptions: market,
			Placement: &types.Placement{GroupName: new("ring")},
		})
		require.NoError(t, err)
		return s.instances[*out.Instances[0].InstanceId]
	}
	plain := run(nil)
	spot := run(&types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot})
	require.Equal(t, reservation, plain.reserved.ID)
	require.NoError(t, s.with(spot.id, func(i *instance) error { s.end(i, "Server.Odd", "odd", ""); return nil }))

	s.mu.Lock() // timers go on changing the instances
	defer s.mu.Unlock()
	findEach(t, instanceFilters, plain, "instance-lifecycle", "spot-instance-request-id", "state-reason-code", "network-interface.description")
	findEach(t, instanceFilters, spot, "capacity-reservation-id", "network-interface.description")
	findEach(t, statusFilters, plain, "event.code")
	findEach(t, subnetFilters, s.subnets.all()[0])
	findEach(t, groupFilters, s.groups.all()[0])
	findEach(t, imageFilters, s.images.all()[0], "platform")
	findEach(t, reservationFilters, s.reservations.byID[reservation])
	findEach(t, placementFilters, s.placements.byID[placement])
	findEach(t, templateFilters, s.templateNamed("one"))
	findEach(t, zoneFilters, "us-east-1c")
	m5, _ := LookupType("m5.large")
	findEach(t, typeFilters, m5)
}

// findEach tries each filter of a table on v; v lacks a value for those named in lacking.
func findEach[T any](t *testing.T, table filters[T], v T, lacking ...string) {
	t.Helper()
	lacks := map[string]bool{}
	for _, name := range lacking {
		require.Contains(t, table, name)
		lacks[name] = true
	}
	for name, values := range table {
		have := values(v)
		require.Equal(t, lacks[name], len(have) == 0, name)
		if len(have) == 0 {
			have = []string{"*"}
		}
		match, err := table.compile([]types.Filter{{Name: new(name), Values: have[:1]}}, nil)
		require.NoError(t, err)
		require.Equal(t, !lacks[name], match(v), name)
		match, err = table.compile([]types.Filter{{Name: new(name), Values: []string{"another"}}}, nil)
		require.NoError(t, err)
		require.False(t, match(v), name)
	}
}

func TestLike_KnowsStarsAndQuestionMarks(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{
		"m5.large": true, "m5.*": true, "*": true, "*.large": true, "m?.large": true, "m5*large": true, "**e": true,
		"m5.larg": false, "m5.large?": false, "?5": false, "": false, "M5.large": false,
	} {
		require.Equal(t, want, like(pattern, "m5.large"), pattern)
	}
}
