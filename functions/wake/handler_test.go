package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	lambdaevents "github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/notice"
	"treadle/shared/store"
)

const token = "0123456789abcdef0123456789abcdef0123456789abcdef" // as in the sample

type configuration struct {
	clusters map[string][]string
	err      error
	reads    int
}

func (c *configuration) Cluster(_ context.Context, name string) (store.Cluster, error) {
	c.reads++
	if c.err != nil {
		return store.Cluster{}, c.err
	}
	tokens, ok := c.clusters[name]
	if !ok {
		return store.Cluster{}, fmt.Errorf("cluster %q: %w", name, store.ErrNotFound)
	}
	out := store.Cluster{Name: name}
	for _, one := range tokens {
		out.WebhookTokenSHA256 = append(out.WebhookTokenSHA256, store.HashToken(one))
	}
	return out, nil
}

type waker struct {
	woken []string
	err   error
}

func (w *waker) Wake(_ context.Context, n notice.Wake) error {
	w.woken = append(w.woken, n.Cluster)
	return w.err
}

type bench struct {
	*Handler
	conf                             *configuration
	provision, lifecycle, disruption *waker
	log                              *strings.Builder
	now                              time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		conf:      &configuration{clusters: map[string][]string{"demo": {token, "next"}, "other": {"secret-of-other"}}},
		provision: &waker{}, lifecycle: &waker{}, disruption: &waker{}, log: &strings.Builder{}, now: time.Unix(1796075586, 0),
	}
	b.Handler = &Handler{
		Configuration: b.conf, Provision: b.provision, Lifecycle: b.lifecycle, Disruption: b.disruption,
		Log: slog.New(slog.NewJSONHandler(b.log, nil)), Now: func() time.Time { return b.now },
	}
	return b
}

func sample(t *testing.T) lambdaevents.LambdaFunctionURLRequest {
	t.Helper()
	raw, err := events.Samples.ReadFile("wake.json")
	require.NoError(t, err)
	var req lambdaevents.LambdaFunctionURLRequest
	require.NoError(t, json.Unmarshal(raw, &req))
	return req
}

func TestHandle_WakesProvisionForTheSample(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res, err := b.Handle(t.Context(), sample(t))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, res.Body, `"uid":"8dadc990-8af4-4730-b75c-18f12eaa990b","allowed":true`)
	require.Equal(t, []string{"demo"}, b.provision.woken)
	require.Empty(t, b.lifecycle.woken)
	require.NotContains(t, b.log.String(), token, "nothing secret in a log")
}

func TestHandle_Refuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*lambdaevents.LambdaFunctionURLRequest)
		want   int
	}{
		"a request that is no POST":            {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RequestContext.HTTP.Method = "GET" }, 405},
		"a path with no token":                 {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RawPath = "/demo" }, 404},
		"a path with an empty token":           {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RawPath = "/demo/" }, 404},
		"a path with too many parts":           {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RawPath = "/demo/" + token + "/x" }, 404},
		"a path that leaves its folder":        {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RawPath = "/../" + token }, 404},
		"a wrong token":                        {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RawPath = "/demo/wrong" }, 403},
		"another cluster's token":              {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RawPath = "/demo/secret-of-other" }, 403},
		"a cluster that is not configured":     {func(r *lambdaevents.LambdaFunctionURLRequest) { r.RawPath = "/nowhere/" + token }, 403},
		"a body that is no admission review":   {func(r *lambdaevents.LambdaFunctionURLRequest) { r.Body = `{"kind":"Pod"}` }, 400},
		"a body that is no JSON":               {func(r *lambdaevents.LambdaFunctionURLRequest) { r.Body = "hello" }, 400},
		"a body that is no base64 but says so": {func(r *lambdaevents.LambdaFunctionURLRequest) { r.IsBase64Encoded = true }, 400},
		"a huge body":                          {func(r *lambdaevents.LambdaFunctionURLRequest) { r.Body = strings.Repeat(" ", 10<<20) }, 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req := sample(t)
			tt.change(&req)
			res, err := b.Handle(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, tt.want, res.StatusCode)
			require.Empty(t, b.provision.woken)
			require.Empty(t, b.lifecycle.woken)
			require.Equal(t, 1, strings.Count(b.log.String(), `"level":"WARN"`), "one warning line")
			require.NotContains(t, b.log.String(), token)
		})
	}
}

func TestHandle_AcceptsBothTokensWhileOneIsRotated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := sample(t)
	req.RawPath = "/demo/next"
	req.Body = base64.StdEncoding.EncodeToString([]byte(req.Body))
	req.IsBase64Encoded = true
	res, err := b.Handle(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
}

func TestHandle_RoutesByResource(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		operation, resource              string
		provision, lifecycle, disruption int
	}{
		{"CREATE", "events", 1, 0, 0},
		{"UPDATE", "nodepools", 1, 0, 1},
		{"UPDATE", "ec2nodeclasses", 1, 0, 1},
		{"CREATE", "nodeoverlays", 1, 0, 1},
		{"UPDATE", "capacitybuffers", 1, 0, 0},
		{"DELETE", "capacitybuffers", 1, 1, 0},
		{"UPDATE", "podtemplates", 1, 0, 0},
		{"CREATE", "nodes", 0, 1, 0},
		{"CREATE", "nodeclaims", 1, 1, 0},
		{"DELETE", "nodeclaims", 0, 1, 0},
		{"UPDATE", "secrets", 0, 0, 0},
	} {
		t.Run(tt.operation+" "+tt.resource, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req := sample(t)
			req.Body = fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":%q,"resource":{"resource":%q}}}`, tt.operation, tt.resource)
			res, err := b.Handle(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, res.StatusCode)
			require.Len(t, b.provision.woken, tt.provision)
			require.Len(t, b.lifecycle.woken, tt.lifecycle)
			require.Len(t, b.disruption.woken, tt.disruption)
		})
	}
}

func TestHandle_WakesOnceASecond(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 1000 {
		_, err := b.Handle(t.Context(), sample(t))
		require.NoError(t, err)
	}
	require.Len(t, b.provision.woken, 1)
	require.Equal(t, 1, b.conf.reads, "the configuration is read once a minute")
	b.now = b.now.Add(time.Second)
	_, err := b.Handle(t.Context(), sample(t))
	require.NoError(t, err)
	require.Len(t, b.provision.woken, 2)
}

func TestHandle_LearnsOfANewTokenAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.Handle(t.Context(), sample(t))
	require.NoError(t, err)
	b.conf.clusters["demo"] = []string{"rotated"}
	req := sample(t)
	req.RawPath = "/demo/rotated"
	b.now = b.now.Add(3 * time.Second)
	res, err := b.Handle(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)

	reads := b.conf.reads
	req.RawPath = "/demo/guess"
	for range 100 {
		res, err := b.Handle(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, res.StatusCode)
	}
	require.Equal(t, reads, b.conf.reads, "guesses do not make us read")
}

func TestHandle_IsNeverInTheWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.provision.err = errors.New("queue is away")
	for range 2 {
		res, err := b.Handle(t.Context(), sample(t))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
	require.Len(t, b.provision.woken, 2, "a wake-up that was lost is tried again by the next review")

	b = newBench(t)
	b.conf.err = errors.New("bucket is away")
	res, err := b.Handle(t.Context(), sample(t))
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, "a token that cannot be checked is not accepted")
	require.Empty(t, b.provision.woken)
}

func TestHandle_DryRunWakesNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := sample(t)
	req.Body = strings.Replace(req.Body, `"dryRun":false`, `"dryRun":true`, 1)
	res, err := b.Handle(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Empty(t, b.provision.woken)
}
