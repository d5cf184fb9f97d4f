package joining_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/joining"
	"treadle/shared/plan"
)

const now = int64(1_796_000_000)

var (
	providerID = cluster.ProviderID("us-east-1a", "i-1")
	startup    = cluster.Taint{Key: "cni.example/agent", Effect: cluster.NoSchedule}
	dedicated  = cluster.Taint{Key: "dedicated", Value: "web", Effect: cluster.NoSchedule}
	unjoined   = cluster.Taint{Key: cluster.TaintUnregistered, Effect: cluster.NoExecute}
)

func is(kind, status string, at int64) cluster.Condition {
	return cluster.Condition{Type: kind, Status: status, TransitionUnix: at}
}

// launched is a claim whose instance was launched a minute and a half ago.
func launched() cluster.NodeClaim {
	return cluster.NodeClaim{
		Name: "c", UID: "claim-uid", ProviderID: providerID, CreatedUnix: now - 95,
		Labels:      map[string]string{cluster.LabelNodePool: "general", "team": "a"},
		Annotations: map[string]string{"note": "b", cluster.AnnotationLaunch: "{}", cluster.AnnotationTagged: "true"},
		Taints:      []cluster.Taint{dedicated}, StartupTaints: []cluster.Taint{startup},
		Conditions: cluster.Conditions{is(cluster.ConditionLaunched, "True", now-90)},
		Finalizers: []string{cluster.FinalizerTermination},
	}
}

func node() cluster.Node {
	return cluster.Node{
		Name: "n", UID: "node-uid", ProviderID: providerID, Taints: []cluster.Taint{unjoined},
		Conditions: cluster.Conditions{{Type: "Ready", Status: "True"}},
	}
}

// registered is a claim and its node after registration, with every startup taint gone.
func registered() (cluster.NodeClaim, cluster.Node) {
	c, n := launched(), node()
	c.NodeName = n.Name
	c.Conditions = c.Conditions.With(is(cluster.ConditionRegistered, "True", now-30))
	n.Taints = []cluster.Taint{dedicated}
	n.Labels = map[string]string{cluster.LabelRegistered: "true"}
	n.Finalizers = []string{cluster.FinalizerTermination}
	return c, n
}

func TestDecide(t *testing.T) {
	t.Parallel()
	ended := cluster.Sights{"i-1": {Found: true, Instance: cluster.Instance{State: cluster.InstanceTerminated, StateReason: "Client.InvalidKMSKey.InvalidState: disabled"}}}
	unknown := cluster.Sights{"i-1": {}}
	type scene struct {
		claim  func(*cluster.NodeClaim)
		nodes  []cluster.Node
		sights cluster.Sights
		joined bool // start from a registered claim
	}
	for name, tt := range map[string]struct {
		scene
		reason  string // of the move, "" for none
		deletes bool
		says    string // in the Event or in the condition that is written
		next    int64
		waiting bool
	}{
		"a claim whose launch is young is waited for until its deadline (L-086)": {
			scene: scene{claim: func(c *cluster.NodeClaim) { c.ProviderID, c.Conditions, c.CreatedUnix = "", nil, now-299 }}, next: now + 1,
		},
		"a claim that was not launched within five minutes is given up (L-086)": {
			scene:  scene{claim: func(c *cluster.NodeClaim) { c.ProviderID, c.Conditions, c.CreatedUnix = "", nil, now-300 }},
			reason: "launch_timeout", deletes: true, says: "no cause is known", waiting: true,
		},
		"a claim whose launch was refused is given up with the reason": {
			scene: scene{claim: func(c *cluster.NodeClaim) {
				c.ProviderID = ""
				c.Conditions = cluster.Conditions{{Type: cluster.ConditionLaunched, Status: "False", Message: "sold out"}}
			}},
			reason: "launch_failed", deletes: true, says: "sold out", waiting: true,
		},
		"a claim that is being deleted is left to its drain": {
			scene: scene{claim: func(c *cluster.NodeClaim) { c.DeletionUnix = now }, nodes: []cluster.Node{node()}},
		},
		"an instance whose node has not come is waited for until its deadline (L-087)": {
			next: now - 90 + 900, waiting: true,
		},
		"a node that does not come within a quarter of an hour is given up (L-087)": {
			scene:  scene{claim: func(c *cluster.NodeClaim) { c.Conditions[0].TransitionUnix = now - 900 }},
			reason: "registration_timeout", deletes: true, says: "15 minutes", waiting: true,
		},
		"an instance that ended before its node came is given up with EC2's reason (R31)": {
			scene: scene{sights: ended}, reason: "instance_ended", deletes: true, says: "Client.InvalidKMSKey.InvalidState: disabled", waiting: true,
		},
		"an instance that EC2 does not show a minute after its launch is given up": {
			scene: scene{sights: unknown}, reason: "instance_ended", deletes: true, says: "does not know it", waiting: true,
		},
		"an instance that EC2 does not show yet is waited for": {
			scene: scene{sights: unknown, claim: func(c *cluster.NodeClaim) { c.Conditions[0].TransitionUnix = now - 60 }}, next: now + 840, waiting: true,
		},
		"a node that has come is registered": {
			scene: scene{nodes: []cluster.Node{node()}, sights: ended}, reason: "register", waiting: true,
		},
		"two nodes with one provider id are an error that is named (L-077)": {
			scene:  scene{nodes: []cluster.Node{node(), {Name: "twin", ProviderID: providerID}}},
			reason: "register", says: "several nodes have this provider id: n, twin", waiting: true,
		},
		"a registered claim without its node is given up": {
			scene: scene{joined: true, nodes: []cluster.Node{}}, reason: "node_gone", deletes: true, says: "no longer exists", waiting: true,
		},
		"a ready node protects its claim from a wrong answer of EC2 (L-091)": {
			scene: scene{joined: true, sights: unknown}, reason: "initialize", waiting: true,
		},
		"an initialised claim is left alone": {
			scene: scene{joined: true, claim: func(c *cluster.NodeClaim) {
				c.Conditions = c.Conditions.With(is(cluster.ConditionInitialized, "True", now))
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := launched()
			if tt.joined {
				var n cluster.Node
				if claim, n = registered(); tt.nodes == nil {
					tt.nodes = []cluster.Node{n}
				}
			}
			if tt.claim != nil {
				tt.claim(&claim)
			}
			snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{claim}, Nodes: tt.nodes}
			d := joining.Decide(&snap, tt.sights)
			require.Equal(t, tt.waiting, d.Waiting)
			require.Equal(t, tt.next, d.NextUnix)
			if tt.reason == "" {
				require.Empty(t, d.Moves)
				return
			}
			require.Len(t, d.Moves, 1)
			move := d.Moves[0]
			require.Equal(t, tt.reason, move.Reason)
			require.Equal(t, tt.deletes, move.DeleteClaim)
			said := ""
			for _, e := range move.Events {
				said += e.Note
			}
			if move.WantClaim != nil {
				said += move.WantClaim.Conditions.Get(cluster.ConditionRegistered).Message
			}
			require.Contains(t, said, tt.says)
		})
	}
}

func TestDecide_RegistersANodeWithAllThatItsClaimCarries(t *testing.T) {
	t.Parallel()
	claim, n := launched(), node()
	n.Labels = map[string]string{cluster.LabelHostname: "n"}
	snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{claim}, Nodes: []cluster.Node{n}}
	move := joining.Decide(&snap, nil).Moves[0]

	want := move.WantNode
	require.Equal(t, map[string]string{
		cluster.LabelHostname: "n", cluster.LabelNodePool: "general", "team": "a", cluster.LabelRegistered: "true",
	}, want.Labels)
	require.Equal(t, map[string]string{"note": "b"}, want.Annotations, "what is about the claim alone stays there")
	require.Equal(t, []cluster.Taint{dedicated, startup}, want.Taints, "the taint that kept pods away goes in the same patch (L-082)")
	require.Equal(t, []string{cluster.FinalizerTermination}, want.Finalizers)
	require.Equal(t, "claim-uid", want.OwnedBy)
	require.Equal(t, "c", want.OwnedByName, "an owner reference needs both")
	require.Equal(t, cluster.NodeName("n"), move.WantClaim.NodeName)
	require.True(t, move.WantClaim.Conditions.True(cluster.ConditionRegistered))
	require.Empty(t, move.Events)
	require.Equal(t, []cluster.Taint{unjoined}, snap.Nodes[0].Taints, "the snapshot is not written to")
	require.Equal(t, map[string]string{cluster.LabelHostname: "n"}, snap.Nodes[0].Labels)
}

func TestDecide_LeavesTheTaintsOfANodeThatAsksForIt(t *testing.T) {
	t.Parallel()
	n := node()
	n.Labels = map[string]string{cluster.LabelNoTaintSync: "true"}
	snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{launched()}, Nodes: []cluster.Node{n}}
	require.Empty(t, joining.Decide(&snap, nil).Moves[0].WantNode.Taints) // L-079
}

func TestDecide_ReportsANodeThatCameWithoutItsTaint(t *testing.T) {
	t.Parallel()
	n := node()
	n.Taints = nil
	snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{launched()}, Nodes: []cluster.Node{n}}
	move := joining.Decide(&snap, nil).Moves[0]
	require.Equal(t, "register", move.Reason)
	require.Equal(t, "UnregisteredTaintMissing", move.Events[0].Reason) // L-078
}

func TestDecide_Initialises(t *testing.T) {
	t.Parallel()
	gpu := "nvidia.com/gpu"
	for name, tt := range map[string]struct {
		change func(*cluster.NodeClaim, *cluster.Node)
		reason string // why not; "": it does
	}{
		"a ready node without startup taints": {func(*cluster.NodeClaim, *cluster.Node) {}, ""},
		"not a node that is not ready": {func(_ *cluster.NodeClaim, n *cluster.Node) {
			n.Conditions = cluster.Conditions{{Type: "Ready", Status: "False"}}
		}, "NodeNotReady"},
		"not a node with a startup taint": {func(_ *cluster.NodeClaim, n *cluster.Node) {
			n.Taints = append(n.Taints, startup)
		}, "StartupTaintsExist"},
		"not a node with a taint that it sheds by itself": {func(_ *cluster.NodeClaim, n *cluster.Node) {
			n.Taints = append(n.Taints, cluster.Taint{Key: cluster.TaintNotReady, Effect: cluster.NoSchedule})
		}, "KnownEphemeralTaintsExist"},
		"not a node that lacks a device that was asked for": {func(c *cluster.NodeClaim, _ *cluster.Node) {
			c.Requests.Extended = map[string]int64{gpu: 1}
		}, "ResourceNotRegistered"},
		"a node that has the device by now": {func(c *cluster.NodeClaim, n *cluster.Node) {
			c.Requests.Extended, n.Allocatable.Extended = map[string]int64{gpu: 1}, map[string]int64{gpu: 1}
		}, ""},
		"a node that lacks a device of which nothing was asked": {func(c *cluster.NodeClaim, _ *cluster.Node) {
			c.Requests.Extended = map[string]int64{gpu: 0}
		}, ""},
	} { // L-084
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, n := registered()
			n.Capacity, n.Allocatable = cluster.Resources{MilliCPU: 2000}, cluster.Resources{MilliCPU: 1930}
			tt.change(&claim, &n)
			snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{claim}, Nodes: []cluster.Node{n}}
			d := joining.Decide(&snap, nil)
			require.True(t, d.Waiting)
			require.Zero(t, d.NextUnix, "no deadline ends the wait (L-088)")
			require.Len(t, d.Moves, 1)
			move := d.Moves[0]
			got := move.WantClaim.Conditions.Get(cluster.ConditionInitialized)
			if tt.reason != "" {
				require.Equal(t, "Unknown", got.Status)
				require.Equal(t, tt.reason, got.Reason)
				require.Nil(t, move.WantNode)
				require.Equal(t, "Unknown", move.WantClaim.Conditions.Get(cluster.ConditionReady).Status)
				return
			}
			require.Equal(t, "True", got.Status)
			require.Equal(t, "True", move.WantClaim.Conditions.Get(cluster.ConditionReady).Status)
			require.Equal(t, "true", move.WantNode.Labels[cluster.LabelInitialized])
			require.Equal(t, n.Capacity, move.WantClaim.Capacity, "what the node reports is the truth")
			require.Equal(t, n.Allocatable, move.WantClaim.Allocatable)
		})
	}
}

func TestDecide_EndsAClaimWhoseInstanceEndedUnderARegisteredNode(t *testing.T) {
	t.Parallel()
	claim, n := registered()
	n.Conditions = cluster.Conditions{{Type: "Ready", Status: "Unknown"}}
	snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{claim}, Nodes: []cluster.Node{n}}
	d := joining.Decide(&snap, cluster.Sights{"i-1": {}})
	require.Equal(t, "instance_gone", d.Moves[0].Reason)
	require.True(t, d.Moves[0].DeleteClaim)
	require.Equal(t, "initialize", joining.Decide(&snap, nil).Moves[0].Reason, "an instance that nobody asked about proves nothing")

	for i, c := range snap.NodeClaims[0].Conditions {
		if c.Type == cluster.ConditionLaunched {
			snap.NodeClaims[0].Conditions[i].TransitionUnix = now - 8
		}
	}
	require.Equal(t, "initialize", joining.Decide(&snap, cluster.Sights{"i-1": {}}).Moves[0].Reason, "EC2 may not show a young instance yet")
}

// TestDecide_TwiceChangesNothingTwice lets a node join in any number of looks: deciding again on what was just applied writes only what
// has become due, and a look at a joined node writes nothing.
func TestDecide_TwiceChangesNothingTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := simtest.New(now)
		claim, n := w.AddMachine("c", "general")
		claim.Conditions = cluster.Conditions{is(cluster.ConditionLaunched, "True", now)}
		claim.NodeName, claim.Taints, claim.StartupTaints = "", []cluster.Taint{dedicated}, []cluster.Taint{startup}
		n.Taints = rapid.SliceOfDistinct(rapid.SampledFrom([]cluster.Taint{unjoined, startup, dedicated}), rapid.ID).Draw(t, "taints")
		n.Labels, n.Finalizers, n.OwnedBy, n.OwnedByName = nil, nil, "", ""
		look := func() []plan.Move {
			snap := w.Snapshot(w.NowUnix())
			d := joining.Decide(&snap, w.Sights(&snap))
			mover := apply.Mover{Cluster: "demo", Kube: w, Instances: w, Log: slog.New(slog.DiscardHandler)}
			ok, err := mover.Move(t.Context(), d.Moves)
			require.NoError(t, err)
			require.True(t, ok)
			return d.Moves
		}
		require.NotEmpty(t, look())
		require.Contains(t, n.Taints, startup)
		require.NotContains(t, n.Taints, unjoined)
		look() // says what is missing
		w.Writes = nil
		require.Empty(t, look(), "nothing new, nothing written")

		n.Taints = []cluster.Taint{dedicated}
		require.Len(t, look(), 1)
		require.NotContains(t, n.Taints, startup, "a startup taint comes once only (L-080)")
		require.True(t, claim.Conditions.True(cluster.ConditionReady))
		w.Writes = nil
		require.Empty(t, look())
		require.Empty(t, w.Writes)
	})
}

func TestDecide_NominatesANodeForThePodsThatStillWaitForIt(t *testing.T) {
	t.Parallel()
	claim := launched()
	pods := []cluster.Pod{
		{PodRef: cluster.PodRef{Name: "waits", UID: "1"}},
		{PodRef: cluster.PodRef{Name: "is bound", UID: "2"}, NodeName: "elsewhere"},
		{PodRef: cluster.PodRef{Name: "is expected elsewhere", UID: "3"}, NominatedNode: "elsewhere"},
		{PodRef: cluster.PodRef{Name: "goes", UID: "4"}, DeletionUnix: now},
		{PodRef: cluster.PodRef{Name: "has ended", UID: "5"}, Phase: cluster.PodFailed},
		{PodRef: cluster.PodRef{Name: "is planned for another claim", UID: "6"}},
	}
	var planned []cluster.PodRef
	for _, p := range pods[:5] {
		planned = append(planned, p.PodRef)
	}
	claim.Annotations[cluster.AnnotationPlanned] = cluster.FormatPlanned(append(planned, cluster.PodRef{UID: "is gone"}))
	snap := cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{claim}, Nodes: []cluster.Node{node()}, Pods: pods}
	require.Equal(t, []cluster.PodRef{pods[0].PodRef}, joining.Decide(&snap, nil).Moves[0].Nominate)
}

func TestDecide_HoldsWhatAnUninstallationHasLetGo(t *testing.T) {
	t.Parallel()
	claim, joined := registered()
	claim.Finalizers, joined.Finalizers = []string{"example.com/theirs"}, nil
	d := joining.Decide(&cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{claim}, Nodes: []cluster.Node{joined}}, nil)
	require.Len(t, d.Moves, 1)
	require.True(t, d.Waiting, "what it keeps from being seen is looked at next")
	require.Equal(t, []string{"example.com/theirs", cluster.FinalizerTermination}, d.Moves[0].WantClaim.Finalizers)
	require.Equal(t, []string{cluster.FinalizerTermination}, d.Moves[0].WantNode.Finalizers)
	require.Empty(t, joined.Finalizers, "the snapshot is left alone")

	claim.DeletionUnix = now
	d = joining.Decide(&cluster.Snapshot{NowUnix: now, NodeClaims: []cluster.NodeClaim{claim}, Nodes: []cluster.Node{joined}}, nil)
	require.Empty(t, d.Moves, "what is being deleted can be held no more")
}

func TestDecide_TellsThePodsThatWaitWhyTheirNodeDoesNotCome(t *testing.T) {
	t.Parallel()
	claim := cluster.NodeClaim{
		Name: "c", UID: "c", ProviderID: cluster.ProviderID("a", "i-1"), CreatedUnix: 1_796_000_000 - 200, Finalizers: []string{cluster.FinalizerTermination},
		Annotations: map[string]string{cluster.AnnotationPlanned: "waits,runs"},
		Conditions:  cluster.Conditions{{Type: cluster.ConditionLaunched, Status: "True", TransitionUnix: 1_796_000_000 - 200}},
	}
	snap := cluster.Snapshot{NowUnix: 1_796_000_000, NodeClaims: []cluster.NodeClaim{claim}, Pods: []cluster.Pod{
		{PodRef: cluster.PodRef{Namespace: "default", Name: "waits", UID: "waits"}, Spec: &cluster.PodSpec{}},
		{PodRef: cluster.PodRef{Namespace: "default", Name: "runs", UID: "runs"}, NodeName: "n", Spec: &cluster.PodSpec{}},
	}}
	d := joining.Decide(&snap, cluster.Sights{"i-1": {Found: true, Instance: cluster.Instance{
		ID: "i-1", State: cluster.InstanceTerminated, StateReason: "Client.VolumeLimitExceeded: Volume limit exceeded",
	}}})
	require.Len(t, d.Moves, 1)
	require.True(t, d.Moves[0].DeleteClaim)
	require.Len(t, d.Moves[0].Events, 2)
	told := d.Moves[0].Events[1]
	require.Equal(t, "waits", told.Name)
	require.Equal(t, "NodeNotJoined", told.Reason)
	require.Contains(t, told.Note, "nodeclaim c: ")
	require.Contains(t, told.Note, "Client.VolumeLimitExceeded")
}
