package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/catalog"
	"treadle/shared/store"
)

// objects is a bucket with one object.
type objects struct {
	body []byte
	fail error
}

func (o *objects) Get(_ context.Context, key, _ string) ([]byte, string, error) {
	if o.body == nil || key != store.CatalogueKey {
		return nil, "", store.ErrNotFound
	}
	return o.body, "etag", nil
}

func (o *objects) Put(_ context.Context, _ string, body []byte, _ string) (string, error) {
	o.body = body
	return "etag", o.fail
}

// refresher makes the next catalogue of the one it is given: one type more.
type refresher struct{ lost, fail error }

func (r refresher) Refresh(_ context.Context, old catalog.Catalog, now time.Time) (catalog.Catalog, error, error) {
	name := string(rune('a' + len(old.Types)))
	made := catalog.Catalog{Region: "us-east-1", MadeUnix: now.Unix(), Types: append(old.Types, catalog.Type{
		Name: name, Arch: "amd64", VCPU: 1, MemoryMiB: 1024, OnDemand: true, Spot: true, OnDemandMicroUSDPerHour: 5,
		Zones: []catalog.Zone{{Name: "us-east-1a", SpotMicroUSDPerHour: 3}, {Name: "us-east-1b"}},
	})}
	return made, r.lost, r.fail
}

// lines are the records that a handler logs.
func lines(t *testing.T, out *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for in := json.NewDecoder(out); in.More(); {
		var one map[string]any
		require.NoError(t, in.Decode(&one))
		all = append(all, one)
	}
	return all
}

func handler(o *objects, r refresher) (*Handler, *bytes.Buffer) {
	var out bytes.Buffer
	return &Handler{
		Objects: o, Refresher: r, Log: slog.New(slog.NewJSONHandler(&out, nil)), Now: func() time.Time { return time.Unix(1_800_000_000, 0) },
	}, &out
}

func TestRefresh_ReplacesTheStoredCatalogue(t *testing.T) {
	t.Parallel()
	o := &objects{}
	h, out := handler(o, refresher{})
	for n := 1; n <= 2; n++ {
		answer, err := h.Refresh(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, Answer{Types: n, Bytes: len(o.body)}, answer)
	}
	stored, err := catalog.Decode(o.body)
	require.NoError(t, err)
	require.Len(t, stored.Types, 2, "the second was made with the first at hand")
	logged := lines(t, out)
	require.Len(t, logged, 2, "one line a refresh")
	require.Equal(t, "catalogue refreshed", logged[1]["msg"])
	require.EqualValues(t, 8, logged[1]["offerings"])
	require.EqualValues(t, 6, logged[1]["priced"])
}

func TestRefresh_TellsWhatItLost(t *testing.T) {
	t.Parallel()
	o := &objects{body: []byte("not a catalogue")}
	h, out := handler(o, refresher{lost: errors.New("Pricing is away")})
	_, err := h.Refresh(t.Context(), nil)
	require.NoError(t, err)
	logged := lines(t, out)
	require.Equal(t, []any{"old catalogue not read", "prices not read, keeping older ones", "catalogue refreshed"},
		[]any{logged[0]["msg"], logged[1]["msg"], logged[2]["msg"]})
}

func TestRefresh_LeavesTheOldOneWhenItFails(t *testing.T) {
	t.Parallel()
	trouble := errors.New("trouble")
	o := &objects{}
	h, _ := handler(o, refresher{fail: trouble})
	_, err := h.Refresh(t.Context(), nil)
	require.ErrorIs(t, err, trouble)
	require.Nil(t, o.body)

	h, _ = handler(&objects{fail: trouble}, refresher{})
	_, err = h.Refresh(t.Context(), nil)
	require.ErrorIs(t, err, trouble)
}
