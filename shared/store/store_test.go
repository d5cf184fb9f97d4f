package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"treadle/shared/store"
)

// s3 is a bucket served over HTTP, two keys a page. It fails the next requests where it is told to.
type s3 struct {
	mu      sync.Mutex
	objects map[string]string
	fail    []int // status codes to come
	asked   []string
}

func tag(body string) string { return fmt.Sprintf("%q", fmt.Sprint(len(body), body[:1])) }

func (s *s3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.asked = append(s.asked, r.Method+" "+r.URL.EscapedPath())
	sum := sha256.Sum256(body)
	if r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]) || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/20261130/us-east-1/s3/aws4_request") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if len(s.fail) > 0 {
		w.WriteHeader(s.fail[0])
		s.fail = s.fail[1:]
		_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>less, please</Message></Error>")
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket/")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	held, found := s.objects[key]
	switch {
	case r.Method == http.MethodGet && key == "":
		s.list(w, r)
	case r.Method == http.MethodPut && r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != tag(held):
		w.WriteHeader(http.StatusPreconditionFailed)
	case r.Method == http.MethodPut:
		s.objects[key] = string(body)
		w.Header().Set("ETag", tag(string(body)))
	case !found:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.Header.Get("If-None-Match") == tag(held):
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("ETag", tag(held))
		_, _ = io.WriteString(w, held)
	}
}

func (s *s3) list(w http.ResponseWriter, r *http.Request) {
	const page = 2
	var keys []string
	for key := range s.objects {
		if strings.HasPrefix(key, r.URL.Query().Get("prefix")) && key > r.URL.Query().Get("continuation-token") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	more := len(keys) > page
	keys = keys[:min(page, len(keys))]
	_, _ = io.WriteString(w, "<ListBucketResult>")
	for _, key := range keys {
		_, _ = fmt.Fprintf(w, "<Contents><Key>%s</Key></Contents>", key)
	}
	if more {
		_, _ = fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", keys[page-1])
	}
	_, _ = io.WriteString(w, "</ListBucketResult>")
}

func bucket(t *testing.T) (*store.Bucket, *s3) {
	t.Helper()
	fake := &s3{objects: map[string]string{}}
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	cfg := aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	}
	return store.New(cfg, "bucket", func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }), fake
}

func TestBucket_KeepsObjects(t *testing.T) {
	t.Parallel()
	b, fake := bucket(t)
	ctx := t.Context()
	_, _, err := b.Get(ctx, "a/b c.json", "")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.ErrorContains(t, err, `read object "a/b c.json"`)

	etag, err := b.Put(ctx, "a/b c.json", []byte("one"), "")
	require.NoError(t, err)
	body, same, err := b.Get(ctx, "a/b c.json", "")
	require.NoError(t, err)
	require.Equal(t, "one", string(body))
	require.Equal(t, etag, same)
	require.Contains(t, fake.asked, "GET /bucket/a/b%20c.json")

	_, _, err = b.Get(ctx, "a/b c.json", etag)
	require.ErrorIs(t, err, store.ErrNotModified)
	later, err := b.Put(ctx, "a/b c.json", []byte("three"), etag)
	require.NoError(t, err)
	_, err = b.Put(ctx, "a/b c.json", []byte("four"), etag)
	require.ErrorIs(t, err, store.ErrConflict, "another writer was first")
	body, _, err = b.Get(ctx, "a/b c.json", etag)
	require.NoError(t, err)
	require.Equal(t, "three", string(body))
	require.NotEqual(t, etag, later)

	require.NoError(t, b.Delete(ctx, "a/b c.json"))
	require.NoError(t, b.Delete(ctx, "a/b c.json"), "what is gone is gone")
	require.Empty(t, fake.objects)
}

func TestBucket_ListsEveryPage(t *testing.T) {
	t.Parallel()
	b, fake := bucket(t)
	for _, key := range []string{"p/1", "p/2", "p/3", "p/4", "p/5", "q/1"} {
		fake.objects[key] = "x"
	}
	keys, err := b.List(t.Context(), "p/")
	require.NoError(t, err)
	require.Equal(t, []string{"p/1", "p/2", "p/3", "p/4", "p/5"}, keys)
	require.Len(t, fake.asked, 3)
}

func TestBucket_AsksAgainWhereS3IsInTrouble(t *testing.T) {
	t.Parallel()
	b, fake := bucket(t)
	fake.objects["k"] = "x"
	fake.fail = []int{503, 500}
	_, _, err := b.Get(t.Context(), "k", "")
	require.NoError(t, err)
	require.Len(t, fake.asked, 3)

	fake.fail = []int{503, 503, 503}
	_, _, err = b.Get(t.Context(), "k", "")
	require.ErrorContains(t, err, "status 503 SlowDown: less, please")

	fake.asked, fake.fail = nil, []int{403}
	_, _, err = b.Get(t.Context(), "k", "")
	require.ErrorContains(t, err, "status 403")
	require.Len(t, fake.asked, 1, "a refusal stays one")
}

func demo() store.Cluster {
	return store.Cluster{
		Name: "demo", Endpoint: "https://127.0.0.1:6443", CA: "-----BEGIN CERTIFICATE-----", Version: "1.37", ServiceCIDR: "10.0.0.0/16",
		WebhookTokenSHA256: []string{store.HashToken("secret")},
	}
}

func TestClusters_AreKeptByName(t *testing.T) {
	t.Parallel()
	b, fake := bucket(t)
	ctx := t.Context()
	names, err := b.Clusters(ctx)
	require.NoError(t, err)
	require.Empty(t, names)

	other := demo()
	other.Name = "another"
	require.NoError(t, b.PutCluster(ctx, demo()))
	require.NoError(t, b.PutCluster(ctx, other))
	fake.objects["clusters/not a name.json"] = "{}"
	names, err = b.Clusters(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"another", "demo"}, names)
	got, err := b.Cluster(ctx, "demo")
	require.NoError(t, err)
	require.Equal(t, demo(), got)
	require.NotContains(t, fake.objects["clusters/demo.json"], "secret")

	require.NoError(t, b.DeleteCluster(ctx, "demo"))
	_, err = b.Cluster(ctx, "demo")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NoError(t, b.DeleteCluster(ctx, "demo"))
}

func TestCluster_NeverLeavesItsFolder(t *testing.T) {
	t.Parallel()
	b, fake := bucket(t)
	for _, name := range []string{"", "../catalog/catalog", "a/b", "a b", "-a", strings.Repeat("a", 101)} {
		_, err := b.Cluster(t.Context(), name)
		require.ErrorIs(t, err, store.ErrNotFound, name)
		require.NoError(t, b.DeleteCluster(t.Context(), name))
		c := demo()
		c.Name = name
		require.ErrorContains(t, b.PutCluster(t.Context(), c), "field name")
	}
	require.Empty(t, fake.asked)
}

func TestCluster_NamesTheFieldAtFault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, want string }{
		"no JSON at all":                 {"nonsense", "invalid character"},
		"a field that nobody knows":      {`{"name":"demo","colour":"red"}`, `unknown field "colour"`},
		"another cluster's file":         {`{"name":"other","endpoint":"https://x","ca":"BEGIN CERTIFICATE","version":"1.37"}`, `field name: is "other"`},
		"an endpoint without TLS":        {`{"name":"demo","endpoint":"http://x","ca":"BEGIN CERTIFICATE","version":"1.37"}`, "field endpoint"},
		"no authority":                   {`{"name":"demo","endpoint":"https://x","version":"1.37"}`, "field ca"},
		"a version that is no version":   {`{"name":"demo","endpoint":"https://x","ca":"BEGIN CERTIFICATE","version":"v1"}`, "field version"},
		"a token that is not its digest": {`{"name":"demo","endpoint":"https://x","ca":"BEGIN CERTIFICATE","version":"1.37","webhookTokenSHA256":["secret"]}`, "field webhookTokenSHA256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, fake := bucket(t)
			fake.objects["clusters/demo.json"] = tt.body
			_, err := b.Cluster(t.Context(), "demo")
			require.ErrorContains(t, err, `configuration of cluster "demo"`)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
