package packing_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
)

// TestLaunchable_FollowsTheRulesOfALaunch holds what a claim that is there may be launched as against L-007 to L-016.
func TestLaunchable_FollowsTheRulesOfALaunch(t *testing.T) {
	t.Parallel()
	kind := func(name string, cpu int64, labels map[string]string, offerings ...cluster.Offering) cluster.InstanceType {
		room := cluster.Resources{MilliCPU: cpu, MemoryBytes: cpu << 22, Pods: 29}
		all := map[string]string{cluster.LabelInstanceType: name, cluster.LabelArch: "amd64", cluster.LabelOS: "linux"}
		maps.Copy(all, labels)
		return cluster.InstanceType{Name: name, Labels: all, Capacity: room, Allocatable: room, Offerings: offerings}
	}
	offer := func(zone string, capacityType cluster.CapacityType, price int64) cluster.Offering {
		return cluster.Offering{Zone: zone, CapacityType: capacityType, PriceMicroUSDPerHour: price, Available: true}
	}
	sold := offer("a", cluster.OnDemand, 10)
	sold.Available = false
	reserved := offer("a", cluster.Reserved, 0)
	reserved.ReservationID, reserved.ReservationLeft = "cr-1", 1
	types := []cluster.InstanceType{
		kind("small", 2000, nil, offer("a", cluster.Spot, 30), offer("a", cluster.OnDemand, 90), offer("b", cluster.OnDemand, 91)),
		kind("large", 8000, nil, offer("a", cluster.Spot, 400), offer("b", cluster.OnDemand, 360)),
		kind("arm", 4000, map[string]string{cluster.LabelArch: "arm64"}, offer("a", cluster.OnDemand, 50)),
		kind("gone", 4000, nil, sold),
		kind("held", 4000, map[string]string{"karpenter.k8s.aws/instance-family": "held"}, reserved),
		kind("gpu", 8000, nil, offer("a", cluster.OnDemand, 20)),
	}
	types[len(types)-1].Capacity.Extended = map[string]int64{"nvidia.com/gpu": 1}
	in := func(key string, values ...string) cluster.Expression {
		return cluster.Expression{Key: key, Operator: cluster.In, Values: values}
	}
	for name, tt := range map[string]struct {
		cpu    int64
		wants  []cluster.Expression
		result []string // TYPE/ZONE/CAPACITY, in order
	}{
		"what is reserved comes first (L-016)": {100, nil, []string{"held/a/reserved"}},
		"spot comes before on demand, and no dearer than it (L-012)": {
			100, []cluster.Expression{in(cluster.LabelCapacityType, "spot", "on-demand")}, []string{"small/a/spot"},
		},
		"on demand, cheapest first, without accelerators (L-011)": {
			100, []cluster.Expression{in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelArch, "amd64")},
			[]string{"small/a/on-demand", "small/b/on-demand", "large/b/on-demand"},
		},
		"an accelerator where nothing else will do": {
			6000, []cluster.Expression{in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelZone, "a")}, []string{"gpu/a/on-demand"},
		},
		"what holds the requests": {
			3000, []cluster.Expression{in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelZone, "b")}, []string{"large/b/on-demand"},
		},
		"labels of the user's own are no matter of types": {
			100, []cluster.Expression{in("team", "a"), in(cluster.LabelArch, "arm64")}, []string{"arm/a/on-demand"},
		},
		"nothing, where what would do is sold out or too small": {
			9000, []cluster.Expression{in(cluster.LabelInstanceType, "gone", "large")}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := cluster.NodeClaim{Requirements: tt.wants, Requests: cluster.Resources{MilliCPU: tt.cpu}}
			var got []string
			for _, o := range packing.Launchable(types, &claim).Options {
				got = append(got, o.InstanceType+"/"+o.Zone+"/"+string(o.CapacityType))
			}
			require.Equal(t, tt.result, got)
		})
	}
}
