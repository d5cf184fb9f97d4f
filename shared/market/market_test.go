package market

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/catalog"
	"treadle/shared/cluster"
	"treadle/shared/ledger"
	"treadle/shared/store"
)

const now = int64(1_796_000_000)

// stored is a catalogue of one type, as S3 has it.
func stored(t *testing.T) []byte {
	t.Helper()
	body, err := catalog.Encode(catalog.Catalog{Region: "us-east-1", MadeUnix: now, Types: []catalog.Type{{
		Name: "m5.large", Arch: "amd64", VCPU: 2, MemoryMiB: 8192, OnDemand: true, OnDemandMicroUSDPerHour: 96_000, Zones: []catalog.Zone{{Name: "us-east-1a"}},
	}}})
	require.NoError(t, err)
	return body
}

func newMarket(s3 *bucket, at *time.Time) (*Market, *ledger.Ledger) {
	known := ledger.New(nil)
	return &Market{Objects: s3, Key: store.CatalogueKey, Known: known, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return *at }}, known
}

func nothing(string, string, cluster.CapacityType) bool { return false }

func TestMarket_KeepsWhatItHas(t *testing.T) {
	t.Parallel()
	at := time.Unix(now, 0)
	s3 := &bucket{err: errors.New("S3 is away")}
	c, _ := newMarket(s3, &at)
	read := func() []cluster.InstanceType {
		types, err := c.InstanceTypes(t.Context(), cluster.NodeClass{}, nothing)
		require.NoError(t, err)
		return types
	}
	require.Greater(t, len(read()), 1000, "the copy in the binary serves until there is another")
	require.Greater(t, len(read()), 1000)
	require.Equal(t, 1, s3.asked, "it is used for a while")
	for _, body := range [][]byte{[]byte("not a catalogue"), stored(t)} {
		at = at.Add(6 * time.Minute)
		s3.err, s3.body = nil, body
		read()
	}
	require.Len(t, read(), 1)
	for _, trouble := range []error{store.ErrNotModified, errors.New("S3 is away")} {
		at = at.Add(6 * time.Minute)
		asked := s3.asked
		s3.err = trouble
		require.Len(t, read(), 1, "what is held is good enough: %v", trouble)
		require.Equal(t, asked+1, s3.asked)
	}
	require.Equal(t, "etag", s3.tag)
}

func TestMarket_MakesAViewOnceUntilSomethingChanges(t *testing.T) {
	t.Parallel()
	at := time.Unix(now, 0)
	c, known := newMarket(&bucket{body: stored(t)}, &at)
	class := cluster.NodeClass{Status: cluster.NodeClassStatus{
		Subnets: []cluster.Subnet{{ID: "s", Zone: "us-east-1a", FreeIPs: 9}}, AMIs: []cluster.AMI{{ID: "ami-1"}},
	}}
	look := func(refused func(string, string, cluster.CapacityType) bool) cluster.InstanceType {
		types, err := c.InstanceTypes(t.Context(), class, refused)
		require.NoError(t, err)
		return types[0]
	}
	require.True(t, look(nothing).Offerings[0].Available)
	class.Status.Subnets[0].FreeIPs = 8
	require.False(t, look(func(name, place string, kind cluster.CapacityType) bool {
		return name == "m5.large" && place == "us-east-1a" && kind == cluster.OnDemand
	}).Offerings[0].Available)
	require.Equal(t, 8, class.Status.Subnets[0].FreeIPs, "the class is not written to")
	require.True(t, look(nothing).Offerings[0].Available, "a refusal leaves what is remembered as it is")
	require.Len(t, c.seen, 1)

	guess := look(nothing).Capacity.MemoryBytes
	known.Learn([]cluster.NodeClaim{{ProviderID: "p", ImageID: "ami-1"}}, []cluster.Node{{
		ProviderID: "p", Labels: map[string]string{cluster.LabelInstanceType: "m5.large"}, Capacity: cluster.Resources{MemoryBytes: guess - 1},
	}})
	require.Equal(t, guess-1, look(nothing).Capacity.MemoryBytes, "what a node taught is used at once")
	for n := range 2 * views {
		class.Spec.Kubelet = &cluster.Kubelet{MaxPods: new(int32(n + 1))}
		require.Equal(t, int64(n+1), look(nothing).Capacity.Pods)
	}
	require.Len(t, c.seen, views)
}

// bucket holds one object.
type bucket struct {
	body  []byte
	err   error
	asked int
	tag   string // that the last request knew of
}

func (b *bucket) Get(_ context.Context, _, etag string) ([]byte, string, error) {
	b.asked++
	b.tag = etag
	return b.body, "etag", b.err
}
