package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Errors of an invocation that did not take place.
var (
	ErrNotFound  = errors.New("function does not exist")
	ErrExists    = errors.New("function exists already")
	ErrThrottled = errors.New("rate exceeded: all environments are busy")
	ErrTooLarge  = errors.New("request is too large")
	ErrStopped   = errors.New("lambda service is stopped")
)

const (
	defaultTimeout     = 3 * time.Second
	defaultMemoryMB    = 128
	defaultConcurrency = 10
)

// Function is what is deployed.
type Function struct {
	Name        string
	Dir         string            // holds the executable bootstrap; the working directory of the process
	Env         map[string]string // environment, the role's credentials included
	MemoryMB    int               // told to the function, never enforced; 128 when zero
	Timeout     time.Duration     // of one invocation; 3 s when zero
	Concurrency int               // environments at once; 10 when zero
	URLAddr     string            // where the Function URL listens; a free port of 127.0.0.1 when empty
}

// Result is the outcome of an invocation that took place.
type Result struct {
	Payload       []byte // the handler's answer, or the error as JSON
	FunctionError string // empty, or "Unhandled" when the payload is an error
	Report        Report
}

// Report is what Lambda says of one invocation.
type Report struct {
	Function, RequestID string
	Start               time.Time
	Duration            time.Duration // from handing over the event to the answer
	Billed              time.Duration // init and duration, in whole milliseconds
	Init                time.Duration // zero for a warm start
	MaxMemoryBytes      int64         // peak resident size during the invocation; zero if the process died first
	MemoryMB            int
	Error               string // error type, such as Sandbox.Timedout; empty on success
}

// function is a deployed function and its environments.
type function struct {
	Function
	service *Service
	arn     string
	slots   chan struct{} // one element per environment that is starting or busy
	log     *output

	mu        sync.Mutex
	idle      []*environment // the most recently used last
	alive     map[*environment]struct{}
	reports   []Report
	killAfter *time.Duration // armed by KillAfter
	closed    bool
	url       *urlServer
}

const maxReports = 50_000

func newFunction(s *Service, f Function) (*function, error) {
	if f.Timeout == 0 {
		f.Timeout = defaultTimeout
	}
	if f.MemoryMB == 0 {
		f.MemoryMB = defaultMemoryMB
	}
	if f.Concurrency == 0 {
		f.Concurrency = defaultConcurrency
	}
	dir, err := filepath.Abs(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("create function %s: %w", f.Name, err)
	}
	f.Dir = dir
	info, err := os.Stat(filepath.Join(dir, "bootstrap"))
	if err != nil {
		return nil, fmt.Errorf("create function %s: %w", f.Name, err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("create function %s: %s is not executable", f.Name, filepath.Join(dir, "bootstrap"))
	}
	log, err := newOutput(f.Name, s.options.LogDir, s.options.Output)
	if err != nil {
		return nil, fmt.Errorf("create function %s: %w", f.Name, err)
	}
	return &function{
		Function: f,
		service:  s,
		arn:      "arn:aws:lambda:" + s.options.Region + ":" + s.options.Account + ":function:" + f.Name,
		slots:    make(chan struct{}, f.Concurrency),
		log:      log,
		alive:    map[*environment]struct{}{},
	}, nil
}

// invoke runs one invocation in a free environment. Without one it fails with ErrThrottled, or waits if told to.
func (f *function) invoke(ctx context.Context, requestID string, payload []byte, wait bool) (Result, error) {
	if wait {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return Result{}, ctx.Err()
		case <-f.service.stopped:
			return Result{}, ErrStopped
		}
	} else {
		select {
		case f.slots <- struct{}{}:
		default:
			return Result{}, ErrThrottled
		}
	}
	env, err := f.take()
	if err != nil {
		<-f.slots
		return Result{}, err
	}
	result := env.run(requestID, payload)
	f.record(result.Report)
	return result, nil
}

// take returns a warm environment, or a starting one. The caller holds a slot, which the environment gives back.
func (f *function) take() (*environment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrStopped
	}
	if n := len(f.idle); n > 0 {
		env := f.idle[n-1]
		f.idle = f.idle[:n-1]
		env.reaper.Stop()
		return env, nil
	}
	env, err := f.start()
	if err != nil {
		return nil, err
	}
	f.alive[env] = struct{}{}
	return env, nil
}

// park keeps an environment that asks for its next invocation, and frees its slot.
func (f *function) park(env *environment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, alive := f.alive[env]; !alive || f.closed {
		return
	}
	f.idle = append(f.idle, env)
	env.reaper = time.AfterFunc(f.service.options.IdleAfter, func() { f.reap(env) })
	env.freeze()
	<-f.slots
}

// reap ends an environment if it is still idle.
func (f *function) reap(env *environment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, e := range f.idle {
		if e == env {
			f.idle = append(f.idle[:i], f.idle[i+1:]...)
			env.reaped = true
			env.kill()
			return
		}
	}
}

// forget drops an environment whose process has ended, and frees its slot unless it was idle.
func (f *function) forget(env *environment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.alive, env)
	for i, e := range f.idle {
		if e == env {
			f.idle = append(f.idle[:i], f.idle[i+1:]...)
			env.reaper.Stop()
			return
		}
	}
	if !env.reaped {
		<-f.slots
	}
}

// kill ends every environment and returns how many there were.
func (f *function) kill() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, env := range f.idle { // nobody may pick one up between the signal and its end
		env.reaper.Stop()
		env.reaped = true
	}
	f.idle = nil
	for env := range f.alive {
		env.kill()
	}
	return len(f.alive)
}

func (f *function) record(r Report) {
	f.mu.Lock()
	if len(f.reports) >= 2*maxReports {
		f.reports = append([]Report(nil), f.reports[maxReports:]...)
	}
	f.reports = append(f.reports, r)
	f.mu.Unlock()

	line, err := json.Marshal(map[string]any{"time": time.Now().UTC(), "type": "platform.report", "record": map[string]any{
		"requestId": r.RequestID,
		"status":    r.status(),
		"errorType": r.Error,
		"metrics": map[string]any{
			"durationMs":       milliseconds(r.Duration),
			"billedDurationMs": r.Billed.Milliseconds(),
			"initDurationMs":   milliseconds(r.Init),
			"memorySizeMB":     r.MemoryMB,
			"maxMemoryUsedMB":  r.MaxMemoryBytes >> 20,
		},
	}})
	if err == nil {
		f.log.line(line)
	}
}

func (r Report) status() string {
	switch r.Error {
	case "":
		return "success"
	case errTimeout:
		return "timeout"
	}
	return "error"
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
