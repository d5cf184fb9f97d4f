package stack

import (
	"cmp"
	"time"

	"treadle/infra/local/quickstart"
)

// function is one of Treadle's functions as it is deployed.
type function struct {
	name     string
	memoryMB int
	timeout  time.Duration
	// concurrency bounds the environments of the function.
	concurrency int
	// queue names the FIFO queue that the function is fed from, batch how many messages it gets at once.
	queue string
	batch int
	// group is the Kubernetes group of the function's role; empty: none. admin gives it the cluster administrator's policy.
	group string
	admin bool
}

// functions lists them all. Times are short because a message in flight locks its cluster: a crash costs a cluster that long at
// most, and long work is many short invocations.
func functions() []function {
	return []function{
		{name: "wake", memoryMB: 128, timeout: 5 * time.Second, concurrency: 10},
		{name: "provision", memoryMB: 512, timeout: 60 * time.Second, concurrency: 10, queue: "provision", batch: 10, group: "treadle:provision"},
		{name: "lifecycle", memoryMB: 512, timeout: 60 * time.Second, concurrency: 10, queue: "lifecycle", batch: 1, group: "treadle:lifecycle"},
		{name: "disruption", memoryMB: 512, timeout: 60 * time.Second, concurrency: 10, queue: "disruption", batch: 1, group: "treadle:disruption"},
		{name: "interruption", memoryMB: 256, timeout: 30 * time.Second, concurrency: 5, group: "treadle:lifecycle"},
		{name: "expiry", memoryMB: 256, timeout: 30 * time.Second, concurrency: 5, group: "treadle:lifecycle"},
		{name: "sweep", memoryMB: 256, timeout: 60 * time.Second, concurrency: 1, group: "treadle:sweep"},
		{name: "catalog", memoryMB: 512, timeout: 120 * time.Second, concurrency: 1},
		{name: "install", memoryMB: 256, timeout: 120 * time.Second, concurrency: 1, admin: true},
	}
}

// functions lists them with the time limits that the stack was given.
func (s *Stack) functions() []function {
	all := functions()
	for i := range all {
		all[i].timeout = cmp.Or(s.options.Timeouts[all[i].name], all[i].timeout)
	}
	return all
}

// grace is how much longer than its function may run a message is invisible.
func (s *Stack) grace(f function) time.Duration {
	if s.options.Timeouts[f.name] != 0 {
		return time.Second
	}
	return 5 * time.Second
}

// Functions returns the names of Treadle's functions.
func Functions() []string {
	var names []string
	for _, f := range functions() {
		names = append(names, f.name)
	}
	return names
}

// Quickstart returns one of the manifests that a new cluster starts with.
func Quickstart(file string) ([]byte, error) { return quickstart.Files.ReadFile(file) }
