package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/ledger"
	"treadle/shared/plan"
)

func launch() plan.Launch {
	return plan.Launch{CapacityType: cluster.Spot, Configs: []plan.LaunchConfig{{Overrides: []plan.Override{
		{InstanceType: "m5.large", Zone: "a", SubnetID: "s-a"}, {InstanceType: "c5.large", Zone: "b", SubnetID: "s-b"},
	}}}}
}

func TestLedger_ForgetsAfterAWhileAndRemembersLongerEachTime(t *testing.T) {
	t.Parallel()
	var l ledger.Ledger
	now := time.Unix(1_800_000_000, 0)
	sold := []plan.Refusal{{InstanceType: "m5.large", Zone: "a", Kind: plan.RefusedCapacity}}
	refused := func() bool { return l.Refused(now, "m5.large", "a", cluster.Spot) }
	require.False(t, refused())
	for _, length := range []time.Duration{3, 6, 12, 24, 24} {
		l.Add(now, launch(), sold)
		l.Add(now.Add(time.Second), launch(), sold) // news of the same refusal does not count twice
		start := now
		now = start.Add(length*time.Minute - time.Second)
		require.True(t, refused(), "after almost %d minutes", length)
		now = start.Add(length * time.Minute)
		require.False(t, refused(), "after %d minutes", length)
	}
	require.False(t, l.Refused(now, "m5.large", "b", cluster.Spot))
	require.False(t, l.Refused(now, "m5.large", "a", cluster.OnDemand))
}

func TestLedger_KindsOfRefusals(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for name, tt := range map[string]struct {
		refusal        plan.Refusal
		m5a, c5b, onDM bool
		full           bool
	}{
		"a refusal that names no offering counts against all that were asked for": {
			refusal: plan.Refusal{Kind: plan.RefusedCapacity}, m5a: true, c5b: true,
		},
		"a quota counts against its whole capacity type": {
			refusal: plan.Refusal{InstanceType: "m5.large", Zone: "a", Kind: plan.RefusedQuota}, m5a: true, c5b: true,
		},
		"a quota on types counts against types of that class": {
			refusal: plan.Refusal{InstanceType: "m5.large", Zone: "a", Kind: plan.RefusedTypeQuota}, m5a: true, c5b: true,
		},
		"a quota on GPU types says nothing about others": {
			refusal: plan.Refusal{InstanceType: "g5.xlarge", Zone: "a", Kind: plan.RefusedTypeQuota},
		},
		"a full subnet is no news about types": {
			refusal: plan.Refusal{InstanceType: "m5.large", Zone: "a", SubnetID: "s-a", Kind: plan.RefusedAddresses}, full: true,
		},
		"a wrong request is no news about capacity": {
			refusal: plan.Refusal{InstanceType: "m5.large", Zone: "a", Kind: plan.RefusedConfiguration},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger.Ledger
			l.Add(now, launch(), []plan.Refusal{tt.refusal})
			require.Equal(t, tt.m5a, l.Refused(now, "m5.large", "a", cluster.Spot))
			require.Equal(t, tt.c5b, l.Refused(now, "c5.large", "b", cluster.Spot))
			require.Equal(t, tt.onDM, l.Refused(now, "m5.large", "a", cluster.OnDemand))
			require.Equal(t, tt.full, l.Full(now, "s-a"))
		})
	}
}
