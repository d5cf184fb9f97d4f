package lambda

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"treadle/infra/local/aws/rpc"
)

const (
	errTimeout  = "Sandbox.Timedout"
	errExit     = "Runtime.ExitError"
	errResponse = "Function.ResponseSizeTooLarge"

	maxPayload      = 6 << 20   // of a synchronous request
	maxAsyncPayload = 1 << 20   // of an event
	maxResponse     = 6_291_556 // of an answer

	settle = 100 * time.Millisecond
)

// environment is one process and the Runtime API that it talks to.
type environment struct {
	f       *function
	cmd     *exec.Cmd
	api     *http.Server
	logs    *lines
	started time.Time
	next    chan *invocation // handed to the process's pending request for the next invocation
	ready   chan struct{}    // closed when the process asks for its first invocation
	exited  chan struct{}    // closed when the process has ended; exit and reaped are set before
	exit    string

	// Guarded by f.mu.
	reaper *time.Timer // runs while idle
	reaped bool        // ended while idle, so that it holds no slot

	mu      sync.Mutex
	current *invocation // handed over, and the next one was not asked for
	late    *time.Timer // kills a process that has answered and asks for nothing more
	init    time.Duration
	initErr []byte // what the process said before it gave up in its init phase
	stopped bool   // by SIGSTOP
}

// invocation is one event on its way through a process.
type invocation struct {
	id       string
	payload  []byte
	deadline time.Time
	answer   chan answer   // buffered; takes the first answer only
	over     chan struct{} // closed when the process asks for the next one
}

// answer is what the process, or its death, made of an invocation.
type answer struct {
	payload   []byte
	errorType string
}

// start begins a process. It holds the caller's slot until it parks or ends.
func (f *function) start() (*environment, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", f.Name, err)
	}
	env := &environment{
		f:      f,
		logs:   f.log.lines(),
		next:   make(chan *invocation),
		ready:  make(chan struct{}),
		exited: make(chan struct{}),
	}
	env.api = &http.Server{Handler: env.runtimeAPI(), ReadHeaderTimeout: 10 * time.Second}
	env.cmd = exec.Command(filepath.Join(f.Dir, "bootstrap"))
	env.cmd.Dir = f.Dir
	env.cmd.Env = f.environ(listener.Addr().String())
	env.cmd.Stdout, env.cmd.Stderr = env.logs, env.logs
	env.cmd.WaitDelay = time.Second // a grandchild may keep the output open
	env.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	env.started = time.Now()
	if err := f.service.spawn(env.cmd); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("start %s: %w", f.Name, err)
	}
	f.service.wait.Go(func() { _ = env.api.Serve(listener) })
	f.service.wait.Go(env.reapProcess)
	return env, nil
}

// environ is the environment that Lambda documents, and the function's own.
func (f *function) environ(api string) []string {
	vars := map[string]string{
		"AWS_LAMBDA_FUNCTION_NAME":        f.Name,
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.MemoryMB),
		"AWS_LAMBDA_FUNCTION_VERSION":     "$LATEST",
		"AWS_LAMBDA_INITIALIZATION_TYPE":  "on-demand",
		"AWS_LAMBDA_LOG_FORMAT":           "JSON",
		"AWS_LAMBDA_LOG_GROUP_NAME":       "/aws/lambda/" + f.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME":      time.Now().UTC().Format("2006/01/02/[$LATEST]") + strings.ReplaceAll(rpc.NewID(), "-", ""),
		"AWS_LAMBDA_RUNTIME_API":          api,
		"AWS_REGION":                      f.service.options.Region,
		"AWS_DEFAULT_REGION":              f.service.options.Region,
		"LAMBDA_TASK_ROOT":                f.Dir,
		"LAMBDA_RUNTIME_DIR":              "/var/runtime",
		"_HANDLER":                        "bootstrap",
		"LANG":                            "en_US.UTF-8",
		"TZ":                              ":UTC",
		"PATH":                            "/usr/local/bin:/usr/bin:/bin",
	}
	for name, value := range f.Env {
		vars[name] = value
	}
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// reapProcess waits for the end of the process and tidies up after it.
func (e *environment) reapProcess() {
	err := e.cmd.Wait()
	e.exit = "Runtime exited without providing a reason"
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		e.exit = "Runtime exited with error: " + err.Error()
	}
	e.logs.flush()
	e.f.forget(e)
	close(e.exited)
	_ = e.api.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.late != nil {
		e.late.Stop()
	}
}

// run takes one invocation through the process and waits for its outcome.
func (e *environment) run(id string, payload []byte) Result {
	report := Report{Function: e.f.Name, RequestID: id, Start: time.Now(), MemoryMB: e.f.MemoryMB}

	// 1. A new process has its own time to get ready.
	init := time.NewTimer(e.f.service.options.InitTimeout)
	defer init.Stop()
	select {
	case <-e.ready:
	case <-e.exited:
		if !e.wasReady() { // a warm process that died while idle is past its init phase
			return e.failedInit(report, e.died(id))
		}
	case <-init.C:
		e.kill()
		<-e.exited
		return e.failedInit(report, timedOut(id, e.f.service.options.InitTimeout))
	}
	report.Init = e.takeInit()

	// 2. Hand the event over and wait for what comes of it.
	e.resume()
	e.resetPeakMemory()
	start := time.Now()
	inv := &invocation{id: id, payload: payload, deadline: start.Add(e.f.Timeout), answer: make(chan answer, 1), over: make(chan struct{})}
	trap := e.armKill()
	got, memory := e.outcome(inv)
	trap.Stop()
	report.Duration, report.MaxMemoryBytes = time.Since(start), memory

	// 3. An invocation is over only when the process asks for the next one. It must do so within its time, and mostly
	// does so at once: waiting a moment lets the caller's next invocation find it warm.
	moment := time.NewTimer(settle)
	defer moment.Stop()
	select {
	case <-inv.over:
	case <-e.exited:
	case <-moment.C:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == inv {
		e.late = time.AfterFunc(time.Until(inv.deadline), e.kill)
	}
	return finish(report, got)
}

// outcome waits for the first of: an answer, the end of the process, the end of its time. The memory is zero if the
// process ended before it could be asked.
func (e *environment) outcome(inv *invocation) (got answer, memory int64) {
	timeout := time.NewTimer(e.f.Timeout)
	defer timeout.Stop()
	next := e.next
	for {
		select {
		case next <- inv:
			next = nil
		case got = <-inv.answer:
			return got, e.peakMemory()
		case <-e.exited:
			select {
			case got = <-inv.answer: // it had answered before it died
				return got, 0
			default:
				return e.died(inv.id), 0
			}
		case <-timeout.C:
			memory = e.peakMemory()
			e.kill()
			<-e.exited
			return timedOut(inv.id, e.f.Timeout), memory
		}
	}
}

func (e *environment) failedInit(report Report, got answer) Result {
	report.Init = time.Since(e.started)
	e.mu.Lock()
	if e.initErr != nil {
		got = answer{payload: e.initErr, errorType: errorType(e.initErr)}
	}
	e.mu.Unlock()
	return finish(report, got)
}

func finish(report Report, got answer) Result {
	report.Billed = (report.Init + report.Duration + time.Millisecond - 1).Truncate(time.Millisecond)
	report.Error = got.errorType
	result := Result{Payload: got.payload, Report: report}
	if got.errorType != "" {
		result.FunctionError = "Unhandled"
	}
	return result
}

func (e *environment) wasReady() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

// takeInit returns how long the process took to get ready, to the first who asks.
func (e *environment) takeInit() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	init := e.init
	e.init = 0
	return init
}

func (e *environment) died(id string) answer {
	return failure(errExit, "RequestId: "+id+" Error: "+e.exit)
}

func timedOut(id string, after time.Duration) answer {
	return failure(errTimeout, fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", id, after.Seconds()))
}

func failure(typ, message string) answer {
	payload, err := json.Marshal(map[string]string{"errorType": typ, "errorMessage": message})
	if err != nil {
		panic(err) // strings always encode
	}
	return answer{payload: payload, errorType: typ}
}

// errorType reads the type out of an error that a runtime posted; one that has none is still an error.
func errorType(payload []byte) string {
	var body struct{ ErrorType string }
	if json.Unmarshal(payload, &body) == nil && body.ErrorType != "" {
		return body.ErrorType
	}
	return "Runtime.Unknown"
}

// runtimeAPI is version 2018-06-01 of the Lambda Runtime API.
func (e *environment) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	const base = "/2018-06-01/runtime"
	mux.HandleFunc("GET "+base+"/invocation/next", e.serveNext)
	mux.HandleFunc("POST "+base+"/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		e.serveAnswer(w, r, func(body []byte) answer { return answer{payload: body} })
	})
	mux.HandleFunc("POST "+base+"/invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) {
		e.serveAnswer(w, r, func(body []byte) answer { return answer{payload: body, errorType: errorType(body)} })
	})
	mux.HandleFunc("POST "+base+"/init/error", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxResponse))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e.mu.Lock()
		e.initErr = body
		e.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	})
	return mux
}

func (e *environment) serveNext(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	done := e.current
	e.current = nil
	if e.late != nil {
		e.late.Stop()
		e.late = nil
	}
	if !e.wasReady() {
		e.init = time.Since(e.started)
		close(e.ready)
	}
	e.mu.Unlock()
	if done != nil {
		done.reply(answer{payload: []byte("null")}) // asking for more without an answer is an empty answer
		e.f.park(e)
		close(done.over)
	}
	select {
	case inv := <-e.next:
		e.mu.Lock()
		e.current = inv
		e.mu.Unlock()
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(inv.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", e.f.arn)
		h.Set("Lambda-Runtime-Trace-Id", traceID(inv.id))
		_, _ = w.Write(inv.payload) // a process that is gone is noticed by its end
	case <-r.Context().Done():
	case <-e.exited:
	}
}

func (e *environment) serveAnswer(w http.ResponseWriter, r *http.Request, read func([]byte) answer) {
	e.mu.Lock()
	inv := e.current
	e.mu.Unlock()
	if inv == nil || inv.id != r.PathValue("id") {
		http.Error(w, `{"errorMessage":"Invalid request ID","errorType":"InvalidRequestID"}`, http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxResponse+1))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if len(body) > maxResponse {
		inv.reply(failure(errResponse, fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", maxResponse)))
		http.Error(w, "response is too large", http.StatusRequestEntityTooLarge)
		return
	}
	inv.reply(read(body))
	w.WriteHeader(http.StatusAccepted)
}

// reply gives the invocation its answer unless it has one.
func (i *invocation) reply(a answer) {
	select {
	case i.answer <- a:
	default:
	}
}

func traceID(id string) string {
	hex := strings.ReplaceAll(id, "-", "")
	return fmt.Sprintf("Root=1-%08x-%s;Parent=%s;Sampled=0", time.Now().Unix(), hex[:24], hex[:16])
}

// kill sends SIGKILL to the process and its children; reapProcess does the rest.
func (e *environment) kill() {
	select {
	case <-e.exited:
		return // its number may be somebody else's by now
	default:
	}
	_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) // it may be gone already
}

// freeze stops an idle process, as Lambda does between invocations.
func (e *environment) freeze() {
	if !e.f.service.options.Freeze {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGSTOP) == nil
}

func (e *environment) resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGCONT) // if it is gone, its end says so
		e.stopped = false
	}
}

// armKill starts the clock that KillAfter set for this invocation.
func (e *environment) armKill() *time.Timer {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	if e.f.killAfter == nil {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return timer
	}
	after := *e.f.killAfter
	e.f.killAfter = nil
	return time.AfterFunc(after, e.kill)
}

// resetPeakMemory makes the kernel forget the peak so far. Where it may not, the peak is that of the whole life.
func (e *environment) resetPeakMemory() {
	_ = os.WriteFile(e.proc("clear_refs"), []byte("5"), 0)
}

// peakMemory returns the highest resident size since the reset, in bytes, or zero if the process is gone.
func (e *environment) peakMemory() int64 {
	status, err := os.ReadFile(e.proc("status"))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	text, _, _ := strings.Cut(strings.TrimSpace(after), " kB")
	kb, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}

func (e *environment) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(e.cmd.Process.Pid), name)
}
