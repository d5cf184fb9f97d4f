package disruption_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/notice"
	"treadle/shared/plan"
)

func TestInterrupt(t *testing.T) {
	t.Parallel()
	const all = "TerminatingOnInterruption"
	for name, tt := range map[string]struct {
		kinds     []notice.Kind
		change    func(*simtest.World, *cluster.NodeClaim, *cluster.Node)
		deletes   bool
		reclaimed bool
		events    []string // about the claim
	}{
		"a Spot interruption deletes and remembers the offering": {kinds: []notice.Kind{notice.SpotInterrupted}, deletes: true, reclaimed: true, events: []string{"SpotInterrupted", all}},
		"so does one of a capacity reservation":                  {kinds: []notice.Kind{notice.ReservationInterrupted}, deletes: true, reclaimed: true, events: []string{"CapacityReservationInstanceInterrupted", all}},
		"and the end of a capacity block":                        {kinds: []notice.Kind{notice.BlockExpiring}, deletes: true, reclaimed: true, events: []string{"CapacityReservationInstanceInterrupted", all}},
		"a scheduled change deletes":                             {kinds: []notice.Kind{notice.ScheduledChange}, deletes: true, events: []string{"InstanceUnhealthy", all}},
		"an instance that stops is deleted":                      {kinds: []notice.Kind{notice.InstanceStopped}, deletes: true, events: []string{"InstanceStopping", all}},
		"an instance that ends is deleted":                       {kinds: []notice.Kind{notice.InstanceTerminated}, deletes: true, events: []string{"InstanceTerminating", all}},
		"a rebalance recommendation is told (I-014)":             {kinds: []notice.Kind{notice.RebalanceRecommended}, events: []string{"SpotRebalanceRecommendation"}},
		"a rebalance recommendation replaces where the pool says so": {
			kinds: []notice.Kind{notice.RebalanceRecommended}, deletes: true, events: []string{"SpotRebalanceRecommendation", all},
			change: func(w *simtest.World, _ *cluster.NodeClaim, _ *cluster.Node) {
				w.Pools[0].Annotations = map[string]string{"treadle.sh/rebalance": "replace"}
			},
		},
		"the same said twice at once is said once": {kinds: []notice.Kind{notice.SpotInterrupted, notice.SpotInterrupted}, deletes: true, reclaimed: true, events: []string{"SpotInterrupted", all}},
		"a recommendation beside an interruption deletes once": {
			kinds: []notice.Kind{notice.SpotInterrupted, notice.RebalanceRecommended}, deletes: true, reclaimed: true,
			events: []string{"SpotInterrupted", "SpotRebalanceRecommendation", all},
		},
		"do-not-disrupt and the absence of a node change nothing (I-031)": {
			kinds: []notice.Kind{notice.SpotInterrupted}, deletes: true, reclaimed: true, events: []string{"SpotInterrupted", all},
			change: func(w *simtest.World, c *cluster.NodeClaim, n *cluster.Node) {
				c.Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "true"}
				delete(w.Nodes, n.Name)
			},
		},
		"a claim that goes already only learns that its offering is gone": {
			kinds: []notice.Kind{notice.SpotInterrupted}, reclaimed: true,
			change: func(_ *simtest.World, c *cluster.NodeClaim, _ *cluster.Node) { c.DeletionUnix = now },
		},
		"the end of an instance that was ended is no news": {
			kinds:  []notice.Kind{notice.InstanceTerminated},
			change: func(_ *simtest.World, c *cluster.NodeClaim, _ *cluster.Node) { c.DeletionUnix = now },
		},
		"an instance of nobody changes nothing": {
			kinds:  []notice.Kind{notice.SpotInterrupted},
			change: func(w *simtest.World, c *cluster.NodeClaim, _ *cluster.Node) { delete(w.Claims, c.Name) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := simtest.New(now)
			w.Pools = []cluster.NodePool{{Name: "general"}}
			claim, node := w.AddMachine("c", "general")
			w.AddMachine("other", "general")
			if tt.change != nil {
				tt.change(w, claim, node)
			}
			var heard []disruption.Interruption
			for _, kind := range tt.kinds {
				heard = append(heard, disruption.Interruption{Instance: cluster.InstanceOf(claim.ProviderID), Kind: kind, Detail: "so it is"})
			}
			snap := w.Snapshot(now)
			d := disruption.Interrupt(&snap, heard)
			if !tt.deletes && !tt.reclaimed && len(tt.events) == 0 {
				require.Empty(t, d.Moves)
				return
			}
			require.Len(t, d.Moves, 1)
			move := d.Moves[0]
			require.Equal(t, "c", move.Claim.Name)
			require.NotEmpty(t, move.Reason)
			require.Equal(t, tt.deletes, move.DeleteClaim)
			require.Equal(t, tt.deletes && move.Node != nil, move.WantNode != nil, "no pod may come to a node that goes")
			require.Equal(t, tt.deletes || tt.reclaimed, d.Waiting)
			require.Equal(t, tt.reclaimed, move.WantClaim != nil)
			var told []string
			for _, e := range move.Events {
				if e.Kind == "NodeClaim" {
					told = append(told, e.Reason)
				}
			}
			require.Equal(t, tt.events, told)
		})
	}
}

// TestInterrupt_TwiceChangesNothingTwice lets notices come doubled, late and out of order.
func TestInterrupt_TwiceChangesNothingTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := simtest.New(now)
		w.Pools = []cluster.NodePool{{Name: "general"}}
		claim, _ := w.AddMachine("c", "general")
		kinds := rapid.SliceOfN(rapid.SampledFrom([]notice.Kind{
			notice.SpotInterrupted, notice.ScheduledChange, notice.InstanceStopped, notice.InstanceTerminated, notice.ReservationInterrupted,
		}), 2, 6).Draw(t, "kinds")
		deletions, marks := 0, 0
		for _, kind := range kinds {
			snap := w.Snapshot(w.NowUnix())
			d := disruption.Interrupt(&snap, []disruption.Interruption{{Instance: cluster.InstanceOf(claim.ProviderID), Kind: kind}})
			for _, m := range d.Moves {
				if m.DeleteClaim {
					deletions++
				}
				if m.WantClaim != nil {
					marks++
				}
			}
			mover := apply.Mover{Kube: w, Log: slog.New(slog.DiscardHandler)}
			_, err := mover.Move(t.Context(), d.Moves)
			require.NoError(t, err)
			w.Advance(rapid.Int64Range(0, 30).Draw(t, "pause"))
		}
		require.Equal(t, 1, deletions)
		require.LessOrEqual(t, marks, 1)
	})
}

func TestReclaimed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		at     string
		labels map[string]string
		want   []plan.Refusal
	}{
		"an offering that was just taken back": {
			"2026-11-30T00:51:40Z",
			map[string]string{cluster.LabelInstanceType: "m5.large", cluster.LabelZone: "us-east-1a", cluster.LabelCapacityType: "spot"},
			[]plan.Refusal{{InstanceType: "m5.large", Zone: "us-east-1a", CapacityType: cluster.Spot}},
		},
		"a reserved one is where its reservation is": {
			"2026-11-30T00:51:40Z",
			map[string]string{
				cluster.LabelInstanceType: "m5.large", cluster.LabelZone: "us-east-1a", cluster.LabelCapacityType: "reserved",
				"karpenter.k8s.aws/capacity-reservation-id": "cr-1",
			},
			[]plan.Refusal{{InstanceType: "m5.large", Zone: "cr-1", CapacityType: cluster.Reserved}},
		},
		"one that was taken back three minutes ago may be there again": {
			"2026-11-30T00:50:20Z",
			map[string]string{cluster.LabelInstanceType: "m5.large", cluster.LabelZone: "us-east-1a", cluster.LabelCapacityType: "spot"}, nil,
		},
		"a claim that was never launched had none": {"2026-11-30T00:51:40Z", nil, nil},
		"a note that is no instant says nothing":   {"yes", map[string]string{cluster.LabelInstanceType: "m5.large"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{
				{Name: "c", Labels: tt.labels, Annotations: map[string]string{"treadle.sh/reclaimed": tt.at}}, {Name: "other"},
			}}
			got := disruption.Reclaimed(&snap)
			require.Len(t, got, len(tt.want))
			for i, want := range tt.want {
				want.Code, want.Message, want.Kind = got[i].Code, got[i].Message, plan.RefusedCapacity
				require.Equal(t, want, got[i])
			}
		})
	}
}
