package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/notice"
	"treadle/shared/store"
)

// fakeCluster is one cluster, and what opening it answers.
type fakeCluster struct {
	pods, claims, buffers  bool
	open, podErr, claimErr error
}

func (c fakeCluster) HasPendingPods(context.Context) (bool, error)     { return c.pods, c.podErr }
func (c fakeCluster) HasNodeClaims(context.Context) (bool, error)      { return c.claims, c.claimErr }
func (c fakeCluster) HasCapacityBuffers(context.Context) (bool, error) { return c.buffers, nil }

type account map[string]fakeCluster

func (a account) Clusters(context.Context) ([]string, error) {
	var names []string
	for name := range a {
		names = append(names, name)
	}
	return names, nil
}

func (a account) Open(_ context.Context, name string) (Cluster, error) { return a[name], a[name].open }

type waker struct {
	mu    sync.Mutex
	woken []string
	err   error
}

func (w *waker) Wake(_ context.Context, n notice.Wake) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, n.Cluster)
	return w.err
}

func handler(c Clusters, minute int) (*Handler, *waker, *waker) {
	provision, lifecycle := &waker{}, &waker{} // what wakes lifecycle wakes disruption
	return &Handler{
		Clusters: c, Provision: provision, Lifecycle: lifecycle, Disruption: lifecycle, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Date(2026, 12, 1, 9, minute, 0, 0, time.UTC) },
	}, provision, lifecycle
}

func sample(t *testing.T) Event {
	t.Helper()
	body, err := events.Samples.ReadFile("sweep.json")
	require.NoError(t, err)
	var e Event
	require.NoError(t, json.Unmarshal(body, &e))
	return e
}

func TestSweep_WakesWhatHasWork(t *testing.T) {
	t.Parallel()
	trouble := errors.New("no route")
	for name, tt := range map[string]struct {
		cluster              fakeCluster
		minute               int
		provision, lifecycle bool
		err                  error
	}{
		"a cluster with nothing to do is left asleep":                     {fakeCluster{}, 1, false, false, nil},
		"pending pods wake provision":                                     {fakeCluster{pods: true}, 1, true, false, nil},
		"node claims wake lifecycle":                                      {fakeCluster{claims: true}, 1, false, true, nil},
		"both wake both":                                                  {fakeCluster{pods: true, claims: true}, 1, true, true, nil},
		"every tenth minute wakes everything":                             {fakeCluster{}, 20, true, true, nil},
		"what could not be found out counts as work, and is reported":     {fakeCluster{podErr: trouble}, 1, true, false, trouble},
		"the same holds for claims":                                       {fakeCluster{claimErr: trouble}, 1, false, true, trouble},
		"a cluster that is not served any more is no trouble":             {fakeCluster{open: store.ErrNotFound, pods: true}, 20, false, false, nil},
		"a cluster that cannot be opened is reported and not woken blind": {fakeCluster{open: trouble, pods: true}, 1, false, false, trouble},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, provision, lifecycle := handler(account{"demo": tt.cluster}, tt.minute)
			got, err := h.Sweep(t.Context(), sample(t))
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.provision, len(provision.woken) == 1)
			require.Equal(t, tt.lifecycle, len(lifecycle.woken) == 2)
			require.Equal(t, Summary{Clusters: 1, Provision: len(provision.woken), Lifecycle: len(lifecycle.woken) / 2}, got)
		})
	}
}

func TestSweep_BuffersAreWorkWhereTheyAreServed(t *testing.T) {
	t.Parallel()
	h, provision, _ := handler(account{"demo": {buffers: true}}, 1)
	_, err := h.Sweep(t.Context(), sample(t))
	require.NoError(t, err)
	require.Empty(t, provision.woken)
	h.Buffers = true
	_, err = h.Sweep(t.Context(), sample(t))
	require.NoError(t, err)
	require.Equal(t, []string{"demo"}, provision.woken)
}

func TestSweep_GoesOnPastAClusterInTrouble(t *testing.T) {
	t.Parallel()
	trouble := errors.New("no route")
	h, provision, _ := handler(account{"bad": {open: trouble}, "good": {pods: true}, "worse": {open: trouble}}, 1)
	_, err := h.Sweep(t.Context(), sample(t))
	require.ErrorContains(t, err, `open cluster "bad": no route`)
	require.ErrorContains(t, err, `open cluster "worse": no route`)
	require.Equal(t, []string{"good"}, provision.woken)
}

func TestSweep_ReportsAWakeUpThatWasLost(t *testing.T) {
	t.Parallel()
	h, provision, lifecycle := handler(account{"demo": {pods: true, claims: true}}, 1)
	provision.err = errors.New("queue is away")
	_, err := h.Sweep(t.Context(), sample(t))
	require.ErrorIs(t, err, provision.err)
	require.Len(t, lifecycle.woken, 2, "one queue's trouble is not the other's")
}
