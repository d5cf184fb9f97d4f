package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/nodeclass"
	"treadle/shared/plan"
	"treadle/shared/readiness"
)

// resolveEvery is how long what a class selects is trusted (L-102): subnets fill, images are rolled.
const resolveEvery = time.Minute

// resolution is what a class was resolved to. It holds more than the API's copy does: free addresses and what is left of
// reservations.
type resolution struct {
	uid        string // a class that is made anew under its old name has generation 1 again
	generation int64
	at         time.Time
	status     cluster.NodeClassStatus
}

// conditions brings the status of classes and pools up to date, in the cluster and in snap. A class that could not be resolved,
// because AWS throttles or is away, keeps what it has.
func (h *Handler) conditions(ctx context.Context, site *Site, snap *cluster.Snapshot) error {
	var errs []error
	for i := range snap.NodeClasses {
		if err := h.class(ctx, site, snap, &snap.NodeClasses[i]); err != nil {
			errs = append(errs, err)
		}
	}
	for i, want := range readiness.Pools(snap) {
		err := site.Kube.PatchNodePoolStatus(ctx, snap.NodePools[i], want)
		if err != nil && !stale(err) {
			errs = append(errs, fmt.Errorf("write status of nodepool %s: %w", want.Name, err))
		}
		// After the status, because it changes the version that the status is written against.
		if err := h.hashPool(ctx, site, &want); err != nil {
			errs = append(errs, err)
		}
		if was, is := snap.NodePools[i].Conditions.Get(cluster.ConditionReady), want.Conditions.Get(cluster.ConditionReady); is.Status != "True" && was.Message != is.Message {
			_ = site.Kube.Event(ctx, plan.PoolEvent(&want, "NotReady", true, is.Message)) // the condition says the same
		}
		snap.NodePools[i] = want
	}
	return errors.Join(errs...)
}

// hashPool notes the hash of a pool in the pool, beside those that its claims carry (N-033).
func (h *Handler) hashPool(ctx context.Context, site *Site, pool *cluster.NodePool) error {
	want := *pool
	want.Annotations = noted(pool.Annotations, map[string]string{
		cluster.AnnotationNodePoolHash: pool.Hash, cluster.AnnotationNodePoolHashVersion: cluster.HashVersionNodePool,
	})
	if err := site.Kube.PatchNodePool(ctx, *pool, want); err != nil && !stale(err) {
		return fmt.Errorf("write hash of nodepool %s: %w", pool.Name, err)
	}
	return nil
}

// noted returns the annotations with more of them.
func noted(annotations, more map[string]string) map[string]string {
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}

func (h *Handler) class(ctx context.Context, site *Site, snap *cluster.Snapshot, class *cluster.NodeClass) error {
	facts := site.Facts
	facts.NowUnix = snap.NowUnix
	if class.DeletionUnix != 0 {
		return h.releaseClass(ctx, site, snap, class, facts)
	}
	held := *class
	held.Annotations = noted(class.Annotations, map[string]string{
		cluster.AnnotationNodeClassHash: class.Hash, cluster.AnnotationNodeClassHashVersion: cluster.HashVersionNodeClass,
	})
	if !slices.Contains(class.Finalizers, cluster.FinalizerNodeClass) {
		held.Finalizers = append(slices.Clone(class.Finalizers), cluster.FinalizerNodeClass)
	}
	if err := site.Kube.PatchNodeClass(ctx, *class, held); err != nil && !stale(err) {
		return fmt.Errorf("hold nodeclass %s: %w", class.Name, err)
	}
	now := h.Now()
	last := site.resolved[class.Name]
	if last.uid == class.UID && last.generation == class.Generation && now.Before(last.at.Add(resolveEvery)) && last.status.Conditions.True(cluster.ConditionReady) {
		class.Status = last.status
		h.addresses(site, class)
		return nil
	}
	status, err := h.Classes.Resolve(ctx, *class, facts)
	if err != nil {
		h.Log.WarnContext(ctx, "nodeclass not resolved, keeping what is known", "cluster", site.Name, "nodeclass", class.Name, "error", err)
		return nil
	}
	// No other writer has a hand in this status, while what was just written to the class has changed its version.
	class.ResourceVersion = ""
	want := *class
	want.Status = status
	if err := site.Kube.PatchNodeClassStatus(ctx, *class, want); err != nil && !stale(err) {
		return fmt.Errorf("write status of nodeclass %s: %w", class.Name, err)
	}
	*class = want
	if site.resolved == nil {
		site.resolved = map[string]resolution{}
	}
	site.resolved[class.Name] = resolution{class.UID, class.Generation, now, status}
	site.Addresses = nil // what was booked against older counts is in the counts by now
	h.addresses(site, class)
	return nil
}

// addresses opens the book of free addresses, or adds the subnets of another class to it.
func (h *Handler) addresses(site *Site, class *cluster.NodeClass) {
	if site.Addresses == nil {
		site.Addresses = nodeclass.NewAddresses(nil)
	}
	site.Addresses.Add(class.Status.Subnets)
	now := h.Now()
	for _, subnet := range class.Status.Subnets {
		if h.Ledger.Full(now, subnet.ID) {
			site.Addresses.Refuse(subnet.ID)
		}
	}
}

// releaseClass lets a deleted class go once no claim uses it, and takes along what was made for it (C-040).
func (h *Handler) releaseClass(ctx context.Context, site *Site, snap *cluster.Snapshot, class *cluster.NodeClass, facts nodeclass.Facts) error {
	if !slices.Contains(class.Finalizers, cluster.FinalizerNodeClass) {
		return nil
	}
	if slices.ContainsFunc(snap.NodeClaims, func(c cluster.NodeClaim) bool { return c.NodeClass == class.Name }) {
		return nil // the deletion of the last claim wakes us
	}
	if err := h.Classes.Release(ctx, *class, facts); err != nil {
		return fmt.Errorf("release nodeclass %s: %w", class.Name, err)
	}
	if err := h.Templates.Delete(ctx, site.Name, class.Name); err != nil {
		return fmt.Errorf("release nodeclass %s: %w", class.Name, err)
	}
	want := *class
	want.Finalizers = slices.DeleteFunc(slices.Clone(class.Finalizers), func(f string) bool { return f == cluster.FinalizerNodeClass })
	if err := site.Kube.PatchNodeClass(ctx, *class, want); err != nil && !stale(err) {
		return fmt.Errorf("release nodeclass %s: %w", class.Name, err)
	}
	return nil
}

// stale reports whether a write failed only because the object has changed or gone: the next look sees what happened.
func stale(err error) bool {
	return errors.Is(err, plan.ErrConflict) || errors.Is(err, plan.ErrNotFound)
}
