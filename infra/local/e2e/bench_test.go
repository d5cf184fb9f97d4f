package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"treadle/infra/local/stack"
)

// Benchmarks are programs, to be run by hand, once:
//
//	go test ./e2e -run '^$' -bench Latency -benchtime 1x -timeout 30m

// BenchmarkScheduler measures what the webhook costs kube-scheduler: the time until 200 pods that fit are bound, with 200 pods between
// them that do not; once with the scheduler as it comes, which may make 50 requests a second, and once without that limit, which
// would hide small costs. Nothing is launched, because no pool exists.
func BenchmarkScheduler(b *testing.B) {
	for name, qps := range map[string]float32{"50 requests a second": 0, "unlimited": 10_000} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				without := schedule(b, stack.Options{Bare: true, SchedulerQPS: qps})
				with := schedule(b, stack.Options{SchedulerQPS: qps})
				ratio := median(with).Seconds() / median(without).Seconds()
				b.Logf("200 pods that fit between 200 that do not, all bound after (median of %d): without the webhook %v, with it %v; ratio %.3f",
					len(with), median(without).Round(time.Millisecond), median(with).Round(time.Millisecond), ratio)
				b.Logf("without: %v, with: %v", without, with)
				b.ReportMetric(ratio, "ratio")
			}
		})
	}
}

// schedule returns how long it took to schedule the pods, for each of several rounds.
func schedule(b *testing.B, o stack.Options) []time.Duration {
	b.Helper()
	const rounds, pairs, nodes = 9, 200, 4
	s := own(b, o)
	for i := range nodes {
		s.emptyNode(b, fmt.Sprintf("room-%d", i))
	}
	var took []time.Duration
	for round := range rounds {
		for i := range nodes {
			s.beat(b, fmt.Sprintf("room-%d", i))
		}
		took = append(took, s.scheduleMix(b, round, pairs))
	}
	if !o.Bare {
		require.Positive(b, len(s.Lambda.Reports("wake")), "the webhook was called")
	}
	return took
}

// emptyNode makes a node with much room and no kubelet.
func (s *scene) emptyNode(b *testing.B, name string) {
	b.Helper()
	_, err := s.kube.CoreV1().Nodes().Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(b, err)
	s.beat(b, name)
	s.eventually(b, soon, "the node takes pods", func() error {
		n, err := s.kube.CoreV1().Nodes().Get(b.Context(), name, metav1.GetOptions{})
		if err == nil && len(n.Spec.Taints) > 0 {
			err = fmt.Errorf("node %s has taints %v", name, n.Spec.Taints)
		}
		return err
	})
}

// beat says for a node that it is there; one that is silent for 50 seconds is given up.
func (s *scene) beat(b *testing.B, name string) {
	b.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("4Ti"), corev1.ResourcePods: resource.MustParse("5000"),
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
	}})
	require.NoError(b, err)
	_, err = s.kube.CoreV1().Nodes().Patch(b.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(b, err)
}

// scheduleMix creates pods that fit and pods that do not in turns, and returns how long it took until the former are bound.
func (s *scene) scheduleMix(b *testing.B, round, pairs int) time.Duration {
	b.Helper()
	fits := fmt.Sprintf("fits-%d", round)
	began := time.Now()
	for i := range pairs {
		for app, cpu := range map[string]string{fits: "100m", fmt.Sprintf("huge-%d", round): "2000"} {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", app, i), Labels: map[string]string{"app": app}}, Spec: podSpec(cpu),
			}
			_, err := s.kube.CoreV1().Pods("default").Create(b.Context(), pod, metav1.CreateOptions{})
			require.NoError(b, err)
		}
	}
	s.eventually(b, 2*later, "all that fit are bound", func() error {
		bound := 0
		for _, p := range s.pods(fits) {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		if bound < pairs {
			return fmt.Errorf("%d of %d are bound", bound, pairs)
		}
		return nil
	})
	took := time.Since(began)
	for _, p := range s.pods("") {
		require.NoError(b, s.kube.CoreV1().Pods("default").Delete(b.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
	s.eventually(b, later, "the pods are gone", func() error {
		if n := len(s.pods("")); n > 0 {
			return fmt.Errorf("%d pods stand", n)
		}
		return nil
	})
	return took
}

// BenchmarkWakeups counts what a thousand pods at once cause.
func BenchmarkWakeups(b *testing.B) {
	const pods = 1000
	for range b.N {
		s := own(b, stack.Options{ShutdownFor: time.Second})
		s.apply(b, class("many", "demo"), pool("many", onDemand, "karpenter.k8s.aws/instance-category=c, m, r"))
		s.eventually(b, later, "the pool is ready", s.condition(nodePools, "many", "Ready", "True", ""))
		s.eventually(b, later, "nothing is under way", s.quiet)
		woken, calls := s.sentByWake(), len(s.Lambda.Reports("wake"))
		provisions, lifecycles := len(s.Lambda.Reports("provision")), len(s.Lambda.Reports("lifecycle"))
		s.deploy(b, "many", pods, podSpec("250m"))
		took := s.eventually(b, 3*later, "all pods run", s.run("many", pods))
		b.Logf("%d pods ran after %v on %d nodes, from %d CreateFleet calls: %d calls of the webhook, %d messages from them; %d invocations of provision, %d of lifecycle",
			pods, took.Round(time.Millisecond), len(s.nodes()), len(s.EC2.Calls().Calls("CreateFleet")), len(s.Lambda.Reports("wake"))-calls, s.sentByWake()-woken,
			len(s.Lambda.Reports("provision"))-provisions, len(s.Lambda.Reports("lifecycle"))-lifecycles)
	}
}

// BenchmarkLatency measures the way of one pod with boot delay 0, ten times, and what each function takes cold and warm.
func BenchmarkLatency(b *testing.B) {
	const runs = 10
	for range b.N {
		s := own(b, stack.Options{ShutdownFor: time.Second})
		s.apply(b, class("one", "demo"), pool("one", onDemand, family+"m5"))
		s.eventually(b, later, "the pool is ready", s.condition(nodePools, "one", "Ready", "True", ""))
		var launched, ran []time.Duration
		for run := range runs {
			s.eventually(b, 2*later, "the cluster is empty and at rest", func() error { return errors.Join(s.empty(), s.none(nodeClaims), s.quiet()) })
			app := fmt.Sprintf("one-%d", run)
			before := len(s.EC2.Calls().Calls("CreateFleet"))
			began, at := s.follow(b, app)
			launched = append(launched, s.EC2.Calls().Calls("CreateFleet")[before].Time.Sub(began))
			ran = append(ran, at.Sub(began))
			require.NoError(b, s.kube.CoreV1().Pods("default").Delete(b.Context(), app, metav1.DeleteOptions{}))
		}
		b.Logf("from the creation of a pod, %d runs: CreateFleet after %v (median; %v to %v), Running after %v (%v to %v)", runs,
			median(launched).Round(time.Millisecond), slices.Min(launched).Round(time.Millisecond), slices.Max(launched).Round(time.Millisecond),
			median(ran).Round(time.Millisecond), slices.Min(ran).Round(time.Millisecond), slices.Max(ran).Round(time.Millisecond))
		b.ReportMetric(float64(median(launched).Milliseconds()), "ms-to-fleet")
		b.ReportMetric(float64(median(ran).Milliseconds()), "ms-to-running")
		s.functions(b)
	}
}

// follow creates a pod and returns when, and when it ran.
func (s *scene) follow(b *testing.B, app string) (created, ran time.Time) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), later)
	defer cancel()
	events, err := s.kube.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(b, err)
	defer events.Stop()
	created = time.Now()
	s.pod(b, app, podSpec("1"))
	for e := range events.ResultChan() {
		if pod, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted && pod.Status.Phase == corev1.PodRunning {
			return created, time.Now()
		}
	}
	require.FailNow(b, "the pod did not run")
	return
}

// functions prints what each function has taken: once more from cold, for those that a test can call, and over all invocations.
func (s *scene) functions(b *testing.B) {
	b.Helper()
	const colds = 10
	for range colds {
		for _, name := range []string{"provision", "lifecycle", "wake", "sweep"} {
			s.Lambda.Kill(name)
		}
		s.wake(b, "provision")
		s.wake(b, "lifecycle")
		_, err := s.Lambda.Invoke(b.Context(), "wake", []byte(`{"requestContext":{"http":{"method":"GET"}}}`))
		require.NoError(b, err)
		require.NoError(b, s.Call(b.Context(), "sweep", map[string]string{"source": "treadle.sweep"}))
		s.eventually(b, later, "the queues are empty", s.quiet)
	}
	b.Log("function: init (median of cold starts), duration cold and warm (medians), peak memory (most)")
	for _, name := range stack.Functions() {
		var init, cold, warm []time.Duration
		var peak int64
		for _, r := range s.Lambda.Reports(name) {
			if r.Error != "" {
				continue
			}
			peak = max(peak, r.MaxMemoryBytes)
			if r.Init > 0 {
				init, cold = append(init, r.Init), append(cold, r.Duration)
			} else {
				warm = append(warm, r.Duration)
			}
		}
		b.Logf("%s: init %v, cold %v (%d), warm %v (%d), %.1f MB", name, median(init).Round(100*time.Microsecond), median(cold).Round(100*time.Microsecond), len(cold),
			median(warm).Round(100*time.Microsecond), len(warm), float64(peak)/(1<<20))
	}
}

// median of nothing is zero.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
