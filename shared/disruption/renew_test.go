package disruption_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
)

// A replacement that never joins has room, but only on paper: when the command that it was made for has been taken back, the next drifted
// node must not leave its pods to it.
func TestRenew_CountsOnNoNodeThatIsStillToJoin(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.node("m5.xlarge", cluster.OnDemand, 1500)
	f.NodeClaims[0].Conditions = f.NodeClaims[0].Conditions.With(cluster.Condition{Type: cluster.ConditionDrifted, Status: "True", Reason: "NodePoolDrifted"})
	room := cluster.Resources{MilliCPU: 4000, MemoryBytes: 16 * gib, Pods: 60}
	f.NodeClaims = append(f.NodeClaims, cluster.NodeClaim{
		Name: "coming", UID: "coming", NodeClass: "default", ProviderID: cluster.ProviderID("a", "i-coming"), CreatedUnix: now, Capacity: room, Allocatable: room,
		Labels: map[string]string{
			cluster.LabelNodePool: "general", cluster.LabelInstanceType: "m5.xlarge", cluster.LabelZone: "a", cluster.LabelCapacityType: "on-demand",
			cluster.LabelArch: "amd64", cluster.LabelOS: "linux",
		},
		Conditions: cluster.Conditions{{Type: cluster.ConditionLaunched, Status: "True"}},
	})
	f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "100%"}}
	commands, events := disruption.Renew(&f.Snapshot, disruption.Options{})
	require.Empty(t, commands)
	require.NotEmpty(t, events)
	require.Contains(t, events[0].Note, "would have to go to a node that is not in service yet")

	f.NodeClaims = f.NodeClaims[:1]
	commands, _ = disruption.Renew(&f.Snapshot, disruption.Options{})
	require.Len(t, commands, 1)
	require.Len(t, commands[0].Replacements, 1)
}
