package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"treadle/shared/apply"
	"treadle/shared/cluster"
	"treadle/shared/nodeclass"
	"treadle/shared/packing"
	"treadle/shared/plan"
)

// unlaunched is a NodeClaim that nobody has launched yet, and what it may be launched as.
type unlaunched struct {
	claim *cluster.NodeClaim
	as    plan.Claim
}

// adopt launches NodeClaims that came without a launch: those that users write, and those that replace leaving nodes. A claim that
// cannot be launched is ended with the reason, as Karpenter does (L-003, L-004, L-013); one whose class is not known to be ready yet
// waits. changed says that the cluster is not what snap says any more.
func (h *Handler) adopt(ctx context.Context, site *Site, snap *cluster.Snapshot) (changed bool, err error) {
	var all []unlaunched
	var errs []error
	for i := range snap.NodeClaims {
		c := &snap.NodeClaims[i]
		if c.ProviderID != "" || c.DeletionUnix != 0 || c.Annotations[cluster.AnnotationLaunch] != "" || c.Conditions.Get(cluster.ConditionLaunched).Status == "False" {
			continue
		}
		as, reason, message := launchable(snap, c)
		switch {
		case reason == "NodeClassUndecided":
			h.Log.InfoContext(ctx, "nodeclaim waits for its class", "cluster", site.Name, "nodeclaim", c.Name, "nodeclass", c.NodeClass)
		case reason != "":
			changed = true
			launcher := apply.Launcher{Cluster: site.Name, Kube: site.Kube, Fleet: site.Fleet, Log: h.Log, Now: h.Now}
			errs = append(errs, launcher.Refuse(ctx, []*cluster.NodeClaim{c}, reason, message))
		default:
			all = append(all, unlaunched{c, as})
		}
	}
	for n, group := range groupUnlaunched(all) {
		launched, err := h.adoptGroup(ctx, site, snap, groupID("unlaunched", snap.NowUnix, n, 0), group)
		changed = changed || launched
		errs = append(errs, err)
	}
	return changed, errors.Join(errs...)
}

// launchable returns what a claim may be launched as, or the reason for which it cannot be.
func launchable(snap *cluster.Snapshot, c *cluster.NodeClaim) (as plan.Claim, reason, message string) {
	class := snap.Class(c.NodeClass)
	switch {
	case class == nil || class.DeletionUnix != 0:
		return as, "NodeClassNotFound", fmt.Sprintf("nodeclass %q does not exist or is being deleted", c.NodeClass)
	case class.Status.Conditions.Get(cluster.ConditionReady).Status == "False":
		return as, "NodeClassNotReady", fmt.Sprintf("nodeclass %q is not ready: %s", c.NodeClass, class.Status.Conditions.Get(cluster.ConditionReady).Message)
	case !class.Status.Conditions.True(cluster.ConditionReady):
		return as, "NodeClassUndecided", ""
	}
	as = packing.Launchable(snap.TypesOf(c.NodePool(), class.Name), c)
	if len(as.Options) == 0 {
		return as, "InsufficientCapacity", "nothing that the nodeclaim allows can be had now"
	}
	return as, "", ""
}

// groupUnlaunched returns the claims that one call can launch together: those of one shape.
func groupUnlaunched(all []unlaunched) [][]unlaunched {
	var groups [][]unlaunched
	at := map[string]int{}
	for _, u := range all {
		c := u.claim
		key := fmt.Sprint(c.NodePool(), c.NodeClass, c.Labels, c.Taints, c.StartupTaints, c.Requirements, c.Requests, u.as.Options)
		n, seen := at[key]
		if !seen || len(groups[n]) == maxGroup {
			n = len(groups)
			at[key] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], u)
	}
	return groups
}

// adoptGroup writes the launch into each claim of a group and then makes it. What is left of a group that a kill interrupted in between
// is launched by the next look, as a group of its own.
//
// What cannot be launched as things are is not held against other claims: it is tried again until its launch deadline.
func (h *Handler) adoptGroup(ctx context.Context, site *Site, snap *cluster.Snapshot, group string, all []unlaunched) (launched bool, err error) {
	first := all[0].claim
	class := snap.Class(first.NodeClass)
	facts := site.Facts
	facts.NowUnix = snap.NowUnix
	ready, err := h.Templates.Prepare(ctx, nodeclass.Order{
		Facts: facts, Class: *class, Pool: poolOf(snap, first), Claim: all[0].as, Count: len(all), Types: snap.TypesOf(first.NodePool(), class.Name), Addresses: site.Addresses,
	})
	if errors.Is(err, nodeclass.ErrNoAddresses) || errors.Is(err, nodeclass.ErrInvalid) || errors.Is(err, nodeclass.ErrDenied) {
		h.Log.ErrorContext(ctx, "launch not possible", "cluster", site.Name, "nodeclaim", first.Name, "claims", len(all), "error", err)
		_ = site.Kube.Event(ctx, plan.ClaimEvent(first, "LaunchFailed", true, err.Error()))
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("launch nodeclaim %s: %w", first.Name, err)
	}
	launch := plan.NewLaunch(group, all[0].as.Options, ready.Configs)
	held := make([]cluster.NodeClaim, 0, ready.Count)
	for _, u := range all[:ready.Count] {
		now, err := site.Kube.PatchNodeClaim(ctx, *u.claim, withLaunch(*u.claim, class, launch))
		if err != nil {
			return true, fmt.Errorf("hold nodeclaim %s for its launch: %w", u.claim.Name, err)
		}
		held = append(held, now)
	}
	out, err := h.call(ctx, site, snap, plan.Groups(held)[0])
	ready.Settle(site.Addresses, out.instances)
	h.launched(ctx, site, len(held))
	return true, err
}

// withLaunch returns a claim that carries its launch, and what a claim of Treadle's own has from the start.
func withLaunch(c cluster.NodeClaim, class *cluster.NodeClass, launch plan.Launch) cluster.NodeClaim {
	annotations, labels := maps.Clone(c.Annotations), maps.Clone(c.Labels)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if labels == nil {
		labels = map[string]string{}
	}
	annotations[cluster.AnnotationLaunch] = launch.Annotation()
	annotations[cluster.AnnotationNodeClassHash] = class.Hash
	annotations[cluster.AnnotationNodeClassHashVersion] = cluster.HashVersionNodeClass
	labels[cluster.LabelNodeClass] = class.Name
	c.Annotations, c.Labels = annotations, labels
	if !slices.Contains(c.Finalizers, cluster.FinalizerTermination) {
		c.Finalizers = append(slices.Clone(c.Finalizers), cluster.FinalizerTermination)
	}
	return c
}

// poolOf returns the pool that a claim's node is made by: the claim's own or, for a claim of a user's, one that is like the claim.
func poolOf(snap *cluster.Snapshot, c *cluster.NodeClaim) cluster.NodePool {
	if pool := snap.Pool(c.NodePool()); pool != nil {
		return *pool
	}
	return cluster.NodePool{Name: c.NodePool(), Template: cluster.NodeTemplate{Labels: c.Labels, Taints: c.Taints, StartupTaints: c.StartupTaints, NodeClass: c.NodeClass}}
}
