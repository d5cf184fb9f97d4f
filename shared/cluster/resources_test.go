package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/cluster"
)

var amounts = rapid.Custom(func(t *rapid.T) cluster.Resources {
	n := rapid.Int64Range(-5, 5)
	r := cluster.Resources{MilliCPU: n.Draw(t, "cpu"), MemoryBytes: n.Draw(t, "memory"), EphemeralBytes: n.Draw(t, "disk"), Pods: n.Draw(t, "pods")}
	r.Extended = rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c"}), n).Draw(t, "extended")
	return r
})

// equal compares amounts: a resource of which there is nothing is the same as one that is absent.
func equal(a, b cluster.Resources) bool { return a.Minus(b).IsZero() }

func TestResources_AddAndSubtract(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := amounts.Draw(t, "a"), amounts.Draw(t, "b")
		before := a.Get("a")
		require.True(t, equal(a.Plus(b), b.Plus(a)))
		require.True(t, equal(a.Plus(b).Minus(b), a))
		for _, name := range []string{"cpu", "memory", "ephemeral-storage", "pods", "a", "b", "c"} {
			require.Equal(t, a.Get(name)+b.Get(name), a.Plus(b).Get(name), name)
			require.Equal(t, a.Get(name)-b.Get(name), a.Minus(b).Get(name), name)
			require.Equal(t, max(a.Get(name), b.Get(name)), a.Max(b).Get(name), name)
			require.Equal(t, max(a.Get(name), 0), a.FloorZero().Get(name), name)
		}
		sum := a.Plus(b)
		sum.Set("a", 99)
		require.Equal(t, before, a.Get("a"), "values share no memory")
	})
}

func TestResources_FitWhereTheRestIsNotNegative(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		request, room := amounts.Draw(t, "request"), amounts.Draw(t, "room")
		fits := true
		for _, name := range []string{"cpu", "memory", "ephemeral-storage", "pods", "a", "b", "c"} {
			fits = fits && (request.Get(name) <= 0 || request.Get(name) <= room.Get(name))
		}
		require.Equal(t, fits, request.Fits(room))
		if short := request.Short(room); short != "" {
			require.Greater(t, request.Get(short), room.Get(short))
		}
	})
}

func TestResources_ShortNamesTheFirstInAFixedOrder(t *testing.T) {
	t.Parallel()
	request := cluster.Resources{MilliCPU: 1, MemoryBytes: 1, EphemeralBytes: 1, Pods: 1, Extended: map[string]int64{"b": 1, "a": 1, "zero": 0}}
	room := cluster.Resources{}
	for _, want := range []string{"cpu", "memory", "ephemeral-storage", "pods", "a", "b", ""} {
		require.Equal(t, want, request.Short(room))
		room.Set(want, 1)
	}
	require.Equal(t, "cpu", cluster.Resources{MilliCPU: 1}.Short(cluster.Resources{MilliCPU: -1}), "S-175")
	require.True(t, cluster.Resources{}.Fits(cluster.Resources{MilliCPU: -1}), "S-174")
}
