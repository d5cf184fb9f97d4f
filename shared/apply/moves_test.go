package apply_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/plan"
)

func mover(kube apply.Objects, ec2 apply.Instances) *apply.Mover {
	return &apply.Mover{Cluster: "demo", Kube: kube, Instances: ec2, Log: slog.New(slog.DiscardHandler)}
}

// scene is a world with one machine, and copies of its claim and node as a decision would read them.
func scene() (*simtest.World, cluster.NodeClaim, cluster.Node) {
	w := simtest.New(start)
	w.AddMachine("c", "general")
	snap := w.Snapshot(start)
	return w, snap.NodeClaims[0], snap.Nodes[0]
}

func TestMove_WritesInTheOrderOfItsFields(t *testing.T) {
	t.Parallel()
	w, claim, node := scene()
	waiting := w.AddPod("waiting", "", cluster.PodSpec{})
	evicted, killed := w.AddPod("evicted", node.Name, cluster.PodSpec{}), w.AddPod("killed", node.Name, cluster.PodSpec{})
	wantNode, wantClaim := node, claim
	wantNode.Unschedulable = true
	wantClaim.Annotations = map[string]string{"a": "b"}
	wantClaim.Conditions = claim.Conditions.With(cluster.Condition{Type: cluster.ConditionDrained, Status: "Unknown"})
	id := cluster.InstanceOf(claim.ProviderID)
	ok, err := mover(w, w).Move(t.Context(), []plan.Move{{
		Reason: "test", Claim: &claim, Node: &node, WantNode: &wantNode, WantClaim: &wantClaim,
		Events: []plan.Event{plan.ClaimEvent(&claim, "Why", false, "because")}, DeleteClaim: true, DeleteNode: true,
		Nominate: []cluster.PodRef{waiting.PodRef},
		Evict:    []cluster.PodRef{evicted.PodRef}, Kill: []plan.Kill{{Pod: killed.PodRef, GraceSeconds: 3}}, Terminate: id,
	}})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []string{
		"patch node " + string(node.Name), "patch nodeclaim c", "patch status of nodeclaim c", "nominate node for pod waiting", "delete nodeclaim c",
		"delete node " + string(node.Name),
		"evict pod evicted", "delete pod killed", "terminate [" + string(id) + "]",
	}, w.Writes)
	require.Equal(t, node.Name, waiting.NominatedNode)
	var reasons []string
	for _, e := range w.Events {
		reasons = append(reasons, e.Reason)
	}
	require.Equal(t, []string{"Why", "Evicted", "Disrupted"}, reasons)
	require.Equal(t, cluster.InstanceShuttingDown, w.Instances[id].State)
}

func TestMove_ReleasesTheNodeBeforeTheClaim(t *testing.T) {
	t.Parallel()
	w, claim, node := scene()
	require.NoError(t, w.DeleteNodeClaim(t.Context(), claim.Name, claim.UID))
	claim = w.Snapshot(start).NodeClaims[0]
	w.Writes = nil
	ok, err := mover(w, w).Move(t.Context(), []plan.Move{{Reason: "release", Claim: &claim, Node: &node, Release: true}})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []string{"delete node " + string(node.Name), "patch node " + string(node.Name), "patch nodeclaim c"}, w.Writes)
	require.Empty(t, w.Nodes)
	require.Empty(t, w.Claims)
}

// refusing answers patches of nodes and evictions with an error of its own.
type refusing struct {
	*simtest.World
	err error
}

func (r refusing) PatchNode(context.Context, cluster.Node, cluster.Node) error { return r.err }
func (r refusing) Evict(context.Context, cluster.PodRef) error                 { return r.err }
func (r refusing) Nominate(context.Context, cluster.PodRef, cluster.NodeName) error {
	return errors.New("no right to do so")
}
func (r refusing) Event(context.Context, plan.Event) error { return errors.New("events are down") }

func TestMove_StopsAtWhatFails(t *testing.T) {
	t.Parallel()
	trouble := errors.New("out of reach")
	for name, tt := range map[string]struct {
		fails  error
		reason error
	}{
		"a conflict is for the next look and no error":      {plan.ErrConflict, nil},
		"an object that is gone is for the next look":       {plan.ErrNotFound, nil},
		"a refusal by a budget is for the next look":        {plan.ErrBudget, nil},
		"any other trouble is an error, with what it is of": {trouble, trouble},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, claim, node := scene()
			want := node
			want.Unschedulable = true
			ok, err := mover(refusing{w, tt.fails}, w).Move(t.Context(), []plan.Move{{
				Reason: "test", Claim: &claim, Node: &node, WantNode: &want, DeleteClaim: true, Terminate: cluster.InstanceOf(claim.ProviderID),
			}})
			require.ErrorIs(t, err, tt.reason)
			require.False(t, ok)
			require.Empty(t, w.Writes, "nothing that comes after it is done")
		})
	}
}

func TestMove_OutlivesWhatDoesNotMatter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		evict error
		ok    bool
		err   error
		ends  bool
	}{
		"neither Events nor nominations hold up anything":         {nil, true, nil, true},
		"a pod that is gone by itself counts as evicted (D-114)":  {plan.ErrNotFound, true, nil, true},
		"another pod of that name is left alone (D-114)":          {plan.ErrConflict, true, nil, true},
		"a budget that holds a pod holds its instance (D-114)":    {plan.ErrBudget, false, nil, false},
		"an eviction that fails otherwise stops the move as well": {plan.ErrUnavailable, false, plan.ErrUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, claim, node := scene()
			pod := w.AddPod("p", node.Name, cluster.PodSpec{})
			id := cluster.InstanceOf(claim.ProviderID)
			ok, err := mover(refusing{w, tt.evict}, w).Move(t.Context(), []plan.Move{{
				Reason: "drain", Claim: &claim, Node: &node, Evict: []cluster.PodRef{pod.PodRef}, Terminate: id, Nominate: []cluster.PodRef{pod.PodRef},
				Events: []plan.Event{plan.ClaimEvent(&claim, "Why", false, "because")},
			}})
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.ends, w.Instances[id].State == cluster.InstanceShuttingDown)
		})
	}
}

func TestEach_RunsAllSeveralAtATime(t *testing.T) {
	t.Parallel()
	var running, most, total atomic.Int32
	apply.Each(200, func(int) {
		now := running.Add(1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		total.Add(1)
		running.Add(-1)
	})
	require.Equal(t, int32(200), total.Load())
	require.LessOrEqual(t, most.Load(), int32(16))
}
