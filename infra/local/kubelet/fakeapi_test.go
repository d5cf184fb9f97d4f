package kubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"
)

// fakeAPI is an API server in memory, reached as an http.RoundTripper so that it works under
// synctest. It knows the requests that kubelets make, checks versions and uids, and applies
// strategic merge patches; it has neither authorisation nor admission.
type fakeAPI struct {
	t *testing.T

	mu       sync.Mutex
	version  int
	objects  map[string]metav1.Object // by path
	watchers []*io.PipeWriter
	requests []string                                         // "METHOD path as user"
	refuse   func(method, path string) *apierrors.StatusError // nil lets pass
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	return &fakeAPI{t: t, objects: map[string]metav1.Object{}, version: 1}
}

func (a *fakeAPI) config() *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1:6443", Transport: a,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
}

func (a *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	if r.URL.Query().Get("watch") != "" {
		return a.watch(r), nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, fmt.Sprintf("%s %s as %s", r.Method, r.URL.Path, r.Header.Get("Impersonate-User")))
	out, status := a.serve(r, body)
	code := http.StatusOK
	if status != nil {
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		out, code = s, int(s.Code)
	}
	return answer(r, code, out), nil
}

func answer(r *http.Request, code int, v any) *http.Response {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(&b),
	}
}

// serve answers one request. The caller holds the mutex.
func (a *fakeAPI) serve(r *http.Request, body []byte) (any, *apierrors.StatusError) {
	path := strings.TrimSuffix(r.URL.Path, "/status")
	resource := schema.GroupResource{Resource: path[strings.LastIndexByte(path, '/')+1:]}
	if a.refuse != nil {
		if err := a.refuse(r.Method, r.URL.Path); err != nil {
			return nil, err
		}
	}
	had, exists := a.objects[path]
	switch {
	case r.Method == http.MethodGet && path == "/api/v1/pods":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		list.ResourceVersion = strconv.Itoa(a.version)
		for _, p := range a.allPods() {
			list.Items = append(list.Items, *p)
		}
		return list, nil
	case r.Method == http.MethodPost:
		obj := newObject(path)
		must(json.Unmarshal(body, obj))
		path += "/" + obj.GetName()
		if _, ok := a.objects[path]; ok {
			return nil, apierrors.NewAlreadyExists(resource, obj.GetName())
		}
		obj.SetUID(types.UID("uid-" + obj.GetName()))
		obj.SetCreationTimestamp(metav1.Now())
		a.store(path, obj)
		return obj, nil
	case !exists:
		return nil, apierrors.NewNotFound(resource, path)
	case r.Method == http.MethodGet:
		return had, nil
	case r.Method == http.MethodPut:
		obj := newObject(path[:strings.LastIndexByte(path, '/')])
		must(json.Unmarshal(body, obj))
		if obj.GetResourceVersion() != had.GetResourceVersion() {
			return nil, apierrors.NewConflict(resource, obj.GetName(), fmt.Errorf("version %s is old", obj.GetResourceVersion()))
		}
		a.store(path, obj)
		return obj, nil
	case r.Method == http.MethodPatch:
		before, err := json.Marshal(had)
		must(err)
		obj := newObject(path[:strings.LastIndexByte(path, '/')])
		after, err := strategicpatch.StrategicMergePatch(before, body, obj)
		must(err)
		must(json.Unmarshal(after, obj))
		if obj.GetUID() != had.GetUID() {
			return nil, apierrors.NewConflict(resource, obj.GetName(), fmt.Errorf("uid differs"))
		}
		a.store(path, obj)
		return obj, nil
	case r.Method == http.MethodDelete:
		var o metav1.DeleteOptions
		must(json.Unmarshal(body, &o))
		if o.Preconditions == nil || o.Preconditions.UID == nil || *o.Preconditions.UID != had.GetUID() {
			return nil, apierrors.NewConflict(resource, had.GetName(), fmt.Errorf("uid differs"))
		}
		a.remove(path)
		return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
	}
	return nil, apierrors.NewMethodNotSupported(resource, r.Method)
}

func newObject(collection string) metav1.Object {
	switch collection[strings.LastIndexByte(collection, '/')+1:] {
	case "nodes":
		return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}}
	case "pods":
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	case "leases":
		return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}}
	case "csinodes":
		return &storagev1.CSINode{TypeMeta: metav1.TypeMeta{Kind: "CSINode", APIVersion: "storage.k8s.io/v1"}}
	}
	panic("no such collection: " + collection)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (a *fakeAPI) store(path string, obj metav1.Object) {
	a.version++
	obj.SetResourceVersion(strconv.Itoa(a.version))
	kind := "MODIFIED"
	if _, ok := a.objects[path]; !ok {
		kind = "ADDED"
	}
	a.objects[path] = obj
	a.tell(kind, obj)
}

func (a *fakeAPI) remove(path string) {
	obj := a.objects[path]
	delete(a.objects, path)
	a.version++
	obj.SetResourceVersion(strconv.Itoa(a.version))
	a.tell("DELETED", obj)
}

// tell sends an event about a pod to all watchers, in order.
func (a *fakeAPI) tell(kind string, obj metav1.Object) {
	p, ok := obj.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	for _, w := range a.watchers {
		send(w, kind, p)
	}
}

func send(w io.Writer, kind string, p *corev1.Pod) {
	line, err := json.Marshal(map[string]any{"type": kind, "object": p})
	must(err)
	_, _ = w.Write(append(line, '\n')) // a watcher that left is of no interest
}

func (a *fakeAPI) watch(r *http.Request) *http.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	in, out := io.Pipe()
	initial := a.allPods()
	mark := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	mark.ResourceVersion = strconv.Itoa(a.version)
	mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	stream := &buffered{}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, p := range initial {
			send(stream, "ADDED", p)
		}
		send(stream, "BOOKMARK", mark)
	}
	a.watchers = append(a.watchers, out)
	go func() {
		<-r.Context().Done()
		in.CloseWithError(io.EOF)
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Status: "OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body: struct {
			io.Reader
			io.Closer
		}{io.MultiReader(&stream.Buffer, in), in},
	}
}

type buffered struct{ bytes.Buffer }

func (a *fakeAPI) allPods() []*corev1.Pod {
	var all []*corev1.Pod
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		if p, ok := a.objects[path].(*corev1.Pod); ok && p.Spec.NodeName != "" {
			all = append(all, p)
		}
	}
	return all
}

func podPath(name string) string { return "/api/v1/namespaces/default/pods/" + name }

// bind stores a pod that the scheduler has bound to node.
func (a *fakeAPI) bind(name, node string, edit ...func(*corev1.Pod)) {
	p := newObject("pods").(*corev1.Pod)
	p.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Annotations: map[string]string{}}
	p.Spec = corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyAlways,
		Containers: []corev1.Container{{Name: "main", Image: "pause"}},
	}
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	for _, e := range edit {
		e(p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(podPath(name), p)
}

// askDelete does what the API server does on DELETE: it notes the time and lets the kubelet act.
func (a *fakeAPI) askDelete(name string, grace time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.objects[podPath(name)].(*corev1.Pod).DeepCopy()
	seconds := int64(grace / time.Second)
	at := metav1.NewTime(time.Now().Add(grace))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &seconds
	a.store(podPath(name), p)
}

func (a *fakeAPI) pod(name string) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, _ := a.objects[podPath(name)].(*corev1.Pod)
	return p
}

func (a *fakeAPI) node(name string) *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, _ := a.objects["/api/v1/nodes/"+name].(*corev1.Node)
	return n
}

func (a *fakeAPI) lease(name string) *coordinationv1.Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, _ := a.objects["/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name].(*coordinationv1.Lease)
	return l
}

func (a *fakeAPI) csiNode(name string) *storagev1.CSINode {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, _ := a.objects["/apis/storage.k8s.io/v1/csinodes/"+name].(*storagev1.CSINode)
	return c
}

// sent counts the requests that begin with prefix.
func (a *fakeAPI) sent(prefix string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, r := range a.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

func (a *fakeAPI) drop(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Contains(a.t, a.objects, path)
	a.remove(path)
}
