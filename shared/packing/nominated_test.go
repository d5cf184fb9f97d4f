package packing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
)

func TestPack_NominatedPods(t *testing.T) {
	t.Parallel()
	node := func(milliCPU int64) cluster.Node {
		return cluster.Node{
			Name: "n", Labels: map[string]string{cluster.LabelHostname: "n"}, Allocatable: cluster.Resources{MilliCPU: milliCPU, MemoryBytes: 8 << 30, Pods: 10},
			Conditions: cluster.Conditions{{Type: "Ready", Status: "True"}},
		}
	}
	pod := func(name string, nominated cluster.NodeName) cluster.Pod {
		return cluster.Pod{
			PodRef: cluster.PodRef{Namespace: "default", Name: name, UID: cluster.PodUID(name)}, Phase: cluster.PodPending, Unschedulable: true,
			NominatedNode: nominated, Spec: &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 1000, Pods: 1}},
		}
	}
	for name, tt := range map[string]struct {
		milliCPU         int64
		nominated        cluster.NodeName
		placed, unplaced []string
	}{
		"a nominated pod keeps its room from others and is not planned for":   {1500, "n", nil, []string{"other"}},
		"beside it there is room for another":                                 {2000, "n", []string{"other"}, nil},
		"a pod nominated for a node that is gone is planned for like another": {1000, "gone", []string{"nominated"}, []string{"other"}},
		"a pod nominated for a node without room for it is planned for again": {500, "n", nil, []string{"nominated", "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := packing.Pack(cluster.Snapshot{
				NowUnix: 100, Nodes: []cluster.Node{node(tt.milliCPU)},
				Pods: []cluster.Pod{pod("nominated", tt.nominated), pod("other", "")},
			}, packing.Options{})
			var placed, unplaced []string
			for _, p := range got.Placed {
				placed = append(placed, p.Pod.Name)
			}
			for _, p := range got.Unplaced {
				unplaced = append(unplaced, p.Pod.Name)
			}
			require.Equal(t, tt.placed, placed)
			require.ElementsMatch(t, tt.unplaced, unplaced)
		})
	}
}
