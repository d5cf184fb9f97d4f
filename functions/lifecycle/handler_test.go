package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	lambda "github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/notice"
	"treadle/shared/plan"
	"treadle/shared/queue"
	"treadle/shared/store"
)

const now = int64(1_796_000_000)

// mirror lets the world's time pass while the function waits: a second for each change that it is told of.
type mirror struct {
	*simtest.World
	syncs int
	sync  error
	await error
}

func (m *mirror) Sync(context.Context) error {
	m.syncs++
	return m.sync
}

func (m *mirror) Await(context.Context) error {
	m.Advance(1)
	return m.await
}

type waker struct {
	woken []notice.Wake
	err   error
}

func (w *waker) Wake(_ context.Context, n notice.Wake) error {
	w.woken = append(w.woken, n)
	return w.err
}

type counter map[string]int

func (c counter) Count(name, _, _ string, n int) { c[name] += n }

type bench struct {
	*Handler
	world            *simtest.World
	mirror           *mirror
	again, provision *waker
	counter          counter
}

func newBench() *bench {
	after := int64(0)
	w := simtest.New(now)
	w.Pools = []cluster.NodePool{{Name: "general", ConsolidateAfterSeconds: &after, Budgets: []cluster.Budget{{Nodes: "100%"}}}}
	b := &bench{world: w, mirror: &mirror{World: w}, again: &waker{}, provision: &waker{}, counter: counter{}}
	site := &Site{Name: "demo", Kube: w, Mirror: b.mirror, Fleet: w, Memory: &Memory{}}
	b.Handler = &Handler{
		Open: func(_ context.Context, name string) (*Site, error) {
			if name != "demo" {
				return nil, fmt.Errorf("cluster %q: %w", name, store.ErrNotFound)
			}
			return site, nil
		},
		Again: b.again, Provision: b.provision, Counter: b.counter, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(w.NowUnix(), 0) }, Sleep: func(context.Context, time.Duration) {},
	}
	return b
}

func (b *bench) run(t *testing.T) error {
	t.Helper()
	return b.Lifecycle(t.Context(), notice.Wake{Cluster: "demo", Why: "test"})
}

// launch puts a claim into the world whose instance has just been launched.
func (b *bench) launch(t *testing.T, name string) *cluster.NodeClaim {
	t.Helper()
	w := b.world
	res, err := w.Launch(t.Context(), plan.Request{Token: name, Count: 1, Launch: plan.Launch{
		Group: name, Configs: []plan.LaunchConfig{{Template: "lt", Overrides: []plan.Override{{InstanceType: "m5.large", Zone: "us-east-1a"}}}},
	}})
	require.NoError(t, err)
	made, err := w.CreateNodeClaim(t.Context(), cluster.NodeClaim{
		Name: name, Labels: map[string]string{cluster.LabelNodePool: "general"}, Finalizers: []string{cluster.FinalizerTermination},
	})
	require.NoError(t, err)
	claim := w.Claims[made.Name]
	claim.ProviderID = cluster.ProviderID("us-east-1a", res.Instances[0].ID)
	claim.Conditions = cluster.Conditions{{Type: cluster.ConditionLaunched, Status: "True", TransitionUnix: w.NowUnix()}}
	return claim
}

func TestLifecycle_SeesANodeThroughItsWholeLife(t *testing.T) {
	t.Parallel()
	b := newBench()
	claim := b.launch(t, "c")
	pod := b.world.AddPod("p", "", cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 100, Pods: 1}})
	body, err := events.Samples.ReadFile("lifecycle.json")
	require.NoError(t, err)
	var event lambda.SQSEvent
	require.NoError(t, json.Unmarshal(body, &event))
	batch := queue.Batch{Function: "lifecycle", Counter: b.counter, Log: b.Log}
	require.Empty(t, batch.Handle(t.Context(), event, b.Lifecycle).BatchItemFailures)

	require.True(t, claim.Conditions.True(cluster.ConditionReady), "joined within one wake-up: %v", claim.Conditions)
	require.Equal(t, 1, b.counter["NodeClaimsRegistered"])
	require.Equal(t, 1, b.counter["NodeClaimsInitialized"])
	require.Equal(t, int64(1), b.world.Pools[0].StatusNodes)
	require.Zero(t, claim.DeletionUnix, "a pod is expected on it")
	require.Equal(t, "true", claim.Annotations[cluster.AnnotationTagged])
	require.Equal(t, "c", b.world.Instances[cluster.InstanceOf(claim.ProviderID)].Tags["karpenter.sh/nodeclaim"])

	delete(b.world.Pods, pod.UID)
	for range 3 {
		require.NoError(t, b.run(t))
	}
	require.Empty(t, b.world.Claims, "nobody needs it any more")
	require.Empty(t, b.world.Nodes)
	require.Equal(t, cluster.InstanceTerminated, b.world.Instances[cluster.InstanceOf(claim.ProviderID)].State)
	require.Equal(t, 1, b.counter["NodeClaimsTerminated"])
	require.Zero(t, b.world.Pools[0].StatusNodes)
	require.False(t, b.world.Held, "the lease is given back")

	b.world.Writes = nil
	require.NoError(t, b.run(t))
	require.Empty(t, b.world.Writes, "nothing is left to do")
}

func TestLifecycle_WakesItselfForWhatIsUnfinished(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.world.NeverJoins = true
	b.launch(t, "c")
	require.NoError(t, b.run(t))
	require.Equal(t, []notice.Wake{{Cluster: "demo", Why: "unfinished"}}, b.again.woken)
	require.Equal(t, now+52, b.world.NowUnix(), "it waits for as long as its time allows")
	b.again.err = errors.New("queue is away")
	require.ErrorIs(t, b.run(t), b.again.err)

	b.again.err = nil
	for range 25 {
		require.NoError(t, b.run(t))
	}
	require.Empty(t, b.world.Claims, "a quarter of an hour is the end of it (L-087)")
	require.Len(t, b.world.Instances, 1)
	for _, one := range b.world.Instances {
		require.Equal(t, cluster.InstanceTerminated, one.State)
	}
}

func TestLifecycle_EndsAtOnceWhereNothingIsUnderWay(t *testing.T) {
	t.Parallel()
	b := newBench()
	require.NoError(t, b.run(t))
	require.Equal(t, now, b.world.NowUnix())
	require.Equal(t, 1, b.mirror.syncs)
	require.Empty(t, b.again.woken)
	require.NoError(t, b.Lifecycle(t.Context(), notice.Wake{Cluster: "other"}), "a cluster that is not served is left alone")
}

func TestLifecycle_DecidesAboutCapacityUnderTheLeaseOnly(t *testing.T) {
	t.Parallel()
	b := newBench()
	claim, node := b.world.AddMachine("c", "general")
	b.world.Held = true
	require.NoError(t, b.run(t))
	require.Zero(t, claim.DeletionUnix)
	require.Empty(t, node.Taints)
	require.NotEmpty(t, b.again.woken)
	b.world.Held = false
	for range 2 {
		require.NoError(t, b.run(t))
	}
	require.Empty(t, b.world.Claims)
}

func TestLifecycle_TerminatesOrphansAtTheSecondSighting(t *testing.T) {
	t.Parallel()
	b := newBench()
	claim := b.launch(t, "c")
	orphan := cluster.InstanceOf(claim.ProviderID)
	delete(b.world.Claims, "c")
	b.world.NeverJoins = true
	b.world.Advance(30)
	require.NoError(t, b.run(t))
	require.NotEqual(t, cluster.InstanceShuttingDown, b.world.Instances[orphan].State, "too young to be one")

	b.world.Advance(60)
	first := b.world.NowUnix()
	require.NoError(t, b.run(t))
	require.Equal(t, cluster.InstanceShuttingDown, b.world.Instances[orphan].State)
	require.GreaterOrEqual(t, b.world.NowUnix(), first+15, "one sighting proves nothing (R24), and the second is waited for")
	require.Equal(t, 1, b.counter["OrphansTerminated"])
}

func TestLifecycle_HasTheLaunchOfADeletedClaimFinished(t *testing.T) {
	t.Parallel()
	b := newBench()
	claim := b.launch(t, "c")
	claim.ProviderID, claim.Conditions, claim.DeletionUnix = "", nil, now
	claim.Annotations = map[string]string{cluster.AnnotationLaunch: plan.Launch{Group: "g"}.Annotation()}
	require.NoError(t, b.run(t))
	require.Equal(t, "demo", b.provision.woken[0].Cluster)
	require.Len(t, b.world.Claims, 1, "whether its instance exists is not known")
	b.provision.err = errors.New("queue is away")
	require.NoError(t, b.run(t), "the sweep finds what this loses")
}

func TestLifecycle_HasADeletedClassReleasedAfterItsLastClaim(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.world.Classes = []cluster.NodeClass{{Name: "default", DeletionUnix: now}}
	claim, _ := b.world.AddMachine("c", "general")
	require.NoError(t, b.world.DeleteNodeClaim(t.Context(), claim.Name, claim.UID))
	for range 2 {
		require.NoError(t, b.run(t))
	}
	require.Empty(t, b.world.Claims)
	require.Equal(t, []notice.Wake{{Cluster: "demo", Why: "a deleted nodeclass may go"}}, b.provision.woken)
}

func TestLifecycle_FailsTheWakeUpWhereTheClusterIsOutOfReach(t *testing.T) {
	t.Parallel()
	trouble := errors.New("no route")
	b := newBench()
	b.mirror.sync = trouble
	err := b.run(t)
	require.ErrorIs(t, err, trouble)
	require.ErrorContains(t, err, `read cluster "demo"`)

	b = newBench()
	b.world.NeverJoins = true
	b.launch(t, "c")
	b.mirror.await = trouble
	err = b.run(t)
	require.ErrorIs(t, err, trouble)
	require.ErrorContains(t, err, `watch cluster "demo"`)
}

func TestLifecycle_GoesOnWhereACrashStoppedIt(t *testing.T) {
	t.Parallel()
	for writes := range 30 {
		b := newBench()
		claim, node := b.world.AddMachine("c", "general")
		b.world.AddPod("p", node.Name, cluster.PodSpec{GraceSeconds: 2})
		require.NoError(t, b.world.DeleteNodeClaim(t.Context(), claim.Name, claim.UID))
		b.world.Crash(writes, writes%2 == 0)
		_ = b.run(t) // a dead function's error is nobody's
		b.world.Restart()
		b.world.Held = false // the lease has run out
		require.NoError(t, b.run(t))
		require.NoError(t, b.run(t))
		require.Empty(t, b.world.Claims, "crash after %d writes", writes)
		require.Empty(t, b.world.Nodes)
		require.Equal(t, cluster.InstanceTerminated, b.world.Instances[cluster.InstanceOf(claim.ProviderID)].State)
		evictions := 0
		for _, what := range b.world.Writes {
			if strings.HasPrefix(what, "evict") {
				evictions++
			}
		}
		require.Equal(t, 1, evictions)
	}
}

// account counts how often EC2 is asked.
type account struct {
	*simtest.World
	asked [][]cluster.InstanceID
}

func (a *account) Describe(ctx context.Context, ids ...cluster.InstanceID) ([]cluster.Instance, error) {
	a.asked = append(a.asked, ids)
	return a.World.Describe(ctx, ids...)
}

func TestLooker_AsksOnlyAboutWhatDecidesSomething(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.world.AddMachine("settled", "general")
	a := &account{World: b.world}
	look := &looker{fleet: a, now: b.Now}
	ask := func() cluster.Sights {
		snap := b.world.Snapshot(b.world.NowUnix())
		sights, err := look.at(t.Context(), &snap)
		require.NoError(t, err)
		return sights
	}
	require.Empty(t, ask())
	require.Empty(t, a.asked, "a ready node is believed (R4)")

	joining := b.launch(t, "joining")
	id := cluster.InstanceOf(joining.ProviderID)
	require.True(t, ask()[id].Found)
	require.Equal(t, [][]cluster.InstanceID{{id}}, a.asked)
	ask()
	require.Len(t, a.asked, 1, "what was answered lately is not asked again")
	b.launch(t, "another")
	ask()
	require.Len(t, a.asked, 2, "an instance that nobody asked about yet is")
	b.world.Advance(5)
	ask()
	require.Len(t, a.asked, 3)
	look.forget([]plan.Move{{Terminate: id}})
	ask()
	require.Len(t, a.asked, 4, "an instance that was just ended is looked at anew")
}
