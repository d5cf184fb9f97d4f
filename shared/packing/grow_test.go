package packing_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/cluster"
	"treadle/shared/packing"
)

// A plan is never dearer than that of a scheduler that adds pods by size to the first node that some type can still be, and
// launches each node as the cheapest type that holds it.
func TestPack_NeverDearerThanGrowingNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var pods []cluster.Pod
		for i := range rapid.IntRange(1, 40).Draw(t, "pods") {
			pods = append(pods, pending(fmt.Sprintf("pod-%02d", i), cluster.PodSpec{Requests: cluster.Resources{
				MilliCPU:    rapid.Int64Range(1, 80).Draw(t, "cpu") * 100,
				MemoryBytes: rapid.Int64Range(1, 64).Draw(t, "mem") << 29,
			}}))
		}
		snap := snapshot(onDemand(), pods...)
		got := packing.Pack(snap, packing.Options{})
		require.Empty(t, got.Unplaced)
		require.LessOrEqual(t, usdPerHour(got), grownCost(snap)+1e-9)
	})
}

func grownCost(snap cluster.Snapshot) float64 {
	price := func(sum cluster.Resources) int64 {
		best := int64(0)
		for _, t := range snap.Types["default"] {
			p := t.Offerings[0].PriceMicroUSDPerHour
			if t.Labels["karpenter.k8s.aws/instance-size"] != "metal" && t.Capacity.Extended == nil && sum.Fits(t.Allocatable) && (best == 0 || p < best) {
				best = p
			}
		}
		return best
	}
	pods := slices.Clone(snap.Pods)
	slices.SortStableFunc(pods, func(a, b cluster.Pod) int {
		return cmp.Or(cmp.Compare(b.Spec.Requests.MilliCPU, a.Spec.Requests.MilliCPU), cmp.Compare(b.Spec.Requests.MemoryBytes, a.Spec.Requests.MemoryBytes))
	})
	var nodes []cluster.Resources
	for _, p := range pods {
		at := slices.IndexFunc(nodes, func(n cluster.Resources) bool { return price(n.Plus(p.Spec.Requests)) > 0 })
		if at < 0 {
			nodes = append(nodes, p.Spec.Requests)
			continue
		}
		nodes[at] = nodes[at].Plus(p.Spec.Requests)
	}
	sum := int64(0)
	for _, n := range nodes {
		sum += price(n)
	}
	return float64(sum) / 1e6
}
