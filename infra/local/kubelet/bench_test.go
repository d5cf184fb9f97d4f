package kubelet

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"treadle/infra/local/kubernetes"
)

// BenchmarkFleet measures a fleet on a real control plane: the time until all nodes are Ready, then what
// a minute of heartbeats costs, here and in the control plane. Run it by hand, one fleet at a time:
//
//	go test ./kubelet -run '^$' -bench 'Fleet/nodes=1000$' -benchtime 1x
func BenchmarkFleet(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				measure(b, nodes)
			}
		})
	}
}

const steady = time.Minute

func measure(b *testing.B, nodes int) {
	b.Helper()
	cfg := startCluster(b, kubernetes.Options{}).AdminConfig()
	var requests atomic.Int64
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	fleet := startFleet(b, cfg, nil)
	bootAll(b, fleet, cfg, nodes)

	ownCPU, planeCPU, sent, from := cpuSeconds(b, os.Getpid()), 0.0, requests.Load(), time.Now()
	for _, pid := range children(b) {
		planeCPU -= cpuSeconds(b, pid)
	}
	time.Sleep(steady)
	took := time.Since(from).Seconds()
	for _, pid := range children(b) {
		planeCPU += cpuSeconds(b, pid)
	}
	b.ReportMetric((cpuSeconds(b, os.Getpid())-ownCPU)/took, "own-cores")
	b.ReportMetric(planeCPU/took, "plane-cores")
	b.ReportMetric(float64(requests.Load()-sent)/took, "requests/s")
	reportMemory(b)

	late := 0
	fleet.mu.Lock()
	for _, n := range fleet.nodes {
		if n.lease == nil || time.Since(n.lease.Spec.RenewTime.Time) > leaseSeconds*time.Second {
			late++
		}
	}
	fleet.mu.Unlock()
	b.ReportMetric(float64(late), "late-leases")
}

// bootAll boots machines and waits until the last is Ready.
func bootAll(b *testing.B, fleet *Fleet, cfg *rest.Config, nodes int) {
	b.Helper()
	began := time.Now()
	for i := range nodes {
		m := machine(i, "m5.large")
		m.UserData = userDataFor(cfg)
		fleet.Boot(m)
	}
	for ready := 0; ready < nodes; time.Sleep(100 * time.Millisecond) {
		ready = 0
		for _, s := range fleet.Nodes() {
			if s.State == Ready {
				ready++
			}
		}
		require.Less(b, time.Since(began), 10*time.Minute, "%d of %d nodes are ready", ready, nodes)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s-to-ready")
}

func reportMemory(b *testing.B) {
	b.Helper()
	plane := 0.0
	for _, pid := range children(b) {
		plane += residentMiB(b, pid)
	}
	b.ReportMetric(residentMiB(b, os.Getpid()), "own-MiB")
	b.ReportMetric(plane, "plane-MiB")
}

// BenchmarkPods measures ten thousand pods put on a thousand nodes without a scheduler: the time from the
// last creation until all run, and from the request to delete them all until the last is gone.
func BenchmarkPods(b *testing.B) {
	const nodes, perNode = 1_000, 10
	for b.Loop() {
		cfg := startCluster(b, kubernetes.Options{SkipScheduler: true}).AdminConfig()
		fleet := startFleet(b, cfg, nil)
		bootAll(b, fleet, cfg, nodes)
		api, err := newClient(cfg)
		require.NoError(b, err)

		began := time.Now()
		inParallel(nodes*perNode, func(i int) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}}
			p.Spec.NodeName = machine(i%nodes, "").PrivateDNSName
			p.Spec.Containers = []corev1.Container{{Name: "main", Image: "pause"}}
			assert.NoError(b, api.core.Post().Namespace("default").Resource("pods").Body(p).Do(b.Context()).Error())
		})
		b.ReportMetric(time.Since(began).Seconds(), "s-to-create")

		began = time.Now()
		awaitPods(b, fleet, nodes*perNode, serving)
		b.ReportMetric(time.Since(began).Seconds(), "s-to-run")
		reportMemory(b)

		began = time.Now()
		inParallel(nodes*perNode, func(i int) {
			assert.NoError(b, api.core.Delete().Namespace("default").Resource("pods").Name(fmt.Sprintf("p%d", i)).Do(b.Context()).Error())
		})
		awaitPods(b, fleet, 0, serving)
		b.ReportMetric(time.Since(began).Seconds(), "s-to-delete")
	}
}

// inParallel calls do for 0 to n-1, 32 at a time.
func inParallel(n int, do func(int)) {
	var workers sync.WaitGroup
	var next atomic.Int64
	for range 32 {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}

// awaitPods waits until the fleet knows exactly want pods, all of them at stage.
func awaitPods(b *testing.B, fleet *Fleet, want int, at stage) {
	b.Helper()
	began := time.Now()
	for {
		all, there := 0, 0
		fleet.mu.Lock()
		for _, p := range fleet.pods {
			all++
			if p.stage == at {
				there++
			}
		}
		fleet.mu.Unlock()
		if all == want && there == want {
			return
		}
		require.Less(b, time.Since(began), 10*time.Minute, "%d pods known, %d there", all, there)
		time.Sleep(50 * time.Millisecond)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// children are the processes that this one started.
func children(tb testing.TB) []int {
	tb.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(tb, err)
	var pids []int
	for _, path := range paths {
		if fields := procFields(path); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(tb, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// procFields are the fields of a stat file behind the command's name: state, parent and so on.
func procFields(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil // it has ended
	}
	return strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
}

func cpuSeconds(tb testing.TB, pid int) float64 {
	tb.Helper()
	const ticksPerSecond = 100 // USER_HZ, the same on all of Linux's usual platforms
	fields := procFields(fmt.Sprintf("/proc/%d/stat", pid))
	require.Greater(tb, len(fields), 12)
	var ticks float64
	for _, f := range fields[11:13] {
		v, err := strconv.ParseFloat(f, 64)
		require.NoError(tb, err)
		ticks += v
	}
	return ticks / ticksPerSecond
}

func residentMiB(tb testing.TB, pid int) float64 {
	tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(tb, err)
	pages, err := strconv.ParseFloat(strings.Fields(string(raw))[1], 64)
	require.NoError(tb, err)
	return pages * float64(syscall.Getpagesize()) / float64(mib)
}
