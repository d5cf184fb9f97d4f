package main

import (
	"context"
	"errors"

	"treadle/shared/apply"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/plan"
)

// static makes the claims that static pools lack, which are then launched like any claim that came without a launch, and ends those that
// are too many. changed says that the cluster is not what snap says any more.
func (h *Handler) static(ctx context.Context, site *Site, snap *cluster.Snapshot) (changed bool, err error) {
	var errs []error
	mover := &apply.Mover{Cluster: site.Name, Kube: site.Kube, Log: h.Log}
	for n, s := range disruption.Static(snap) {
		h.Log.InfoContext(ctx, "scaling static nodepool", "cluster", site.Name, "nodepool", s.Pool.Name, "missing", s.Missing, "surplus", len(s.Surplus))
		changed = true
		class := snap.Class(s.Pool.Template.NodeClass)
		if class == nil {
			class = &cluster.NodeClass{}
		}
		wants := make([]cluster.NodeClaim, 0, s.Missing)
		for range s.Missing {
			wants = append(wants, apply.NodeClaim(s.Pool, class, disruption.StaticClaim(s.Pool), plan.Launch{}))
		}
		_, err := apply.Create(ctx, site.Kube, groupID("static", snap.NowUnix, n, 0), wants)
		errs = append(errs, err)
		if len(s.Surplus) > 0 {
			_, err = mover.Move(ctx, s.Surplus)
			errs = append(errs, err)
			h.wakeLifecycle(ctx, site, "a static nodepool has too many nodes")
		}
	}
	return changed, errors.Join(errs...)
}
