package site_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/kube"
	"treadle/shared/site"
	"treadle/shared/store"
)

// configuration is where clusters are reached, and how often it was asked.
type configuration struct {
	clusters map[string]store.Cluster
	asked    int
	err      error
}

func (c *configuration) Cluster(_ context.Context, name string) (store.Cluster, error) {
	c.asked++
	if c.err != nil {
		return store.Cluster{}, c.err
	}
	one, ok := c.clusters[name]
	if !ok {
		return store.Cluster{}, fmt.Errorf("cluster %q: %w", name, store.ErrNotFound)
	}
	return one, nil
}

type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func book(t *testing.T, names ...string) (*site.Book, *configuration, *clock) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	c := &configuration{clusters: map[string]store.Cluster{}}
	for _, name := range names {
		c.clusters[name] = store.Cluster{Name: name, Endpoint: server.URL, CA: ca, Version: "1.37"}
	}
	at := &clock{time.Unix(1_796_000_000, 0)}
	b := &site.Book{Configuration: c, Function: "test", Kinds: kube.AllKinds, Now: at.now}
	t.Cleanup(b.Rest)
	return b, c, at
}

func open(t *testing.T, b *site.Book, name string) *site.Site {
	t.Helper()
	s, err := b.Open(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, name, s.Name)
	return s
}

func TestBook_KeepsClientAndMirrorForTheNextWakeUp(t *testing.T) {
	t.Parallel()
	b, c, at := book(t, "demo")
	first := open(t, b, "demo")
	at.Time = at.Add(59 * time.Second)
	require.Same(t, first, open(t, b, "demo"))
	require.Equal(t, 1, c.asked, "a minute's trust")

	at.Time = at.Add(2 * time.Second)
	changed := c.clusters["demo"]
	changed.Version = "1.38"
	c.clusters["demo"] = changed
	require.Same(t, first, open(t, b, "demo"), "a cluster that has moved on is still the same")
	require.Equal(t, "1.38", first.Version)
	require.Equal(t, 2, c.asked)
	b.Rest()
	require.Same(t, first, open(t, b, "demo"), "resting forgets nothing")
}

func TestBook_OpensAnewWhereTheClusterIsReachedOtherwise(t *testing.T) {
	t.Parallel()
	b, c, at := book(t, "demo")
	first := open(t, b, "demo")
	moved := c.clusters["demo"]
	moved.Endpoint += "/moved"
	c.clusters["demo"] = moved
	at.Time = at.Add(time.Minute)
	second := open(t, b, "demo")
	require.NotSame(t, first, second)
	require.NotSame(t, first.Mirror, second.Mirror, "another API server's state is worth nothing")
}

func TestBook_ForgetsAClusterThatIsNotServed(t *testing.T) {
	t.Parallel()
	b, c, at := book(t, "demo")
	first := open(t, b, "demo")
	gone := c.clusters["demo"]
	delete(c.clusters, "demo")
	at.Time = at.Add(time.Minute)
	_, err := b.Open(t.Context(), "demo")
	require.ErrorIs(t, err, store.ErrNotFound)
	c.clusters["demo"] = gone
	require.NotSame(t, first, open(t, b, "demo"))

	c.err = errors.New("S3 is away")
	_, err = b.Open(t.Context(), "other")
	require.ErrorIs(t, err, c.err)
}

func TestBook_NamesTheClusterThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	b, c, _ := book(t)
	c.clusters["demo"] = store.Cluster{Name: "demo", Endpoint: "https://127.0.0.1:1", CA: "no certificate"}
	_, err := b.Open(t.Context(), "demo")
	require.ErrorContains(t, err, `open cluster "demo"`)
}

func TestBook_RemembersTheLastFourClusters(t *testing.T) {
	t.Parallel()
	b, c, at := book(t, "a", "b", "c", "d", "e")
	sites := map[string]*site.Site{}
	for _, name := range []string{"a", "b", "c", "d"} {
		sites[name] = open(t, b, name)
		at.Time = at.Add(time.Second)
	}
	open(t, b, "a") // now b is the one that was used longest ago
	at.Time = at.Add(time.Second)
	open(t, b, "e")
	asked := c.asked
	require.Same(t, sites["a"], open(t, b, "a"))
	require.Same(t, sites["d"], open(t, b, "d"))
	require.Equal(t, asked, c.asked)
	require.NotSame(t, sites["b"], open(t, b, "b"))
}
