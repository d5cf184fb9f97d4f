package disruption

import (
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// orphanAgeSeconds is how old an instance must be before it can be an orphan: older than the time in which a launch writes the
// instance's id into its claim.
const orphanAgeSeconds = 60

// Orphans returns the instances that belong to the cluster and to no claim: launched, and forgotten by a failure between the launch and its
// record. instances are those that carry the cluster's tags. An instance whose launch has a claim without an instance yet is
// left alone: the launch will be repeated and return it.
//
// One sighting proves nothing, because a listing may be stale: callers end an instance only after a second look (R24).
func Orphans(snap *cluster.Snapshot, instances []cluster.Instance) []cluster.InstanceID {
	owned := make(map[cluster.InstanceID]bool, len(snap.NodeClaims))
	for i := range snap.NodeClaims {
		owned[cluster.InstanceOf(snap.NodeClaims[i].ProviderID)] = true
	}
	pending := map[string]bool{} // by client token
	for _, group := range plan.Groups(snap.NodeClaims) {
		pending[group.Token] = len(group.Open()) > 0
	}
	var out []cluster.InstanceID
	for _, one := range instances {
		going := one.State == cluster.InstanceTerminated || one.State == cluster.InstanceShuttingDown
		if going || owned[one.ID] || pending[one.Tags[cluster.TagLaunch]] || snap.NowUnix-one.LaunchUnix < orphanAgeSeconds {
			continue
		}
		out = append(out, one.ID)
	}
	slices.Sort(out)
	return out
}
