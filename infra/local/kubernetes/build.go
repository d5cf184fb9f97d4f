package kubernetes

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// buildTimeout is for a cold build on one busy core; with two idle ones it takes a few minutes.
	buildTimeout = 45 * time.Minute
	reportEvery  = 5 * time.Second
	version      = "v1.37.2" // of k8s.io/kubernetes; a test holds it against go.mod
	sourceFolder = "infra/local/controlplane"
)

// ErrModules is wrapped by Build's error when Go modules could not be downloaded.
var ErrModules = errors.New("go modules cannot be downloaded")

// Build compiles the control plane, unless it has been compiled before from the same sources by the same Go version,
// and returns the path of the binary in the user's cache folder. It finds the sources from the working directory, which
// lies in the checkout, and needs the go command. Builds at the same time, also by other processes, wait for the first
// one. progress gets a line whenever something has taken seconds; nil: nobody is told.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	source, err := findSource()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	b := builder{source: source, cache: filepath.Join(cache, "treadle"), progress: progress, began: time.Now()}
	ctx, cancel := context.WithTimeoutCause(ctx, buildTimeout, fmt.Errorf("not done after %s", buildTimeout))
	defer cancel()
	path, err := b.build(ctx)
	if err != nil {
		return "", fmt.Errorf("build control plane: %w", err)
	}
	return path, nil
}

type builder struct {
	source   string // folder of the module
	cache    string // folder of the binaries
	progress io.Writer
	began    time.Time
}

func (b builder) build(ctx context.Context) (string, error) {
	goVersion, err := b.command(ctx, "env", "GOVERSION").Output()
	if err != nil {
		return "", fmt.Errorf("ask for the go version: %w", err)
	}
	hash, err := hashSource(b.source, strings.TrimSpace(string(goVersion)))
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.cache, "controlplane-"+hash)
	if built(path) {
		return path, nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := b.lock(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(path) { // by the one that held the lock
		return path, nil
	}
	return path, b.compile(ctx, path)
}

func built(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// lock waits for a lock between processes; the operating system drops it when its holder dies.
func (b builder) lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waited {
			say(b.progress, "waiting for a build that runs already")
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another build: %w", context.Cause(ctx))
		}
	}
}

// compile builds into a temporary file and renames it, so that path is never half a binary.
func (b builder) compile(ctx context.Context, path string) error {
	say(b.progress, "building it, once; the result is kept in %s", b.cache)
	// 1. What is there to do? This also downloads the modules that are missing.
	stale, err := b.run(ctx, nil, "list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", ".")
	if err != nil {
		return err
	}
	total := max(1, len(bytes.Fields(stale)))
	// 2. Compile. -v names each package once it is built.
	temp, err := os.CreateTemp(b.cache, "building-")
	if err != nil {
		return err
	}
	temp.Close()
	defer os.Remove(temp.Name()) // is gone already if all went well
	var done atomic.Int64
	stop := b.report(&done, total)
	_, err = b.run(ctx, func(string) { done.Add(1) }, "build", "-v", "-o", temp.Name(), ".")
	stop()
	if err != nil {
		return err
	}
	if err := os.Chmod(temp.Name(), 0o755); err != nil {
		return err
	}
	say(b.progress, "built in %s", time.Since(b.began).Round(time.Second))
	return os.Rename(temp.Name(), path)
}

// report says every few seconds how far the build has come, until the returned function is called.
func (b builder) report(done *atomic.Int64, total int) (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				elapsed := time.Since(b.began).Round(time.Second)
				if n := done.Load(); n < int64(total) {
					say(b.progress, "%d of %d packages compiled, %s", n, total, elapsed)
				} else {
					say(b.progress, "linking, %s", elapsed)
				}
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-gone }
}

// run runs the go command in the source folder and returns its standard output. Each line of its standard error that
// is the name of a package goes to onPackage; the rest explains a failure.
func (b builder) run(ctx context.Context, onPackage func(string), verb string, args ...string) ([]byte, error) {
	cmd := b.command(ctx, verb, append(buildFlags(), args...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var notes []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "go: downloading"):
			say(b.progress, "%s", strings.TrimPrefix(line, "go: "))
		case onPackage != nil && !strings.ContainsAny(line, " \t:"):
			onPackage(line)
		default:
			notes = append(notes, line)
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, explain(ctx, verb, err, notes)
	}
	return out.Bytes(), nil
}

// command prepares a go command that ends, with the compilers it started, when ctx does.
func (b builder) command(ctx context.Context, verb string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append([]string{verb}, args...)...)
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// buildFlags are the same for asking what is stale and for building, else the answers differ.
func buildFlags() []string {
	number := strings.Split(strings.TrimPrefix(version, "v"), ".")
	vars := []string{
		"k8s.io/component-base/version.gitVersion=" + version,
		"k8s.io/component-base/version.gitMajor=" + number[0],
		"k8s.io/component-base/version.gitMinor=" + number[1],
		"k8s.io/client-go/pkg/version.gitVersion=" + version,
	}
	return []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w -X " + strings.Join(vars, " -X ")}
}

// explain turns the output of a failed go command into an error of a few lines.
func explain(ctx context.Context, verb string, err error, notes []string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("go %s: %w", verb, context.Cause(ctx))
	}
	text := strings.Join(notes[max(0, len(notes)-10):], "\n")
	for _, sign := range []string{"dial tcp", "no such host", "proxyconnect", "i/o timeout", "module lookup disabled", "TLS handshake"} {
		if strings.Contains(text, sign) {
			proxy := cmp.Or(os.Getenv("GOPROXY"), "the default one")
			return fmt.Errorf("%w (GOPROXY is %s):\n%s", ErrModules, proxy, text)
		}
	}
	return fmt.Errorf("go %s: %w:\n%s", verb, err, text)
}

// findSource looks for the control plane's module in the working directory and the folders above it.
func findSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		source := filepath.Join(dir, filepath.FromSlash(sourceFolder))
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find %s in %s or above: not there, is this a checkout of treadle?", sourceFolder, start)
		}
	}
}

// hashSource names a binary by all that decides what is in it.
func hashSource(source, goVersion string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	slices.Sort(files)
	h := sha256.New()
	fmt.Fprintln(h, goVersion, runtime.GOOS, runtime.GOARCH, buildFlags())
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(f), len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
