package disruption

import (
	"cmp"
	"fmt"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Scaling is what a static pool lacks or has too much of.
type Scaling struct {
	Pool *cluster.NodePool
	// Missing is how many claims are to be made.
	Missing int
	// Surplus holds the claims that are to go, in this order.
	Surplus []plan.Move
}

// Static says how each static pool gets to its replicas (S-260 to S-266, D-127 to D-129). Claims that leave count no more, while their
// nodes still count against the pool's limit. Surplus is taken from claims without an instance, then from empty nodes, then where the
// disruption is smallest; what is annotated do-not-disrupt goes last. Budgets do not matter.
func Static(snap *cluster.Snapshot) []Scaling {
	var out []Scaling
	members := membersByPool(snap)
	for i := range snap.NodePools {
		pool := &snap.NodePools[i]
		if pool.Replicas == nil || pool.DeletionUnix != 0 || pool.Invalid != "" || !pool.Conditions.True(cluster.ConditionReady) {
			continue
		}
		var stay []cluster.Member
		for _, m := range members[pool.Name] {
			if m.Claim.DeletionUnix == 0 && m.Claim.Annotations[annotationCommand] == "" {
				stay = append(stay, m)
			}
		}
		replicas := int(*pool.Replicas)
		if pool.Asleep {
			replicas = 0
		}
		s := Scaling{Pool: pool, Missing: replicas - len(stay)}
		if limit, limited := pool.Limits["nodes"]; limited {
			s.Missing = min(s.Missing, int(limit)-len(members[pool.Name]))
		}
		s.Missing = max(s.Missing, 0)
		if surplus := len(stay) - replicas; surplus > 0 {
			s.Surplus = surplusOf(snap, pool, stay)[:surplus]
		}
		if s.Missing > 0 || len(s.Surplus) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// surplusOf returns the moves that end the members of a pool, in the order in which they can best be done without.
func surplusOf(snap *cluster.Snapshot, pool *cluster.NodePool, stay []cluster.Member) []plan.Move {
	type dispensable struct {
		cluster.Member
		rank int
		cost float64
	}
	all := make([]dispensable, 0, len(stay))
	for _, m := range stay {
		d := dispensable{Member: m}
		switch {
		case m.Claim.ProviderID == "" || m.Node == nil:
		case kept(snap, m):
			d.rank = 3
		case empty(m, snap.NowUnix):
			d.rank = 1
		default:
			d.rank = 2
		}
		if m.Node != nil {
			d.cost = newCandidate(snap, m, pool).cost
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b dispensable) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.cost, b.cost), cmp.Compare(a.Claim.Name, b.Claim.Name))
	})
	moves := make([]plan.Move, 0, len(all))
	for _, d := range all {
		moves = append(moves, plan.Move{
			Reason: "scale_down", Claim: d.Claim, Node: d.Node, DeleteClaim: true,
			Events: tell(d.Member, "DisruptionTerminating", false, fmt.Sprintf("nodepool %s is to have %s", pool.Name, count(int(*pool.Replicas), "node"))),
		})
	}
	return moves
}

// kept reports whether an annotation asks not to disrupt the node.
func kept(snap *cluster.Snapshot, m cluster.Member) bool {
	return m.Node.Annotations[cluster.AnnotationDoNotDisrupt] == "true" || slices.ContainsFunc(m.Pods, func(pod *cluster.Pod) bool {
		until, ok := ProtectedUntil(pod)
		return ok && !pod.Terminal() && pod.DeletionUnix == 0 && (until == 0 || snap.NowUnix < until)
	})
}

// StaticClaim returns what a claim of a static pool asks for: whatever the pool allows.
func StaticClaim(pool *cluster.NodePool) plan.Claim {
	return plan.Claim{NodePool: pool.Name, Requirements: cluster.NewRequirements(nil, pool.Template.Requirements...).Expressions()}
}
