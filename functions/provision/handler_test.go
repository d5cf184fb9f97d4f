package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	lambda "github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/ledger"
	"treadle/shared/nodeclass"
	"treadle/shared/notice"
	"treadle/shared/plan"
	"treadle/shared/queue"
	"treadle/shared/store"
)

const now = int64(1_796_000_000)

// classes resolves every class to the same status.
type classes struct {
	status   cluster.NodeClassStatus
	err      error
	resolved int
	released []string
}

func (c *classes) Resolve(context.Context, cluster.NodeClass, nodeclass.Facts) (cluster.NodeClassStatus, error) {
	c.resolved++
	return c.status, c.err
}

func (c *classes) Release(_ context.Context, class cluster.NodeClass, _ nodeclass.Facts) error {
	c.released = append(c.released, class.Name)
	return nil
}

// templates prepares every order as a launch into its cheapest option, or fails.
type templates struct {
	err       error
	room      int // claims that there are addresses for; 0: all
	forgotten []string
	deleted   []string
}

func (p *templates) Prepare(_ context.Context, o nodeclass.Order) (nodeclass.Prepared, error) {
	if p.err != nil {
		return nodeclass.Prepared{}, fmt.Errorf("prepare launch of class %s: %w", o.Class.Name, p.err)
	}
	option := o.Claim.Options[0]
	out := nodeclass.Prepared{Count: o.Count, Configs: []plan.LaunchConfig{{Template: "lt-1", Overrides: []plan.Override{
		{InstanceType: option.InstanceType, Zone: option.Zone, SubnetID: "subnet-a"},
	}}}}
	if p.room > 0 {
		out.Count = min(p.room, o.Count)
	}
	return out, nil
}

func (p *templates) Forget(names ...string) { p.forgotten = append(p.forgotten, names...) }

func (p *templates) Delete(_ context.Context, _, class string) error {
	p.deleted = append(p.deleted, class)
	return nil
}

// types is a catalogue of one small type, on demand and Spot.
type types struct{}

func (types) InstanceTypes(_ context.Context, _ cluster.NodeClass, refused func(string, string, cluster.CapacityType) bool) ([]cluster.InstanceType, error) {
	room := cluster.Resources{MilliCPU: 2000, MemoryBytes: 8 << 30, EphemeralBytes: 20 << 30, Pods: 29}
	one := cluster.InstanceType{
		Name: "m5.large", Capacity: room, Allocatable: room,
		Labels: map[string]string{cluster.LabelInstanceType: "m5.large", cluster.LabelArch: "amd64", cluster.LabelOS: "linux"},
	}
	for price, capacityType := range []cluster.CapacityType{cluster.Spot, cluster.OnDemand} {
		one.Offerings = append(one.Offerings, cluster.Offering{
			Zone: "us-east-1a", CapacityType: capacityType, PriceMicroUSDPerHour: int64(40_000 * (price + 1)),
			Available: !refused("m5.large", "us-east-1a", capacityType),
		})
	}
	return []cluster.InstanceType{one}, nil
}

type waker struct {
	woken []notice.Wake
	err   error
}

func (w *waker) Wake(_ context.Context, n notice.Wake) error {
	w.woken = append(w.woken, n)
	return w.err
}

type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) Count(name, _, _ string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name] += n
}

type bench struct {
	*Handler
	world     *simtest.World
	classes   *classes
	templates *templates
	again     *waker
	lifecycle *waker
	counter   *counter
}

func ready(status, reason, message string) cluster.NodeClassStatus {
	return cluster.NodeClassStatus{
		InstanceProfile: "profile", Subnets: []cluster.Subnet{{ID: "subnet-a", Zone: "us-east-1a", FreeIPs: 100}},
		Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: status, Reason: reason, Message: message}},
	}
}

// newBench is a cluster with a pool, its class and n pending pods of which one fits on a node.
func newBench(n int) *bench {
	w := simtest.New(now)
	w.Pools = []cluster.NodePool{{Name: "general", UID: "pool", Template: cluster.NodeTemplate{
		NodeClass: "default", NodeClassGroup: "karpenter.k8s.aws", NodeClassKind: "EC2NodeClass",
	}}}
	w.Classes = []cluster.NodeClass{{Name: "default", UID: "class"}}
	for i := range n {
		w.AddPod(fmt.Sprint("p", i), "", cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 1500, MemoryBytes: 1 << 30, Pods: 1}})
	}
	b := &bench{
		world: w, classes: &classes{status: ready("True", "Ready", "")}, templates: &templates{}, again: &waker{}, lifecycle: &waker{},
		counter: &counter{n: map[string]int{}},
	}
	site := &Site{Name: "demo", Kube: w, Mirror: w, Fleet: w, Memory: &Memory{}}
	b.Handler = &Handler{
		Open: func(_ context.Context, name string) (*Site, error) {
			if name != "demo" {
				return nil, fmt.Errorf("cluster %q: %w", name, store.ErrNotFound)
			}
			return site, nil
		},
		Classes: b.classes, Templates: b.templates, Market: types{}, Tidier: &shelf{}, Ledger: ledger.New(nil), Again: b.again, Lifecycle: b.lifecycle, Counter: b.counter,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(w.NowUnix(), 0) }, Sleep: func(context.Context, time.Duration) {},
	}
	return b
}

func (b *bench) run(t *testing.T) error {
	t.Helper()
	return b.Provision(t.Context(), notice.Wake{Cluster: "demo", Why: "test"})
}

// launched returns the instances that claims have, each once.
func (b *bench) launched(t *testing.T) map[cluster.InstanceID]bool {
	t.Helper()
	out := map[cluster.InstanceID]bool{}
	for _, c := range b.world.Claims {
		if id := cluster.InstanceOf(c.ProviderID); id != "" {
			require.False(t, out[id], "two claims have instance %s", id)
			out[id] = true
		}
	}
	return out
}

func (b *bench) told(kind string) []string {
	var out []string
	for _, e := range b.world.Events {
		if e.Kind == kind {
			out = append(out, e.Reason+": "+e.Note)
		}
	}
	return out
}

func TestProvision_LaunchesANodeForEachPod(t *testing.T) {
	t.Parallel()
	b := newBench(3)
	body, err := events.Samples.ReadFile("provision.json")
	require.NoError(t, err)
	var event lambda.SQSEvent
	require.NoError(t, json.Unmarshal(body, &event))
	var log bytes.Buffer
	b.Log = slog.New(slog.NewJSONHandler(&log, nil))
	batch := queue.Batch{Function: "provision", Counter: b.counter, Log: b.Log}
	require.Empty(t, batch.Handle(t.Context(), event, b.Provision).BatchItemFailures)

	require.Len(t, b.launched(t), 3)
	require.Len(t, b.world.Claims, 3)
	require.Equal(t, 1, b.world.Launches, "equal claims share a call")
	require.Equal(t, []notice.Wake{{Cluster: "demo", Why: "nodes launched"}}, b.lifecycle.woken)
	require.Empty(t, b.again.woken)
	require.Equal(t, 3, b.counter.n["NodeClaimsLaunched"])
	require.False(t, b.world.Held, "the lease is given back")
	require.Contains(t, log.String(), `"msg":"plan applied"`)
	require.True(t, b.world.Pools[0].Conditions.True(cluster.ConditionReady))
	require.Equal(t, []string{cluster.FinalizerNodeClass}, b.world.Classes[0].Finalizers)

	require.NoError(t, b.run(t))
	require.Len(t, b.world.Claims, 3, "the pods have nodes on their way")
	require.Equal(t, 1, b.classes.resolved, "what a class selects is trusted for a while")
}

func TestProvision_PutsBackWhatHasToWait(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		scene  func(*bench)
		claims int
	}{
		"another function is deciding":                {func(b *bench) { b.world.Held = true }, 0},
		"a throttle: the claims stand, to be resumed": {func(b *bench) { b.world.Give = func(int) (int, error) { return 0, plan.ErrThrottled } }, 1},
		"a throttle while a template is made":         {func(b *bench) { b.templates.err = plan.ErrThrottled }, 0},
		"a class of which EC2 cannot say yet":         {func(b *bench) { b.classes.status = ready("Unknown", "InstanceProfileNotVisible", "") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(1)
			tt.scene(b)
			require.NoError(t, b.run(t), "what has to wait is no failure (R1)")
			require.Len(t, b.again.woken, 1)
			require.Equal(t, "demo", b.again.woken[0].Cluster)
			require.Len(t, b.world.Claims, tt.claims)

			b.again.err = errors.New("queue is away")
			require.ErrorIs(t, b.run(t), b.again.err, "then the message has to come again")

			b.again.err, b.world.Held, b.world.Give, b.templates.err = nil, false, nil, nil
			b.classes.status = ready("True", "Ready", "")
			require.NoError(t, b.run(t))
			require.Len(t, b.launched(t), 1)
			require.Len(t, b.world.Claims, 1)
			require.Zero(t, b.world.Misused)
		})
	}
}

func TestProvision_PlansAroundWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(3)
	calls := 0
	b.world.Give = func(want int) (int, error) {
		calls++
		if calls == 1 {
			return 1, nil // a partial fleet (R19)
		}
		return want, nil
	}
	require.NoError(t, b.run(t))
	require.Len(t, b.launched(t), 3)
	require.Len(t, b.world.Claims, 3, "the claims that got nothing are gone")
	spot := 0
	for _, c := range b.world.Claims {
		if c.Labels[cluster.LabelCapacityType] == "spot" {
			spot++
		}
	}
	require.Equal(t, 1, spot, "the rest comes on demand, as Spot was refused (R28)")
	require.Equal(t, 1, b.counter.n["OfferingsRefused"])
	require.Len(t, b.told("NodeClaim"), 2)
}

func TestProvision_TellsPodsWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := newBench(1)
	b.world.Give = func(int) (int, error) { return 0, nil }
	require.NoError(t, b.run(t))
	require.Empty(t, b.world.Claims)
	require.Equal(t, 2, b.world.Launches, "each offering was asked for once")
	require.Len(t, b.told("Pod"), 1)
	require.Contains(t, b.told("Pod")[0], "FailedScheduling: nodepool general: ")
}

func TestProvision_NamesTheRuleThatKeepsAPodPending(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		scene func(*bench)
		pod   string // in its Event
		pool  string // in the pool's condition Ready
	}{
		"a class that is not ready": {
			func(b *bench) { b.classes.status = ready("False", "SubnetsNotFound", "no subnet has the tag") },
			"no subnet has the tag", `EC2NodeClass "default" is not ready: no subnet has the tag`,
		},
		"a class that does not exist": {
			func(b *bench) { b.world.Classes = nil }, "EC2NodeClass default does not exist", `there is no EC2NodeClass "default"`,
		},
		"no NodePool at all": {func(b *bench) { b.world.Pools = nil }, "there is no NodePool that could serve it", ""},
		"a pod larger than any type": {
			func(b *bench) {
				for _, p := range b.world.Pods {
					p.Spec.Requests.MilliCPU = 64_000
				}
			}, "needs 64 CPU; the largest allowed type, m5.large, has 2 CPU", "",
		},
		"subnets without a free address":  {func(b *bench) { b.templates.err = nodeclass.ErrNoAddresses }, "no free addresses", ""},
		"a class that makes no template":  {func(b *bench) { b.templates.err = nodeclass.ErrInvalid }, "invalid", ""},
		"a template that may not be made": {func(b *bench) { b.templates.err = nodeclass.ErrDenied }, "denied", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(1)
			tt.scene(b)
			require.NoError(t, b.run(t), "coming again would not help")
			require.Empty(t, b.world.Claims)
			require.Zero(t, b.world.Launches)
			told := b.told("Pod")
			require.NotEmpty(t, told)
			require.Contains(t, told[len(told)-1], "FailedScheduling: ")
			require.Contains(t, told[len(told)-1], tt.pod)
			if tt.pool != "" {
				got := b.world.Pools[0].Conditions.Get(cluster.ConditionReady)
				require.Equal(t, "False", got.Status)
				require.Equal(t, tt.pool, got.Message)
				require.Len(t, b.told("NodePool"), 1)
				require.NoError(t, b.run(t))
				require.Len(t, b.told("NodePool"), 1, "news is told once")
			}
		})
	}
}

func TestProvision_LaunchesAsManyAsThereAreAddressesFor(t *testing.T) {
	t.Parallel()
	b := newBench(5)
	b.templates.room = 2
	require.NoError(t, b.run(t))
	require.Len(t, b.launched(t), 5)
	require.Equal(t, 3, b.world.Launches, "two, two and one")
}

func TestProvision_ExplainsWhatAPersonHasToSeeTo(t *testing.T) {
	t.Parallel()
	b := newBench(1)
	b.world.Give = func(int) (int, error) { return 0, plan.ErrDenied }
	require.NoError(t, b.run(t), "coming again would not help")
	require.Len(t, b.world.Claims, 1, "the claim stands until its deadline (L-060)")
	require.Contains(t, b.told("NodeClaim")[0], "LaunchFailed: ")
}

func TestProvision_MakesAFreshLaunchWhereTheTemplateIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(1)
	calls := 0
	b.world.Give = func(want int) (int, error) {
		if calls++; calls == 1 {
			return 0, plan.ErrNotFound
		}
		return want, nil
	}
	require.NoError(t, b.run(t))
	require.Equal(t, []string{"lt-1"}, b.templates.forgotten)
	require.Len(t, b.launched(t), 1)
	require.Len(t, b.world.Claims, 1)
}

func TestProvision_FinishesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	for writes := range 25 {
		for _, lost := range []bool{false, true} {
			b := newBench(3)
			b.world.Crash(writes, lost)
			_ = b.run(t) // a dead function's error is nobody's
			b.world.Restart()
			b.world.Held = false // the lease has run out
			require.NoError(t, b.run(t))
			require.NoError(t, b.run(t))
			require.Len(t, b.launched(t), 3, "crash after %d writes", writes)
			require.Len(t, b.world.Instances, 3, "crash after %d writes", writes)
			require.Len(t, b.world.Claims, 3, "crash after %d writes", writes)
			require.Zero(t, b.world.Misused)
		}
	}
}

func TestProvision_ReleasesADeletedClass(t *testing.T) {
	t.Parallel()
	b := newBench(1)
	require.NoError(t, b.run(t))
	b.world.Classes[0].DeletionUnix = now
	require.NoError(t, b.run(t))
	require.Len(t, b.world.Classes, 1, "a claim still uses it (C-040)")
	require.Empty(t, b.classes.released)
	clear(b.world.Claims)
	clear(b.world.Pods)
	require.NoError(t, b.run(t))
	require.Empty(t, b.world.Classes)
	require.Equal(t, []string{"default"}, b.classes.released)
	require.Equal(t, []string{"default"}, b.templates.deleted)
}

func TestProvision_LeavesAClusterAloneThatIsNotServed(t *testing.T) {
	t.Parallel()
	b := newBench(1)
	require.NoError(t, b.Provision(t.Context(), notice.Wake{Cluster: "other"}))
	require.Empty(t, b.world.Writes)
}

// alone is a NodeClaim as a user writes one.
func alone(w *simtest.World, name string, requests cluster.Resources) *cluster.NodeClaim {
	made, err := w.CreateNodeClaim(context.Background(), cluster.NodeClaim{Name: name, NodeClass: "default", Requests: requests, Requirements: []cluster.Expression{
		{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: []string{"on-demand"}},
		{Key: "team", Operator: cluster.In, Values: []string{"a"}},
	}})
	if err != nil {
		panic(err)
	}
	return w.Claims[made.Name]
}

func TestProvision_LaunchesNodeClaimsThatCameWithoutALaunch(t *testing.T) {
	t.Parallel()
	b := newBench(0)
	one, two := alone(b.world, "one", cluster.Resources{MilliCPU: 100}), alone(b.world, "two", cluster.Resources{MilliCPU: 100})
	require.NoError(t, b.run(t))
	require.NotEmpty(t, one.ProviderID)
	require.NotEmpty(t, two.ProviderID)
	require.Equal(t, 1, b.world.Launches, "equal claims share a call")
	require.Equal(t, "on-demand", one.Labels[cluster.LabelCapacityType])
	require.Contains(t, one.Finalizers, cluster.FinalizerTermination, "before EC2 is called (L-001)")
	require.NotEmpty(t, b.lifecycle.woken)
}

func TestProvision_EndsNodeClaimsThatCannotBeLaunched(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status cluster.NodeClassStatus
		class  string
		want   string
	}{
		"without a class (L-003)":               {ready("True", "Ready", ""), "missing", "NodeClassNotFound"},
		"with a class that will not do (L-004)": {ready("False", "SubnetsNotFound", "no subnets"), "default", "NodeClassNotReady"},
		"that are too large (L-013)":            {ready("True", "Ready", ""), "default", "InsufficientCapacityError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(0)
			b.classes.status = tt.status
			alone(b.world, "one", cluster.Resources{MilliCPU: 64_000}).NodeClass = tt.class
			require.NoError(t, b.run(t))
			require.Empty(t, b.world.Claims)
			require.Equal(t, tt.want, b.world.Events[len(b.world.Events)-1].Reason)
			require.Empty(t, b.world.Instances)
		})
	}
}

func TestProvision_KeepsANodeClaimWhoseClassIsNotKnownToBeReady(t *testing.T) {
	t.Parallel()
	b := newBench(0)
	b.classes.status = ready("Unknown", "InstanceProfileNotReady", "")
	alone(b.world, "one", cluster.Resources{MilliCPU: 100})
	require.NoError(t, b.run(t))
	require.Len(t, b.world.Claims, 1, "(L-005)")
	require.Zero(t, b.world.Launches)
}

func TestProvision_LaunchesAClaimOnceWhateverAKillInterrupts(t *testing.T) {
	t.Parallel()
	for writes := range 12 {
		for _, lost := range []bool{false, true} {
			b := newBench(0)
			alone(b.world, "one", cluster.Resources{MilliCPU: 100})
			alone(b.world, "two", cluster.Resources{MilliCPU: 100})
			b.world.Crash(writes, lost)
			_ = b.run(t) // what it could not do is done below
			b.world.Restart()
			b.world.Held = false
			require.NoError(t, b.run(t))
			require.NoError(t, b.run(t))
			require.Len(t, b.world.Instances, 2, "crash after %d writes", writes)
			require.NotEqual(t, b.world.Claims["one"].ProviderID, b.world.Claims["two"].ProviderID)
			require.Zero(t, b.world.Misused)
		}
	}
}

func TestProvision_KeepsRoomForBuffersAndSaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(0)
	n := int64(2)
	ref := cluster.TemplateRef{Kind: cluster.KindPodTemplate, Namespace: "default", Name: "spare"}
	b.world.Buffers = []cluster.CapacityBuffer{{Namespace: "default", Name: "spare", UID: "spare", Template: ref, Replicas: &n}}
	b.world.Templates = []cluster.PodTemplate{{TemplateRef: ref, Spec: &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 1000, MemoryBytes: 1 << 30, Pods: 1}}}}
	require.NoError(t, b.Provision(t.Context(), notice.Wake{Cluster: "demo"}))
	require.Len(t, b.world.Claims, 1, "one node holds both")
	status := b.world.Buffers[0].Status
	require.Equal(t, n, *status.Replicas)
	require.Equal(t, "FitsExistingCapacity", status.Conditions.Get(cluster.ConditionProvisioning).Reason, "a node that is on its way counts")
	for _, e := range b.world.Events {
		require.NotContains(t, e.Reason, "Nominated")
		require.NotContains(t, e.Reason, "FailedScheduling")
	}
	require.NoError(t, b.Provision(t.Context(), notice.Wake{Cluster: "demo"}))
	require.Len(t, b.world.Claims, 1, "and is asked for once")
}

func TestProvision_OverlaysDecideWhatIsLaunched(t *testing.T) {
	t.Parallel()
	b := newBench(1)
	b.world.Overlays = []cluster.NodeOverlay{
		{Name: "spot-is-dear", Price: new(int64(500_000)), Requirements: []cluster.Expression{{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: []string{"spot"}}}},
		{Name: "broken", Invalid: "spec.price: …"},
	}
	require.NoError(t, b.run(t))
	require.Len(t, b.world.Claims, 1)
	for _, c := range b.world.Claims {
		l, ok := plan.LaunchOf(c)
		require.True(t, ok)
		require.Equal(t, cluster.OnDemand, l.CapacityType, "Spot is no bargain any more (L-012)")
		require.False(t, l.Prioritized, "no overlay has anything to say about what is left")
	}
	require.True(t, b.world.Overlays[0].Conditions.True(cluster.ConditionReady))
	require.Equal(t, "RuntimeValidation", b.world.Overlays[1].Conditions.Get(cluster.ConditionReady).Reason)

	b = newBench(1)
	b.world.Overlays = []cluster.NodeOverlay{{Name: "all", Price: new(int64(1))}}
	require.NoError(t, b.run(t))
	for _, c := range b.world.Claims {
		l, _ := plan.LaunchOf(c)
		require.True(t, l.Prioritized)
	}
}

// unwritable refuses to write the statuses of overlays and buffers, as an API server does that knows no such right.
type unwritable struct{ *simtest.World }

func (unwritable) PatchNodeOverlayStatus(context.Context, cluster.NodeOverlay, cluster.NodeOverlay) error {
	return errors.New("forbidden")
}

func (unwritable) PatchCapacityBufferStatus(context.Context, cluster.CapacityBuffer, cluster.CapacityBuffer) error {
	return errors.New("forbidden")
}

func TestProvision_LaunchesWhateverStatusesCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBench(1)
	b.world.Overlays = []cluster.NodeOverlay{{Name: "all", Price: new(int64(1))}}
	b.world.Buffers = []cluster.CapacityBuffer{{Namespace: "default", Name: "spare", UID: "spare"}}
	site, err := b.Open(t.Context(), "demo")
	require.NoError(t, err)
	site.Kube = unwritable{b.world}
	require.NoError(t, b.run(t))
	require.Len(t, b.launched(t), 1)
}
