package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/notice"
	"treadle/shared/store"
)

const now = int64(1_796_000_000)

type mirror struct {
	*simtest.World
	err error
}

func (m *mirror) Sync(context.Context) error { return m.err }

type waker []string

func (w *waker) Wake(_ context.Context, n notice.Wake) error {
	*w = append(*w, n.Cluster)
	return nil
}

type counter map[string]int

func (c counter) Count(name, _, _ string, n int) { c[name] += n }

type bench struct {
	*Handler
	world                *simtest.World
	mirror               *mirror
	claim                *cluster.NodeClaim
	provision, lifecycle *waker
	counter              counter
}

// newBench has the claim of the sample, which may live for an hour and has.
func newBench(t *testing.T) (*bench, Event) {
	t.Helper()
	body, err := events.Samples.ReadFile("expiry.json")
	require.NoError(t, err)
	var e Event
	require.NoError(t, json.Unmarshal(body, &e))
	w := simtest.New(now)
	claim, _ := w.AddMachine(e.NodeClaim, "general")
	other, _ := w.AddMachine("other", "general")
	claim.UID, claim.ExpireAfterSeconds, other.ExpireAfterSeconds = e.NodeClaimUID, 3600, 3600
	w.Advance(3600)
	b := &bench{world: w, mirror: &mirror{World: w}, claim: claim, provision: &waker{}, lifecycle: &waker{}, counter: counter{}}
	b.Handler = &Handler{
		Open: func(_ context.Context, name string) (*Site, error) {
			if name != "demo" {
				return nil, fmt.Errorf("cluster %q: %w", name, store.ErrNotFound)
			}
			return &Site{Kube: w, Mirror: b.mirror}, nil
		},
		Provision: b.provision, Lifecycle: b.lifecycle, Counter: b.counter, Log: slog.New(slog.DiscardHandler), NowUnix: w.NowUnix,
	}
	return b, e
}

func TestExpire(t *testing.T) {
	t.Parallel()
	trouble := errors.New("away")
	for name, tt := range map[string]struct {
		change  func(*bench, *Event)
		expires bool
		err     error
	}{
		"a claim whose time has come goes":               {func(*bench, *Event) {}, true, nil},
		"a claim that is gone is no trouble":             {func(b *bench, _ *Event) { delete(b.world.Claims, b.claim.Name) }, false, nil},
		"another claim of the same name is left":         {func(b *bench, _ *Event) { b.claim.UID = "another" }, false, nil},
		"a claim that goes already is left to that":      {func(b *bench, _ *Event) { b.claim.DeletionUnix = now }, false, nil},
		"a claim that may live for ever by now is left":  {func(b *bench, _ *Event) { b.claim.ExpireAfterSeconds = 0 }, false, nil},
		"a claim that is too young is asked about again": {func(b *bench, _ *Event) { b.claim.ExpireAfterSeconds = 3601 }, false, errYoung},
		"a cluster that is not served any more is left":  {func(_ *bench, e *Event) { e.Cluster = "elsewhere" }, false, nil},
		"a cluster that cannot be read is asked again":   {func(b *bench, _ *Event) { b.mirror.err = trouble }, false, trouble},
		"a write that fails is tried again":              {func(b *bench, _ *Event) { b.world.Crash(0, false) }, false, simtest.ErrCrashed},
		"a cluster that cannot be opened is tried once more": {func(b *bench, _ *Event) {
			b.Open = func(context.Context, string) (*Site, error) { return nil, trouble }
		}, false, trouble},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, e := newBench(t)
			tt.change(b, &e)
			got, err := b.Expire(t.Context(), e)
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, Summary{Expired: tt.expires}, got)
			require.Zero(t, b.world.Claims["other"].DeletionUnix, "it has a schedule of its own")
			if !tt.expires {
				require.Empty(t, *b.lifecycle)
				return
			}
			require.Equal(t, now+3600, b.claim.DeletionUnix)
			require.Equal(t, waker{"demo"}, *b.provision)
			require.Equal(t, waker{"demo"}, *b.lifecycle)
			require.Equal(t, counter{"NodeClaimsExpired": 1}, b.counter)
			again, err := b.Expire(t.Context(), e)
			require.NoError(t, err)
			require.False(t, again.Expired, "twice changes nothing twice")
		})
	}
}

func TestExpire_RefusesAnEventThatNamesNothing(t *testing.T) {
	t.Parallel()
	b, _ := newBench(t)
	_, err := b.Expire(t.Context(), Event{Cluster: "demo"})
	require.ErrorContains(t, err, "none may be empty")
}
