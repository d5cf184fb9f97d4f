package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"treadle/shared/apply"
	"treadle/shared/buffer"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/joining"
	"treadle/shared/notice"
	"treadle/shared/packing"
	"treadle/shared/plan"
	"treadle/shared/readiness"
	"treadle/shared/store"
	"treadle/shared/vigil"
)

// lookEvery is how often EC2 is asked about the same instances.
const lookEvery = 5 * time.Second

// Cluster is what this function needs of a cluster's API.
type Cluster interface {
	apply.Objects
	PatchNodePool(ctx context.Context, old, new cluster.NodePool) error
	PatchNodePoolStatus(ctx context.Context, old, new cluster.NodePool) error
	// Decide takes the lease that lets one function at a time decide about capacity. plan.ErrHeld: another one is deciding.
	Decide(ctx context.Context) (release func(), err error)
}

// Mirror is a copy of the cluster's state. Await blocks until something changed and is in the copy, or ctx is done.
type Mirror interface {
	Sync(ctx context.Context) error
	Await(ctx context.Context) error
	Snapshot(nowUnix int64) cluster.Snapshot
}

// Fleet is the instances of the cluster.
type Fleet interface {
	apply.Instances
	// Describe returns those of the instances that EC2 knows.
	Describe(ctx context.Context, ids ...cluster.InstanceID) ([]cluster.Instance, error)
	// List returns every instance that carries the cluster's tags and has not ended.
	List(ctx context.Context) ([]cluster.Instance, error)
	Tag(ctx context.Context, id cluster.InstanceID, tags map[string]string) error
}

// Waker asks for a look at a cluster.
type Waker interface {
	Wake(ctx context.Context, w notice.Wake) error
}

// Counter counts what happened.
type Counter interface {
	Count(name, function, cluster string, n int)
}

// Site is one cluster and its surroundings.
type Site struct {
	Name   string
	Kube   Cluster
	Mirror Mirror
	Fleet  Fleet
	*Memory
}

// Memory is what a warm function remembers of a cluster. Its zero value remembers nothing, which costs calls and no more.
type Memory struct {
	orphans   orphanBook
	schedules scheduleBook
}

// Handler sees nodes through their lives.
type Handler struct {
	// Open returns the site of a cluster. store.ErrNotFound: it is not served.
	Open func(ctx context.Context, name string) (*Site, error)
	// Again and Provision wake this function and the one that launches.
	Again, Provision Waker
	// Schedules has claims ended to the second; nil: they end at the next look.
	Schedules Schedules
	// NodeRepair is Karpenter's feature gate of that name: nodes that have been sick for too long are given up.
	NodeRepair bool
	Counter    Counter
	Log        *slog.Logger
	Now        func() time.Time
	Sleep      func(context.Context, time.Duration)
}

// Lifecycle sees through what is under way in the cluster: nodes that join, nodes that nobody needs, drains, terminations, orphans. It
// waits with watches open for as long as something is unfinished, and when its time is up wakes itself for the rest.
func (h *Handler) Lifecycle(ctx context.Context, w notice.Wake) error {
	site, err := h.Open(ctx, w.Cluster)
	if errors.Is(err, store.ErrNotFound) {
		h.Log.WarnContext(ctx, "wake-up for a cluster that is not served", "cluster", w.Cluster)
		return nil
	}
	if err != nil {
		return err
	}
	look := &looker{fleet: site.Fleet, now: h.Now}
	v := vigil.Vigil{Cluster: site.Name, Mirror: site.Mirror, Again: h.Again, Now: h.Now, Sleep: h.Sleep}
	return v.Keep(ctx, func(ctx context.Context) (plan.Decision, error) { return h.pass(ctx, site, look) })
}

// pass observes, decides and applies once.
func (h *Handler) pass(ctx context.Context, site *Site, look *looker) (plan.Decision, error) {
	snap := site.Mirror.Snapshot(h.Now().Unix())
	buffer.Fill(&snap)
	sights, err := look.at(ctx, &snap)
	if err != nil {
		return plan.Decision{}, err
	}
	d := joining.Decide(&snap, sights)
	d.Merge(disruption.Expire(&snap))
	if h.NodeRepair {
		d.Merge(disruption.Repair(&snap))
	}
	d.Merge(disruption.Drain(&snap, sights))
	mover := &apply.Mover{Cluster: site.Name, Kube: site.Kube, Instances: site.Fleet, Log: h.Log}
	done, err := mover.Move(ctx, d.Moves)
	look.forget(d.Moves)
	if err != nil {
		return d, err
	}
	if !done {
		d.Again(h.Now().Unix() + 1)
	} else {
		h.joins(ctx, site, &snap, d.Moves)
	}
	h.count(site, d.Moves)
	if err := h.empty(ctx, site, &snap, mover, &d); err != nil {
		return d, err
	}
	if err := h.pools(ctx, site, &snap); err != nil {
		return d, err
	}
	h.tag(ctx, site, &snap)
	h.schedule(ctx, site, &snap)
	h.wakeProvision(ctx, site, &snap, d.Moves)
	return d, h.endOrphans(ctx, site, &snap, &d)
}

// empty takes away nodes that no pod needs. Since that is a decision about capacity, it is made under the lease and from a state of
// the cluster that was read under it.
func (h *Handler) empty(ctx context.Context, site *Site, snap *cluster.Snapshot, mover *apply.Mover, d *plan.Decision) error {
	found := disruption.Empty(snap, packing.Expected(snap))
	if len(found.Moves) == 0 {
		d.Merge(found)
		return nil
	}
	release, err := site.Kube.Decide(ctx)
	if errors.Is(err, plan.ErrHeld) {
		d.Again(h.Now().Unix() + 1)
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if err := site.Mirror.Sync(ctx); err != nil {
		return fmt.Errorf("read cluster %q: %w", site.Name, err)
	}
	fresh := site.Mirror.Snapshot(h.Now().Unix())
	buffer.Fill(&fresh)
	found = disruption.Empty(&fresh, packing.Expected(&fresh))
	d.Merge(found)
	h.count(site, found.Moves)
	_, err = mover.Move(ctx, found.Moves)
	return err
}

// joins notes in NodePools which nodes have joined and which have not. One that could not be noted is missed by the pool's health, and by
// nothing else.
func (h *Handler) joins(ctx context.Context, site *Site, snap *cluster.Snapshot, moves []plan.Move) {
	for name, want := range readiness.Joins(snap, moves) {
		pool := snap.Pool(name)
		if err := site.Kube.PatchNodePool(ctx, *pool, want); err != nil {
			h.Log.WarnContext(ctx, "joins not noted", "cluster", site.Name, "nodepool", name, "error", err)
			continue
		}
		want.ResourceVersion = "" // what was just written has changed it
		*pool = want
	}
}

// pools keeps what NodePools say of their nodes true.
func (h *Handler) pools(ctx context.Context, site *Site, snap *cluster.Snapshot) error {
	var errs []error
	for i, want := range readiness.Pools(snap) {
		err := site.Kube.PatchNodePoolStatus(ctx, snap.NodePools[i], want)
		if err != nil && !errors.Is(err, plan.ErrConflict) && !errors.Is(err, plan.ErrNotFound) {
			errs = append(errs, fmt.Errorf("write status of nodepool %s: %w", want.Name, err))
		}
	}
	return errors.Join(errs...)
}

// wakeProvision has what only provisioning can end brought to its end.
func (h *Handler) wakeProvision(ctx context.Context, site *Site, snap *cluster.Snapshot, moves []plan.Move) {
	why := unfinished(snap, moves)
	if why == "" {
		return
	}
	if err := h.Provision.Wake(ctx, notice.Wake{Cluster: site.Name, Why: why}); err != nil {
		h.Log.WarnContext(ctx, "wake-up lost, the sweep will find it", "cluster", site.Name, "error", err)
	}
}

// unfinished says what provisioning has to see to, empty if nothing. A deleted claim whose launch is unfinished can go only when it is
// known whether its instance exists; a deleted class goes after its last claim, of whose end the webhook tells nobody.
func unfinished(snap *cluster.Snapshot, moves []plan.Move) string {
	for _, group := range plan.Groups(snap.NodeClaims) {
		if slices.ContainsFunc(group.Open(), func(c *cluster.NodeClaim) bool { return c.DeletionUnix != 0 }) {
			return "a deleted nodeclaim's launch is unfinished"
		}
	}
	released := slices.ContainsFunc(moves, func(m plan.Move) bool { return m.Release })
	if released && slices.ContainsFunc(snap.NodeClasses, func(c cluster.NodeClass) bool { return c.DeletionUnix != 0 }) {
		return "a deleted nodeclass may go"
	}
	return ""
}

// count reports moves as metrics.
func (h *Handler) count(site *Site, moves []plan.Move) {
	counts := map[string]int{}
	for _, m := range moves {
		switch {
		case m.Release:
			counts["NodeClaimsTerminated"]++
		case m.Reason == "register" && m.WantNode != nil:
			counts["NodeClaimsRegistered"]++
		case m.Reason == "initialize" && m.WantNode != nil:
			counts["NodeClaimsInitialized"]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		h.Counter.Count(name, "lifecycle", site.Name, counts[name])
	}
}
