package site

import (
	"context"
	"time"

	"treadle/shared/kube"
	"treadle/shared/plan"
)

// Kube is a cluster's API as one invocation uses it: what package kube offers, in the nouns of package plan.
type Kube struct {
	*kube.Client
	// Holder names the function in leases. A function runs once per cluster at a time, so a lease that it holds already is what an
	// invocation left behind that was killed, and is taken over at once.
	Holder string
	Now    func() time.Time
}

// The lease that lets one function at a time decide about a cluster's capacity.
const (
	leaseNamespace = "kube-system"
	leaseName      = "treadle-capacity"
	leaseSeconds   = 30
)

// Event writes an Event, as kube.Client.Event does.
func (k Kube) Event(ctx context.Context, e plan.Event) error {
	return k.Client.Event(ctx, kube.Event{
		Regarding: kube.Regarding{APIVersion: e.APIVersion, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: e.UID},
		Warning:   e.Warning,
		Reason:    e.Reason,
		Note:      e.Note,
		At:        k.Now(),
	})
}

// Decide takes the lease under which capacity is decided about, for at most half a minute: a crash costs no more. The error is
// plan.ErrHeld while another function has it.
func (k Kube) Decide(ctx context.Context) (release func(), err error) {
	give, err := k.AcquireLease(ctx, leaseNamespace, leaseName, k.Holder, leaseSeconds*time.Second, k.Now())
	if err != nil {
		return nil, err
	}
	return func() {
		// Given back even when the invocation's time is over; if that fails the lease runs out by itself.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = give(ctx)
	}, nil
}
