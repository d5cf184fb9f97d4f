package disruption_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
)

// sick is a fleet of nodes of which the first few have a condition since some seconds.
func sick(nodes, of int, kind, status string, seconds int64) *fleet {
	f := newFleet()
	for i := range nodes {
		f.node("m5.large", cluster.OnDemand, 100)
		if i < of {
			f.Nodes[i].Conditions = f.Nodes[i].Conditions.Without(kind).With(cluster.Condition{Type: kind, Status: status, TransitionUnix: now - seconds})
		}
	}
	return f
}

func TestRepair_GivesSickNodesUpAfterTheirTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind, status string
		seconds      int64
		next         int64 // zero: it goes now
	}{
		"not ready":                        {"Ready", "False", 1800, 0},
		"not ready for a little less":      {"Ready", "False", 1799, now + 1},
		"unknown":                          {"Ready", "Unknown", 1800, 0},
		"an accelerator's time is shorter": {"AcceleratedHardwareReady", "False", 600, 0},
		"and not over yet":                 {"AcceleratedHardwareReady", "False", 60, now + 540},
		"storage":                          {"StorageReady", "False", 1800, 0},
		"networking":                       {"NetworkingReady", "False", 1800, 0},
		"kernel":                           {"KernelReady", "False", 1800, 0},
		"container runtime":                {"ContainerRuntimeReady", "False", 1800, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sick(5, 1, tt.kind, tt.status, tt.seconds)
			f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "0"}}
			f.annotate("true") // neither matters (D-103)
			d := disruption.Repair(&f.Snapshot)
			require.Equal(t, tt.next, d.NextUnix)
			if tt.next != 0 {
				require.Empty(t, d.Moves)
				return
			}
			require.Len(t, d.Moves, 1)
			require.True(t, d.Moves[0].DeleteClaim)
			require.Equal(t, time.Unix(now, 0).UTC().Format(time.RFC3339), d.Moves[0].WantClaim.Annotations[cluster.AnnotationTerminationTimestamp], "no drain (D-103)")
		})
	}
}

func TestRepair_StopsWhereTooManyAreSick(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodes, sick int
		repaired    int
	}{
		"one of one":   {1, 1, 1},
		"one of five":  {5, 1, 1},
		"two of six":   {6, 2, 2},
		"two of five":  {5, 2, 0},
		"three of ten": {10, 3, 0},
		"all":          {10, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sick(tt.nodes, tt.sick, "Ready", "False", 7200)
			repaired := 0
			for _, m := range disruption.Repair(&f.Snapshot).Moves {
				if m.DeleteClaim {
					repaired++
				} else {
					require.Equal(t, "NodeRepairBlocked", m.Events[0].Reason, "(D-102)")
				}
			}
			require.Equal(t, tt.repaired, repaired)
		})
	}
}

func TestRepair_LeavesAloneWhatIsWellOrLeaving(t *testing.T) {
	t.Parallel()
	f := sick(5, 1, "Ready", "False", 7200)
	f.NodeClaims[0].DeletionUnix = now
	require.Empty(t, disruption.Repair(&f.Snapshot).Moves)
	require.Empty(t, disruption.Repair(&newFleet().Snapshot).Moves)
}
