package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	lambda "github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/events"
	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/joining"
	"treadle/shared/ledger"
	"treadle/shared/notice"
	"treadle/shared/packing"
	"treadle/shared/plan"
	"treadle/shared/queue"
	"treadle/shared/store"
)

const now = int64(1_796_000_000)

// room is what each node of a simulated world has, whatever its type.
var room = cluster.Resources{MilliCPU: 4000, MemoryBytes: 16 << 30, EphemeralBytes: 20 << 30, Pods: 58}

// types is a catalogue of one type, on demand.
type types struct{}

func (types) InstanceTypes(context.Context, cluster.NodeClass, func(string, string, cluster.CapacityType) bool) ([]cluster.InstanceType, error) {
	return []cluster.InstanceType{{
		Name: "m5.xlarge", Capacity: room, Allocatable: room,
		Labels:    map[string]string{cluster.LabelInstanceType: "m5.xlarge", cluster.LabelArch: "amd64", cluster.LabelOS: "linux"},
		Offerings: []cluster.Offering{{Zone: "us-east-1a", CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: 192_000, Available: true}},
	}}, nil
}

// mirror lets the world's time pass, and the other functions work, while the function waits.
type mirror struct{ *bench }

func (m mirror) Sync(ctx context.Context) error { return m.world.Sync(ctx) }

func (m mirror) Snapshot(nowUnix int64) cluster.Snapshot { return m.world.Snapshot(nowUnix) }

func (m mirror) Await(ctx context.Context) error {
	m.turn(ctx)
	return nil
}

type waker struct{ woken []notice.Wake }

func (w *waker) Wake(_ context.Context, n notice.Wake) error {
	w.woken = append(w.woken, n)
	return nil
}

type counter map[string]int

func (c counter) Count(name, _, _ string, n int) { c[name] += n }

type bench struct {
	*Handler
	world                       *simtest.World
	again, provision, lifecycle *waker
	counter                     counter
	pods                        map[string]cluster.PodSpec // those that workloads want, by name
	serial                      int
}

func newBench() *bench {
	after := int64(0)
	w := simtest.New(now)
	w.Pools = []cluster.NodePool{{
		Name: "general", UID: "pool", Hash: "new", ConsolidateAfterSeconds: &after, ConsolidationPolicy: "WhenEmptyOrUnderutilized",
		Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}},
		Template:   cluster.NodeTemplate{NodeClass: "default"},
	}}
	w.Classes = []cluster.NodeClass{{Name: "default", UID: "class", Status: cluster.NodeClassStatus{
		Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}},
	}}}
	b := &bench{
		world: w, again: &waker{}, provision: &waker{}, lifecycle: &waker{}, counter: counter{}, pods: map[string]cluster.PodSpec{},
	}
	b.Handler = &Handler{
		Market: types{}, Ledger: ledger.New(nil), Again: b.again, Provision: b.provision, Lifecycle: b.lifecycle, Counter: b.counter,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(w.NowUnix(), 0) }, Sleep: func(context.Context, time.Duration) {},
	}
	b.cold()
	return b
}

// cold lets the function forget what it knew.
func (b *bench) cold() {
	site := &Site{Name: "demo", Kube: b.world, Mirror: mirror{b}, Instances: b.world, Memory: &Memory{}}
	b.Open = func(_ context.Context, name string) (*Site, error) {
		if name != "demo" {
			return nil, fmt.Errorf("cluster %q: %w", name, store.ErrNotFound)
		}
		return site, nil
	}
}

// machine adds a node made from the pool with the given hash, and pods on it.
func (b *bench) machine(hash string, milliCPU ...int64) *cluster.NodeClaim {
	b.serial++
	claim, node := b.world.AddMachine(fmt.Sprintf("general-%d", b.serial), "general")
	claim.NodeClass = "default"
	for key, value := range map[string]string{
		cluster.LabelInstanceType: "m5.xlarge", cluster.LabelZone: "us-east-1a", cluster.LabelCapacityType: "on-demand", cluster.LabelInitialized: "true",
	} {
		claim.Labels[key], node.Labels[key] = value, value
	}
	claim.Annotations = map[string]string{
		cluster.AnnotationNodePoolHash: hash, cluster.AnnotationNodePoolHashVersion: cluster.HashVersionNodePool,
		cluster.AnnotationNodeClassHash: "", cluster.AnnotationNodeClassHashVersion: cluster.HashVersionNodeClass,
	}
	for _, cpu := range milliCPU {
		b.serial++
		name := fmt.Sprint("web-", b.serial)
		b.pods[name] = cluster.PodSpec{Requests: cluster.Resources{MilliCPU: cpu, MemoryBytes: 1 << 30, Pods: 1}}
		b.world.AddPod(name, node.Name, b.pods[name])
	}
	return claim
}

// turn is a second in which all others do their work: lifecycle registers and drains, workloads make up for pods that are gone, the
// scheduler binds them, and provision launches.
func (b *bench) turn(ctx context.Context) {
	w := b.world
	w.Advance(1)
	snap := w.Snapshot(w.NowUnix())
	launcher := apply.Launcher{Cluster: "demo", Kube: w, Fleet: w, Log: b.Log, Now: b.Now}
	for i := range snap.NodeClaims {
		c := snap.NodeClaims[i]
		if c.ProviderID != "" || c.DeletionUnix != 0 {
			continue
		}
		c.Annotations = maps.Clone(c.Annotations)
		c.Annotations[cluster.AnnotationLaunch] = plan.Launch{Group: c.Name, CapacityType: cluster.OnDemand, Configs: []plan.LaunchConfig{{
			Template: "lt", Overrides: []plan.Override{{InstanceType: "m5.xlarge", Zone: "us-east-1a"}},
		}}}.Annotation()
		made, err := w.PatchNodeClaim(ctx, snap.NodeClaims[i], c)
		if err == nil {
			_, _ = launcher.Launch(ctx, apply.Order{Group: plan.Groups([]cluster.NodeClaim{made})[0], Type: func(string) *cluster.InstanceType { return nil }})
		}
	}
	snap = w.Snapshot(w.NowUnix())
	d := joining.Decide(&snap, w.Sights(&snap))
	d.Merge(disruption.Drain(&snap, w.Sights(&snap)))
	_, _ = (&apply.Mover{Cluster: "demo", Kube: w, Instances: w, Log: b.Log}).Move(ctx, d.Moves)
	b.schedule()
	snap = w.Snapshot(w.NowUnix())
	snap.Types = map[string][]cluster.InstanceType{}
	snap.Types["default"], _ = types{}.InstanceTypes(ctx, cluster.NodeClass{}, nil)
	for _, c := range packing.Pack(snap, packing.Options{}).Claims {
		b.serial++
		_, _ = apply.Create(ctx, w, fmt.Sprint("pending-", b.serial), []cluster.NodeClaim{apply.NodeClaim(&w.Pools[0], &w.Classes[0], c, plan.Launch{})})
	}
}

func (b *bench) schedule() {
	free := map[cluster.NodeName]int64{}
	for name, n := range b.world.Nodes {
		if len(n.Taints) == 0 && n.DeletionUnix == 0 && n.Ready() {
			free[name] = n.Allocatable.MilliCPU
		}
	}
	there := map[string]bool{}
	for uid, p := range b.world.Pods {
		if b.world.Nodes[p.NodeName] == nil {
			delete(b.world.Pods, uid) // with its node, or to be bound below
			continue
		}
		there[p.Name] = true
		free[p.NodeName] -= p.Spec.Requests.MilliCPU
	}
	for _, name := range slices.Sorted(maps.Keys(b.pods)) {
		for _, on := range slices.Sorted(maps.Keys(free)) {
			if spec := b.pods[name]; !there[name] && free[on] >= spec.Requests.MilliCPU {
				free[on] -= spec.Requests.MilliCPU
				b.world.AddPod(name, on, spec)
				there[name] = true
			}
		}
		if !there[name] {
			b.world.AddPod(name, "", b.pods[name])
		}
	}
}

func (b *bench) run(t require.TestingT) {
	require.NoError(t, b.Disrupt(context.Background(), notice.Wake{Cluster: "demo"}))
}

// calm reports whether nothing is left to be done.
func (b *bench) calm() bool {
	for _, c := range b.world.Claims {
		if c.DeletionUnix != 0 || c.Annotations["treadle.sh/command"] != "" || c.Conditions.True(cluster.ConditionDrifted) || !c.Conditions.True(cluster.ConditionInitialized) {
			return false
		}
	}
	return true
}

// settled holds the end of it all against the rules.
func (b *bench) settled(t require.TestingT) {
	for range 30 {
		b.turn(context.Background()) // what leaves is drained
	}
	for name, c := range b.world.Claims {
		require.Zero(t, c.DeletionUnix, "claim %s is gone by now", name)
		require.Empty(t, c.Annotations["treadle.sh/command"], "claim %s", name)
		require.False(t, c.Conditions.True(cluster.ConditionDisruptionReason), "claim %s", name)
		require.True(t, c.Conditions.True(cluster.ConditionInitialized), "claim %s: %v", name, c.Conditions)
		require.NotNil(t, b.world.Nodes[c.NodeName], "claim %s has a node", name)
		require.Empty(t, b.world.Nodes[c.NodeName].Taints, "node of claim %s", name)
	}
	for name := range b.pods {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(b.world.Pods)), func(p *cluster.Pod) bool {
			return p.Name == name && p.DeletionUnix == 0 && b.world.Nodes[p.NodeName] != nil
		}), "pod %s runs", name)
	}
	require.Zero(t, b.world.Misused)
}

func TestDisrupt_ReplacesADriftedNodeBeforeItGoes(t *testing.T) {
	t.Parallel()
	b := newBench()
	old := b.machine("old", 3000)
	b.run(t)
	require.True(t, old.Conditions.True(cluster.ConditionDrifted))
	b.settled(t)
	require.Len(t, b.world.Claims, 1)
	for name, c := range b.world.Claims {
		require.NotEqual(t, old.Name, name)
		require.Equal(t, "new", c.Annotations[cluster.AnnotationNodePoolHash])
	}
	made, gone := slices.Index(b.world.Writes, "create nodeclaim "+onlyClaim(b.world)), slices.Index(b.world.Writes, "delete nodeclaim "+old.Name)
	require.Less(t, made, gone)
	require.NotEmpty(t, b.provision.woken)
	require.NotEmpty(t, b.lifecycle.woken)
	require.Equal(t, 1, b.counter["NodesDisruptedDrifted"])
}

func onlyClaim(w *simtest.World) string { return slices.Sorted(maps.Keys(w.Claims))[0] }

func TestDisrupt_KeepsANodeWhoseReplacementNeverJoins(t *testing.T) {
	t.Parallel()
	b := newBench()
	old := b.machine("old", 3000)
	b.world.NeverJoins = true
	blocked := func(e plan.Event) bool { return e.Reason == "DisruptionBlocked" }
	for range 40 {
		if b.run(t); slices.ContainsFunc(b.world.Events, blocked) {
			break
		}
		b.turn(context.Background())
	}
	require.True(t, slices.ContainsFunc(b.world.Events, blocked))
	require.Zero(t, old.DeletionUnix)
	require.Empty(t, old.Annotations["treadle.sh/command"], "it is taken back (D-080, D-081)")
	require.Empty(t, b.world.Nodes[old.NodeName].Taints)
	require.NotEmpty(t, old.Annotations["treadle.sh/retry-after"], "and not tried again at once")
}

func TestDisrupt_ConsolidatesWhatFitsElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench()
	for range 4 {
		b.machine("new", 1000)
	}
	for range 5 {
		b.run(t)
		b.settled(t)
	}
	require.Len(t, b.world.Claims, 1, "four pods of one vCPU fit on one node of four")
}

func TestDisrupt_KeepsToBudgets(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.world.Pools[0].Budgets = []cluster.Budget{{Nodes: "1"}}
	for range 3 {
		b.machine("old", 3000)
	}
	var most int
	for range 20 {
		b.run(t)
		leaving := 0
		for _, c := range b.world.Claims {
			if c.DeletionUnix != 0 || c.Annotations["treadle.sh/command"] != "" {
				leaving++
			}
		}
		most = max(most, leaving)
		for range 10 {
			b.turn(context.Background())
		}
	}
	require.Equal(t, 1, most)
	b.settled(t)
	for name, c := range b.world.Claims {
		require.Equal(t, "new", c.Annotations[cluster.AnnotationNodePoolHash], "claim %s", name)
	}
}

// TestDisrupt_SurvivesAKillBetweenAnyTwoWrites kills the function, cold and warm, after any number of writes, with and without the answer
// to the last one.
func TestDisrupt_SurvivesAKillBetweenAnyTwoWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBench()
		for range rapid.IntRange(1, 4).Draw(t, "nodes") {
			b.machine(rapid.SampledFrom([]string{"old", "new"}).Draw(t, "hash"), rapid.SliceOfN(rapid.SampledFrom([]int64{500, 1000, 1500}), 0, 2).Draw(t, "pods")...)
		}
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			b.world.Crash(rapid.IntRange(0, 12).Draw(t, "writes"), rapid.Bool().Draw(t, "lost"))
			_ = b.Disrupt(t.Context(), notice.Wake{Cluster: "demo"}) // what it could not do is done below
			b.world.Restart()
			b.world.Held = false // the lease runs out
			if rapid.Bool().Draw(t, "cold") {
				b.cold()
			}
			for range rapid.IntRange(0, 10).Draw(t, "seconds") {
				b.turn(context.Background())
			}
		}
		for range 60 {
			if b.run(t); b.calm() {
				break
			}
			for range 20 {
				b.turn(context.Background())
			}
		}
		b.settled(t)
		for name, c := range b.world.Claims {
			require.Equal(t, "new", c.Annotations[cluster.AnnotationNodePoolHash], "claim %s", name)
		}
	})
}

func TestDisrupt_WaitsForTheLease(t *testing.T) {
	t.Parallel()
	b := newBench()
	old := b.machine("old", 3000)
	b.world.Held = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, b.Disrupt(ctx, notice.Wake{Cluster: "demo"}))
	require.Empty(t, old.Annotations["treadle.sh/command"])
	require.NotEmpty(t, b.again.woken, "another invocation tries again")
}

func TestDisrupt_LeavesAClusterAloneThatIsNotServed(t *testing.T) {
	t.Parallel()
	b := newBench()
	require.NoError(t, b.Disrupt(t.Context(), notice.Wake{Cluster: "other"}))
	require.Empty(t, b.world.Writes)
}

func TestSample_IsHandled(t *testing.T) {
	t.Parallel()
	body, err := events.Samples.ReadFile("disruption.json")
	require.NoError(t, err)
	var event lambda.SQSEvent
	require.NoError(t, json.Unmarshal(body, &event))
	b := newBench()
	batch := queue.Batch{Function: "disruption", Keeper: keeper{}, Counter: b.counter, Log: b.Log}
	require.Empty(t, batch.Handle(t.Context(), event, b.Disrupt).BatchItemFailures)
}

type keeper struct{}

func (keeper) Keep(context.Context, string) error { return errors.New("nothing is to be set aside") }
