package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/fleet"
	"treadle/shared/plan"
)

// looker asks EC2 about instances whose state decides something, not oftener than every few seconds.
type looker struct {
	fleet  Fleet
	now    func() time.Time
	last   time.Time
	sights cluster.Sights
}

// at returns what EC2 says about the instances that matter in snap.
func (l *looker) at(ctx context.Context, snap *cluster.Snapshot) (cluster.Sights, error) {
	ids := inQuestion(snap)
	missing := slices.ContainsFunc(ids, func(id cluster.InstanceID) bool { _, ok := l.sights[id]; return !ok })
	if len(ids) == 0 || (!missing && l.now().Sub(l.last) < lookEvery) {
		return l.sights, nil
	}
	found, err := l.fleet.Describe(ctx, ids...)
	if err != nil {
		return nil, fmt.Errorf("look at instances: %w", err)
	}
	l.last = l.now()
	l.sights = make(cluster.Sights, len(ids))
	for _, id := range ids {
		l.sights[id] = cluster.Sight{}
	}
	for _, one := range found {
		l.sights[one.ID] = cluster.Sight{Instance: one, Found: true}
	}
	return l.sights, nil
}

// forget drops what is known of instances that were just ended, so that the next look sees them end rather than ends them again.
func (l *looker) forget(moves []plan.Move) {
	for _, m := range moves {
		if m.Terminate != "" {
			delete(l.sights, m.Terminate)
		}
	}
}

// inQuestion returns the instances whose state decides what happens next: those whose node has not joined, is going, or is not
// ready.
func inQuestion(snap *cluster.Snapshot) []cluster.InstanceID {
	var ids []cluster.InstanceID
	for _, m := range snap.Members() {
		var id cluster.InstanceID
		switch {
		case m.Claim != nil:
			id = cluster.InstanceOf(m.Claim.ProviderID)
			joined := m.Claim.Conditions.True(cluster.ConditionRegistered) && m.Node != nil && m.Node.Ready()
			if m.Claim.DeletionUnix == 0 && joined {
				continue
			}
		case m.Node.DeletionUnix != 0 && slices.Contains(m.Node.Finalizers, cluster.FinalizerTermination):
			id = cluster.InstanceOf(m.Node.ProviderID)
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

const (
	// orphanEvery is how often all instances of the cluster are listed.
	orphanEvery = time.Minute
	// secondSighting is how long after the first an orphan must be seen again before it is ended (R24).
	secondSighting = 15 * time.Second
)

// orphanBook remembers which instances looked like orphans, and since when.
type orphanBook struct {
	listed time.Time
	seen   map[cluster.InstanceID]time.Time
}

// endOrphans ends the instances that belong to nobody, at the second sighting.
func (h *Handler) endOrphans(ctx context.Context, site *Site, snap *cluster.Snapshot, d *plan.Decision) error {
	book, now := &site.orphans, h.Now()
	if len(book.seen) == 0 && now.Sub(book.listed) < orphanEvery {
		return nil
	}
	for _, since := range book.seen {
		if due := since.Add(secondSighting); now.Before(due) {
			d.Again(due.Unix() + 1)
			d.Waiting = true // what was seen is in memory only, and a cluster at rest is hardly ever looked at
			return nil
		}
	}
	listed, err := site.Fleet.List(ctx)
	if err != nil {
		h.Log.WarnContext(ctx, "instances not listed, looking for orphans later", "cluster", site.Name, "error", err)
		return nil
	}
	book.listed = now
	orphans := disruption.Orphans(snap, listed)
	seen := make(map[cluster.InstanceID]time.Time, len(orphans))
	var proven []cluster.InstanceID
	for _, id := range orphans {
		if _, before := book.seen[id]; before {
			proven = append(proven, id)
			continue
		}
		seen[id] = now
		d.Again(now.Add(secondSighting).Unix() + 1)
		d.Waiting = true
	}
	book.seen = seen
	if len(proven) == 0 {
		return nil
	}
	h.Log.WarnContext(ctx, "terminating instances that belong to no nodeclaim", "cluster", site.Name, "instances", proven)
	if err := site.Fleet.Terminate(ctx, proven...); err != nil {
		return fmt.Errorf("terminate orphans: %w", err)
	}
	for i := range snap.Nodes {
		node := &snap.Nodes[i]
		if !slices.Contains(proven, cluster.InstanceOf(node.ProviderID)) {
			continue
		}
		if err := site.Kube.DeleteNode(ctx, node.Name, node.UID); err != nil && !errors.Is(err, plan.ErrNotFound) {
			return fmt.Errorf("delete node %s of an orphan: %w", node.Name, err)
		}
	}
	h.Counter.Count("OrphansTerminated", "lifecycle", site.Name, len(proven))
	h.Log.InfoContext(ctx, "orphans terminating", "cluster", site.Name, "instances", proven)
	return nil
}

// tagsPerPass bounds the calls that name instances: they are for people and can wait (L-096).
const tagsPerPass = 5

// tag names the instances of registered nodes (L-028) and notes it in their claims.
func (h *Handler) tag(ctx context.Context, site *Site, snap *cluster.Snapshot) {
	left := tagsPerPass
	for i := range snap.NodeClaims {
		claim := &snap.NodeClaims[i]
		if left == 0 {
			return
		}
		if claim.DeletionUnix != 0 || !claim.Conditions.True(cluster.ConditionInitialized) || claim.Annotations[cluster.AnnotationTagged] == "true" {
			continue
		}
		left--
		class := snap.Class(claim.NodeClass)
		if class == nil {
			class = &cluster.NodeClass{}
		}
		id := cluster.InstanceOf(claim.ProviderID)
		if err := site.Fleet.Tag(ctx, id, fleet.LaterTags(site.Name, claim.Name, claim.NodeName, *class)); err != nil {
			h.Log.WarnContext(ctx, "instance not tagged", "cluster", site.Name, "nodeclaim", claim.Name, "instance", id, "error", err)
			return
		}
		want := *claim
		want.Annotations = maps.Clone(claim.Annotations)
		if want.Annotations == nil {
			want.Annotations = map[string]string{}
		}
		want.Annotations[cluster.AnnotationTagged] = "true"
		if _, err := site.Kube.PatchNodeClaim(ctx, *claim, want); err != nil {
			h.Log.WarnContext(ctx, "tagging not recorded", "cluster", site.Name, "nodeclaim", claim.Name, "error", err)
		}
	}
}
