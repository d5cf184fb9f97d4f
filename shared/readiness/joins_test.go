package readiness_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/plan"
	"treadle/shared/readiness"
)

const (
	dead  = "the instance ended before its node joined: Client.VolumeLimitExceeded: Volume limit exceeded"
	start = int64(1_796_000_000)
)

// history is a cluster of one pool.
type history struct{ cluster.Snapshot }

func newHistory() *history {
	return &history{cluster.Snapshot{
		NowUnix:     start,
		NodeClasses: []cluster.NodeClass{{Name: "default", Generation: 1}},
		NodePools:   []cluster.NodePool{{Name: "general", Generation: 1, Template: cluster.NodeTemplate{NodeClass: "default"}}},
	}}
}

// ends has nodes come, or not for the given reasons, and returns the pool's conditions.
func (h *history) ends(reasons ...string) cluster.Conditions {
	claim := &cluster.NodeClaim{Name: "c", Labels: map[string]string{cluster.LabelNodePool: "general"}}
	for _, reason := range reasons {
		move := plan.Move{Reason: "register", Claim: claim, WantNode: &cluster.Node{}}
		if reason != "" {
			move = plan.Move{Reason: "instance_ended", Claim: claim, DeleteClaim: true, Events: []plan.Event{plan.ClaimEvent(claim, "InstanceTerminated", true, reason)}}
		}
		h.NodePools[0] = readiness.Joins(&h.Snapshot, []plan.Move{move, {Reason: "drain", Claim: claim}})["general"]
		h.look()
	}
	return h.NodePools[0].Conditions
}

func (h *history) look() cluster.Conditions {
	h.NodePools = readiness.Pools(&h.Snapshot)
	return h.NodePools[0].Conditions
}

func TestJoins_RegistrationHealth(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends   []string
		status string
	}{
		"nothing is known at first":        {nil, "Unknown"},
		"a node has come":                  {[]string{""}, "True"},
		"one failure says nothing":         {[]string{dead}, "Unknown"},
		"nor does it after a success":      {[]string{"", dead}, "True"},
		"two of the last four do":          {[]string{dead, "", dead}, "False"},
		"a success ends it":                {[]string{dead, dead, ""}, "True"},
		"what is long past does not count": {[]string{dead, "", "", "", dead}, "True"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory()
			h.look()
			got := h.ends(c.ends...).Get(cluster.ConditionNodeRegistrationHealthy)
			require.Equal(t, c.status, got.Status)
			if c.status == "False" {
				require.Contains(t, got.Message, "Client.VolumeLimitExceeded")
			}
		})
	}
}

func TestJoins_APoolPausesWhenOneFailureRepeatsItself(t *testing.T) {
	t.Parallel()
	h := newHistory()
	require.False(t, h.ends(dead, dead).True(cluster.ConditionPaused))
	require.Empty(t, h.NodePools[0].Conditions.Get(cluster.ConditionPaused).Type)
	require.True(t, h.ends(dead).True(cluster.ConditionPaused))
	require.Contains(t, h.NodePools[0].Conditions.Get(cluster.ConditionPaused).Message, "3 nodes in a row did not join")

	h.NowUnix += 601
	require.False(t, h.look().True(cluster.ConditionPaused), "it tries again after a while")
	require.True(t, h.ends(dead).True(cluster.ConditionPaused), "and one failure more is enough")

	h.NodeClasses[0].Generation++
	got := h.look()
	require.False(t, got.True(cluster.ConditionPaused), "a class that was changed may do")
	require.Equal(t, "Unknown", got.Get(cluster.ConditionNodeRegistrationHealthy).Status)
}

func TestJoins_DifferentFailuresDoNotPause(t *testing.T) {
	t.Parallel()
	h := newHistory()
	got := h.ends(dead, "no node with this provider id joined within 15 minutes", dead, dead)
	require.False(t, got.True(cluster.ConditionPaused))
	require.Equal(t, "False", got.Get(cluster.ConditionNodeRegistrationHealthy).Status)
}
