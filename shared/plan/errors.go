package plan

import "errors"

// What the Kubernetes API and EC2 answer to a plan, in words that every package may match with errors.Is. Adapters translate
// status and error codes into these once; nothing above them reads a code.
var (
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("conflict")              // changed by another writer since it was read
	ErrExists      = errors.New("already exists")        // create only
	ErrDenied      = errors.New("denied")                // the caller may not do this
	ErrInvalid     = errors.New("invalid")               // repeating it as it is cannot help
	ErrBudget      = errors.New("refused by a budget")   // an eviction now; later it may pass
	ErrThrottled   = errors.New("throttled")             // not tried; call again later
	ErrUnavailable = errors.New("unavailable")           // out of reach or in trouble: the outcome is not known
	ErrNoCapacity  = errors.New("no capacity")           // none of the offerings asked for was to be had
	ErrQuota       = errors.New("quota used up")         // passes less soon than a lack of capacity
	ErrMismatch    = errors.New("token was used before") // for another request
	ErrHeld        = errors.New("held by another")       // a lease
)
