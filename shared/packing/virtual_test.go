package packing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
)

// kept returns a snapshot with one node of two CPUs, a buffer's pod that is asked for first, and pods that exist.
func kept(pods ...string) cluster.Snapshot {
	spec := func() *cluster.PodSpec {
		return &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 1000, MemoryBytes: 1 << 30, Pods: 1}}
	}
	snap := cluster.Snapshot{
		NowUnix: 100,
		Nodes: []cluster.Node{{
			Name: "n", Labels: map[string]string{cluster.LabelHostname: "n"}, Conditions: cluster.Conditions{{Type: "Ready", Status: "True"}},
			Allocatable: cluster.Resources{MilliCPU: 2000, MemoryBytes: 8 << 30, Pods: 10},
		}},
		Pods: []cluster.Pod{{
			PodRef: cluster.PodRef{Namespace: "default", Name: "a-0", UID: cluster.VirtualUID("u", "0")}, Phase: cluster.PodPending, Unschedulable: true, Spec: spec(),
		}},
	}
	snap.Pods[0].Spec.Requests.MilliCPU = 1500 // larger pods go first, but not before those that exist
	for _, name := range pods {
		snap.Pods = append(snap.Pods, cluster.Pod{
			PodRef: cluster.PodRef{Namespace: "default", Name: name, UID: cluster.PodUID(name)}, Phase: cluster.PodPending, Unschedulable: true, Spec: spec(),
		})
	}
	return snap
}

func TestPack_RoomThatIsKeptIsTakenByPodsThatExist(t *testing.T) {
	t.Parallel()
	got := packing.Pack(kept("b", "c"), packing.Options{})
	var placed []string
	for _, p := range got.Placed {
		placed = append(placed, p.Pod.Name)
	}
	require.Equal(t, []string{"b", "c"}, placed)
	require.Len(t, got.Unplaced, 1)
	require.Equal(t, "a-0", got.Unplaced[0].Pod.Name)
}

func TestSeats_TellsPodsFromRoomThatIsKept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pods          []string
		wanted, holds bool
	}{
		"room is kept":                   {nil, false, true},
		"a pod has taken it":             {[]string{"b"}, true, false},
		"so have two, and fill the node": {[]string{"b", "c"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := kept(tt.pods...)
			pods, buffers := packing.Seats(&snap)
			require.Equal(t, tt.wanted, pods["n"])
			require.Equal(t, tt.holds, buffers["n"])
			require.True(t, packing.Expected(&snap)["n"])
		})
	}
}

func TestPack_RoomThatIsKeptGetsNodesOfItsOwn(t *testing.T) {
	t.Parallel()
	snap := kept("b", "c")
	small := cluster.Resources{MilliCPU: 2000, MemoryBytes: 8 << 30, Pods: 10}
	snap.Types = map[string][]cluster.InstanceType{"default": {{
		Name: "m5.large", Labels: map[string]string{cluster.LabelInstanceType: "m5.large"}, Capacity: small, Allocatable: small,
		Offerings: []cluster.Offering{{Zone: "a", CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: 1, Available: true}},
	}}}
	snap.NodePools = []cluster.NodePool{{
		Name: "p", Template: cluster.NodeTemplate{NodeClass: "default"}, Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}},
	}}
	got := packing.Pack(snap, packing.Options{})
	require.Len(t, got.Claims, 1)
	require.Equal(t, []cluster.PodRef{snap.Pods[0].PodRef}, got.Claims[0].Pods)
}
