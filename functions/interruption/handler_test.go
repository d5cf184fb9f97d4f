package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	lambda "github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/notice"
	"treadle/shared/plan"
	"treadle/shared/store"
)

const (
	now    = int64(1_796_117_412)
	ours   = cluster.InstanceID("i-0c5e1a9d72b4f8036") // the instances of the samples
	theirs = cluster.InstanceID("i-07b3d95ce81f2a640")
)

type mirror struct {
	*simtest.World
	err error
}

func (m *mirror) Sync(context.Context) error { return m.err }

// fakeEC2 is what EC2 knows of the account.
type fakeEC2 struct {
	instances map[cluster.InstanceID]cluster.Instance
	block     []cluster.InstanceID
	err       error
	calls     int
}

func (a *fakeEC2) Describe(_ context.Context, ids ...cluster.InstanceID) ([]cluster.Instance, error) {
	a.calls++
	var out []cluster.Instance
	for _, id := range ids {
		if one, known := a.instances[id]; known {
			out = append(out, one)
		}
	}
	return out, a.err
}

func (a *fakeEC2) In(ctx context.Context, _ string) ([]cluster.Instance, error) {
	return a.Describe(ctx, a.block...)
}

type waker []string

func (w *waker) Wake(_ context.Context, n notice.Wake) error {
	*w = append(*w, n.Cluster)
	return nil
}

type keeper struct {
	kept []string
	err  error
}

func (k *keeper) Keep(_ context.Context, body string) error {
	k.kept = append(k.kept, body)
	return k.err
}

type counter struct {
	sync.Mutex
	counts map[string]int
}

func (c *counter) Count(name, _, _ string, n int) {
	c.Lock()
	defer c.Unlock()
	c.counts[name] += n
}

type bench struct {
	*Handler
	world                *simtest.World
	mirror               *mirror
	claim                *cluster.NodeClaim
	node                 *cluster.Node
	ec2                  *fakeEC2
	provision, lifecycle *waker
	keeper               *keeper
	counter              *counter
}

// newBench serves the cluster demo, to which the samples' first instance belongs; the second belongs to a cluster that is not served.
func newBench() *bench {
	w := simtest.New(now)
	w.Pools = []cluster.NodePool{{Name: "general"}}
	claim, node := w.AddMachine("c", "general")
	claim.ProviderID = cluster.ProviderID("us-east-1a", ours)
	node.ProviderID = claim.ProviderID
	own := func(id cluster.InstanceID, name string) cluster.Instance {
		return cluster.Instance{ID: id, Tags: fleet.Tags(name, "general", cluster.NodeClass{})}
	}
	b := &bench{
		world: w, mirror: &mirror{World: w}, claim: claim, node: node, provision: &waker{}, lifecycle: &waker{}, keeper: &keeper{},
		counter: &counter{counts: map[string]int{}},
		ec2:     &fakeEC2{instances: map[cluster.InstanceID]cluster.Instance{ours: own(ours, "demo"), theirs: own(theirs, "elsewhere")}},
	}
	b.Handler = &Handler{
		Open: func(_ context.Context, name string) (*Site, error) {
			if name != "demo" {
				return nil, fmt.Errorf("cluster %q: %w", name, store.ErrNotFound)
			}
			return &Site{Name: name, Kube: w, Mirror: b.mirror}, nil
		},
		Instances: b.ec2, Provision: b.provision, Lifecycle: b.lifecycle, Keeper: b.keeper, Counter: b.counter,
		Log: slog.New(slog.DiscardHandler), NowUnix: w.NowUnix,
	}
	return b
}

// send hands the samples over as one batch and returns the places of the records that failed.
func (b *bench) send(t *testing.T, samples ...string) []string {
	t.Helper()
	var batch lambda.SQSEvent
	for i, name := range samples {
		body, err := events.Samples.ReadFile(name + ".json")
		require.NoError(t, err)
		batch.Records = append(batch.Records, lambda.SQSMessage{MessageId: fmt.Sprint(i + 1), Body: string(body)})
	}
	return failedOf(b.Handle(t.Context(), batch))
}

func failedOf(res lambda.SQSEventResponse) []string {
	var out []string
	for _, one := range res.BatchItemFailures {
		out = append(out, one.ItemIdentifier)
	}
	return out
}

func (b *bench) deletions() int {
	n := 0
	for _, write := range b.world.Writes {
		if strings.HasPrefix(write, "delete nodeclaim") {
			n++
		}
	}
	return n
}

// TestHandle_TakesAMixedBatchApart is case D15: good, unreadable, doubled, recommended, foreign, of two instances, unknown.
func TestHandle_TakesAMixedBatchApart(t *testing.T) {
	t.Parallel()
	body, err := events.Samples.ReadFile("interruption.json")
	require.NoError(t, err)
	var batch lambda.SQSEvent
	require.NoError(t, json.Unmarshal(body, &batch))
	b := newBench()
	for run := range 10 {
		require.Empty(t, b.Handle(t.Context(), batch).BatchItemFailures, "run %d", run)
		require.Equal(t, 1, b.deletions(), "one deletion of one claim")
		require.Equal(t, now, b.claim.DeletionUnix)
		require.Equal(t, []cluster.Taint{{Key: cluster.TaintDisrupted, Effect: cluster.NoSchedule}}, b.node.Taints)
	}
	require.Equal(t, "abcd", b.keeper.kept[0])
	require.Equal(t, map[string]int{
		"Quarantined": 10, "EventsIgnored": 10, "EventsForeign": 20, "NodeClaimsInterrupted": 1, // the foreign instance is in two events
	}, b.counter.counts)
	require.Equal(t, 10, b.ec2.calls, "one look at EC2 for a batch")
	require.Len(t, *b.provision, 10)
	require.Len(t, *b.lifecycle, 10)
}

func TestHandle(t *testing.T) {
	t.Parallel()
	trouble := errors.New("away")
	for name, tt := range map[string]struct {
		change  func(*bench)
		samples []string
		failed  []string
		deletes int
		wakes   int
	}{
		"a Spot interruption deletes the claim and wakes who replaces the node": {samples: []string{"ec2-spot-interruption"}, deletes: 1, wakes: 1},
		"a foreign instance is acknowledged (D13)":                              {samples: []string{"ec2-spot-interruption-foreign"}},
		"an instance that EC2 has forgotten is acknowledged (D14)": {
			samples: []string{"ec2-spot-interruption"}, change: func(b *bench) { clear(b.ec2.instances) },
		},
		"an instance of the cluster's that Treadle did not launch is acknowledged (I-009)": {
			samples: []string{"ec2-spot-interruption"}, change: func(b *bench) { delete(b.ec2.instances[ours].Tags, cluster.LabelNodePool) },
		},
		"a claim whose node is gone is deleted (D14)": {
			samples: []string{"ec2-spot-interruption"}, change: func(b *bench) { clear(b.world.Nodes) }, deletes: 1, wakes: 1,
		},
		"of two instances of a Health event ours goes (D21)": {samples: []string{"health-instance-retirement"}, deletes: 1, wakes: 1},
		"the instances of a capacity block go with it": {
			samples: []string{"ec2-capacity-block-expiration"}, change: func(b *bench) { b.ec2.block = []cluster.InstanceID{ours, theirs} }, deletes: 1, wakes: 1,
		},
		"a recommendation changes nothing":      {samples: []string{"ec2-rebalance"}},
		"a late event after the end is no news": {samples: []string{"ec2-state-terminated", "ec2-spot-interruption"}, change: func(b *bench) { clear(b.world.Claims) }},
		"the event that wakes twice deletes once": {
			samples: []string{"ec2-spot-interruption", "ec2-state-shutting-down", "ec2-spot-interruption"}, deletes: 1, wakes: 1,
		},
		"trouble of EC2 brings back what concerns it": {
			samples: []string{"ec2-spot-interruption", "sweep", "ec2-rebalance"}, change: func(b *bench) { b.ec2.err = trouble }, failed: []string{"1", "3"},
		},
		"trouble of EC2 brings back a capacity block": {
			samples: []string{"ec2-capacity-block-expiration"}, change: func(b *bench) { b.ec2.err = trouble }, failed: []string{"1"},
		},
		"trouble of the cluster brings back its events and no others (D16)": {
			samples: []string{"ec2-spot-interruption", "ec2-spot-interruption-foreign"}, change: func(b *bench) { b.mirror.err = trouble }, failed: []string{"1"},
		},
		"a write that fails brings the event back": {
			samples: []string{"ec2-spot-interruption"}, change: func(b *bench) { b.world.Crash(1, false) }, failed: []string{"1"},
		},
		"a body that cannot be set aside comes back": {
			samples: []string{"sweep", "ec2-spot-interruption"}, change: func(b *bench) { b.keeper.err = trouble }, failed: []string{"1"}, deletes: 1, wakes: 1,
		},
		"a cluster that cannot be opened brings its events back": {
			samples: []string{"ec2-spot-interruption"}, failed: []string{"1"},
			change: func(b *bench) { b.Open = func(context.Context, string) (*Site, error) { return nil, trouble } },
		},
		"an instance whose launch is not written down yet comes back": {
			samples: []string{"ec2-spot-interruption"}, failed: []string{"1"},
			change: func(b *bench) {
				b.claim.ProviderID = ""
				b.claim.Annotations = map[string]string{cluster.AnnotationLaunch: plan.Launch{Group: "g"}.Annotation()}
				b.ec2.instances[ours].Tags[cluster.TagLaunch] = plan.Groups([]cluster.NodeClaim{*b.claim})[0].Token
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			if tt.change != nil {
				tt.change(b)
			}
			require.Equal(t, tt.failed, b.send(t, tt.samples...))
			require.Equal(t, tt.deletes, b.deletions())
			require.Len(t, *b.provision, tt.wakes)
			require.Len(t, *b.lifecycle, tt.wakes)
		})
	}
}

func TestHandle_FinishesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	for writes := range 8 {
		b := newBench()
		b.world.Crash(writes, false)
		first := b.send(t, "ec2-spot-interruption")
		b.world.Restart()
		if len(first) > 0 {
			require.Empty(t, b.send(t, "ec2-spot-interruption"))
		}
		require.Equal(t, now, b.claim.DeletionUnix, "after %d writes", writes)
		require.Len(t, b.node.Taints, 1)
		require.NotEmpty(t, b.claim.Annotations["treadle.sh/reclaimed"])
		require.Len(t, *b.provision, 1)
	}
}
