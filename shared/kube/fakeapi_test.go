package kube

import (
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// marshaler is any of Kubernetes' own types.
type marshaler interface{ Marshal() ([]byte, error) }

func marshal(tb testing.TB, m marshaler) []byte {
	tb.Helper()
	raw, err := m.Marshal()
	require.NoError(tb, err)
	return raw
}

// envelope puts an object into the envelope that the API server sends.
func envelope(tb testing.TB, m marshaler) []byte {
	tb.Helper()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "X"}, Raw: marshal(tb, m)}
	raw, err := u.Marshal()
	require.NoError(tb, err)
	return append([]byte("k8s\x00"), raw...)
}

// frame is one event of a protobuf watch.
func frame(tb testing.TB, kind string, m marshaler) []byte {
	tb.Helper()
	ev := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: envelope(tb, m)}}
	raw, err := ev.Marshal()
	require.NoError(tb, err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

// call is a request as a test wants to see it.
type call struct {
	Method, Path, Query, ContentType string
	Body                             map[string]any
}

// api is a TLS server that plays an API server: handlers by "METHOD path", and a record of what was asked.
type api struct {
	t        *testing.T
	server   *httptest.Server
	mu       sync.Mutex
	handlers map[string]http.HandlerFunc
	calls    []call
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, handlers: map[string]http.HandlerFunc{}}
	a.server = httptest.NewUnstartedServer(a)
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, ContentType: r.Header.Get("Content-Type")}
	if r.ContentLength != 0 {
		_ = json.NewDecoder(r.Body).Decode(&c.Body) // a body that is no JSON shows up as nil
	}
	a.mu.Lock()
	a.calls = append(a.calls, c)
	h := a.handlers[r.Method+" "+r.URL.Path]
	a.mu.Unlock()
	if h == nil {
		refuse(w, http.StatusNotFound, "NotFound")
		return
	}
	h(w, r)
}

func (a *api) on(method, path string, h http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handlers[method+" "+path] = h
}

// writes returns the calls so far, reads left out.
func (a *api) writes() []call {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []call
	for _, c := range a.calls {
		if c.Method != http.MethodGet {
			out = append(out, c)
		}
	}
	return out
}

func (a *api) count(method, path, query string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, c := range a.calls {
		if c.Method == method && c.Path == path && strings.Contains(c.Query, query) {
			n++
		}
	}
	return n
}

func (a *api) client() *Client {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	c, err := New(Config{Cluster: "demo", Endpoint: a.server.URL, CA: ca, UserAgent: "test"})
	require.NoError(a.t, err)
	a.t.Cleanup(c.Close)
	return c
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","status":"Failure","message":"no: %s","reason":%q,"code":%d}`, reason, reason, code)
}

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

// podServer serves a LIST of pods and a watch that sends whatever frames brings.
type podServer struct {
	t      *testing.T
	mu     sync.Mutex
	pods   []corev1.Pod
	rv     int
	frames chan []byte // nil: watches are refused with 410
	// resumed are the versions that watches were asked to start from.
	resumed []string
	ended   chan struct{} // gets a note for each watch that is over
}

func (s *podServer) set(rv int, pods ...corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv, s.pods = rv, pods
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("watch") == "" {
		s.list(w, q.Get("limit"))
		return
	}
	defer func() { s.ended <- struct{}{} }()
	s.mu.Lock()
	s.resumed = append(s.resumed, q.Get("resourceVersion"))
	frames := s.frames
	s.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	if frames == nil {
		_, _ = w.Write(frame(s.t, "ERROR", &metav1.Status{Code: http.StatusGone, Reason: "Expired", Message: "too old"}))
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case f, ok := <-frames:
			if !ok {
				return
			}
			_, _ = w.Write(f)
			w.(http.Flusher).Flush()
		}
	}
}

func (s *podServer) list(w http.ResponseWriter, limit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.rv)}, Items: s.pods}
	if limit == "1" && len(list.Items) > 1 {
		rest := int64(len(list.Items) - 1)
		list.Items, list.RemainingItemCount, list.Continue = list.Items[:1], &rest, "more"
	}
	_, _ = w.Write(envelope(s.t, &list))
}

func pod(name string, rv int, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(rv), Labels: map[string]string{"app": "web", "zone": "z"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}
