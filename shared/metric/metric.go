package metric

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Namespace is the CloudWatch namespace of all metrics of Treadle.
const Namespace = "Treadle"

// Sink writes metrics. It is safe for concurrent use; the nil Sink drops everything.
type Sink struct {
	mu  sync.Mutex
	out io.Writer
	now func() time.Time
}

// New returns a Sink that writes to out and stamps each line with now.
func New(out io.Writer, now func() time.Time) *Sink { return &Sink{out: out, now: now} }

// Count adds n to the metric called name, once for each function and cluster. The line also carries the two as properties
// for searching; cluster may be empty.
func (s *Sink) Count(name, function, cluster string, n int) {
	if s == nil || n == 0 {
		return
	}
	type unit struct{ Name, Unit string }
	type directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []unit
	}
	line, err := json.Marshal(map[string]any{
		"_aws": map[string]any{
			"Timestamp": s.now().UnixMilli(),
			"CloudWatchMetrics": []directive{{
				Namespace:  Namespace,
				Dimensions: [][]string{{"function"}, {"function", "cluster"}},
				Metrics:    []unit{{name, "Count"}},
			}},
		},
		"function": function,
		"cluster":  cluster,
		name:       n,
	})
	if err != nil {
		return // strings and integers always marshal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A metric that cannot be written must not fail the work that it counts.
	_, _ = s.out.Write(append(line, '\n'))
}
