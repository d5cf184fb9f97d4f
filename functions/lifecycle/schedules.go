package main

import (
	"context"
	"time"

	"treadle/shared/apply"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/schedule"
)

const (
	// relistEvery is how often a warm function asks anew which schedules there are: one that somebody deleted is made again.
	relistEvery = 10 * time.Minute
	// schedulesPerPass bounds the calls of one pass; the rest has hours or days.
	schedulesPerPass = 50
)

// Schedules has NodeClaims ended at their time. Making one that is there already and deleting one that is gone are no errors.
type Schedules interface {
	Create(ctx context.Context, e schedule.Expiry, atUnix int64) error
	Delete(ctx context.Context, cluster, uid string) error
	// List returns the UIDs of the claims that have a schedule.
	List(ctx context.Context, cluster string) ([]string, error)
}

// scheduleBook remembers which claims have a schedule.
type scheduleBook struct {
	listed time.Time
	known  map[string]bool // by the claim's UID
}

// schedule keeps one schedule for each claim that expires, and none for claims that are gone: whether they were released, forgotten
// by a crash or deleted by hand. Trouble is no more than a warning, because each pass looks at the ages of claims itself.
func (h *Handler) schedule(ctx context.Context, site *Site, snap *cluster.Snapshot) {
	if h.Schedules == nil {
		return
	}
	book, now := &site.schedules, h.Now()
	wanted := expiring(snap)
	if len(wanted) == 0 && len(book.known) == 0 {
		return
	}
	if now.Sub(book.listed) > relistEvery {
		if err := h.relist(ctx, site, now); err != nil {
			h.Log.WarnContext(ctx, "schedules not listed", "cluster", site.Name, "error", err)
			return
		}
	}
	var missing []*cluster.NodeClaim
	for i := range snap.NodeClaims {
		if c := &snap.NodeClaims[i]; wanted[c.UID] && !book.known[c.UID] && len(missing) < schedulesPerPass {
			missing = append(missing, c)
		}
	}
	var orphans []string
	for uid := range book.known {
		if !wanted[uid] && len(orphans) < schedulesPerPass {
			orphans = append(orphans, uid)
		}
	}
	errs := make([]error, len(missing)+len(orphans))
	apply.Each(len(errs), func(i int) {
		if i >= len(missing) {
			errs[i] = h.Schedules.Delete(ctx, site.Name, orphans[i-len(missing)])
			return
		}
		c := missing[i]
		at, _ := disruption.ExpiryUnix(c)
		errs[i] = h.Schedules.Create(ctx, schedule.Expiry{Cluster: site.Name, NodeClaim: c.Name, NodeClaimUID: c.UID}, at)
	})
	for i, err := range errs {
		switch {
		case err != nil:
			h.Log.WarnContext(ctx, "schedule not kept", "cluster", site.Name, "error", err)
		case i < len(missing):
			book.known[missing[i].UID] = true
		default:
			delete(book.known, orphans[i-len(missing)])
		}
	}
}

// relist replaces what is remembered by what Scheduler says.
func (h *Handler) relist(ctx context.Context, site *Site, now time.Time) error {
	uids, err := h.Schedules.List(ctx, site.Name)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(uids))
	for _, uid := range uids {
		known[uid] = true
	}
	site.schedules = scheduleBook{now, known}
	return nil
}

// expiring returns the UIDs of claims whose end lies ahead.
func expiring(snap *cluster.Snapshot) map[string]bool {
	out := map[string]bool{}
	for i := range snap.NodeClaims {
		c := &snap.NodeClaims[i]
		if at, expires := disruption.ExpiryUnix(c); expires && at > snap.NowUnix && c.DeletionUnix == 0 {
			out[c.UID] = true
		}
	}
	return out
}
