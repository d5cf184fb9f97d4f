package overlay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
)

const now = int64(1_796_000_000)

func kind(name, family string, price int64) cluster.InstanceType {
	room := cluster.Resources{MilliCPU: 4000, MemoryBytes: 16 << 30, Pods: 50}
	t := cluster.InstanceType{
		Name: name, Labels: map[string]string{cluster.LabelInstanceType: name, "karpenter.k8s.aws/instance-family": family},
		Capacity: room, Allocatable: room,
	}
	for _, zone := range []string{"a", "b"} {
		t.Offerings = append(t.Offerings,
			cluster.Offering{Zone: zone, CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: price, Available: true},
			cluster.Offering{Zone: zone, CapacityType: cluster.Spot, PriceMicroUSDPerHour: price / 2, Available: true})
	}
	return t
}

func snapshot(overlays ...cluster.NodeOverlay) *cluster.Snapshot {
	return &cluster.Snapshot{
		NowUnix: now, Overlays: overlays,
		Types: map[string][]cluster.InstanceType{"default": {kind("m5.xlarge", "m5", 200_000), kind("m6g.xlarge", "m6g", 150_000)}},
		NodePools: []cluster.NodePool{
			{Name: "general", Template: cluster.NodeTemplate{NodeClass: "default", Labels: map[string]string{"team": "web"}}},
			{Name: "zonal", Template: cluster.NodeTemplate{NodeClass: "default", Requirements: []cluster.Expression{in(cluster.LabelZone, "a")}}},
		},
	}
}

func in(key string, values ...string) cluster.Expression {
	return cluster.Expression{Key: key, Operator: cluster.In, Values: values}
}

// price returns what an offering of a pool costs: type m5.xlarge, in zone a.
func price(s *cluster.Snapshot, pool string, capacity cluster.CapacityType, zone string) int64 {
	for _, o := range s.TypesOf(pool, "default")[0].Offerings {
		if o.CapacityType == capacity && o.Zone == zone {
			return o.PriceMicroUSDPerHour
		}
	}
	return -1
}

func TestApply_Prices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overlay                   cluster.NodeOverlay
		general, spotB, zonalOnly int64
	}{
		"absolute":                 {cluster.NodeOverlay{Price: new(int64(90_000))}, 90_000, 90_000, 90_000},
		"ten percent off":          {cluster.NodeOverlay{Adjustment: &cluster.PriceAdjustment{Percent: -10}}, 180_000, 90_000, 180_000},
		"an amount more":           {cluster.NodeOverlay{Adjustment: &cluster.PriceAdjustment{MicroUSDPerHour: 5}}, 200_005, 100_005, 200_005},
		"never below zero":         {cluster.NodeOverlay{Adjustment: &cluster.PriceAdjustment{MicroUSDPerHour: -500_000}}, 0, 0, 0},
		"of one capacity type":     {cluster.NodeOverlay{Price: new(int64(1)), Requirements: []cluster.Expression{in(cluster.LabelCapacityType, "on-demand")}}, 1, 100_000, 1},
		"of one zone":              {cluster.NodeOverlay{Price: new(int64(1)), Requirements: []cluster.Expression{in(cluster.LabelZone, "a")}}, 1, 100_000, 1},
		"of one pool":              {cluster.NodeOverlay{Price: new(int64(1)), Requirements: []cluster.Expression{in(cluster.LabelNodePool, "zonal")}}, 200_000, 100_000, 1},
		"by a label of a pool":     {cluster.NodeOverlay{Price: new(int64(1)), Requirements: []cluster.Expression{in("team", "web")}}, 1, 1, 200_000},
		"of another family":        {cluster.NodeOverlay{Price: new(int64(1)), Requirements: []cluster.Expression{in("karpenter.k8s.aws/instance-family", "m6g")}}, 200_000, 100_000, 200_000},
		"of all but one family":    {cluster.NodeOverlay{Price: new(int64(1)), Requirements: []cluster.Expression{{Key: "karpenter.k8s.aws/instance-family", Operator: cluster.NotIn, Values: []string{"m6g"}}}}, 1, 1, 1},
		"of a label nobody has":    {cluster.NodeOverlay{Price: new(int64(1)), Requirements: []cluster.Expression{in("unknown", "x")}}, 200_000, 100_000, 200_000},
		"nothing but requirements": {cluster.NodeOverlay{Requirements: []cluster.Expression{in(cluster.LabelZone, "a")}}, 200_000, 100_000, 200_000},
		"not understood":           {cluster.NodeOverlay{Price: new(int64(1)), Invalid: "spec.price: …"}, 200_000, 100_000, 200_000},
		"being deleted":            {cluster.NodeOverlay{Price: new(int64(1)), DeletionUnix: now}, 200_000, 100_000, 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.overlay.Name = "o"
			s := snapshot(c.overlay)
			got := Apply(s)
			require.Equal(t, c.general, price(s, "general", cluster.OnDemand, "a"))
			require.Equal(t, c.spotB, price(s, "general", cluster.Spot, "b"))
			require.Equal(t, c.zonalOnly, price(s, "zonal", cluster.OnDemand, "a"))
			require.Equal(t, int64(200_000), s.Types["default"][0].Offerings[0].PriceMicroUSDPerHour, "what the class sees stays as it is")
			require.Equal(t, c.overlay.Invalid == "" && c.overlay.DeletionUnix == 0, got[0].Conditions.True(cluster.ConditionReady))
		})
	}
}

func TestApply_HeavierOverlaysWinFieldByField(t *testing.T) {
	t.Parallel()
	all := cluster.NodeOverlay{Name: "all", Weight: 1, Price: new(int64(7)), Capacity: map[string]int64{"example.com/fuse": 10}}
	zone := cluster.NodeOverlay{Name: "zone", Weight: 5, Price: new(int64(3)), Requirements: []cluster.Expression{in(cluster.LabelZone, "a")}}
	s := snapshot(all, zone)
	got := Apply(s)
	require.True(t, got[0].Conditions.True(cluster.ConditionReady))
	require.True(t, got[1].Conditions.True(cluster.ConditionReady))
	require.Equal(t, int64(3), price(s, "general", cluster.OnDemand, "a"))
	require.Equal(t, int64(7), price(s, "general", cluster.OnDemand, "b"))
	require.Equal(t, int64(10), s.TypesOf("general", "default")[0].Allocatable.Extended["example.com/fuse"])
}

func TestApply_EqualWeightsConflictAndTheLaterNameWins(t *testing.T) {
	t.Parallel()
	s := snapshot(
		cluster.NodeOverlay{Name: "a", Price: new(int64(1)), Requirements: []cluster.Expression{in(cluster.LabelZone, "a")}, Capacity: map[string]int64{"example.com/fuse": 1}},
		cluster.NodeOverlay{Name: "b", Price: new(int64(2))},
		cluster.NodeOverlay{Name: "c", Capacity: map[string]int64{"example.com/fuse": 3}},
	)
	got := Apply(s)
	require.Equal(t, "Conflict", got[0].Conditions.Get(cluster.ConditionValidationSucceeded).Reason)
	require.Contains(t, got[0].Conditions.Get(cluster.ConditionValidationSucceeded).Message, "nodeoverlay")
	require.False(t, got[0].Conditions.True(cluster.ConditionReady))
	require.True(t, got[1].Conditions.True(cluster.ConditionReady))
	require.True(t, got[2].Conditions.True(cluster.ConditionReady))
	require.Equal(t, int64(2), price(s, "general", cluster.OnDemand, "a"))
	require.Equal(t, int64(3), s.TypesOf("general", "default")[0].Capacity.Extended["example.com/fuse"])
}

func TestApply_AResourceOfSomeZonesIsOnlyThereWhereAPoolHasNoOthers(t *testing.T) {
	t.Parallel()
	s := snapshot(cluster.NodeOverlay{Name: "o", Requirements: []cluster.Expression{in(cluster.LabelZone, "a")}, Capacity: map[string]int64{"example.com/fuse": 1}})
	Apply(s)
	require.Zero(t, s.TypesOf("general", "default")[0].Capacity.Extended["example.com/fuse"])
	require.Equal(t, int64(1), s.TypesOf("zonal", "default")[0].Capacity.Extended["example.com/fuse"])
	require.Nil(t, s.Types["default"][0].Capacity.Extended)
}

func TestApply_HugePagesComeOutOfMemory(t *testing.T) {
	t.Parallel()
	s := snapshot(cluster.NodeOverlay{Name: "o", Capacity: map[string]int64{"hugepages-2Mi": 1 << 30}})
	Apply(s)
	got := s.TypesOf("general", "default")[0]
	require.Equal(t, int64(15<<30), got.Allocatable.MemoryBytes)
	require.Equal(t, int64(16<<30), got.Capacity.MemoryBytes)
}

func TestApply_WithoutOverlaysNothingIsMade(t *testing.T) {
	t.Parallel()
	s := snapshot()
	require.Empty(t, Apply(s))
	require.Nil(t, s.Overlaid)
	require.Equal(t, int64(200_000), price(s, "general", cluster.OnDemand, "a"))
}
