package disruption_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/plan"
)

func TestOrphans(t *testing.T) {
	t.Parallel()
	open := cluster.NodeClaim{UID: "u", Annotations: map[string]string{cluster.AnnotationLaunch: plan.Launch{Group: "g"}.Annotation()}}
	token := plan.Groups([]cluster.NodeClaim{open})[0].Token
	done := open
	done.ProviderID = cluster.ProviderID("us-east-1a", "i-2")
	old := cluster.Instance{ID: "i-1", State: cluster.InstanceRunning, LaunchUnix: now - 60}
	with := func(change func(*cluster.Instance)) cluster.Instance {
		one := old
		change(&one)
		return one
	}
	for name, tt := range map[string]struct {
		claims   []cluster.NodeClaim
		instance cluster.Instance
		orphan   bool
	}{
		"an instance without a claim is an orphan (R21)": {nil, old, true},
		"an instance of a claim is not": {
			[]cluster.NodeClaim{{ProviderID: cluster.ProviderID("us-east-1a", "i-1")}}, old, false,
		},
		"a young instance may be on its way into its claim": {nil, with(func(i *cluster.Instance) { i.LaunchUnix++ }), false},
		"an instance that is ending is nobody's business (L-093)": {
			nil, with(func(i *cluster.Instance) { i.State = cluster.InstanceShuttingDown }), false,
		},
		"an instance that has ended neither":                 {nil, with(func(i *cluster.Instance) { i.State = cluster.InstanceTerminated }), false},
		"a stopped instance without a claim costs money too": {nil, with(func(i *cluster.Instance) { i.State = cluster.InstanceStopped }), true},
		"an instance of a launch that will be repeated is waited for": {
			[]cluster.NodeClaim{open}, with(func(i *cluster.Instance) { i.Tags = map[string]string{cluster.TagLaunch: token} }), false,
		},
		"an instance of a launch that has ended is an orphan": {
			[]cluster.NodeClaim{done}, with(func(i *cluster.Instance) { i.Tags = map[string]string{cluster.TagLaunch: token} }), true,
		},
		"an instance of another launch is an orphan": {
			[]cluster.NodeClaim{open}, with(func(i *cluster.Instance) { i.Tags = map[string]string{cluster.TagLaunch: "other"} }), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := disruption.Orphans(&cluster.Snapshot{NowUnix: now, NodeClaims: tt.claims}, []cluster.Instance{tt.instance})
			if tt.orphan {
				require.Equal(t, []cluster.InstanceID{"i-1"}, got)
			} else {
				require.Empty(t, got)
			}
		})
	}
}
