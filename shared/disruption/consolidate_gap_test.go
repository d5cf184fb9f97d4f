package disruption_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/packing"
)

// halfUsed is a cluster of nodes of all sizes, 40 to 60 % used.
func halfUsed(nodes int, seed uint64) *fleet {
	f := newFleet()
	r := rand.New(rand.NewPCG(seed, uint64(nodes)))
	for range nodes {
		kind := f.Types["default"][r.IntN(8)]
		var pods []int64
		for left := kind.Allocatable.MilliCPU * int64(40+r.IntN(21)) / 100; left >= 100; {
			cpu := min(left, int64(1+r.IntN(10))*100)
			left -= cpu
			pods = append(pods, cpu)
		}
		f.node(kind.Name, cluster.OnDemand, pods...)
	}
	return f
}

// fresh returns what the same pods cost on nodes made for them alone, in micro-USD per hour.
func (f *fleet) fresh(t *testing.T) (sum int64) {
	t.Helper()
	snap := f.Snapshot
	snap.Nodes, snap.NodeClaims, snap.Pods = nil, nil, nil
	for _, pod := range f.Pods {
		pod.NodeName, pod.Phase, pod.Unschedulable = "", cluster.PodPending, true
		snap.Pods = append(snap.Pods, pod)
	}
	p := packing.Pack(snap, packing.Options{})
	require.Empty(t, p.Unplaced)
	for i := range p.Claims {
		sum += p.Claims[i].Options[0].PriceMicroUSDPerHour
	}
	return sum
}

// Where nothing limits evictions, consolidation ends within 3 % of what the pods would cost on nodes made for them.
func TestConsolidate_ComesCloseToAFreshPacking(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{20, 50, 100} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("nodes=%d/seed=%d", nodes, seed), func(t *testing.T) {
				t.Parallel()
				f := halfUsed(nodes, seed)
				before, fresh := f.cost(), f.fresh(t)
				moved, rounds := 0, 0
				for {
					commands := disruption.Consolidate(&f.Snapshot, disruption.Options{})
					if len(commands) == 0 {
						break
					}
					for _, c := range commands {
						moved += len(c.Placed)
						for _, r := range c.Replacements {
							moved += len(r.Pods)
						}
					}
					f = f.after(commands)
					rounds++
					require.Less(t, rounds, 20, "it comes to rest")
				}
				after := f.cost()
				t.Logf("%.2f %% over a fresh packing, %.1f pods moved for each USD an hour that is saved, in %d rounds",
					100*float64(after-fresh)/float64(fresh), float64(moved)*1e6/float64(before-after), rounds)
				require.LessOrEqual(t, after*100, fresh*103)
			})
		}
	}
}
