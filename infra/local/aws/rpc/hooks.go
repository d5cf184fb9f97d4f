package rpc

import (
	"slices"
	"sync"
)

// CallLog is a Log in memory. The zero value keeps the latest 100,000 calls. Safe for concurrent use.
type CallLog struct {
	mu    sync.Mutex
	calls []Call
}

const maxCalls = 100_000

// Record implements Log.
func (l *CallLog) Record(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) >= 2*maxCalls {
		l.calls = slices.Clone(l.calls[maxCalls:])
	}
	l.calls = append(l.calls, c)
}

// Calls returns the calls in the order in which they ended.
func (l *CallLog) Calls() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls[max(0, len(l.calls)-maxCalls):])
}

// Faults is a Fault that fails calls by rule. The zero value fails none. Safe for concurrent use.
type Faults struct {
	mu    sync.Mutex
	rules []*rule
	fired []Fired
}

type rule struct {
	service, action string
	left            int
	err             error
}

// Fired is one fault that was injected.
type Fired struct {
	Service, Action string
	Err             error
}

// Fail lets the next times calls of the action end with err. "*" stands for any service or any action; times below
// zero means from now on. Earlier rules come first.
func (f *Faults) Fail(service, action string, times int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &rule{service, action, times, err})
}

// Clear drops all rules; what has fired stays on record.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Fired returns the faults injected so far.
func (f *Faults) Fired() []Fired {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.fired)
}

// Fault implements Fault.
func (f *Faults) Fault(service, action string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.left == 0 || r.service != "*" && r.service != service || r.action != "*" && r.action != action {
			continue
		}
		r.left--
		f.fired = append(f.fired, Fired{service, action, r.err})
		return r.err
	}
	return nil
}

// Throttled returns the error by which a service says that it was called too often.
func Throttled(service string) error {
	code := "ThrottlingException"
	switch service {
	case "sqs":
		code = "RequestThrottled"
	case "iam", "sts":
		code = "Throttling"
	case "s3":
		code = "SlowDown"
	case "dynamodb":
		code = "ProvisionedThroughputExceededException"
	}
	return Errorf(code, "Rate exceeded")
}

// Denied returns the error by which a service says that the caller's policies do not allow the action.
func Denied(service, action string) error {
	code := "AccessDeniedException"
	switch service {
	case "iam", "sts", "s3", "sqs":
		code = "AccessDenied"
	}
	return Errorf(code, "User is not authorized to perform: %s:%s", service, action)
}
