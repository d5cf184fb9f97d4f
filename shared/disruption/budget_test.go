package disruption_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
)

func members(n int, change func(i int, m *cluster.Member)) []cluster.Member {
	out := make([]cluster.Member, n)
	for i := range out {
		out[i] = cluster.Member{
			Claim: &cluster.NodeClaim{Conditions: cluster.Conditions{{Type: cluster.ConditionInitialized, Status: "True"}}},
			Node:  &cluster.Node{Conditions: cluster.Conditions{{Type: "Ready", Status: "True"}}},
		}
		change(i, &out[i])
	}
	return out
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	same := func(int, *cluster.Member) {}
	first := func(n int, change func(*cluster.Member)) func(int, *cluster.Member) {
		return func(i int, m *cluster.Member) {
			if i < n {
				change(m)
			}
		}
	}
	condition := func(kind string) func(*cluster.Member) {
		return func(m *cluster.Member) {
			m.Claim.Conditions = m.Claim.Conditions.With(cluster.Condition{Type: kind, Status: "True"})
		}
	}
	for name, tt := range map[string]struct {
		budgets []cluster.Budget
		nodes   int
		change  func(int, *cluster.Member)
		want    int
	}{
		"a percentage is rounded up (D-087)":                 {[]cluster.Budget{{Nodes: "10%"}}, 1, same, 1},
		"a percentage of many":                               {[]cluster.Budget{{Nodes: "10%"}}, 25, same, 3},
		"a count is a count":                                 {[]cluster.Budget{{Nodes: "4"}}, 25, same, 4},
		"zero stops everything":                              {[]cluster.Budget{{Nodes: "0"}}, 25, same, 0},
		"the smallest budget counts (D-088)":                 {[]cluster.Budget{{Nodes: "50%"}, {Nodes: "3"}}, 25, same, 3},
		"a budget for another reason does not (D-089)":       {[]cluster.Budget{{Nodes: "0", Reasons: []string{"Drifted"}}}, 5, same, 5},
		"a budget for this reason does":                      {[]cluster.Budget{{Nodes: "2", Reasons: []string{"Drifted", "Empty"}}}, 5, same, 2},
		"without any budget nothing is limited (D-089)":      {nil, 5, same, 5},
		"nodes that are not ready use the budget (D-090)":    {[]cluster.Budget{{Nodes: "3"}}, 10, first(2, func(m *cluster.Member) { m.Node.Conditions = nil }), 1},
		"claims that are being deleted use it (D-090)":       {[]cluster.Budget{{Nodes: "3"}}, 10, first(1, func(m *cluster.Member) { m.Claim.DeletionUnix = 1 }), 2},
		"nodes that are being deleted use it":                {[]cluster.Budget{{Nodes: "3"}}, 10, first(1, func(m *cluster.Member) { m.Node.DeletionUnix = 1 }), 2},
		"nodes about to leave use it":                        {[]cluster.Budget{{Nodes: "3"}}, 10, first(3, condition(cluster.ConditionDisruptionReason)), 0},
		"it never goes below nothing (D-091)":                {[]cluster.Budget{{Nodes: "1"}}, 10, first(5, func(m *cluster.Member) { m.Claim.DeletionUnix = 1 }), 0},
		"nodes that are not initialised are no base (D-086)": {[]cluster.Budget{{Nodes: "50%"}}, 10, first(8, func(m *cluster.Member) { m.Claim.Conditions = nil }), 1},
		"nodes whose instance is ending are no base (D-086)": {[]cluster.Budget{{Nodes: "50%"}}, 10, first(6, condition(cluster.ConditionInstanceTerminating)), 2},
		"claims without a node are no base":                  {[]cluster.Budget{{Nodes: "50%"}}, 10, first(6, func(m *cluster.Member) { m.Node = nil }), 2},
		"a budget that cannot be read stops all (D-092)":     {[]cluster.Budget{{Nodes: "50%"}, {Nodes: "0", Reasons: []string{"Drifted"}, Schedule: "x", DurationSeconds: 60}}, 10, same, 0},
		"a number that makes no sense stops all":             {[]cluster.Budget{{Nodes: "101%"}}, 10, same, 0},
		"a negative number stops all":                        {[]cluster.Budget{{Nodes: "-1"}}, 10, same, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := cluster.NodePool{Budgets: tt.budgets}
			require.Equal(t, tt.want, disruption.Allowed(&pool, members(tt.nodes, tt.change), disruption.ReasonEmpty, now))
		})
	}
}

func TestActiveBudget_CountsFromItsLatestStart(t *testing.T) {
	t.Parallel()
	b := cluster.Budget{Nodes: "0", Schedule: "0 9 * * mon-fri", DurationSeconds: 8 * 3600}
	for at, want := range map[string]bool{
		"2026-12-01T08:59:59Z": false,
		"2026-12-01T09:00:00Z": true,
		"2026-12-01T16:59:59Z": true,
		"2026-12-01T17:00:00Z": false, // eight hours are over
		"2026-12-05T10:00:00Z": false, // Saturday
	} {
		when, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		active, err := disruption.ActiveBudget(b, when.Unix())
		require.NoError(t, err)
		require.Equal(t, want, active, at)
	}
	always, err := disruption.ActiveBudget(cluster.Budget{Nodes: "0"}, now)
	require.NoError(t, err)
	require.True(t, always)
	_, err = disruption.ActiveBudget(cluster.Budget{Schedule: "every day"}, now)
	require.ErrorContains(t, err, `schedule "every day"`)
}
