package apply_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/joining"
	"treadle/shared/plan"
)

const start = int64(1_796_000_000)

var (
	pool  = cluster.NodePool{Name: "general", UID: "pool-uid", Hash: "1", Template: cluster.NodeTemplate{NodeClass: "default"}}
	class = cluster.NodeClass{Name: "default", Hash: "2"}
)

func launchOf(group string) plan.Launch {
	return plan.Launch{Group: group, CapacityType: cluster.Spot, Configs: []plan.LaunchConfig{{
		Template: "lt", Overrides: []plan.Override{{InstanceType: "m5.large", SubnetID: "subnet-a", Zone: "us-east-1a"}},
	}}}
}

func wants(n int, launch plan.Launch) []cluster.NodeClaim {
	out := make([]cluster.NodeClaim, 0, n)
	for i := range n {
		out = append(out, apply.NodeClaim(&pool, &class, plan.Claim{NodePool: pool.Name, Pods: []cluster.PodRef{{UID: cluster.PodUID(fmt.Sprint("pod-", i))}}}, launch))
	}
	return out
}

func launcher(w *simtest.World) *apply.Launcher {
	return &apply.Launcher{
		Cluster: "demo", Kube: w, Fleet: w, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(w.NowUnix(), 0) },
	}
}

func order(g plan.Group) apply.Order {
	return apply.Order{
		Group: g, Tags: map[string]string{"karpenter.sh/nodepool": "general"}, InstanceProfile: "profile",
		Type: func(string) *cluster.InstanceType { return nil },
	}
}

// provision is what the function of that name does with launches: it finishes those under way.
func provision(ctx context.Context, w *simtest.World) error {
	snap := w.Snapshot(w.NowUnix())
	for _, g := range plan.Groups(snap.NodeClaims) {
		if len(g.Open()) == 0 {
			continue
		}
		if _, err := launcher(w).Launch(ctx, order(g)); err != nil {
			return err
		}
	}
	return nil
}

// lifecycle is one pass of the function of that name, except that it lets nobody's instances be.
func lifecycle(ctx context.Context, w *simtest.World) error {
	snap := w.Snapshot(w.NowUnix())
	sights := w.Sights(&snap)
	d := joining.Decide(&snap, sights)
	d.Merge(disruption.Drain(&snap, sights))
	mover := &apply.Mover{Cluster: "demo", Kube: w, Instances: w, Log: slog.New(slog.DiscardHandler)}
	_, err := mover.Move(ctx, d.Moves)
	return err
}

// TestLaunch_SurvivesACrashBetweenAnyTwoWrites kills the functions after every possible number of writes, with and without the answer
// to the last one, lets EC2 give less than was asked for or throttle, and users delete claims in between.
func TestLaunch_SurvivesACrashBetweenAnyTwoWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		w := simtest.New(start)
		throttles := rapid.IntRange(0, 2).Draw(t, "throttles")
		gives := rapid.SliceOfN(rapid.IntRange(0, 6), 8, 8).Draw(t, "gives")
		w.Give = func(want int) (int, error) {
			if throttles > 0 {
				throttles--
				return 0, plan.ErrThrottled
			}
			n := gives[0]
			gives = append(gives[1:], n)
			return min(n, want), nil
		}
		crash := func(label string) { w.Crash(rapid.IntRange(0, 12).Draw(t, label), rapid.Bool().Draw(t, "lost")) }

		crash("crash in the first look")
		n := rapid.IntRange(1, 5).Draw(t, "claims")
		if made, err := apply.Create(ctx, w, "g", wants(n, launchOf("g"))); err == nil {
			_, _ = launcher(w).Launch(ctx, order(plan.Groups(made)[0])) // what it could not do is found below
		}
		w.Restart()
		for range rapid.IntRange(0, 4).Draw(t, "looks") {
			crash("crash in a further look")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				_ = lifecycle(ctx, w)
			case 1:
				if names := slices.Sorted(maps.Keys(w.Claims)); len(names) > 0 {
					_ = w.DeleteNodeClaim(ctx, names[0], w.Claims[names[0]].UID)
				}
			default:
				_ = provision(ctx, w)
			}
			w.Restart()
			w.Advance(rapid.Int64Range(0, 20).Draw(t, "seconds"))
		}
		settle(t, w)
	})
}

// settle lets both functions run undisturbed and holds the end against the rules.
func settle(t require.TestingT, w *simtest.World) {
	ctx := context.Background()
	for range 60 {
		_ = provision(ctx, w) // a throttle passes
		require.NoError(t, lifecycle(ctx, w))
		w.Advance(5)
	}
	snap := w.Snapshot(w.NowUnix())
	owned := map[cluster.InstanceID]string{}
	for _, c := range snap.NodeClaims {
		id := cluster.InstanceOf(c.ProviderID)
		require.NotEmpty(t, id, "claim %s has no instance and is still there", c.Name)
		require.Empty(t, owned[id], "two claims have instance %s", id)
		owned[id] = c.Name
		require.True(t, c.Conditions.True(cluster.ConditionReady), "claim %s is not ready: %v", c.Name, c.Conditions)
		require.Equal(t, cluster.InstanceRunning, w.Instances[id].State)
	}
	require.Zero(t, w.Misused, "a token was used for another request")

	listed, err := w.List(ctx)
	require.NoError(t, err)
	require.NoError(t, w.Terminate(ctx, disruption.Orphans(&snap, listed)...))
	w.Advance(60)
	for id, one := range w.Instances {
		if one.State != cluster.InstanceTerminated {
			require.Contains(t, owned, id, "instance %s is lost", id)
		}
	}
}

func TestLaunch_WastesNothingWhereTheGroupStaysWhole(t *testing.T) {
	t.Parallel()
	for given := range 4 {
		for writes := range 40 {
			w := simtest.New(start)
			w.Give = func(int) (int, error) { return given, nil }
			made, err := apply.Create(t.Context(), w, "g", wants(3, launchOf("g")))
			require.NoError(t, err)
			w.Crash(writes, writes%2 == 0)
			_, _ = launcher(w).Launch(t.Context(), order(plan.Groups(made)[0]))
			w.Restart()
			for range 3 {
				require.NoError(t, provision(t.Context(), w))
			}
			require.Len(t, w.Instances, given, "crash after %d writes", writes)
			require.Equal(t, 1, w.Launches, "crash after %d writes", writes)
			held := 0
			for _, c := range w.Claims {
				if c.ProviderID != "" {
					held++
				}
			}
			require.Equal(t, given, held, "crash after %d writes", writes)
		}
	}
}

func TestLaunch_TakesAnotherTokenWhereAClaimWasTakenAway(t *testing.T) {
	t.Parallel()
	w := simtest.New(start)
	made, err := apply.Create(t.Context(), w, "g", wants(2, launchOf("g")))
	require.NoError(t, err)
	w.Crash(1, true) // EC2 was asked, the answer is lost
	_, err = launcher(w).Launch(t.Context(), order(plan.Groups(made)[0]))
	require.ErrorIs(t, err, simtest.ErrCrashed)
	w.Restart()
	delete(w.Claims, made[0].Name) // somebody took its finalizer off
	settle(t, w)                   // ends the first launch's instances as orphans
	require.Equal(t, 2, w.Launches)
	require.NotEmpty(t, w.Claims[made[1].Name].ProviderID)
}
