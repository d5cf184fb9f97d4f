package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// process is one running component. Its output goes to a log file.
type process struct {
	name string
	log  string // path
	cmd  *exec.Cmd
	exit chan struct{} // closed once the process is gone and err is set
	err  error         // how it ended; nil for exit code 0
}

// startProcess starts a component of the multi-call binary. It ends when this process does, because its standard
// input is a pipe from here.
func startProcess(binary, name, logs string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(logs, name+".log"), exit: make(chan struct{})}
	file, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the child has its own descriptor
	p.cmd = exec.Command(binary, append([]string{name}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.Env = append(os.Environ(), "CONTROLPLANE_LEASH=stdin")
	// A group of its own: Ctrl-C must reach only the parent, which knows the order in which to stop.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exit)
	}()
	return p, nil
}

// stop asks the process to end, kills it when ctx is over first, and returns once it is gone.
func (p *process) stop(ctx context.Context) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone already
	select {
	case <-p.exit:
		return nil
	case <-ctx.Done():
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exit
	return fmt.Errorf("stop %s: killed, as it did not end in time: %w", p.name, context.Cause(ctx))
}

// death describes an unexpected end, with the last lines of the log.
func (p *process) death() error {
	how := "exit code 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended: %s; %s ends with:\n%s", p.name, how, p.log, tail(p.log, 4096))
}

// tail returns the whole lines in the last n bytes of a file, or what kept it from reading them.
func tail(path string, n int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return []byte(err.Error())
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return []byte(err.Error())
	}
	start := max(0, size-n)
	text, err := io.ReadAll(io.NewSectionReader(f, start, size-start))
	if err != nil {
		return []byte(err.Error())
	}
	if _, rest, found := bytes.Cut(text, []byte("\n")); start > 0 && found {
		return rest
	}
	return text
}
