package disruption

import (
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Decide returns the commands to begin now, and Events about drifted nodes that have to stay. Drift comes before consolidation (D-001):
// what is replaced anyway is then not moved first. Before both come pools that sleep (NodePool.Asleep): their nodes go and are not replaced.
func Decide(snap *cluster.Snapshot, o Options) ([]plan.Command, []plan.Event) {
	if commands := retire(snap); len(commands) > 0 {
		return commands, nil
	}
	commands, events := Renew(snap, o)
	if len(commands) == 0 {
		commands = Consolidate(snap, o)
	}
	return commands, events
}

// Disruptable reports whether there may be anything to decide: a look at a cluster at rest then costs next to nothing.
func Disruptable(snap *cluster.Snapshot) bool {
	if slices.ContainsFunc(snap.NodePools, func(p cluster.NodePool) bool { return p.Asleep }) {
		return true
	}
	return slices.ContainsFunc(snap.NodeClaims, func(c cluster.NodeClaim) bool {
		return c.DeletionUnix == 0 && c.Annotations[annotationCommand] == "" &&
			(c.Conditions.True(cluster.ConditionDrifted) || c.Conditions.True(cluster.ConditionConsolidatable))
	})
}
