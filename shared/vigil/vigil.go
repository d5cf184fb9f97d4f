package vigil

import (
	"context"
	"fmt"
	"time"

	"treadle/shared/notice"
	"treadle/shared/plan"
)

const (
	// reserve is the part of an invocation's time that is kept for the last pass and for waking the next one.
	reserve = 8 * time.Second
	// patience is how far ahead the next thing to do may lie for the function to wait for it rather than end; the sweep looks every
	// minute.
	patience = 10 * time.Second
	// calm is how long a pass waits after a change: changes come in bursts.
	calm = 250 * time.Millisecond
)

// Mirror is a copy of the cluster's state. Await blocks until something changed and is in the copy, or ctx is done.
type Mirror interface {
	Sync(ctx context.Context) error
	Await(ctx context.Context) error
}

// Waker asks for a look at a cluster.
type Waker interface {
	Wake(ctx context.Context, w notice.Wake) error
}

// Vigil is one invocation at one cluster.
type Vigil struct {
	Cluster string
	Mirror  Mirror
	// Again wakes the function that keeps the vigil.
	Again Waker
	Now   func() time.Time
	Sleep func(context.Context, time.Duration)
}

// Keep calls pass, with the mirror in step, until its decision leaves nothing that is to be waited for, or until the time of ctx is nearly
// up: then it asks for another invocation.
func (v *Vigil) Keep(ctx context.Context, pass func(context.Context) (plan.Decision, error)) error {
	end := v.Now().Add(time.Minute)
	if deadline, ok := ctx.Deadline(); ok {
		end = deadline
	}
	end = end.Add(-reserve)
	if err := v.sync(ctx); err != nil {
		return err
	}
	for {
		d, err := pass(ctx)
		if err != nil {
			return err
		}
		now := v.Now()
		next := time.Unix(d.NextUnix, 0)
		soon := d.NextUnix != 0 && next.Before(now.Add(patience))
		if !d.Waiting && !soon {
			return nil
		}
		if !now.Before(end) {
			if err := v.Again.Wake(ctx, notice.Wake{Cluster: v.Cluster, Why: "unfinished"}); err != nil {
				return fmt.Errorf("wake for the rest: %w", err)
			}
			return nil
		}
		until := end
		if d.NextUnix != 0 && next.Before(until) {
			until = next
		}
		if err := v.await(ctx, until); err != nil {
			return err
		}
	}
}

// await returns at the given instant, or calm after something changed.
func (v *Vigil) await(ctx context.Context, until time.Time) error {
	wait, cancel := context.WithTimeout(ctx, max(until.Sub(v.Now()), calm))
	defer cancel()
	err := v.Mirror.Await(wait)
	if err != nil && wait.Err() == nil {
		return fmt.Errorf("watch cluster %q: %w", v.Cluster, err)
	}
	if err == nil {
		v.Sleep(ctx, calm)
	}
	return v.sync(ctx)
}

func (v *Vigil) sync(ctx context.Context) error {
	if err := v.Mirror.Sync(ctx); err != nil {
		return fmt.Errorf("read cluster %q: %w", v.Cluster, err)
	}
	return nil
}
