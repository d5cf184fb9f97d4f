package disruption_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
)

// static is a fleet whose pool is to have some nodes, and has some.
func static(replicas int64, nodes int) *fleet {
	f := newFleet()
	f.NodePools[0].Replicas = &replicas
	for range nodes {
		f.node("m5.large", cluster.OnDemand)
	}
	return f
}

func TestStatic_MakesUpForWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		replicas int64
		nodes    int
		change   func(f *fleet)
		missing  int
	}{
		"all are missing at first (S-262)": {3, 0, nil, 3},
		"some are":                         {3, 2, nil, 1},
		"none is":                          {2, 2, nil, 0},
		"a claim that is leaving no longer counts": {2, 2, func(f *fleet) { f.NodeClaims[0].DeletionUnix = now }, 1},
		"but does against the limit (S-262)": {2, 2, func(f *fleet) {
			f.NodeClaims[0].DeletionUnix = now
			f.NodePools[0].Limits = map[string]int64{"nodes": 2}
		}, 0},
		"the limit is less than the replicas":                  {5, 1, func(f *fleet) { f.NodePools[0].Limits = map[string]int64{"nodes": 3} }, 2},
		"a claim that a command replaces is made up for by it": {2, 2, func(f *fleet) { f.NodeClaims[0].Annotations = map[string]string{"treadle.sh/command": "{}"} }, 1},
		"a pool that is not ready makes nothing":               {3, 0, func(f *fleet) { f.NodePools[0].Conditions = nil }, 0},
		"a pool that is being deleted makes nothing":           {3, 0, func(f *fleet) { f.NodePools[0].DeletionUnix = now }, 0},
		"a pool without replicas is not static":                {3, 0, func(f *fleet) { f.NodePools[0].Replicas = nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := static(tt.replicas, tt.nodes)
			if tt.change != nil {
				tt.change(f)
			}
			missing := 0
			for _, s := range disruption.Static(&f.Snapshot) {
				require.Empty(t, s.Surplus)
				missing += s.Missing
			}
			require.Equal(t, tt.missing, missing)
		})
	}
}

func TestStatic_TakesAwayWhatIsMissedLeast(t *testing.T) {
	t.Parallel()
	f := static(1, 0)
	f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "0"}} // which do not matter (D-129)
	kept := f.node("m5.large", cluster.OnDemand, 100)
	f.annotate("true")
	many := f.node("m5.large", cluster.OnDemand, 100, 100, 100)
	few := f.node("m5.large", cluster.OnDemand, 100)
	idle := f.node("m5.large", cluster.OnDemand)
	f.NodeClaims = append(f.NodeClaims, cluster.NodeClaim{Name: "young", Labels: map[string]string{cluster.LabelNodePool: "general"}})
	order := func() (names []string) {
		for _, m := range disruption.Static(&f.Snapshot)[0].Surplus {
			require.True(t, m.DeleteClaim)
			names = append(names, m.Claim.Name)
		}
		return names
	}
	require.Equal(t, []string{"young", idle, few, many}, order(), "(D-127)")
	f.NodePools[0].Replicas = new(int64(0))
	require.Equal(t, []string{"young", idle, few, many, kept}, order())
}

func TestRenew_ExchangesNodesOfStaticPoolsOneForOne(t *testing.T) {
	t.Parallel()
	drifted := func(replicas int64, nodes int, limit int64) *fleet {
		f := static(replicas, nodes)
		f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "100%"}}
		if limit > 0 {
			f.NodePools[0].Limits = map[string]int64{"nodes": limit}
		}
		f.onClaims(func(c *cluster.NodeClaim) {
			c.Conditions = c.Conditions.With(cluster.Condition{Type: cluster.ConditionDrifted, Status: "True", Reason: "NodePoolDrifted"})
		})
		return f
	}
	for name, tt := range map[string]struct {
		f    *fleet
		want int
	}{
		"all at once where budgets and limits let them (D-075)": {drifted(3, 3, 0), 3},
		"as many as the limit leaves room for":                  {drifted(3, 3, 4), 1},
		"none where it leaves none":                             {drifted(3, 3, 3), 0},
		"none while there are too many nodes":                   {drifted(2, 3, 0), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands, events := disruption.Renew(&tt.f.Snapshot, disruption.Options{})
			require.Len(t, commands, tt.want)
			for _, c := range commands {
				require.Len(t, c.Replacements, 1, "empty nodes too")
			}
			require.Equal(t, tt.want < len(tt.f.Nodes), len(events) > 0)
		})
	}
}
