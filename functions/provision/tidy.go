package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/nodeclass"
	"treadle/shared/plan"
)

const (
	// tidyEvery is how often a cluster's leftovers are looked for (C-082).
	tidyEvery = 30 * time.Minute
	// profileGrace is how long a profile has to be unused: a launch under way may have it while no claim says so yet (C-087).
	profileGrace = time.Hour
	// templateGrace is how old a launch template has to be. One that is still wanted is made again by the next launch.
	templateGrace = 24 * time.Hour
)

// Tidier deletes what changed classes leave behind.
type Tidier interface {
	// Collect deletes the cluster's instance profiles for which doomed is true.
	Collect(ctx context.Context, facts nodeclass.Facts, doomed func(name string) bool) error
	// Prune deletes the cluster's launch templates that were made before an instant and for which used is false.
	Prune(ctx context.Context, clusterName string, madeBefore time.Time, used func(name string) bool) error
}

// tidy deletes instance profiles and launch templates that nothing uses any more. It is never urgent, so trouble is logged and left
// to the next time; and what a cold function has seen unused only once stays.
func (h *Handler) tidy(ctx context.Context, site *Site, snap *cluster.Snapshot) {
	now := h.Now()
	if now.Sub(site.tidiedAt) < tidyEvery {
		return
	}
	site.tidiedAt = now
	profiles, templates := inUse(snap)
	var err error
	// Where no class has a role nothing was made, and IAM may be out of reach (C-084, C-085).
	if slices.ContainsFunc(snap.NodeClasses, func(c cluster.NodeClass) bool { return c.Spec.Role != "" }) {
		err = h.collect(ctx, site, now, profiles)
	}
	err = errors.Join(err, h.Tidier.Prune(ctx, site.Name, now.Add(-templateGrace), func(name string) bool { return templates[name] }))
	if err != nil {
		h.Log.WarnContext(ctx, "leftovers of classes not deleted", "cluster", site.Name, "error", err)
	}
}

// collect deletes the profiles that were not in use for as long as profileGrace.
func (h *Handler) collect(ctx context.Context, site *Site, now time.Time, used map[string]bool) error {
	unused := map[string]time.Time{}
	defer func() { site.unused = unused }()
	return h.Tidier.Collect(ctx, site.Facts, func(name string) bool {
		if used[name] {
			return false
		}
		since, seen := site.unused[name]
		if !seen {
			since = now
		}
		unused[name] = since
		return now.Sub(since) >= profileGrace
	})
}

// inUse returns the instance profiles and launch templates that classes and claims name.
func inUse(snap *cluster.Snapshot) (profiles, templates map[string]bool) {
	profiles, templates = map[string]bool{}, map[string]bool{}
	for i := range snap.NodeClasses {
		profiles[snap.NodeClasses[i].Status.InstanceProfile] = true
	}
	for i := range snap.NodeClaims {
		claim := &snap.NodeClaims[i]
		profiles[claim.Annotations[cluster.AnnotationInstanceProfile]] = true
		launch, _ := plan.LaunchOf(claim)
		for _, c := range launch.Configs {
			templates[c.Template] = true
		}
	}
	return profiles, templates
}
