package ledger

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// Rate is the token bucket of an API, as EC2 has it for an account and region.
type Rate struct {
	Burst     int
	PerSecond int
	// Share is how many tokens are fetched at once, so that not every call costs one to the table; those left over after a second are
	// lost. 0 stands for 1.
	Share int
}

// Rates returns the rates that EC2 grants by default to the calls that a budget knows, by class of call.
func Rates() map[string]Rate {
	return map[string]Rate{
		"CreateFleet": {Burst: 5, PerSecond: 2},
		"Terminate":   {Burst: 100, PerSecond: 5, Share: 5},
		"Describe":    {Burst: 100, PerSecond: 20, Share: 10},
	}
}

// classOf returns the class of an operation of EC2, "" for one that is not counted.
func classOf(operation string) string {
	switch {
	case operation == "CreateFleet":
		return "CreateFleet"
	case operation == "TerminateInstances":
		return "Terminate"
	case strings.HasPrefix(operation, "Describe"):
		return "Describe"
	default:
		return ""
	}
}

// shareLasts is how long tokens that were fetched ahead are good.
const shareLasts = time.Second

// Budget counts calls against rates that all clusters share through a table; while it is out of reach, or where there is none, each
// function counts by itself. It is safe for concurrent use.
type Budget struct {
	table *Table
	rates map[string]Rate
	now   func() time.Time

	mu      sync.Mutex
	buckets map[string]*bucket
}

// bucket is what a function knows of a class.
type bucket struct {
	full       instant // when the bucket is full again, as far as is known
	emptyUntil instant // it was seen empty: the table need not be asked again
	share      int     // tokens fetched ahead
	shareUntil instant
}

// instant is a time in milliseconds since 1970.
type instant int64

// NewBudget returns a budget that is shared through a table; nil: with nobody. Calls without a rate are not counted.
func NewBudget(t *Table, rates map[string]Rate, now func() time.Time) *Budget {
	return &Budget{table: t, rates: rates, now: now, buckets: map[string]*bucket{}}
}

// perToken is how long, in milliseconds, the bucket takes to get another token.
func (r Rate) perToken() instant { return instant(1000 / max(r.PerSecond, 1)) }

// latest is the time at which the bucket may be full again at most, for n tokens to be in it now.
func (r Rate) latest(now instant, n int) instant { return now + instant(r.Burst-n)*r.perToken() }

// take takes n tokens out of a bucket that is full again at full. A bucket is known by that one number: it lacks as many tokens
// as come in until then.
func (r Rate) take(now, full instant, n int) (after instant, ok bool) {
	if max(full, now) > r.latest(now, n) {
		return full, false
	}
	return max(full, now) + instant(n)*r.perToken(), true
}

// Take reports whether a call of a class may be made now, and counts it. It never waits.
func (b *Budget) Take(ctx context.Context, class string) bool {
	rate, counted := b.rates[class]
	if !counted {
		return true
	}
	now := instant(b.now().UnixMilli())
	b.mu.Lock()
	one := b.bucket(class)
	if one.share > 0 && now < one.shareUntil {
		one.share--
		b.mu.Unlock()
		return true
	}
	if now < one.emptyUntil {
		b.mu.Unlock()
		return false
	}
	known := one.full
	b.mu.Unlock()

	n := max(min(rate.Share, rate.Burst), 1)
	full, ok, err := b.fetch(ctx, class, rate, now, known, n)
	if err == nil && !ok && n > 1 {
		n = 1 // the last tokens go one by one
		full, ok, err = b.fetch(ctx, class, rate, now, full, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		n = 1
		full, ok = rate.take(now, one.full, n)
	}
	one.full = max(one.full, full)
	switch {
	case !ok:
		one.emptyUntil = full - instant(rate.Burst-n)*rate.perToken()
	case n > 1:
		one.share, one.shareUntil = n-1, now+instant(shareLasts.Milliseconds())
	}
	return ok
}

func (b *Budget) bucket(class string) *bucket {
	if b.buckets[class] == nil {
		b.buckets[class] = &bucket{}
	}
	return b.buckets[class]
}

const (
	scopeBudget   = "budget"
	attributeFull = "full_at"
	// tries bounds the calls for one token: the bucket can pass from full to used and back between them.
	tries = 3
)

// fetch takes n tokens out of the shared bucket. There are two cases, a full bucket and a used one, and each is one conditional
// write that needs no read before it; known says which is tried first.
func (b *Budget) fetch(ctx context.Context, class string, rate Rate, now, known instant, n int) (full instant, ok bool, err error) {
	if b.table == nil {
		return 0, false, errAway
	}
	full = known
	for range tries {
		cost := instant(n) * rate.perToken()
		change, condition := "SET full_at = :after, forget_at = :forget", "attribute_not_exists(full_at) OR full_at <= :now"
		values := map[string]int64{":now": int64(now), ":after": int64(now + cost), ":forget": int64(now/1000) + 3600}
		if full > now {
			change, condition = "SET full_at = full_at + :cost, forget_at = :forget", "full_at > :now AND full_at <= :latest"
			values = map[string]int64{":now": int64(now), ":cost": int64(cost), ":latest": int64(rate.latest(now, n)), ":forget": int64(now/1000) + 3600}
		}
		var is row
		is, err = b.table.update(ctx, scopeBudget, class, change, condition, values)
		full = instant(is.numbers[attributeFull])
		if err == nil {
			return full, true, nil
		}
		if !errors.Is(err, errCondition) {
			return full, false, err
		}
		if full > rate.latest(now, n) {
			return full, false, nil
		}
	}
	return full, false, nil
}

// Exhaust notes that EC2 throttled a call of a class: others use the account too. The next token comes when EC2 has made one.
func (b *Budget) Exhaust(ctx context.Context, class string) {
	rate, counted := b.rates[class]
	if !counted {
		return
	}
	now := instant(b.now().UnixMilli())
	full := rate.latest(now, 0)
	b.mu.Lock()
	one := b.bucket(class)
	one.full, one.share = max(one.full, full), 0
	one.emptyUntil = max(one.emptyUntil, now+rate.perToken())
	b.mu.Unlock()
	if b.table == nil {
		return
	}
	// Where this fails the others find out by being throttled themselves.
	_, _ = b.table.update(ctx, scopeBudget, class, "SET full_at = :full, forget_at = :forget",
		"attribute_not_exists(full_at) OR full_at < :full",
		map[string]int64{":full": int64(full), ":forget": int64(now/1000) + 3600})
}

// Guard makes the calls of a client of EC2 ask the budget first; give it to aws.Config as one of its APIOptions. A call for which
// nothing is left fails as EC2 would fail it, with the code RequestLimitExceeded, and is not sent.
func (b *Budget) Guard(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("Budget", b.guard), "Retry", middleware.After)
}

func (b *Budget) guard(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	operation := awsmiddleware.GetOperationName(ctx)
	class := classOf(operation)
	if !b.Take(ctx, class) {
		return middleware.FinalizeOutput{}, middleware.Metadata{}, &smithy.GenericAPIError{
			Code: "RequestLimitExceeded", Message: "not sent: the clusters of this account have used up their calls of " + operation,
		}
	}
	out, meta, err := next.HandleFinalize(ctx, in)
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		if _, throttled := retry.DefaultThrottleErrorCodes[api.ErrorCode()]; throttled {
			b.Exhaust(ctx, class)
		}
	}
	return out, meta, err
}
