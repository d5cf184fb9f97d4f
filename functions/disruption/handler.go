package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"treadle/shared/apply"
	"treadle/shared/buffer"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/ledger"
	"treadle/shared/market"
	"treadle/shared/notice"
	"treadle/shared/overlay"
	"treadle/shared/packing"
	"treadle/shared/plan"
	"treadle/shared/store"
	"treadle/shared/vigil"
)

const (
	// instancesEvery is how often EC2 is asked what instances really are (D-071).
	instancesEvery = 5 * time.Minute
	// decideEvery is how often a cluster in which nothing has changed is thought about again (D-048): prices change, and budgets open.
	decideEvery = 5 * time.Minute
	// repeatEvery is how often the same Event is written again (D-016).
	repeatEvery = 15 * time.Minute
)

// Cluster is what this function needs of a cluster's API.
type Cluster interface {
	apply.Objects
	apply.Claims
	// Decide takes the lease that lets one function at a time decide about capacity. plan.ErrHeld: another one is deciding.
	Decide(ctx context.Context) (release func(), err error)
}

// Mirror is a copy of the cluster's state.
type Mirror interface {
	vigil.Mirror
	Snapshot(nowUnix int64) cluster.Snapshot
}

// Instances lists the instances of the cluster that have not ended.
type Instances interface {
	List(ctx context.Context) ([]cluster.Instance, error)
}

// Counter counts what happened.
type Counter interface {
	Count(name, function, cluster string, n int)
}

// Site is one cluster and its surroundings.
type Site struct {
	Name      string
	Kube      Cluster
	Mirror    Mirror
	Instances Instances
	*Memory
}

// Memory is what a warm function remembers of a cluster. Its zero value remembers nothing, which costs time and no more.
type Memory struct {
	sights  cluster.Sights
	listed  time.Time
	fruit   fruitless
	noticed map[plan.Event]time.Time
}

// fruitless is a state of the cluster in which there was nothing to decide.
type fruitless struct {
	state uint64
	at    time.Time
}

// Handler replaces nodes that are no longer what they should be, and makes the cluster cheaper.
type Handler struct {
	// Open returns the site of a cluster. store.ErrNotFound: it is not served.
	Open   func(ctx context.Context, name string) (*Site, error)
	Market market.Types
	// Ledger is what all clusters know of EC2.
	Ledger *ledger.Ledger
	// SpotToSpot is Karpenter's feature gate SpotToSpotConsolidation.
	SpotToSpot bool
	// Again, Provision and Lifecycle wake this function, the one that launches, and the one that sees leaving nodes off.
	Again, Provision, Lifecycle vigil.Waker
	Counter                     Counter
	Log                         *slog.Logger
	Now                         func() time.Time
	Sleep                       func(context.Context, time.Duration)
}

// Disrupt looks at the nodes of a cluster: it notes which have drifted and which are at rest, carries on the commands that are under way,
// and decides on new ones. It stays for as long as a command waits for its replacements.
func (h *Handler) Disrupt(ctx context.Context, w notice.Wake) error {
	site, err := h.Open(ctx, w.Cluster)
	if errors.Is(err, store.ErrNotFound) {
		h.Log.WarnContext(ctx, "wake-up for a cluster that is not served", "cluster", w.Cluster)
		return nil
	}
	if err != nil {
		return err
	}
	v := vigil.Vigil{Cluster: site.Name, Mirror: site.Mirror, Again: h.Again, Now: h.Now, Sleep: h.Sleep}
	return v.Keep(ctx, func(ctx context.Context) (plan.Decision, error) { return h.pass(ctx, site) })
}

// pass observes, decides and applies once.
func (h *Handler) pass(ctx context.Context, site *Site) (plan.Decision, error) {
	snap := site.Mirror.Snapshot(h.Now().Unix())
	buffer.Fill(&snap)
	if len(snap.NodeClaims) == 0 {
		return plan.Decision{}, nil
	}
	if err := h.fill(ctx, &snap); err != nil {
		return plan.Decision{}, err
	}
	d := disruption.Observe(&snap, h.look(ctx, site))
	under := disruption.Carry(&snap)
	d.Merge(under)
	mover := &apply.Mover{Cluster: site.Name, Kube: site.Kube, Log: h.Log}
	done, err := mover.Move(ctx, d.Moves)
	if err != nil {
		return d, err
	}
	if !done || len(d.Moves) > 0 {
		d.Again(h.Now().Unix() + 1) // what was just written decides what comes next
		d.Waiting = true
	}
	if deletes(under.Moves) {
		h.wake(ctx, h.Lifecycle, site.Name, "nodes disrupted")
	}
	if len(d.Moves) > 0 {
		return d, nil
	}
	return d, h.decide(ctx, site, &snap, mover, &d)
}

func deletes(moves []plan.Move) bool {
	for _, m := range moves {
		if m.DeleteClaim {
			return true
		}
	}
	return false
}

// fill puts what EC2 has to offer into snap.
func (h *Handler) fill(ctx context.Context, snap *cluster.Snapshot) error {
	now := h.Now()
	h.Ledger.Read(ctx, now)
	if err := market.Fill(ctx, h.Market, snap, h.Ledger.RefusedAt(now)); err != nil {
		return err
	}
	overlay.Apply(snap)
	return nil
}

// look returns what EC2 says about the instances, at most as old as instancesEvery. Where it says nothing, what it would tell is not looked at.
func (h *Handler) look(ctx context.Context, site *Site) cluster.Sights {
	now := h.Now()
	if now.Sub(site.listed) < instancesEvery {
		return site.sights
	}
	all, err := site.Instances.List(ctx)
	if err != nil {
		h.Log.WarnContext(ctx, "instances not listed, looking for their drift later", "cluster", site.Name, "error", err)
		return site.sights
	}
	site.listed, site.sights = now, make(cluster.Sights, len(all))
	for _, one := range all {
		site.sights[one.ID] = cluster.Sight{Instance: one, Found: true}
	}
	return site.sights
}

// decide looks for commands and begins them. Since that is a decision about capacity, it is made under the lease and from a state of the
// cluster that was read under it.
func (h *Handler) decide(ctx context.Context, site *Site, snap *cluster.Snapshot, mover *apply.Mover, d *plan.Decision) error {
	if err := disruption.Bed(snap); err != nil {
		h.Log.WarnContext(ctx, "nodepool does not sleep", "cluster", site.Name, "error", err)
	}
	if !disruption.Disruptable(snap) || (state(snap) == site.fruit.state && h.Now().Sub(site.fruit.at) < decideEvery) {
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
	start := h.Now()
	fresh := site.Mirror.Snapshot(start.Unix())
	buffer.Fill(&fresh)
	fresh.Types, fresh.Overlaid = snap.Types, snap.Overlaid
	_ = disruption.Bed(&fresh) // what is wrong was said above
	wanted, buffers := packing.Seats(&fresh)
	commands, events := disruption.Decide(&fresh, disruption.Options{Wanted: wanted, Buffers: buffers, SpotToSpot: h.SpotToSpot})
	h.tell(ctx, site, events)
	h.Log.InfoContext(ctx, "disruption decided", "cluster", site.Name, "nodes", len(fresh.Nodes), "commands", len(commands),
		"blocked", len(events), "dur_ms", h.Now().Sub(start).Milliseconds())
	if len(commands) == 0 {
		site.fruit = fruitless{state(&fresh), start}
		return nil
	}
	replacements := 0
	for _, c := range commands {
		if err := h.begin(ctx, site, &fresh, mover, c); err != nil {
			return err
		}
		replacements += len(c.Replacements)
	}
	if replacements > 0 {
		h.wake(ctx, h.Provision, site.Name, "replacements to launch")
	}
	d.Waiting = true
	d.Again(h.Now().Unix() + 1)
	return nil
}

// begin announces a command on the claims that leave by it and then makes its replacements, which provisioning launches. A kill in between
// leaves a command without its replacements, which the next look takes back.
func (h *Handler) begin(ctx context.Context, site *Site, snap *cluster.Snapshot, mover *apply.Mover, c plan.Command) error {
	log := h.Log.With("cluster", site.Name, "command", c.ID, "reason", c.Reason)
	log.InfoContext(ctx, "disrupting nodes", "nodeclaims", c.Leaving, "replacements", len(c.Replacements), "note", c.Note)
	h.Counter.Count("NodesDisrupted"+c.Reason, "disruption", site.Name, len(c.Leaving))
	wants := make([]cluster.NodeClaim, 0, len(c.Replacements))
	names := make([]string, 0, len(c.Replacements))
	for n, r := range c.Replacements {
		pool := snap.Pool(r.NodePool)
		wants = append(wants, apply.NodeClaim(pool, snap.Class(pool.Template.NodeClass), r, plan.Launch{}))
		names = append(names, apply.ClaimName(pool.Name, c.ID, n, 0))
	}
	announced, err := mover.Move(ctx, disruption.Begin(snap, c, names))
	if err != nil || !announced {
		log.InfoContext(ctx, "command not announced in full, it will be taken back", "error", err)
		return err
	}
	made, err := apply.Create(ctx, site.Kube, c.ID, wants)
	log.InfoContext(ctx, "command begun", "made", len(made), "error", err)
	return err
}

// tell writes Events about nodes that cannot be disrupted, each once in a while.
func (h *Handler) tell(ctx context.Context, site *Site, events []plan.Event) {
	now := h.Now()
	for e, at := range site.noticed {
		if now.Sub(at) >= repeatEvery {
			delete(site.noticed, e)
		}
	}
	for _, e := range events {
		if _, told := site.noticed[e]; told {
			continue
		}
		if err := site.Kube.Event(ctx, e); err != nil {
			h.Log.DebugContext(ctx, "event not written", "cluster", site.Name, "event", e.Reason, "error", err)
			continue
		}
		if site.noticed == nil {
			site.noticed = map[plan.Event]time.Time{}
		}
		site.noticed[e] = now
	}
}

func (h *Handler) wake(ctx context.Context, who vigil.Waker, name, why string) {
	if err := who.Wake(ctx, notice.Wake{Cluster: name, Why: why}); err != nil {
		h.Log.WarnContext(ctx, "wake-up lost, the sweep will find it", "cluster", name, "error", err)
	}
}

// state hashes what a decision depends on, prices and the time of day apart.
func state(snap *cluster.Snapshot) uint64 {
	f := fnv.New64a()
	for i := range snap.Pods {
		p := &snap.Pods[i]
		_, _ = fmt.Fprint(f, p.UID, p.NodeName, p.Phase, p.DeletionUnix, p.Unschedulable, p.Annotations) // a hash cannot fail
	}
	for i := range snap.Nodes {
		_, _ = fmt.Fprint(f, snap.Nodes[i].Name, snap.Nodes[i].ResourceVersion)
	}
	for i := range snap.NodeClaims {
		_, _ = fmt.Fprint(f, snap.NodeClaims[i].Name, snap.NodeClaims[i].ResourceVersion)
	}
	for i := range snap.NodePools {
		_, _ = fmt.Fprint(f, snap.NodePools[i].Name, snap.NodePools[i].Generation, snap.NodePools[i].Asleep)
	}
	for i := range snap.Overlays {
		_, _ = fmt.Fprint(f, snap.Overlays[i].Name, snap.Overlays[i].Generation)
	}
	for i := range snap.Budgets {
		_, _ = fmt.Fprint(f, snap.Budgets[i])
	}
	return f.Sum64()
}
