package disruption_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/plan"
)

// look decides about empty nodes once and applies it.
func look(t require.TestingT, w *simtest.World, wanted map[cluster.NodeName]bool) plan.Decision {
	snap := w.Snapshot(w.NowUnix())
	d := disruption.Empty(&snap, wanted)
	carryOut(t, w, d)
	return d
}

func carryOut(t require.TestingT, w *simtest.World, d plan.Decision) {
	mover := apply.Mover{Cluster: "demo", Kube: w, Instances: w, Log: slog.New(slog.DiscardHandler)}
	_, err := mover.Move(context.Background(), d.Moves)
	require.NoError(t, err)
}

func emptyWorld(after int64, machines int) *simtest.World {
	w := simtest.New(now)
	w.Pools = []cluster.NodePool{{Name: "general", ConsolidateAfterSeconds: &after}}
	for i := range machines {
		w.AddMachine(fmt.Sprint("c", i), "general")
	}
	return w
}

func TestEmpty_MarksTaintsLooksAgainAndDeletes(t *testing.T) {
	t.Parallel()
	w := emptyWorld(30, 1)
	claim := w.Claims["c0"]
	node := w.Nodes[claim.NodeName]

	look(t, w, nil)
	require.True(t, claim.Conditions.True("Empty"), "since when, for whoever looks next")
	require.Empty(t, node.Taints)

	d := look(t, w, nil)
	require.Empty(t, d.Moves)
	require.Equal(t, now+30, d.NextUnix, "consolidateAfter (N-010, D-024)")

	w.Advance(30)
	look(t, w, nil)
	require.Equal(t, []cluster.Taint{leaving}, node.Taints, "taint before the second look (R23)")
	require.Equal(t, disruption.ReasonEmpty, claim.Conditions.Get(cluster.ConditionDisruptionReason).Reason)
	require.Zero(t, claim.DeletionUnix)

	look(t, w, nil)
	require.NotZero(t, claim.DeletionUnix)
	require.Empty(t, look(t, w, nil).Moves, "what is being deleted is left to its drain")
}

func TestEmpty_KeepsANodeThatAPodCameTo(t *testing.T) {
	t.Parallel()
	w := emptyWorld(0, 1)
	claim := w.Claims["c0"]
	node := w.Nodes[claim.NodeName]
	look(t, w, nil)
	look(t, w, nil)
	require.Equal(t, []cluster.Taint{leaving}, node.Taints)

	w.AddPod("late", node.Name, cluster.PodSpec{})
	d := look(t, w, nil)
	require.Equal(t, "keep", d.Moves[0].Reason)
	require.Empty(t, node.Taints)
	require.False(t, claim.Conditions.True("Empty"))
	require.False(t, claim.Conditions.True(cluster.ConditionDisruptionReason))
	require.Empty(t, look(t, w, nil).Moves, "kept once is kept")
}

func TestEmpty_TellsWhoNeedsANode(t *testing.T) {
	t.Parallel()
	pod := func(change func(*cluster.Pod)) func(*simtest.World, *cluster.NodeClaim, *cluster.Node) {
		return func(w *simtest.World, _ *cluster.NodeClaim, n *cluster.Node) {
			change(w.AddPod("p", n.Name, cluster.PodSpec{}))
		}
	}
	for name, tt := range map[string]struct {
		scene func(*simtest.World, *cluster.NodeClaim, *cluster.Node)
		empty bool
	}{
		"a node without pods is empty":                    {func(*simtest.World, *cluster.NodeClaim, *cluster.Node) {}, true},
		"a running pod needs its node":                    {pod(func(*cluster.Pod) {}), false},
		"a daemon does not (D-029)":                       {pod(func(p *cluster.Pod) { p.Owner.Kind = "DaemonSet" }), true},
		"a static pod does not":                           {pod(func(p *cluster.Pod) { p.Owner.Kind = "Node" }), true},
		"a pod that has ended does not":                   {pod(func(p *cluster.Pod) { p.Phase = cluster.PodFailed }), true},
		"a pod on its way out does not":                   {pod(func(p *cluster.Pod) { p.DeletionUnix = now + 5 }), true},
		"a StatefulSet's pod on its way out does (D-029)": {pod(func(p *cluster.Pod) { p.Owner.Kind, p.DeletionUnix = "StatefulSet", now+5 }), false},
		"a protected daemon does": {pod(func(p *cluster.Pod) {
			p.Owner.Kind = "DaemonSet"
			p.Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "true"}
		}), false},
		"a protection that has run out does not": {pod(func(p *cluster.Pod) {
			p.Owner.Kind, p.StartedUnix = "DaemonSet", now-61
			p.Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "1m"}
		}), true},
		"a node that asks not to be disrupted is not empty": {func(_ *simtest.World, _ *cluster.NodeClaim, n *cluster.Node) {
			n.Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "true"}
		}, false},
		"a node that is not initialised is nobody's yet (D-085)": {func(_ *simtest.World, c *cluster.NodeClaim, _ *cluster.Node) {
			c.Conditions = c.Conditions.With(cluster.Condition{Type: cluster.ConditionInitialized, Status: "Unknown"})
		}, false},
		"a static pool's nodes stay (D-025)": {func(w *simtest.World, _ *cluster.NodeClaim, _ *cluster.Node) { n := int64(1); w.Pools[0].Replicas = &n }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := emptyWorld(0, 1)
			claim := w.Claims["c0"]
			tt.scene(w, claim, w.Nodes[claim.NodeName])
			look(t, w, nil)
			require.Equal(t, tt.empty, claim.Conditions.True("Empty"))
		})
	}
	w := emptyWorld(0, 1)
	claim := w.Claims["c0"]
	look(t, w, map[cluster.NodeName]bool{claim.NodeName: true})
	require.False(t, claim.Conditions.True("Empty"), "a node on which a pending pod is expected is not empty (D-033)")
}

func TestEmpty_NeverMeansNever(t *testing.T) {
	t.Parallel()
	w := emptyWorld(0, 1)
	w.Pools[0].ConsolidateAfterSeconds = nil
	for range 5 {
		look(t, w, nil)
		w.Advance(1000)
	}
	require.Zero(t, w.Claims["c0"].DeletionUnix)
	require.Empty(t, w.Nodes[w.Claims["c0"].NodeName].Taints)
}

func TestEmpty_KeepsToTheBudget(t *testing.T) {
	t.Parallel()
	w := emptyWorld(0, 10)
	w.Pools[0].Budgets = []cluster.Budget{{Nodes: "30%"}}
	look(t, w, nil)
	for range 4 {
		look(t, w, nil)
	}
	leaving := 0
	for _, c := range w.Claims {
		if c.DeletionUnix != 0 {
			leaving++
		}
	}
	require.Equal(t, 3, leaving)
}

// TestDecidingAndApplying_EndsADeletedClaim drives a deleted machine through looks at random times, with pods of every kind that may end,
// budgets that hold them for a while, crashes and a node that was deleted instead: in the end claim, node and instance are gone, and no
// pod that a budget held was evicted before its budget allowed it.
func TestDecidingAndApplying_EndsADeletedClaim(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := simtest.New(now)
		claim, node := w.AddMachine("c", "general")
		if rapid.Bool().Draw(t, "deadline") {
			grace := rapid.Int64Range(0, 90).Draw(t, "grace")
			claim.TerminationGracePeriodSeconds = &grace
		}
		var held []*cluster.Pod
		for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
			pod := w.AddPod(fmt.Sprint("p", i), node.Name, cluster.PodSpec{
				GraceSeconds:  rapid.Int64Range(0, 60).Draw(t, "pod grace"),
				PriorityClass: rapid.SampledFrom([]string{"", "system-node-critical"}).Draw(t, "class"),
			})
			pod.Owner.Kind = rapid.SampledFrom([]string{"ReplicaSet", "DaemonSet", "StatefulSet", "Node", ""}).Draw(t, "owner")
			if w.Budgeted[pod.UID] = rapid.Bool().Draw(t, "budgeted"); w.Budgeted[pod.UID] {
				held = append(held, pod)
			}
		}
		pass := func() {
			snap := w.Snapshot(w.NowUnix())
			d := disruption.Drain(&snap, w.Sights(&snap))
			mover := apply.Mover{Cluster: "demo", Kube: w, Instances: w, Log: slog.New(slog.DiscardHandler)}
			_, _ = mover.Move(context.Background(), d.Moves) // a crash is an error
			if w.Claims["c"] != nil && len(d.Moves) == 0 {
				require.True(t, d.Waiting || d.NextUnix != 0, "something is under way and nobody looks again")
			}
		}
		if rapid.Bool().Draw(t, "node deleted") {
			require.NoError(t, w.DeleteNode(context.Background(), node.Name, node.UID))
		} else {
			require.NoError(t, w.DeleteNodeClaim(context.Background(), claim.Name, claim.UID))
		}
		for range rapid.IntRange(0, 10).Draw(t, "looks") {
			w.Crash(rapid.IntRange(0, 6).Draw(t, "writes"), rapid.Bool().Draw(t, "lost"))
			pass()
			w.Restart()
			w.Advance(rapid.Int64Range(0, 20).Draw(t, "seconds"))
			if claim.TerminationGracePeriodSeconds == nil {
				for _, pod := range held {
					require.Zero(t, pod.DeletionUnix, "a budget was broken")
				}
			}
		}
		clear(w.Budgeted)
		for range 60 {
			pass()
			w.Advance(10)
		}
		require.Empty(t, w.Claims)
		require.Empty(t, w.Nodes)
		require.Equal(t, cluster.InstanceTerminated, w.Instances[cluster.InstanceOf(claim.ProviderID)].State)
		w.Writes = nil
		pass()
		require.Empty(t, w.Writes)
	})
}

// TestEmpty_EndsWithOnlyTheNeededNodes looks at any pool of machines until nothing moves any more, whatever its budget.
func TestEmpty_EndsWithOnlyTheNeededNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := emptyWorld(rapid.Int64Range(0, 60).Draw(t, "after"), 0)
		w.Pools[0].Budgets = []cluster.Budget{{Nodes: rapid.SampledFrom([]string{"1", "2", "10%", "100%"}).Draw(t, "budget")}}
		needed := map[string]bool{}
		for i := range rapid.IntRange(1, 8).Draw(t, "machines") {
			claim, node := w.AddMachine(fmt.Sprint("c", i), "general")
			if rapid.Bool().Draw(t, "needed") {
				w.AddPod(fmt.Sprint("p", i), node.Name, cluster.PodSpec{})
				needed[claim.Name] = true
			}
		}
		for range 150 {
			carryOut(t, w, decide(w))
			look(t, w, nil)
			w.Advance(5)
		}
		require.Len(t, w.Claims, len(needed))
		for name := range needed {
			require.Contains(t, w.Claims, name)
			require.Empty(t, w.Nodes[w.Claims[name].NodeName].Taints)
		}
		w.Writes = nil
		carryOut(t, w, decide(w))
		look(t, w, nil)
		require.Empty(t, w.Writes, "nothing is left to write")
	})
}
