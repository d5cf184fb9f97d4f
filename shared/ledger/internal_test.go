package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// TestTake_IsATokenBucket holds the one number against the bucket that it stands for, which is counted token by token.
func TestTake_IsATokenBucket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := Rate{Burst: rapid.IntRange(1, 100).Draw(t, "burst"), PerSecond: rapid.SampledFrom([]int{1, 2, 5, 10, 20}).Draw(t, "rate")}
		now := instant(1_796_000_000_000)
		var full instant
		tokens := float64(rate.Burst)
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			passed := rapid.IntRange(0, 3000).Draw(t, "passed")
			now += instant(passed)
			tokens = min(float64(rate.Burst), tokens+float64(passed)*float64(rate.PerSecond)/1000)
			n := rapid.IntRange(1, 10).Draw(t, "n")
			after, ok := rate.take(now, full, n)
			require.Equal(t, tokens > float64(n)-1e-6, ok, "%v tokens, %d wanted", tokens, n)
			if ok {
				tokens -= float64(n)
			} else {
				require.Equal(t, full, after, "a refusal costs nothing")
			}
			full = after
		}
	})
}

// TestAdd_BacksOffWithinBounds holds how long refusals are remembered, whatever their rhythm.
func TestAdd_BacksOffWithinBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		now := time.Unix(1_796_000_000, 0)
		s := subject{ofOffering, cluster.Spot, "a", "m5.large"}
		sold := []plan.Refusal{{InstanceType: "m5.large", Zone: "a", Kind: plan.RefusedCapacity}}
		for range rapid.IntRange(1, 40).Draw(t, "refusals") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds")) * time.Second)
			before, known := l.entries[s]
			l.Add(now, plan.Launch{CapacityType: cluster.Spot}, sold)
			after := l.entries[s]
			require.True(t, l.Refused(now, "m5.large", "a", cluster.Spot))
			require.GreaterOrEqual(t, after.length, capacityMemory)
			require.LessOrEqual(t, after.length, longestMemory)
			switch {
			case known && now.Before(before.until):
				require.Equal(t, before, after, "the same news again changes nothing")
			case known && now.Before(before.forgetAt()):
				require.Equal(t, min(2*before.length, longestMemory), after.length, "soon again: twice as long")
			default:
				require.Equal(t, capacityMemory, after.length, "a first refusal, or one after a long while")
			}
		}
	})
}

// TestMerge_OrderDoesNotMatter holds that clusters agree, in whatever order they hear the news and however often.
func TestMerge_OrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
			s := subject{ofOffering, cluster.Spot, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), "m5.large"}
			until := rapid.Int64Range(1000, 1010).Draw(t, "until")
			return row{s.id(), map[string]int64{attributeUntil: until, attributeLength: until % 7 * 60}}
		}), 1, 12).Draw(t, "rows")
		var one, other Ledger
		one.merge(rows)
		for _, r := range rapid.Permutation(append(rows, rows...)).Draw(t, "order") {
			other.merge([]row{r})
		}
		require.Equal(t, one.entries, other.entries)
	})
}

func TestSubject_IsReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, s := range []subject{
		{ofOffering, cluster.Reserved, "cr-0123", "u-6tb1.metal"}, {kind: ofQuota, capacityType: cluster.Spot},
		{kind: ofQuota, capacityType: cluster.OnDemand, name: "g and vt"}, {kind: ofSubnet, name: "subnet-1"},
	} {
		got, ok := parseSubject(s.id())
		require.True(t, ok)
		require.Equal(t, s, got)
	}
	_, ok := parseSubject("something/else")
	require.False(t, ok)
}

func TestLearn_KeepsTheLeast(t *testing.T) {
	t.Parallel()
	var l Ledger
	claims := []cluster.NodeClaim{{ProviderID: "p-1", ImageID: "ami-1"}, {ProviderID: "p-2", ImageID: "ami-1"}, {ImageID: "ami-1"}}
	seen := func(provider string, bytes int64) cluster.Node {
		return cluster.Node{ProviderID: provider, Labels: map[string]string{cluster.LabelInstanceType: "m5.large"}, Capacity: cluster.Resources{MemoryBytes: bytes}}
	}
	l.Learn(claims, []cluster.Node{seen("p-3", 1), seen("p-1", 0), seen("", 1)})
	_, known := l.Memory("m5.large", "ami-1")
	require.False(t, known, "a node without a claim, or without capacity yet, teaches nothing")
	l.Learn(claims, []cluster.Node{seen("p-1", 8000), seen("p-2", 7900)})
	l.Learn(claims, []cluster.Node{seen("p-1", 8100)})
	bytes, known := l.Memory("m5.large", "ami-1")
	require.True(t, known)
	require.Equal(t, int64(7900), bytes)
	require.Equal(t, 2, l.Lessons(), "each piece of news counts")
}
