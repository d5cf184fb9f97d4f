package lambda

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// output is where the lines of one function go: its log file and the writer that all functions share.
type output struct {
	name   string
	shared io.Writer // may be nil

	mu   sync.Mutex
	file *os.File // may be nil
}

func newOutput(name, dir string, shared io.Writer) (*output, error) {
	o := &output{name: name, shared: shared}
	if dir == "" {
		return o, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	o.file = file
	return o, nil
}

// line writes one line, which comes without its end. Losing log lines must not fail an invocation.
func (o *output) line(text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		_, _ = o.file.Write(append(text[:len(text):len(text)], '\n'))
	}
	if o.shared != nil {
		_, _ = fmt.Fprintf(o.shared, "%s | %s\n", o.name, text)
	}
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		_ = o.file.Close()
		o.file = nil
	}
}

// lines cuts the output of one process into lines, so that processes do not mix within one.
func (o *output) lines() *lines { return &lines{out: o} }

type lines struct {
	out  *output
	rest []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.out.line(line)
		l.rest = rest
	}
}

// flush writes what has no line end. It must not overlap a Write.
func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.out.line(l.rest)
		l.rest = nil
	}
}
