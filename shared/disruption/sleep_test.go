package disruption_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/packing"
)

func TestAsleep_InItsWindowsOnly(t *testing.T) {
	t.Parallel()
	const nights = "0 20 * * mon-thu for 11h; 0 20 * * fri for 59h"
	for at, want := range map[string]bool{
		"2026-12-01T19:59:00Z": false, // a Tuesday
		"2026-12-01T20:00:00Z": true,
		"2026-12-02T06:59:00Z": true,
		"2026-12-02T07:00:00Z": false,
		"2026-12-05T12:00:00Z": true, // Saturday
		"2026-12-07T06:59:00Z": true,
		"2026-12-07T07:00:00Z": false,
	} {
		now, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		asleep, err := disruption.Asleep(&cluster.NodePool{Annotations: map[string]string{disruption.AnnotationSleep: nights}}, now.Unix())
		require.NoError(t, err)
		require.Equal(t, want, asleep, at)
	}
}

func TestAsleep_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0 20 * * *":             `annotation treadle.sh/sleep: "0 20 * * *" is not of the form SCHEDULE for DURATION`,
		"0 20 * * * for a while": `annotation treadle.sh/sleep: "0 20 * * * for a while" is not of the form SCHEDULE for DURATION`,
		"0 25 * * * for 1h":      "hour",
		"0 20 * * * for 1h;":     "is not of the form",
	} {
		asleep, err := disruption.Asleep(&cluster.NodePool{Annotations: map[string]string{disruption.AnnotationSleep: text}}, now)
		require.ErrorContains(t, err, want)
		require.False(t, asleep)
	}
}

func TestDecide_TakesTheNodesOfASleepingPoolWithinItsBudget(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.NodePools[0].Annotations = map[string]string{disruption.AnnotationSleep: "* * * * * for 1h"}
	f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "2"}}
	busy, idle := f.node("m5.large", cluster.OnDemand, 1000, 500), f.node("m5.large", cluster.OnDemand)
	other, kept := f.node("m5.large", cluster.OnDemand, 1000), f.node("m5.large", cluster.OnDemand, 1000)
	f.Pods[3].Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "true"}
	require.NoError(t, disruption.Bed(&f.Snapshot))
	require.True(t, disruption.Disruptable(&f.Snapshot))
	commands, _ := disruption.Decide(&f.Snapshot, disruption.Options{})
	var leaving []string
	for _, c := range commands {
		require.Equal(t, disruption.ReasonSleeping, c.Reason)
		require.Empty(t, c.Replacements)
		leaving = append(leaving, c.Leaving...)
	}
	require.Equal(t, []string{idle, other}, leaving, "not %s yet, and %s never", busy, kept)

	f.pod("", 3000).Unschedulable = true
	p := packing.Pack(f.Snapshot, packing.Options{})
	require.Empty(t, p.Claims, "a sleeping pool makes no nodes")
	require.Equal(t, "the pool sleeps", p.Unplaced[0].Reasons[0].Detail)
}

func TestStatic_ASleepingPoolHasNoNodes(t *testing.T) {
	t.Parallel()
	f := static(3, 2)
	f.NodePools[0].Asleep = true
	s := disruption.Static(&f.Snapshot)
	require.Len(t, s, 1)
	require.Zero(t, s[0].Missing)
	require.Len(t, s[0].Surplus, 2)
}
