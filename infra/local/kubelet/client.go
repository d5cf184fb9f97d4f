package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// requestTimeout bounds one write: a worker must not hang on a lost answer.
const requestTimeout = 15 * time.Second

// client writes as one node or another over one connection. It is built from REST clients and not
// from a clientset because each request names its own user.
type client struct {
	core, coordination, storage rest.Interface
	parameters                  runtime.ParameterCodec
}

func newClient(cfg *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	utilruntime.Must(storagev1.AddToScheme(scheme))

	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // workers are the limit
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	cfg.UserAgent = "kubelet/" + version + " (simulated)"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if cfg.ContentType == "" {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("build transport: %w", err)
	}
	group := func(gv schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(cfg)
		c.GroupVersion = &gv
		c.APIPath = "/apis"
		if gv.Group == "" {
			c.APIPath = "/api"
		}
		return rest.RESTClientForConfigAndClient(c, transport)
	}
	c := &client{parameters: runtime.NewParameterCodec(scheme)}
	for gv, to := range map[schema.GroupVersion]*rest.Interface{
		corev1.SchemeGroupVersion:         &c.core,
		coordinationv1.SchemeGroupVersion: &c.coordination,
		storagev1.SchemeGroupVersion:      &c.storage,
	} {
		if *to, err = group(gv); err != nil {
			return nil, fmt.Errorf("build client for %s: %w", gv, err)
		}
	}
	return c, nil
}

// as makes r a request of the kubelet of node.
func as(node string, r *rest.Request) *rest.Request {
	return r.Timeout(requestTimeout).
		SetHeader("Impersonate-User", "system:node:"+node).
		SetHeader("Impersonate-Group", "system:nodes", "system:authenticated")
}

func (c *client) createNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	out := &corev1.Node{}
	return out, as(node.Name, c.core.Post()).Resource("nodes").Body(node).Do(ctx).Into(out)
}

func (c *client) getNode(ctx context.Context, name string) (*corev1.Node, error) {
	out := &corev1.Node{}
	return out, as(name, c.core.Get()).Resource("nodes").Name(name).Do(ctx).Into(out)
}

func (c *client) patchNodeStatus(ctx context.Context, name string, status nodeReport) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return as(name, c.core.Patch(types.StrategicMergePatchType)).Resource("nodes").Name(name).
		SubResource("status").Body(patch).Do(ctx).Error()
}

func (c *client) createCSINode(ctx context.Context, n *storagev1.CSINode) error {
	return as(n.Name, c.storage.Post()).Resource("csinodes").Body(n).Do(ctx).Error()
}

func (c *client) getLease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	out := &coordinationv1.Lease{}
	return out, as(name, c.coordination.Get()).Namespace(corev1.NamespaceNodeLease).Resource("leases").Name(name).
		Do(ctx).Into(out)
}

// putLease creates the lease when it has no resource version, else it replaces that version.
func (c *client) putLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	r := c.coordination.Post()
	if lease.ResourceVersion != "" {
		r = c.coordination.Put().Name(lease.Name)
	}
	out := &coordinationv1.Lease{}
	return out, as(lease.Name, r).Namespace(corev1.NamespaceNodeLease).Resource("leases").Body(lease).Do(ctx).Into(out)
}

// patchPodStatus changes the status of the very pod that p names, not of a later one of its name.
func (c *client) patchPodStatus(ctx context.Context, node string, p podRef, status any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid}, "status": status})
	if err != nil {
		return err
	}
	return as(node, c.core.Patch(types.StrategicMergePatchType)).Namespace(p.namespace).Resource("pods").Name(p.name).
		SubResource("status").Body(patch).Do(ctx).Error()
}

func (c *client) deletePod(ctx context.Context, node string, p podRef) error {
	now := int64(0)
	return as(node, c.core.Delete()).Namespace(p.namespace).Resource("pods").Name(p.name).
		Body(&metav1.DeleteOptions{
			GracePeriodSeconds: &now,
			Preconditions:      &metav1.Preconditions{UID: &p.uid},
		}).Do(ctx).Error()
}

// boundPods lists and watches the pods of all nodes, as the Fleet itself.
func (c *client) boundPods() *cache.ListWatch {
	const bound = "spec.nodeName!="
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = bound
			out := &corev1.PodList{}
			return out, c.core.Get().Resource("pods").VersionedParams(&o, c.parameters).Do(ctx).Into(out)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = bound
			o.Watch = true
			return c.core.Get().Resource("pods").VersionedParams(&o, c.parameters).Watch(ctx)
		},
	}
}
