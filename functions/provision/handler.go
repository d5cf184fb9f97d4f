package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"treadle/shared/apply"
	"treadle/shared/buffer"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/ledger"
	"treadle/shared/market"
	"treadle/shared/nodeclass"
	"treadle/shared/notice"
	"treadle/shared/overlay"
	"treadle/shared/packing"
	"treadle/shared/plan"
	"treadle/shared/store"
)

// settle is how long a wake-up waits before it looks: the webhook is called before the fact that it speaks of is written.
const settle = 150 * time.Millisecond

// rounds bounds how often one wake-up plans anew around what EC2 refused.
const rounds = 6

// Cluster is what provisioning needs of a cluster's API.
type Cluster interface {
	apply.Objects
	apply.Claims
	PatchNodePool(ctx context.Context, old, new cluster.NodePool) error
	PatchNodePoolStatus(ctx context.Context, old, new cluster.NodePool) error
	PatchNodeClass(ctx context.Context, old, new cluster.NodeClass) error
	PatchNodeClassStatus(ctx context.Context, old, new cluster.NodeClass) error
	PatchNodeOverlayStatus(ctx context.Context, old, new cluster.NodeOverlay) error
	PatchCapacityBufferStatus(ctx context.Context, old, new cluster.CapacityBuffer) error
	// Decide takes the lease that lets one function at a time decide about capacity. plan.ErrHeld: another one is deciding.
	Decide(ctx context.Context) (release func(), err error)
}

// Mirror is a copy of the cluster's state.
type Mirror interface {
	Sync(ctx context.Context) error
	Snapshot(nowUnix int64) cluster.Snapshot
}

// Classes finds what NodeClasses select.
type Classes interface {
	Resolve(ctx context.Context, class cluster.NodeClass, facts nodeclass.Facts) (cluster.NodeClassStatus, error)
	Release(ctx context.Context, class cluster.NodeClass, facts nodeclass.Facts) error
}

// Templates makes launch templates.
type Templates interface {
	Prepare(ctx context.Context, o nodeclass.Order) (nodeclass.Prepared, error)
	Forget(names ...string)
	Delete(ctx context.Context, clusterName, class string) error
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
	Facts  nodeclass.Facts // less NowUnix
	Kube   Cluster
	Mirror Mirror
	Fleet  apply.Fleet
	*Memory
}

// Memory is what a warm function remembers of a cluster. Its zero value remembers nothing, which costs calls and no more.
type Memory struct {
	Addresses *nodeclass.Addresses
	// resolved remembers, by class, when and in which generation it was last resolved.
	resolved map[string]resolution
	// tidiedAt is when leftovers were last looked for, unused since when each profile was seen to be one.
	tidiedAt time.Time
	unused   map[string]time.Time
}

// Handler plans and launches nodes for the pods of a cluster.
type Handler struct {
	// Open returns the site of a cluster. store.ErrNotFound: it is not served.
	Open      func(ctx context.Context, name string) (*Site, error)
	Classes   Classes
	Templates Templates
	Market    market.Types
	Tidier    Tidier
	// Ledger is what all clusters know of EC2.
	Ledger *ledger.Ledger
	// Again and Lifecycle wake this function and the one that sees launched nodes through.
	Again, Lifecycle Waker
	Counter          Counter
	Log              *slog.Logger
	Now              func() time.Time
	Sleep            func(context.Context, time.Duration)
}

// Provision looks at the cluster once: it brings interrupted launches to their end, resolves what classes select, launches
// NodeClaims that came without a launch, packs the pods that no node takes, and launches what the plan asks for; then, around what EC2 refused, again.
func (h *Handler) Provision(ctx context.Context, w notice.Wake) error {
	site, err := h.Open(ctx, w.Cluster)
	if errors.Is(err, store.ErrNotFound) {
		h.Log.WarnContext(ctx, "wake-up for a cluster that is not served", "cluster", w.Cluster)
		return nil
	}
	if err != nil {
		return err
	}
	h.Sleep(ctx, settle)
	release, err := site.Kube.Decide(ctx)
	if errors.Is(err, plan.ErrHeld) {
		return h.put(ctx, w, "another function is deciding")
	}
	if err != nil {
		return err
	}
	defer release()
	h.Ledger.Read(ctx, h.Now())
	for range rounds {
		again, err := h.round(ctx, site)
		switch {
		case errors.Is(err, plan.ErrThrottled):
			return h.put(ctx, w, "EC2 throttles")
		case errors.Is(err, errUndecided):
			return h.put(ctx, w, err.Error())
		}
		if err != nil || !again {
			return err
		}
	}
	return h.put(ctx, w, "capacity is still being refused")
}

// errUndecided says that pods wait for a class of which EC2 cannot say yet whether it will do: a fresh instance profile takes
// seconds to be seen.
var errUndecided = errors.New("a nodeclass is not known to be ready yet")

// undecided reports whether pods are unplaced while a class may become ready by itself any moment.
func undecided(snap *cluster.Snapshot, p plan.Plan) bool {
	return len(p.Unplaced) > 0 && slices.ContainsFunc(snap.NodeClasses, func(c cluster.NodeClass) bool {
		return c.Status.Conditions.Get(cluster.ConditionReady).Status == "Unknown"
	})
}

// put asks for another look and acknowledges this one: what has to wait is no failure, and must not count as one.
func (h *Handler) put(ctx context.Context, w notice.Wake, why string) error {
	h.Log.InfoContext(ctx, "looking again soon", "cluster", w.Cluster, "reason", why)
	if err := h.Again.Wake(ctx, notice.Wake{Cluster: w.Cluster, Why: why}); err != nil {
		return fmt.Errorf("look again: %w", err)
	}
	return nil
}

// round observes, decides and applies once. again says that EC2 refused something, so that another plan may do better.
func (h *Handler) round(ctx context.Context, site *Site) (again bool, err error) {
	start := h.Now()
	if err := site.Mirror.Sync(ctx); err != nil {
		return false, fmt.Errorf("read cluster %q: %w", site.Name, err)
	}
	snap := site.Mirror.Snapshot(start.Unix())
	buffer.Fill(&snap)
	if err := h.conditions(ctx, site, &snap); err != nil {
		return false, err
	}
	for _, r := range disruption.Reclaimed(&snap) {
		h.Ledger.Add(start, plan.Launch{CapacityType: r.CapacityType}, []plan.Refusal{r})
	}
	h.Ledger.Learn(snap.NodeClaims, snap.Nodes)
	h.Ledger.Write(ctx, start)
	if err := market.Fill(ctx, h.Market, &snap, h.Ledger.RefusedAt(start)); err != nil {
		return false, err
	}
	h.overlay(ctx, site, &snap)
	if err := disruption.Bed(&snap); err != nil {
		h.Log.WarnContext(ctx, "nodepool does not sleep", "cluster", site.Name, "error", err)
	}
	resumed, err := h.resume(ctx, site, &snap)
	if resumed || err != nil {
		return resumed, err // what was launched is not in this snapshot
	}
	scaled, err := h.static(ctx, site, &snap)
	if scaled || err != nil {
		return scaled, err
	}
	adopted, err := h.adopt(ctx, site, &snap)
	if adopted || err != nil {
		return adopted, err
	}
	p := packing.Pack(snap, packing.Options{})
	h.explain(ctx, site, p)
	h.buffers(ctx, site, &snap, p)
	out, err := h.launch(ctx, site, &snap, p)
	h.Log.InfoContext(ctx, "plan applied", "cluster", site.Name, "plan_id", p.ID, "placed", len(p.Placed), "claims", len(p.Claims),
		"unplaced", len(p.Unplaced), "refused", out.refused, "dur_ms", h.Now().Sub(start).Milliseconds())
	h.launched(ctx, site, out.claims)
	if err == nil && out.claims == 0 {
		h.tidy(ctx, site, &snap) // nobody waits for anything else
	}
	if err == nil && out.refused == 0 && undecided(&snap, p) {
		err = errUndecided
	}
	// Room that is kept on a node under way is kept, which is to be said at once.
	return out.refused > 0 || out.claims > 0 && buffer.Grows(p), err
}

// overlay applies NodeOverlays to the instance types, and keeps what they say of themselves true. That no launch waits for: what could not
// be written is written by the next look.
func (h *Handler) overlay(ctx context.Context, site *Site, snap *cluster.Snapshot) {
	for i, want := range overlay.Apply(snap) {
		old := snap.Overlays[i]
		if was, is := old.Conditions.Get(cluster.ConditionReady), want.Conditions.Get(cluster.ConditionReady); is.Status != "True" && was.Message != is.Message {
			h.Log.WarnContext(ctx, "nodeoverlay not applied", "cluster", site.Name, "nodeoverlay", want.Name, "reason", is.Message)
		}
		if err := site.Kube.PatchNodeOverlayStatus(ctx, old, want); err != nil && !stale(err) {
			h.Log.WarnContext(ctx, "status not written", "cluster", site.Name, "nodeoverlay", want.Name, "error", err)
		}
	}
}

// buffers keeps what CapacityBuffers say of their room true, as overlay does.
func (h *Handler) buffers(ctx context.Context, site *Site, snap *cluster.Snapshot, p plan.Plan) {
	for i, want := range buffer.Statuses(snap, p) {
		if err := site.Kube.PatchCapacityBufferStatus(ctx, snap.Buffers[i], want); err != nil && !stale(err) {
			h.Log.WarnContext(ctx, "status not written", "cluster", site.Name, "capacitybuffer", want.Namespace+"/"+want.Name, "error", err)
		}
	}
}

// launched lets the new nodes be seen through.
func (h *Handler) launched(ctx context.Context, site *Site, claims int) {
	if claims == 0 {
		return
	}
	h.Counter.Count("NodeClaimsLaunched", "provision", site.Name, claims)
	h.wakeLifecycle(ctx, site, "nodes launched")
}

func (h *Handler) wakeLifecycle(ctx context.Context, site *Site, why string) {
	if err := h.Lifecycle.Wake(ctx, notice.Wake{Cluster: site.Name, Why: why}); err != nil {
		h.Log.ErrorContext(ctx, "wake-up lost, the sweep will find it", "cluster", site.Name, "error", err)
	}
}
