package kubelet

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"treadle/infra/local/kubernetes"
)

// startCluster starts a real control plane, and skips the test only where its binary cannot be built.
func startCluster(t testing.TB, o kubernetes.Options) *kubernetes.Cluster {
	t.Helper()
	if o.Binary == "" {
		binary, err := kubernetes.Build(t.Context(), os.Stderr)
		if err != nil {
			t.Skipf("NOT TESTED against a real API server, its binary cannot be built: %v", err)
		}
		o.Binary = binary
	}
	c, err := kubernetes.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, c.Stop(ctx))
	})
	return c
}

// startFleet runs a fleet against c until the test ends.
func startFleet(t testing.TB, cfg *rest.Config, edit func(*Options)) *Fleet {
	t.Helper()
	o := Options{
		Config:  cfg,
		Cluster: Cluster{Name: "demo"},
		Lookup:  hardware,
		Log:     slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&o)
	}
	f := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return f
}

// userDataFor is what an AL2023 machine of the cluster behind cfg gets, without taints.
func userDataFor(cfg *rest.Config) []byte {
	return fmt.Appendf(nil, `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: %s
    certificateAuthority: %s
    cidr: 10.100.0.0/16
  kubelet:
    flags: ["--node-labels=karpenter.sh/nodepool=default"]
`, cfg.Host, base64.StdEncoding.EncodeToString(cfg.CAData))
}

// eventually polls: what it waits for happens in other processes.
func eventually(t testing.TB, what string, check func(*assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, check, time.Minute, 50*time.Millisecond, what)
}

func TestFleet_OnARealControlPlane(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, kubernetes.Options{NodeMonitorGrace: 5 * time.Second})
	cfg := cluster.AdminConfig()
	fleet := startFleet(t, cfg, func(o *Options) { o.LeaseEvery = time.Second })
	api, err := newClient(cfg)
	require.NoError(t, err)

	boot := func(i int, instanceType string) string {
		m := machine(i, instanceType)
		m.UserData = userDataFor(cfg)
		fleet.Boot(m)
		return m.PrivateDNSName
	}
	getPod := func(c require.TestingT, name string) *corev1.Pod {
		p := &corev1.Pod{}
		require.NoError(c, api.core.Get().Namespace("default").Resource("pods").Name(name).Do(t.Context()).Into(p))
		return p
	}
	create := func(p *corev1.Pod) {
		require.NoError(t, api.core.Post().Namespace("default").Resource("pods").Body(p).Do(t.Context()).Error())
	}
	newPod := func(name, cpu string, edit ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "pause"}}
		request(corev1.ResourceCPU, cpu)(p)
		for _, e := range edit {
			e(p)
		}
		return p
	}
	first, second := boot(1, "m5.large"), boot(2, "m5.large")
	gpu := boot(3, "g4dn.xlarge")

	for _, name := range []string{first, second, gpu} {
		eventually(t, "the node lifecycle controller takes its taint off a ready node", func(c *assert.CollectT) {
			n, err := api.getNode(t.Context(), name)
			require.NoError(c, err)
			require.Equal(c, corev1.ConditionTrue, ready(n))
			require.Empty(c, n.Spec.Taints)
		})
	}

	// The API server judges each kubelet by its own name.
	err = api.patchNodeStatus(t.Context(), first, nodeReport{})
	require.NoError(t, err)
	err = as(first, api.core.Patch(types.StrategicMergePatchType)).Resource("nodes").Name(second).SubResource("status").
		Body([]byte(`{"status":{}}`)).Do(t.Context()).Error()
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	// The scheduler's pods run, and end when they are deleted.
	gpuPod := newPod("gpu", "1")
	gpuPod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	create(gpuPod)
	create(newPod("plain", "1", annotate(TerminateAfterAnnotation, "1s")))
	for _, name := range []string{"gpu", "plain"} {
		eventually(t, name+" runs", func(c *assert.CollectT) {
			p := getPod(c, name)
			require.Equal(c, corev1.PodRunning, p.Status.Phase)
			require.True(c, podReady(p))
		})
	}
	require.Equal(t, gpu, getPod(t, "gpu").Spec.NodeName)
	require.NoError(t, api.core.Delete().Namespace("default").Resource("pods").Name("plain").Do(t.Context()).Error())
	require.NotNil(t, getPod(t, "plain").DeletionTimestamp)
	eventually(t, "a deleted pod goes", func(c *assert.CollectT) {
		err := api.core.Get().Namespace("default").Resource("pods").Name("plain").Do(t.Context()).Error()
		require.True(c, apierrors.IsNotFound(err))
	})

	// A pod put on a node by hand that has no room for it is rejected.
	create(newPod("big", "3", func(p *corev1.Pod) { p.Spec.NodeName = first }))
	eventually(t, "a pod that does not fit is rejected", func(c *assert.CollectT) {
		p := getPod(c, "big")
		require.Equal(c, corev1.PodFailed, p.Status.Phase)
		require.Equal(c, "OutOfcpu", p.Status.Reason)
	})

	// A Job completes, and its controller lets its pods go.
	job := strings.ReplaceAll(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"completions":3,"parallelism":3,
		"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"pause"}]}}}}`, "\n", "")
	require.NoError(t, api.core.Post().AbsPath("/apis/batch/v1/namespaces/default/jobs").
		SetHeader("Content-Type", "application/json").Body([]byte(job)).Do(t.Context()).Error())
	eventually(t, "a Job completes", func(c *assert.CollectT) {
		raw, err := api.core.Get().AbsPath("/apis/batch/v1/namespaces/default/jobs/j").
			SetHeader("Accept", "application/json").Do(t.Context()).Raw()
		require.NoError(c, err)
		require.Contains(c, string(raw), `"succeeded":3`)
		require.Contains(c, string(raw), `"completionTime"`)
	})

	// A dead machine is found out by its silence, and its pods are left as they are.
	fleet.Halt(machine(3, "").InstanceID)
	eventually(t, "a silent node becomes unknown", func(c *assert.CollectT) {
		n, err := api.getNode(t.Context(), gpu)
		require.NoError(c, err)
		require.Equal(c, corev1.ConditionUnknown, ready(n))
	})
	require.Equal(t, corev1.PodRunning, getPod(t, "gpu").Status.Phase)
}
