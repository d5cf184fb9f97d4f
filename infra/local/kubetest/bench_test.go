package kubetest

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/shared/kube"
)

// The size of the cluster that BenchmarkMirror reads. Making 1,000 nodes and 10,000 pods takes a minute or two.
var (
	nodes = flag.Int("nodes", 1000, "nodes of BenchmarkMirror")
	pods  = flag.Int("pods", 10_000, "pods of BenchmarkMirror")
)

// BenchmarkMirror reads a cluster of the given size: cold, and resumed after a change of a hundred pods.
//
//	go test ./kubetest -run '^$' -bench Mirror -benchtime 5x [-nodes 5000 -pods 50000]
func BenchmarkMirror(b *testing.B) {
	fill(b)
	b.Run("cold", func(b *testing.B) {
		c := client(b)
		peak := watchHeap()
		for b.Loop() {
			m := kube.NewMirror(c, kube.AllKinds)
			require.NoError(b, m.Sync(b.Context()))
			require.GreaterOrEqual(b, len(m.Snapshot(0).Pods), *pods)
			m.Pause()
		}
		b.ReportMetric(float64(peak())/(1<<20), "MiB-peak")
	})
	b.Run("resumed", func(b *testing.B) {
		m := kube.NewMirror(client(b), kube.AllKinds)
		require.NoError(b, m.Sync(b.Context()))
		for b.Loop() {
			b.StopTimer()
			m.Pause()
			label(b, 100)
			b.StartTimer()
			require.NoError(b, m.Sync(b.Context()))
		}
		m.Pause()
	})
}

// watchHeap notes the largest heap until the function that it returns is called.
func watchHeap() func() uint64 {
	var (
		most uint64
		done = make(chan struct{})
		all  sync.WaitGroup
	)
	runtime.GC()
	all.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			most = max(most, s.HeapInuse)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() uint64 {
		close(done)
		all.Wait()
		return most
	}
}

// parallel calls do for 0 to n-1, some of them at a time.
func parallel(tb testing.TB, n int, do func(ctx context.Context, i int) error) {
	tb.Helper()
	const workers = 32
	var (
		next atomic.Int64
		all  sync.WaitGroup
		errs = make([]error, n)
	)
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = do(tb.Context(), i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(tb, err)
	}
}

func podName(i int) string { return fmt.Sprintf("bench-%06d", i) }

func fill(b *testing.B) {
	b.Helper()
	up := upstream(b).CoreV1()
	list := func(pairs ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return out
	}
	began := time.Now()
	parallel(b, *nodes, func(ctx context.Context, i int) error {
		capacity := list("cpu", "8", "memory", "32Gi", "pods", "110", "ephemeral-storage", "80Gi")
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%05d", i), Labels: map[string]string{"topology.kubernetes.io/zone": "us-east-1a"}},
			Spec:       corev1.NodeSpec{ProviderID: fmt.Sprintf("aws:///us-east-1a/i-%017x", i)},
			Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
		_, err := up.Nodes().Create(ctx, n, metav1.CreateOptions{})
		return err
	})
	parallel(b, *pods, func(ctx context.Context, i int) error {
		p := webPod(podName(i), map[string]string{"app": fmt.Sprintf("app-%d", i%100), "pod-template-hash": "5d4f8c7b9d"})
		p.Spec.NodeName = fmt.Sprintf("bench-%05d", i%max(*nodes, 1))
		p.Spec.Containers[0].Resources.Requests = list("cpu", "500m", "memory", "1Gi")
		for e := range 20 {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "some value of some length"})
		}
		_, err := up.Pods("default").Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	b.Logf("made %d nodes and %d pods in %s", *nodes, *pods, time.Since(began))
}

func label(b *testing.B, n int) {
	b.Helper()
	up := upstream(b).CoreV1()
	body := fmt.Appendf(nil, `{"metadata":{"labels":{"touched":"%d"}}}`, time.Now().UnixNano())
	parallel(b, n, func(ctx context.Context, i int) error {
		_, err := up.Pods("default").Patch(ctx, podName(i), "application/merge-patch+json", body, metav1.PatchOptions{})
		return err
	})
}
