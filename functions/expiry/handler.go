package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"treadle/shared/apply"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/notice"
	"treadle/shared/plan"
	"treadle/shared/store"
)

// errYoung is for a schedule that fired before its claim's time: it is called again later.
var errYoung = errors.New("not old enough yet")

// Event names the claim whose time has come.
type Event struct {
	Cluster      string `json:"cluster"`
	NodeClaim    string `json:"nodeClaim"`
	NodeClaimUID string `json:"nodeClaimUID"`
}

// Summary is what was done.
type Summary struct {
	Expired bool `json:"expired"`
}

// Mirror is a copy of a cluster's state.
type Mirror interface {
	Sync(ctx context.Context) error
	Snapshot(nowUnix int64) cluster.Snapshot
}

// Waker asks for a look at a cluster.
type Waker interface {
	Wake(ctx context.Context, w notice.Wake) error
}

// Counter counts what happened.
type Counter interface {
	Count(name, function, cluster string, n int)
}

// Site is one cluster.
type Site struct {
	Kube   apply.Objects
	Mirror Mirror
}

// Handler ends claims whose time has come.
type Handler struct {
	// Open returns the site of a cluster. store.ErrNotFound: it is not served.
	Open func(ctx context.Context, name string) (*Site, error)
	// Provision and Lifecycle wake the functions that replace a leaving node and see it through.
	Provision, Lifecycle Waker
	Counter              Counter
	Log                  *slog.Logger
	NowUnix              func() int64
}

// Expire deletes the claim that the event names, if it is still there and its age is what the cluster says it may be; the event
// itself decides nothing. An error has the event delivered again; should all deliveries fail, lifecycle finds the claim.
func (h *Handler) Expire(ctx context.Context, e Event) (Summary, error) {
	if e.Cluster == "" || e.NodeClaim == "" || e.NodeClaimUID == "" {
		return Summary{}, fmt.Errorf("expiry: cluster %q, nodeClaim %q, nodeClaimUID %q: none may be empty", e.Cluster, e.NodeClaim, e.NodeClaimUID)
	}
	site, err := h.Open(ctx, e.Cluster)
	if errors.Is(err, store.ErrNotFound) {
		h.Log.WarnContext(ctx, "expiry in a cluster that is not served", "cluster", e.Cluster)
		return Summary{}, nil
	}
	if err != nil {
		return Summary{}, err
	}
	if err := site.Mirror.Sync(ctx); err != nil {
		return Summary{}, fmt.Errorf("read cluster %q: %w", e.Cluster, err)
	}
	snap := site.Mirror.Snapshot(h.NowUnix())
	claim := find(&snap, e)
	if claim == nil || claim.DeletionUnix != 0 {
		h.Log.InfoContext(ctx, "nodeclaim is gone or going", "cluster", e.Cluster, "nodeclaim", e.NodeClaim)
		return Summary{}, nil
	}
	at, expires := disruption.ExpiryUnix(claim)
	if !expires {
		return Summary{}, nil
	}
	if snap.NowUnix < at {
		return Summary{}, fmt.Errorf("nodeclaim %s: %w: %d seconds are left", claim.Name, errYoung, at-snap.NowUnix)
	}
	return h.end(ctx, e.Cluster, site, move(disruption.Expire(&snap), claim))
}

func find(snap *cluster.Snapshot, e Event) *cluster.NodeClaim {
	for i := range snap.NodeClaims {
		if c := &snap.NodeClaims[i]; c.Name == e.NodeClaim && c.UID == e.NodeClaimUID {
			return c
		}
	}
	return nil
}

// move returns what is decided about one claim. Others whose time has come have schedules of their own.
func move(d plan.Decision, claim *cluster.NodeClaim) []plan.Move {
	for _, m := range d.Moves {
		if m.Claim == claim {
			return []plan.Move{m}
		}
	}
	return nil
}

func (h *Handler) end(ctx context.Context, name string, site *Site, moves []plan.Move) (Summary, error) {
	mover := apply.Mover{Cluster: name, Kube: site.Kube, Log: h.Log}
	done, err := mover.Move(ctx, moves)
	if err != nil || !done {
		return Summary{}, err // not done: somebody else deleted it first
	}
	h.Counter.Count("NodeClaimsExpired", "expiry", name, len(moves))
	for _, waker := range []Waker{h.Provision, h.Lifecycle} {
		if err := waker.Wake(ctx, notice.Wake{Cluster: name, Why: "a nodeclaim expired"}); err != nil {
			h.Log.ErrorContext(ctx, "wake-up lost, the sweep will find it", "cluster", name, "error", err)
		}
	}
	return Summary{Expired: len(moves) > 0}, nil
}
