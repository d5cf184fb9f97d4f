package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"treadle/shared/plan"
)

// The answers of an API server that callers tell apart, matched by errors.Is. All but ErrGone are those of package plan.
var (
	ErrNotFound        = plan.ErrNotFound
	ErrConflict        = plan.ErrConflict    // another version, or another object of that name
	ErrExists          = plan.ErrExists      // create only
	ErrForbidden       = plan.ErrDenied      // 401 and 403
	ErrInvalid         = plan.ErrInvalid     // 400, 413, 415 and 422: repeating it cannot help
	ErrTooManyRequests = plan.ErrBudget      // an eviction that a PodDisruptionBudget refuses
	ErrThrottled       = plan.ErrThrottled   // 429 of a server that sheds load, after some tries
	ErrUnavailable     = plan.ErrUnavailable // 5xx, timeout, refused or broken connection
	// ErrHeld says that somebody else holds a lease.
	ErrHeld = plan.ErrHeld
	ErrGone = errors.New("gone") // 410: that resource version is too old to resume from
)

// StatusError is a refusal by the API server.
type StatusError struct {
	Verb    string // HTTP method and path
	Code    int
	Reason  string // metav1.StatusReason
	Message string
	// Budget says that the refusal comes from a PodDisruptionBudget.
	Budget bool
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Verb, e.Code, e.Reason, e.Message)
}

// Is makes a StatusError match the sentinel of its kind.
func (e *StatusError) Is(target error) bool { return target == e.kind() }

func (e *StatusError) kind() error {
	switch {
	case e.Budget:
		return ErrTooManyRequests
	case e.Code == http.StatusNotFound:
		return ErrNotFound
	case e.Code == http.StatusConflict && e.Reason == "AlreadyExists":
		return ErrExists
	case e.Code == http.StatusConflict:
		return ErrConflict
	case e.Code == http.StatusGone:
		return ErrGone
	case e.Code == http.StatusUnauthorized, e.Code == http.StatusForbidden:
		return ErrForbidden
	case e.Code == http.StatusTooManyRequests:
		return ErrThrottled
	case e.Code >= 500:
		return ErrUnavailable
	default:
		return ErrInvalid
	}
}

// wireStatus is metav1.Status, as far as it is read.
type wireStatus struct {
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
	Details struct {
		Causes []struct {
			Reason string `json:"reason"`
		} `json:"causes"`
	} `json:"details"`
}

func (s wireStatus) err(verb string, code int) *StatusError {
	e := &StatusError{Verb: verb, Code: code, Reason: s.Reason, Message: s.Message}
	for _, cause := range s.Details.Causes {
		e.Budget = e.Budget || cause.Reason == "DisruptionBudget"
	}
	// A pod under two budgets is refused with 500 instead of 429; to the caller it is the same "not now".
	if code == http.StatusInternalServerError && strings.Contains(s.Message, "more than one PodDisruptionBudget") {
		e.Budget = true
	}
	return e
}

// unavailable marks an error of the connection. An ended context stays what it is.
func unavailable(verb string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s: %w: %w", verb, ErrUnavailable, err)
}
