package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
)

func TestMembers_JoinsClaimsNodesAndPods(t *testing.T) {
	t.Parallel()
	one, two := cluster.ProviderID("us-east-1a", "i-1"), cluster.ProviderID("us-east-1b", "i-2")
	s := cluster.Snapshot{
		NodeClaims: []cluster.NodeClaim{{Name: "launching"}, {Name: "first", ProviderID: one}, {Name: "second", ProviderID: two}},
		Nodes: []cluster.Node{
			{Name: "foreign"}, {Name: "a", ProviderID: one}, {Name: "b", ProviderID: two}, {Name: "twin", ProviderID: two},
		},
		Pods: []cluster.Pod{
			{PodRef: cluster.PodRef{Name: "on a"}, NodeName: "a"}, {PodRef: cluster.PodRef{Name: "on the twin"}, NodeName: "twin"},
			{PodRef: cluster.PodRef{Name: "pending"}}, {PodRef: cluster.PodRef{Name: "on a node that is gone"}, NodeName: "gone"},
			{PodRef: cluster.PodRef{Name: "on foreign"}, NodeName: "foreign"},
		},
	}
	got := s.Members()
	require.Equal(t, []cluster.Member{
		{Claim: &s.NodeClaims[0]},
		{Claim: &s.NodeClaims[1], Node: &s.Nodes[1], Pods: []*cluster.Pod{&s.Pods[0]}},
		{Claim: &s.NodeClaims[2], Node: &s.Nodes[2], Twins: []*cluster.Node{&s.Nodes[3]}, Pods: []*cluster.Pod{&s.Pods[1]}},
		{Node: &s.Nodes[0], Pods: []*cluster.Pod{&s.Pods[4]}},
	}, got)
	require.Same(t, &s.NodeClaims[1], got[1].Claim, "members point into the snapshot")
}

func TestInstanceOf(t *testing.T) {
	t.Parallel()
	for providerID, want := range map[string]cluster.InstanceID{
		cluster.ProviderID("us-east-1a", "i-0abc"): "i-0abc",
		"aws:///us-east-1a/i-0abc":                 "i-0abc",
		"":                                         "",
		"aws:///us-east-1a":                        "",
		"aws:///us-east-1a/fargate-ip-10-0-0-1":    "",
		"kind://docker/demo/i-0abc":                "",
	} {
		require.Equal(t, want, cluster.InstanceOf(providerID), providerID)
	}
}

func TestSnapshot_FindsPoolsAndClassesByName(t *testing.T) {
	t.Parallel()
	s := cluster.Snapshot{NodePools: []cluster.NodePool{{Name: "a"}, {Name: "b"}}, NodeClasses: []cluster.NodeClass{{Name: "c"}}}
	require.Same(t, &s.NodePools[1], s.Pool("b"))
	require.Nil(t, s.Pool("c"))
	require.Same(t, &s.NodeClasses[0], s.Class("c"))
	require.Nil(t, s.Class("a"))
}

func TestSight(t *testing.T) {
	t.Parallel()
	in := func(s cluster.InstanceState) cluster.Sight {
		return cluster.Sight{Found: true, Instance: cluster.Instance{State: s}}
	}
	for name, tt := range map[string]struct {
		sight         cluster.Sight
		settled       bool
		gone, isEnded bool
	}{
		"a running instance is there":                       {in(cluster.InstanceRunning), true, false, false},
		"a stopped instance is there (L-072)":               {in(cluster.InstanceStopped), true, false, false},
		"an instance that is shutting down will not return": {in(cluster.InstanceShuttingDown), false, true, false},
		"a terminated instance is over":                     {in(cluster.InstanceTerminated), false, true, true},
		"an old instance that EC2 does not know is gone":    {cluster.Sight{}, true, true, true},
		"a young instance may not be shown yet (R24)":       {cluster.Sight{}, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.gone, tt.sight.Gone(tt.settled))
			require.Equal(t, tt.isEnded, tt.sight.Ended())
		})
	}
}

func TestConditions_With(t *testing.T) {
	t.Parallel()
	old := cluster.Conditions{{Type: "A", Status: "True", TransitionUnix: 1}, {Type: "B", Status: "False", TransitionUnix: 2}}
	same := old.With(cluster.Condition{Type: "A", Status: "True", Reason: "Still", TransitionUnix: 9})
	require.Equal(t, cluster.Condition{Type: "A", Status: "True", Reason: "Still", TransitionUnix: 1}, same.Get("A"), "the instant is that of the change")
	turned := old.With(cluster.Condition{Type: "B", Status: "True", TransitionUnix: 9})
	require.Equal(t, int64(9), turned.Get("B").TransitionUnix)
	more := old.With(cluster.Condition{Type: "C", Status: "Unknown"})
	require.Len(t, more, 3)
	require.Len(t, old, 2, "With copies")
	require.Equal(t, int64(2), old.Get("B").TransitionUnix)
	require.Zero(t, old.Get("D"))
	require.False(t, old.True("D"))
}

func TestConditions_WithReadyFollowsTheFirstThatDecides(t *testing.T) {
	t.Parallel()
	is := func(kind, status, reason string) cluster.Condition {
		return cluster.Condition{Type: kind, Status: status, Reason: reason, Message: "about " + kind}
	}
	for name, tt := range map[string]struct {
		of             cluster.Conditions
		status, reason string
		message        string
	}{
		"all true":                             {cluster.Conditions{is("A", "True", "x"), is("B", "True", "y")}, "True", "Ready", ""},
		"one false":                            {cluster.Conditions{is("A", "True", "x"), is("B", "False", "y")}, "False", "y", "about B"},
		"false goes before unknown":            {cluster.Conditions{is("A", "Unknown", "x"), is("B", "False", "y")}, "False", "y", "about B"},
		"the first of two false":               {cluster.Conditions{is("A", "False", "x"), is("B", "False", "y")}, "False", "x", "about A"},
		"the first of two unknown":             {cluster.Conditions{is("A", "Unknown", "x"), is("B", "Unknown", "y")}, "Unknown", "x", "about A"},
		"a condition that is missing is named": {cluster.Conditions{is("A", "True", "x")}, "Unknown", "BPending", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.of.WithReady(7, "A", "B").Get(cluster.ConditionReady)
			require.Equal(t, cluster.Condition{Type: cluster.ConditionReady, Status: tt.status, Reason: tt.reason, Message: tt.message, TransitionUnix: 7}, got)
		})
	}
}
