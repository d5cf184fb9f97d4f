package lambda

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"treadle/infra/local/aws/pki"
	"treadle/infra/local/aws/rpc"
)

// Options say how a Service runs its functions. The zero value is fine.
type Options struct {
	Region      string          // us-east-1 when empty
	Account     string          // 123456789012 when empty
	LogDir      string          // one file per function, appended to; none when empty
	Output      io.Writer       // also gets every line, behind the function's name; may be nil
	Authority   *pki.Authority  // signs the certificates of Function URLs; one is made when nil
	IdleAfter   time.Duration   // idle environments end after it; ten minutes when zero
	InitTimeout time.Duration   // for a process to ask for its first event; ten seconds when zero
	Freeze      bool            // stop idle processes by signal, as Lambda freezes its environments
	RetryDelays []time.Duration // before the second and third try of an event; a minute and two when nil
	Log         *slog.Logger    // of the service itself; silent when nil
}

// Service runs functions. Safe for concurrent use.
type Service struct {
	options Options
	spawns  chan func()
	stopped chan struct{}
	wait    sync.WaitGroup // processes, servers, pollers and events under way

	mu        sync.Mutex
	functions map[string]*function
	mappings  []*Mapping
	closed    bool
}

// New returns a service without functions. It must be stopped.
func New(o Options) (*Service, error) {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Account == "" {
		o.Account = "123456789012"
	}
	if o.IdleAfter == 0 {
		o.IdleAfter = 10 * time.Minute
	}
	if o.InitTimeout == 0 {
		o.InitTimeout = 10 * time.Second
	}
	if o.RetryDelays == nil {
		o.RetryDelays = []time.Duration{time.Minute, 2 * time.Minute}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Authority == nil {
		authority, err := pki.New()
		if err != nil {
			return nil, fmt.Errorf("make authority: %w", err)
		}
		o.Authority = authority
	}
	s := &Service{
		options:   o,
		spawns:    make(chan func()),
		stopped:   make(chan struct{}),
		functions: map[string]*function{},
	}
	go s.spawner()
	return s, nil
}

// CA returns the certificate that clients of Function URLs must trust, as PEM.
func (s *Service) CA() []byte { return s.options.Authority.PEM() }

// spawner starts all processes from one thread that lasts as long as the service: the kernel kills a child with
// Pdeathsig when the thread that started it ends, which may be long before the program does. The thread is never
// unlocked, so it ends with this function and takes along whatever is left.
func (s *Service) spawner() {
	runtime.LockOSThread()
	for f := range s.spawns {
		f()
	}
}

// spawn starts a process. The service must not be closed before it returns.
func (s *Service) spawn(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	s.spawns <- func() { started <- cmd.Start() }
	return <-started
}

// Create deploys a function. ErrExists if the name is taken. Nothing is started yet.
func (s *Service) Create(f Function) error {
	created, err := newFunction(s, f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		err = ErrStopped
	case s.functions[f.Name] != nil:
		err = ErrExists
	default:
		s.functions[f.Name] = created
		return nil
	}
	created.log.close()
	return fmt.Errorf("create function %s: %w", f.Name, err)
}

func (s *Service) function(name string) (*function, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrStopped
	}
	f, ok := s.functions[name]
	if !ok {
		return nil, fmt.Errorf("function %s: %w", name, ErrNotFound)
	}
	return f, nil
}

// goes runs f in a goroutine that Stop waits for. It reports whether it did: not once the service is stopped.
func (s *Service) goes(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wait.Go(f)
	return true
}

// Invoke runs a function and waits for its answer. An error of the function is part of the Result; the error says why
// it did not run: ErrNotFound, ErrThrottled, ErrTooLarge (above 6 MB) or ErrStopped. When ctx ends first, its error is
// returned and the invocation goes on.
func (s *Service) Invoke(ctx context.Context, name string, payload []byte) (Result, error) {
	f, err := s.function(name)
	if err != nil {
		return Result{}, err
	}
	if len(payload) > maxPayload {
		return Result{}, fmt.Errorf("invoke %s with %d bytes: %w", name, len(payload), ErrTooLarge)
	}
	return s.invoke(ctx, f, payload, false)
}

func (s *Service) invoke(ctx context.Context, f *function, payload []byte, wait bool) (Result, error) {
	type outcome struct {
		result Result
		err    error
	}
	done := make(chan outcome, 1)
	if !s.goes(func() {
		result, err := f.invoke(ctx, rpc.NewID(), payload, wait)
		done <- outcome{result, err}
	}) {
		return Result{}, ErrStopped
	}
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

// InvokeAsync queues an event for a function and returns its request id. A failed event is tried twice more; while
// all environments are busy it waits. Errors: ErrNotFound, ErrTooLarge (above 1 MB), ErrStopped.
func (s *Service) InvokeAsync(name string, payload []byte) (requestID string, err error) {
	f, err := s.function(name)
	if err != nil {
		return "", err
	}
	if len(payload) > maxAsyncPayload {
		return "", fmt.Errorf("invoke %s with %d bytes: %w", name, len(payload), ErrTooLarge)
	}
	requestID = rpc.NewID()
	payload = slices.Clone(payload)
	if !s.goes(func() { s.event(f, requestID, payload) }) {
		return "", ErrStopped
	}
	return requestID, nil
}

// event runs one event to success, or to the end of its tries.
func (s *Service) event(f *function, id string, payload []byte) {
	for try := 0; ; try++ {
		result, err := f.invoke(context.Background(), id, payload, true)
		if err == nil && result.FunctionError == "" {
			return
		}
		if try >= len(s.options.RetryDelays) {
			s.options.Log.Warn("event given up", "function", f.Name, "request_id", id, "tries", try+1, "error_type", result.Report.Error)
			return
		}
		select {
		case <-time.After(s.options.RetryDelays[try]):
		case <-s.stopped:
			return
		}
	}
}

// Deliver queues an event for the function with the ARN, as EventBridge and Scheduler do. The group is ignored.
func (s *Service) Deliver(_ context.Context, arn string, payload []byte, _ string) error {
	part := strings.Split(arn, ":")
	if len(part) < 7 || part[2] != "lambda" || part[5] != "function" {
		return fmt.Errorf("deliver to %s: no ARN of a function", arn)
	}
	_, err := s.InvokeAsync(part[6], payload)
	return err
}

// Reports returns what was recorded of a function's invocations, in the order in which they ended; the latest 50,000
// at least. It is empty for an unknown function.
func (s *Service) Reports(name string) []Report {
	s.mu.Lock()
	f := s.functions[name]
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reports)
}

// Kill ends all environments of a function with SIGKILL, busy or idle, and returns how many there were.
func (s *Service) Kill(name string) int {
	f, err := s.function(name)
	if err != nil {
		return 0
	}
	return f.kill()
}

// KillAfter arms a trap: the next invocation of the function is killed so long after it was handed over, unless it is
// done by then. Arming again replaces the trap.
func (s *Service) KillAfter(name string, d time.Duration) error {
	f, err := s.function(name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killAfter = &d
	return nil
}

// Stop ends all processes, servers and pollers, and returns when none is left. Events that wait for another try are
// dropped. Stopping twice is no error.
func (s *Service) Stop() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	mappings, functions := s.mappings, s.functions
	close(s.stopped)
	s.mu.Unlock()

	for _, m := range mappings {
		m.Disable()
	}
	for _, f := range functions {
		f.close()
	}
	s.wait.Wait()
	close(s.spawns)
	for _, f := range functions {
		f.log.close()
	}
}

func (f *function) close() {
	f.mu.Lock()
	f.closed = true
	url := f.url
	f.mu.Unlock()
	f.kill()
	if url != nil {
		url.close()
	}
}
