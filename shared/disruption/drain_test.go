package disruption_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/plan"
)

const now = int64(1_796_000_000)

var leaving = cluster.Taint{Key: cluster.TaintDisrupted, Effect: cluster.NoSchedule}

// draining returns a world with one machine that is being deleted and whose drain began ten seconds ago, everything marked.
func draining() (*simtest.World, *cluster.NodeClaim, *cluster.Node) {
	w := simtest.New(now)
	claim, node := w.AddMachine("c", "general")
	claim.CreatedUnix, claim.DeletionUnix = now-1000, now-10
	for i := range claim.Conditions {
		claim.Conditions[i].TransitionUnix = now - 900
	}
	claim.Conditions = claim.Conditions.With(cluster.Condition{Type: cluster.ConditionDrained, Status: "Unknown", TransitionUnix: now - 10})
	node.CreatedUnix = now - 900
	node.Taints = []cluster.Taint{leaving}
	node.Labels[cluster.LabelExcludeLB] = "karpenter"
	return w, claim, node
}

func decide(w *simtest.World) plan.Decision {
	snap := w.Snapshot(w.NowUnix())
	return disruption.Drain(&snap, w.Sights(&snap))
}

func only(t *testing.T, d plan.Decision) plan.Move {
	t.Helper()
	require.Len(t, d.Moves, 1)
	return d.Moves[0]
}

func TestDrain_TakesADeletedMachineApart(t *testing.T) {
	t.Parallel()
	type machine struct {
		w     *simtest.World
		claim *cluster.NodeClaim
		node  *cluster.Node
	}
	state := func(m machine, s cluster.InstanceState) {
		m.w.Instances[cluster.InstanceOf(m.claim.ProviderID)].State = s
	}
	notReady := func(m machine) { m.node.Conditions = cluster.Conditions{{Type: "Ready", Status: "Unknown"}} }
	none := func(*testing.T, machine, plan.Decision) {}
	for name, tt := range map[string]struct {
		scene func(machine)
		check func(*testing.T, machine, plan.Decision)
		moves int
	}{
		"a machine that nobody deletes is left alone": {
			func(m machine) { m.claim.DeletionUnix = 0 }, none, 0,
		},
		"deleting the node deletes its claim (D-105)": {
			func(m machine) { m.claim.DeletionUnix, m.node.DeletionUnix = 0, now },
			func(t *testing.T, _ machine, d plan.Decision) { require.True(t, only(t, d).DeleteClaim) }, 1,
		},
		"a claim without our finalizer is no longer ours (D-125)": {
			func(m machine) { m.claim.Finalizers = []string{"other.example/finalizer"} }, none, 0,
		},
		"a claim that was never launched is released without a call (D-106)": {
			func(m machine) { m.claim.ProviderID, m.claim.Conditions = "", nil; delete(m.w.Nodes, m.node.Name) },
			func(t *testing.T, _ machine, d plan.Decision) {
				move := only(t, d)
				require.True(t, move.Release)
				require.Empty(t, move.Terminate)
			}, 1,
		},
		"a claim whose launch has an unknown outcome waits for it": {
			func(m machine) {
				m.claim.ProviderID, m.claim.Conditions = "", nil
				m.claim.Annotations = map[string]string{cluster.AnnotationLaunch: "{}"}
				delete(m.w.Nodes, m.node.Name)
			},
			func(t *testing.T, _ machine, d plan.Decision) { require.True(t, d.Waiting) }, 0,
		},
		"a claim whose launch was refused is released": {
			func(m machine) {
				m.claim.ProviderID, m.claim.Conditions = "", cluster.Conditions{{Type: cluster.ConditionLaunched, Status: "False"}}
				m.claim.Annotations = map[string]string{cluster.AnnotationLaunch: "{}"}
				delete(m.w.Nodes, m.node.Name)
			},
			func(t *testing.T, _ machine, d plan.Decision) { require.True(t, only(t, d).Release) }, 1,
		},
		"first of all the node is tainted and taken off load balancers, and the claim says so (D-107, D-108)": {
			func(m machine) {
				grace := int64(600)
				m.node.Taints, m.claim.TerminationGracePeriodSeconds = nil, &grace
				delete(m.node.Labels, cluster.LabelExcludeLB)
				m.claim.Conditions = m.claim.Conditions[:4]
			},
			func(t *testing.T, m machine, d plan.Decision) {
				move := only(t, d)
				require.Equal(t, []cluster.Taint{leaving}, move.WantNode.Taints)
				require.Equal(t, "karpenter", move.WantNode.Labels[cluster.LabelExcludeLB])
				require.Equal(t, time.Unix(now-10+600, 0).UTC().Format(time.RFC3339), move.WantClaim.Annotations[cluster.AnnotationTerminationTimestamp])
				require.Equal(t, "Unknown", move.WantClaim.Conditions.Get(cluster.ConditionDrained).Status)
				require.Empty(t, move.Evict)
				require.Empty(t, m.node.Taints, "the snapshot is not written to")
			}, 1,
		},
		"a node is kept for five seconds at least (D-113)": {
			func(m machine) {
				m.claim.Conditions = m.claim.Conditions.With(cluster.Condition{Type: cluster.ConditionDrained, Status: "Unknown"})
				m.claim.Conditions[4].TransitionUnix = now - 4
			},
			func(t *testing.T, _ machine, d plan.Decision) {
				require.True(t, d.Waiting)
				require.Equal(t, now+1, d.NextUnix)
			}, 0,
		},
		"a drained node's instance is ended, and the claim says so first (D-119)": {
			func(machine) {},
			func(t *testing.T, m machine, d plan.Decision) {
				move := only(t, d)
				require.Equal(t, cluster.InstanceOf(m.claim.ProviderID), move.Terminate)
				require.True(t, move.WantClaim.Conditions.True(cluster.ConditionDrained))
				require.True(t, move.WantClaim.Conditions.True(cluster.ConditionInstanceTerminating))
				require.False(t, move.Release)
			}, 1,
		},
		"an instance that is ending is looked at again in five seconds (D-119)": {
			func(m machine) {
				m.claim.Conditions = m.claim.Conditions.With(cluster.Condition{Type: cluster.ConditionInstanceTerminating, Status: "True"})
				state(m, cluster.InstanceShuttingDown)
			},
			func(t *testing.T, _ machine, d plan.Decision) { require.Equal(t, now+5, d.NextUnix) }, 0,
		},
		"when the instance has ended, node and claim are released": {
			func(m machine) {
				m.claim.Conditions = m.claim.Conditions.With(cluster.Condition{Type: cluster.ConditionInstanceTerminating, Status: "True"})
				state(m, cluster.InstanceTerminated)
			},
			func(t *testing.T, _ machine, d plan.Decision) { require.True(t, only(t, d).Release) }, 1,
		},
		"an instance that is gone under a node that is not ready ends the drain at once (D-109)": {
			func(m machine) {
				state(m, cluster.InstanceTerminated)
				notReady(m)
				m.w.AddPod("p", m.node.Name, cluster.PodSpec{})
			},
			func(t *testing.T, _ machine, d plan.Decision) { require.True(t, only(t, d).Release) }, 1,
		},
		"an instance that EC2 does not know ends nothing while its node is ready (D-109)": {
			func(m machine) {
				delete(m.w.Instances, cluster.InstanceOf(m.claim.ProviderID))
				m.w.AddPod("p", m.node.Name, cluster.PodSpec{})
			},
			func(t *testing.T, _ machine, d plan.Decision) { require.Len(t, only(t, d).Evict, 1) }, 1,
		},
		"an instance too young to be shown is ended, not taken for gone": {
			func(m machine) {
				delete(m.w.Instances, cluster.InstanceOf(m.claim.ProviderID))
				m.claim.CreatedUnix, m.claim.Conditions[0].TransitionUnix = now-70, now-60
				delete(m.w.Nodes, m.node.Name)
			},
			func(t *testing.T, m machine, d plan.Decision) {
				require.Equal(t, cluster.InstanceOf(m.claim.ProviderID), only(t, d).Terminate)
			}, 1,
		},
		"a claim without a node has its instance ended at once": {
			func(m machine) { delete(m.w.Nodes, m.node.Name) },
			func(t *testing.T, m machine, d plan.Decision) {
				require.Equal(t, cluster.InstanceOf(m.claim.ProviderID), only(t, d).Terminate)
			}, 1,
		},
		"a deleted node of ours without a claim is drained all the same": {
			func(m machine) {
				delete(m.w.Claims, "c")
				m.node.DeletionUnix = now
				m.w.AddPod("p", m.node.Name, cluster.PodSpec{})
			},
			func(t *testing.T, _ machine, d plan.Decision) { require.Len(t, only(t, d).Evict, 1) }, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m machine
			m.w, m.claim, m.node = draining()
			tt.scene(m)
			d := decide(m.w)
			require.Len(t, d.Moves, tt.moves)
			tt.check(t, m, d)
		})
	}
}

func TestDrain_EvictsGroupByGroup(t *testing.T) {
	t.Parallel()
	w, _, node := draining()
	critical := cluster.PodSpec{PriorityClass: "system-cluster-critical"}
	plain := w.AddPod("plain", node.Name, cluster.PodSpec{})
	daemon := w.AddPod("daemon", node.Name, cluster.PodSpec{})
	daemon.Owner.Kind = "DaemonSet"
	important := w.AddPod("important", node.Name, critical)
	last := w.AddPod("last", node.Name, critical)
	last.Owner.Kind = "DaemonSet"
	w.AddPod("static", node.Name, cluster.PodSpec{}).Owner.Kind = "Node"
	w.AddPod("done", node.Name, cluster.PodSpec{}).Phase = cluster.PodSucceeded
	w.AddPod("tolerant", node.Name, cluster.PodSpec{Tolerations: []cluster.Toleration{{Operator: "Exists"}}})
	w.AddPod("stuck", node.Name, cluster.PodSpec{}).DeletionUnix = now - 61

	for _, want := range []*cluster.Pod{plain, daemon, important, last} { // D-110, D-111
		move := only(t, decide(w))
		require.Equal(t, []cluster.PodRef{want.PodRef}, move.Evict)
		want.DeletionUnix = now + 30
		d := decide(w)
		require.Empty(t, d.Moves, "a pod on its way out is waited for")
		require.True(t, d.Waiting)
		delete(w.Pods, want.UID)
	}
	require.NotEmpty(t, only(t, decide(w)).Terminate, "the others do not hold up the end")
}

func TestDrain_WaitsForProtectedPodsUntilTheDeadline(t *testing.T) {
	t.Parallel()
	w, claim, node := draining()
	pod := w.AddPod("p", node.Name, cluster.PodSpec{GraceSeconds: 30})
	pod.Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "true"}
	d := decide(w)
	require.Empty(t, d.Moves, "without a deadline it blocks for ever (D-117)")
	require.Equal(t, now+10, d.NextUnix)

	claim.Annotations = map[string]string{cluster.AnnotationTerminationTimestamp: time.Unix(now+100, 0).UTC().Format(time.RFC3339)}
	d = decide(w)
	require.Empty(t, d.Moves)
	require.Equal(t, now+10, d.NextUnix)

	w.Advance(70) // the pod needs its 30 seconds
	require.Equal(t, []plan.Kill{{Pod: pod.PodRef, GraceSeconds: 30}}, only(t, decide(w)).Kill, "D-115")

	w.Advance(20)
	require.Equal(t, []plan.Kill{{Pod: pod.PodRef, GraceSeconds: 10}}, only(t, decide(w)).Kill, "what is left shrinks")

	pod.DeletionUnix = now + 300
	require.Equal(t, []plan.Kill{{Pod: pod.PodRef, GraceSeconds: 10}}, only(t, decide(w)).Kill, "a deletion that would end too late is hurried (D-116)")

	pod.DeletionUnix = now + 100
	require.Empty(t, decide(w).Moves)
	w.Advance(10)
	w.AddPod("late", node.Name, cluster.PodSpec{GraceSeconds: 3600})
	move := only(t, decide(w))
	require.Equal(t, int64(1), move.Kill[0].GraceSeconds, "never less than a second")
}

func TestProtectedUntil(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		value string
		until int64
		ok    bool
	}{
		"true protects for ever (D-011)":                      {"true", 0, true},
		"a duration protects from the pod's start (D-012)":    {"1h", 500 + 3600, true},
		"anything else does not protect":                      {"yes", 0, false},
		"a duration of nothing does not protect":              {"0s", 0, false},
		"a duration that runs backwards does not protect":     {"-1h", 0, false},
		"a pod without the annotation is not protected":       {"", 0, false},
		"false does not protect":                              {"false", 0, false},
		"a number without a unit is no duration":              {"30", 0, false},
		"a duration may be put together of hours and minutes": {"1h30m", 500 + 5400, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			until, ok := disruption.ProtectedUntil(&cluster.Pod{
				CreatedUnix: 400, StartedUnix: 500, Annotations: map[string]string{cluster.AnnotationDoNotDisrupt: tt.value},
			})
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.until, until)
		})
	}
	until, ok := disruption.ProtectedUntil(&cluster.Pod{CreatedUnix: 400, Annotations: map[string]string{cluster.AnnotationDoNotDisrupt: "1m"}})
	require.True(t, ok)
	require.Equal(t, int64(460), until, "a pod that has not started counts from its creation")
}
