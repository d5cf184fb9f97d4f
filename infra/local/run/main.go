// Command run is the main job on the local stack: it starts the stack with Treadle in it, runs a workload, shows nodes coming and
// going, and leaves the stack up to try by hand.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"treadle/infra/local/stack"
)

type options struct {
	build, workload string
	once, empty     bool
	boot            time.Duration
	patience        time.Duration
	throttle        bool
}

// report is what build/run.json holds.
type report struct {
	Pods           int              `json:"pods"`
	PodsRan        int              `json:"podsRan"`
	Nodes          int              `json:"nodes"`
	NodesByType    map[string]int   `json:"nodesByType"`
	USDPerHour     float64          `json:"usdPerHour"`
	CPUPercent     int64            `json:"cpuPercent"`
	MemoryPercent  int64            `json:"memoryPercent"`
	GPUPercent     int64            `json:"gpuPercent"`
	FirstLaunch    seconds          `json:"firstLaunchSeconds"`
	AllRunning     seconds          `json:"allRunningSeconds"`
	BackToZero     seconds          `json:"backToZeroSeconds"`
	BootDelay      seconds          `json:"bootDelaySeconds"`
	Functions      map[string]usage `json:"functions"`
	ClusterAtZero  bool             `json:"clusterAtZero"`
	DoubleLaunches int              `json:"doubleLaunches"`
}

// usage is what the invocations of a function took.
type usage struct {
	Invocations int     `json:"invocations"`
	Errors      int     `json:"errors"`
	GBSeconds   float64 `json:"gbSeconds"`
	ColdStarts  int     `json:"coldStarts"`
	InitMillis  float64 `json:"initMillisMedian"`
	PeakMiB     int64   `json:"peakMiB"`
}

type seconds float64

func since(start time.Time) seconds {
	return seconds(time.Since(start).Round(100 * time.Millisecond).Seconds())
}

func main() {
	var o options
	flag.StringVar(&o.build, "build", "../../build", "folder of the functions' binaries, and of run.json")
	flag.StringVar(&o.workload, "workload", "", "manifests to run instead of the 300 pods")
	flag.BoolVar(&o.once, "once", false, "stop after the summary; status 0 only if every pod ran and the cluster went back to zero")
	flag.BoolVar(&o.empty, "empty", false, "start the stack with no pool and no workload in the cluster, and leave it up")
	flag.DurationVar(&o.boot, "boot", 5*time.Second, "how long an instance takes to boot")
	flag.DurationVar(&o.patience, "patience", 10*time.Minute, "how long to wait for all pods to run, and for the cluster to be at zero again")
	flag.BoolVar(&o.throttle, "throttle", false, "hold EC2's calls to its token buckets: 5 at once, 2 a second")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, o)
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Println("stopped")
	default:
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	manifests, err := workload(o.workload)
	if err != nil {
		return err
	}
	fmt.Println("starting the local stack; logs go to", filepath.Join(o.build, "local"))
	dir, err := filepath.Abs(filepath.Join(o.build, "local"))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "stack.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s, err := stack.Start(ctx, stack.Options{
		Build: o.build, Dir: dir, Progress: os.Stdout, Throttle: o.throttle,
		PendingFor: time.Second, ShutdownFor: 2 * time.Second, BootDelay: o.boot, ReadyDelay: time.Second, DeviceDelay: time.Second,
		PodStartDelay: 500 * time.Millisecond, Log: slog.New(slog.NewJSONHandler(log, nil)),
	})
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("stopping the local stack")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, s.Stop(ctx))
	}()
	if !o.empty {
		j := &job{options: o, stack: s, screen: newScreen()}
		if j.viewer, err = newViewer(s); err != nil {
			return err
		}
		runErr := j.run(ctx, manifests)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if o.once {
			return runErr
		}
		if runErr != nil {
			fmt.Fprintln(os.Stderr, "run:", runErr)
		}
	}
	fmt.Printf("\nThe stack stays up; Ctrl-C stops it. In another terminal:\n\n  export KUBECONFIG=%s\n  kubectl get nodepools,nodeclaims -o wide\n\n"+
		"  export AWS_ENDPOINT_URL=%s AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=local\n  aws ec2 describe-instances\n",
		s.Kubernetes.Kubeconfig(), s.URL, stack.AdminKey)
	select {
	case <-ctx.Done():
		return nil
	case <-s.Kubernetes.Done():
		return s.Kubernetes.Err()
	}
}

// job is one run of a workload.
type job struct {
	options
	stack  *stack.Stack
	viewer *viewer
	screen *screen
	report report
	peak   state
}

func (j *job) run(ctx context.Context, manifests []byte) error {
	for _, file := range []string{"default.yaml", "gpu.yaml"} {
		body, err := stack.Quickstart(file)
		if err != nil {
			return err
		}
		if _, err := j.stack.Apply(ctx, body); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	start := time.Now()
	applied, err := j.stack.Apply(ctx, manifests)
	if err != nil {
		return err
	}
	ran := j.watch(ctx, "running the workload", start, func(st state) bool {
		if st.claims > 0 && j.report.FirstLaunch == 0 && len(st.rows) > 0 {
			j.report.FirstLaunch = since(start)
		}
		return st.pods > 0 && st.pending == 0 && st.running+st.done == st.pods && st.pods >= wanted(applied)
	})
	j.report.AllRunning = since(start)
	j.note()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	end := time.Now()
	if err := j.stack.Delete(ctx, applied); err != nil {
		return err
	}
	j.report.ClusterAtZero = j.watch(ctx, "ending the workload", end, func(st state) bool {
		return st.pods == 0 && st.nodes == 0 && st.claims == 0 && len(st.rows) == 0
	})
	j.report.BackToZero = since(end)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := j.summary(); err != nil {
		return err
	}
	switch {
	case !ran:
		return fmt.Errorf("%d of %d pods ran within %s", j.report.PodsRan, j.report.Pods, j.patience)
	case !j.report.ClusterAtZero:
		return fmt.Errorf("the cluster is not back at zero nodes within %s", j.patience)
	case j.report.DoubleLaunches > 0:
		return fmt.Errorf("%d client tokens were used for two launches", j.report.DoubleLaunches)
	}
	return nil
}

// wanted is how many pods the Deployments among the objects ask for: others count as they come.
func wanted(objects []unstructured.Unstructured) int {
	total := 0
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		if n, found, err := unstructured.NestedInt64(o.Object, "spec", "replicas"); err == nil && found {
			total += int(n)
		} else {
			total++
		}
	}
	return total
}

// watch shows the state each second until done says so, or patience is over.
func (j *job) watch(ctx context.Context, title string, start time.Time, done func(state) bool) bool {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		st, err := j.viewer.look(ctx)
		if err == nil {
			notes, _ := j.viewer.warnings(ctx, 3) // only for show
			j.screen.show(title, time.Since(start), st, notes)
			if st.running >= j.peak.running {
				j.peak = st
			}
			if done(st) {
				return true
			}
		}
		if time.Since(start) > j.patience {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// note takes down the state in which most pods ran.
func (j *job) note() {
	st, r := j.peak, &j.report
	r.Pods, r.PodsRan, r.Nodes, r.USDPerHour = st.pods, st.running+st.done, len(st.rows), st.usdPerHour
	r.CPUPercent, r.MemoryPercent, r.GPUPercent = percent(st.used.milliCPU, st.room.milliCPU), percent(st.used.memory, st.room.memory), percent(st.used.gpus, st.room.gpus)
	r.BootDelay = seconds(j.boot.Seconds())
	r.NodesByType = map[string]int{}
	for _, one := range st.rows {
		r.NodesByType[one.kind]++
	}
}

func percent(part, whole int64) int64 {
	if whole == 0 {
		return 0
	}
	return part * 100 / whole
}

// summary prints what happened and writes run.json.
func (j *job) summary() error {
	r := &j.report
	r.Functions = map[string]usage{}
	for _, name := range stack.Functions() {
		if u := used(j.stack, name); u.Invocations > 0 {
			r.Functions[name] = u
		}
	}
	r.DoubleLaunches = len(j.stack.EC2.Calls().TokensOfSeveralLaunches())
	fmt.Printf("\nsummary\n  pods      %d of %d ran; all after %.1f s (instances boot in %.0f s)\n", r.PodsRan, r.Pods, r.AllRunning, r.BootDelay)
	fmt.Printf("  nodes     %d at most, the first launched after %.1f s; %.2f USD/hour; cpu %d%%, memory %d%%, gpu %d%% requested\n",
		r.Nodes, r.FirstLaunch, r.USDPerHour, r.CPUPercent, r.MemoryPercent, r.GPUPercent)
	for _, kind := range slices.Sorted(maps.Keys(r.NodesByType)) {
		fmt.Printf("            %4d × %s\n", r.NodesByType[kind], kind)
	}
	zero := "is NOT back at zero nodes"
	if r.ClusterAtZero {
		zero = fmt.Sprintf("is back at zero nodes %.1f s after the workload ended", r.BackToZero)
	}
	fmt.Printf("  cluster   %s\n  functions\n", zero)
	for _, name := range slices.Sorted(maps.Keys(r.Functions)) {
		u := r.Functions[name]
		fmt.Printf("            %-10s %4d invocations, %d cold (init %.0f ms), %7.2f GB-seconds, peak %3d MiB, %d errors\n",
			name, u.Invocations, u.ColdStarts, u.InitMillis, u.GBSeconds, u.PeakMiB, u.Errors)
	}
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(j.build, "run.json"), append(body, '\n'), 0o644)
}

// used adds up the reports of a function.
func used(s *stack.Stack, name string) usage {
	var u usage
	var inits []float64
	for _, r := range s.Lambda.Reports(name) {
		u.Invocations++
		u.GBSeconds += r.Billed.Seconds() * float64(r.MemoryMB) / 1024
		u.PeakMiB = max(u.PeakMiB, r.MaxMemoryBytes>>20)
		if r.Error != "" {
			u.Errors++
		}
		if r.Init > 0 {
			u.ColdStarts++
			inits = append(inits, float64(r.Init.Microseconds())/1000)
		}
	}
	if len(inits) > 0 {
		slices.Sort(inits)
		u.InitMillis = inits[len(inits)/2]
	}
	return u
}

// newScreen finds out whether standard output is a terminal, and how high it is.
func newScreen() *screen {
	height, ok := terminalHeight(os.Stdout)
	return &screen{out: os.Stdout, terminal: ok, height: height}
}
