package nodeclass

import (
	"context"
	"errors"
	"fmt"
)

// Collect deletes the instance profiles of a cluster for which doomed is true (C-082): a class that gets another role gets another
// profile, and the old one stays behind for its nodes. doomed is asked about every profile under the cluster's path. Repeating it is
// harmless.
func (r *Resolver) Collect(ctx context.Context, facts Facts, doomed func(name string) bool) error {
	names, err := r.profiles.ListProfiles(ctx, "/karpenter/"+facts.Region+"/"+facts.Cluster+"/")
	if err != nil {
		return fmt.Errorf("list instance profiles of cluster %s: %w", facts.Cluster, err)
	}
	var errs []error
	for _, name := range names {
		if !doomed(name) {
			continue
		}
		r.mu.Lock()
		delete(r.profiled, name)
		r.mu.Unlock()
		if err := r.profiles.DeleteProfile(ctx, name); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
