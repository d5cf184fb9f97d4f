package fault

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Call is one call as the emulator saw it.
type Call struct {
	Time        time.Time `json:"time"`
	RequestID   string    `json:"request_id,omitempty"`
	Service     string    `json:"service"`
	Action      string    `json:"action"`
	AccessKeyID string    `json:"access_key_id,omitempty"`
	ClientToken string    `json:"client_token,omitempty"`
	Code        string    `json:"code,omitempty"` // error code; empty for a success
	Launched    []string  `json:"launched,omitempty"`
	Replayed    bool      `json:"replayed,omitempty"` // answered from an earlier call with the same token
	LostReply   bool      `json:"lost_reply,omitempty"`
}

// kept bounds the memory of a stack that runs for days.
const kept = 100_000

// Log keeps the latest calls. The zero value is ready to use; it is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	calls  []Call
	counts map[string]int
}

// Add appends a call.
func (l *Log) Add(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) >= 2*kept {
		l.calls = slices.Clone(l.calls[len(l.calls)-kept:])
	}
	l.calls = append(l.calls, c)
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[c.Action]++
}

// Calls returns the calls kept, oldest first; with actions, only those.
func (l *Log) Calls(actions ...string) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []Call{}
	for _, c := range l.calls {
		if len(actions) == 0 || slices.Contains(actions, c.Action) {
			all = append(all, c)
		}
	}
	return all
}

// Counts returns how many calls of each action there were, forgotten ones included.
func (l *Log) Counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// TokensOfSeveralLaunches returns the client tokens under which more than one call launched instances of its own, sorted.
func (l *Log) TokensOfSeveralLaunches() []string {
	launches := map[string]int{}
	for _, c := range l.Calls() {
		if c.ClientToken != "" && len(c.Launched) > 0 && !c.Replayed {
			launches[c.ClientToken]++
		}
	}
	maps.DeleteFunc(launches, func(_ string, n int) bool { return n < 2 })
	return slices.Sorted(maps.Keys(launches))
}

// Reset forgets all calls.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.counts = nil, nil
}
