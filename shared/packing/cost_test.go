package packing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
)

// manyPods draws n pods; if unique is set no two ask for the same, else there are few shapes.
func manyPods(n int, unique bool) []cluster.Pod {
	r := rand.New(rand.NewPCG(7, 8))
	var out []cluster.Pod
	for i := range n {
		cpu, mem := int64(100*(1+r.IntN(30))), int64(256*(1+r.IntN(24)))
		if unique {
			cpu, mem = cpu+int64(r.IntN(100)), mem+int64(r.IntN(256))
		}
		out = append(out, pending(fmt.Sprintf("pod-%04d", i), cluster.PodSpec{Requests: cluster.Resources{MilliCPU: cpu, MemoryBytes: mem << 20}}))
	}
	return out
}

// The cost of a plan lies between what the resources alone would cost at the best price of each and one node for each pod.
func TestPack_CostLiesInRange(t *testing.T) {
	t.Parallel()
	for name, pods := range map[string][]cluster.Pod{
		"few pods":                     manyPods(9, false),
		"many pods of many shapes":     manyPods(500, false),
		"every pod a shape of its own": manyPods(900, true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := snapshot(onDemand(), pods...)
			got := packing.Pack(snap, packing.Options{})
			require.Empty(t, check(snap, got))
			require.Empty(t, got.Unplaced)
			first := packing.Pack(snap, packing.Options{Steps: -1})
			require.Empty(t, check(snap, first))
			require.LessOrEqual(t, usdPerHour(got), usdPerHour(first), "steps never make a plan dearer")
			alone := 0.0
			for _, p := range pods {
				alone += usdPerHour(packing.Pack(snapshot(onDemand(), p), packing.Options{}))
			}
			floor := cheapestResources(snap)
			cost := usdPerHour(got)
			require.Greater(t, cost, floor)
			require.Less(t, cost, 1.25*floor, "close to the bound where there is much to choose from")
			require.LessOrEqual(t, cost, alone)
		})
	}
}

// cheapestResources is the larger of what all CPU and what all memory costs where it is cheapest.
func cheapestResources(snap cluster.Snapshot) float64 {
	var total cluster.Resources
	for i := range snap.Pods {
		total = total.Plus(snap.Pods[i].Spec.Requests)
	}
	byCPU, byMemory := 1e18, 1e18
	for _, t := range snap.Types["default"] {
		for _, o := range t.Offerings {
			if o.CapacityType == cluster.OnDemand {
				byCPU = min(byCPU, float64(o.PriceMicroUSDPerHour)/float64(t.Allocatable.MilliCPU))
				byMemory = min(byMemory, float64(o.PriceMicroUSDPerHour)/float64(t.Allocatable.MemoryBytes))
			}
		}
	}
	return max(byCPU*float64(total.MilliCPU), byMemory*float64(total.MemoryBytes)) / 1e6
}

func TestPack_NodeShareBoundsTheLargestNode(t *testing.T) {
	t.Parallel()
	types := smallCatalog()
	giant := types[0]
	giant.Name, giant.Labels = "x9.giant", map[string]string{cluster.LabelInstanceType: "x9.giant", cluster.LabelArch: "amd64"}
	giant.Allocatable = cluster.Resources{MilliCPU: 200_000, MemoryBytes: 800 << 30, Pods: 700}
	giant.Capacity = giant.Allocatable
	giant.Offerings = []cluster.Offering{{Zone: "us-east-1a", CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: 1_000_000, Available: true}}
	var pods []cluster.Pod
	for i := range 60 {
		pods = append(pods, pending(fmt.Sprintf("pod-%02d", i), milliCPU(2000)))
	}
	snap := snapshot(onDemand(), pods...)
	snap.Types["default"] = append(types, giant)
	require.Greater(t, len(packing.Pack(snap, packing.Options{}).Claims), 3, "by default no node holds more than a quarter")
	snap.NodePools[0].Annotations = map[string]string{packing.AnnotationNodeShare: "100%"}
	require.Len(t, packing.Pack(snap, packing.Options{}).Claims, 1, "a user may let the price alone decide")
}

func TestPack_SpotNodesHaveStandIns(t *testing.T) {
	t.Parallel()
	types := smallCatalog()
	for i := range types {
		if types[i].Name != "c5.xlarge" {
			continue
		}
		for j := range types[i].Offerings {
			types[i].Offerings[j].PriceMicroUSDPerHour /= 10 // the cheapest by far, and alone
		}
	}
	pool := onDemand(cluster.Expression{Key: cluster.LabelArch, Operator: cluster.In, Values: []string{"amd64"}})
	pool.Template.Requirements[0].Values = []string{"spot"}
	var pods []cluster.Pod
	for i := range 12 {
		pods = append(pods, pending(fmt.Sprintf("pod-%02d", i), milliCPU(1800)))
	}
	snap := snapshot(pool, pods...)
	snap.Types["default"] = types
	snap.NodePools[0].Annotations = map[string]string{packing.AnnotationSpotTypes: "3"}
	prudent := packing.Pack(snap, packing.Options{})
	snap.NodePools[0].Annotations = map[string]string{packing.AnnotationSpotTypes: "1"}
	bold := packing.Pack(snap, packing.Options{})
	require.Empty(t, check(snap, prudent))
	require.LessOrEqual(t, usdPerHour(bold), usdPerHour(prudent))
}
