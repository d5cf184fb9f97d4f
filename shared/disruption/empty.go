package disruption

import (
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Condition of a NodeClaim that is Treadle's own: no pod needs the node, since the instant of its last transition. Karpenter keeps
// that instant in memory.
const conditionEmpty = "Empty"

// ReasonEmpty is the disruption reason of a node that no pod needs, as budgets name it.
const ReasonEmpty = "Empty"

// Empty says what happens next to nodes that no pod needs (D-024 to D-033). A node first gets the condition Empty; after its pool's
// consolidateAfter it is tainted, as far as the pool's budgets allow; and if the next look still finds it empty, its claim is deleted. A
// pod that came in between takes the taint off again.
//
// wanted holds the nodes on which pending pods are expected: they are not empty, whatever runs on them, and nor are those that replace
// leaving ones.
func Empty(snap *cluster.Snapshot, wanted map[cluster.NodeName]bool) plan.Decision {
	var d plan.Decision
	members := membersByPool(snap)
	replacing := Replacing(snap)
	for i := range snap.NodePools {
		pool := &snap.NodePools[i]
		if pool.Replicas == nil {
			emptyOf(&d, snap.NowUnix, pool, members[pool.Name], func(m cluster.Member) bool {
				return wanted[m.Node.Name] || replacing[m.Claim.Name]
			})
		}
	}
	return d
}

// membersByPool returns the machines that claims asked for, by the claims' pool.
func membersByPool(snap *cluster.Snapshot) map[string][]cluster.Member {
	out := map[string][]cluster.Member{}
	for _, m := range snap.Members() {
		if m.Claim != nil {
			out[m.Claim.NodePool()] = append(out[m.Claim.NodePool()], m)
		}
	}
	return out
}

func emptyOf(d *plan.Decision, now int64, pool *cluster.NodePool, members []cluster.Member, wanted func(cluster.Member) bool) {
	allowed := Allowed(pool, members, ReasonEmpty, now)
	for _, m := range members {
		if m.Node == nil || m.Claim.DeletionUnix != 0 || m.Node.DeletionUnix != 0 || !m.Claim.Conditions.True(cluster.ConditionInitialized) {
			continue
		}
		if m.Claim.Annotations[annotationCommand] != "" {
			continue // it leaves by a command
		}
		idle := empty(m, now) && !wanted(m)
		leaving := m.Claim.Conditions.True(cluster.ConditionDisruptionReason) && m.Claim.Conditions.Get(cluster.ConditionDisruptionReason).Reason == ReasonEmpty
		since := m.Claim.Conditions.Get(conditionEmpty)
		switch {
		case !idle && (leaving || since.Status == "True"):
			d.Moves = append(d.Moves, keep(m, now))
		case !idle:
		case leaving:
			d.Moves = append(d.Moves, plan.Move{
				Reason: "empty", Claim: m.Claim, Node: m.Node, DeleteClaim: true,
				Events: []plan.Event{plan.ClaimEvent(m.Claim, "DisruptionTerminating", false, "no pod needs node "+describe(m.Node))},
			})
			d.Waiting = true
		case since.Status != "True":
			d.Moves = append(d.Moves, stamped(m, now))
			d.Waiting = true // look again, if only to find the taint's turn has come
		case pool.ConsolidateAfterSeconds == nil: // Never
		case now < since.TransitionUnix+*pool.ConsolidateAfterSeconds:
			d.Again(since.TransitionUnix + *pool.ConsolidateAfterSeconds)
		case allowed > 0:
			allowed--
			d.Moves = append(d.Moves, leave(m, now))
			d.Waiting = true
		default:
			d.Again(now + 10) // a budget opens when another node is gone, or by its schedule
		}
	}
}

// empty reports whether no pod needs the node: daemons, static pods and pods that have ended do not, nor do pods that are on their way
// out, except a StatefulSet's, whose successor waits for its name (D-029). A pod with do-not-disrupt needs it whatever it is.
func empty(m cluster.Member, now int64) bool {
	if m.Node.Annotations[cluster.AnnotationDoNotDisrupt] == "true" {
		return false
	}
	return !slices.ContainsFunc(m.Pods, func(pod *cluster.Pod) bool {
		if pod.Terminal() {
			return false
		}
		if until, ok := ProtectedUntil(pod); ok && pod.DeletionUnix == 0 && (until == 0 || now < until) {
			return true
		}
		return !pod.Daemon() && !pod.Static() && (pod.DeletionUnix == 0 || pod.Owner.Kind == "StatefulSet")
	})
}

func stamped(m cluster.Member, now int64) plan.Move {
	claim := *m.Claim
	claim.Conditions = claim.Conditions.With(cluster.Condition{
		Type: conditionEmpty, Status: "True", Reason: "NoPods", Message: "no pod needs the node", TransitionUnix: now,
	})
	return plan.Move{Reason: "empty", Claim: m.Claim, Node: m.Node, WantClaim: &claim}
}

func leave(m cluster.Member, now int64) plan.Move {
	claim, node := *m.Claim, *m.Node
	claim.Conditions = claim.Conditions.With(cluster.Condition{
		Type: cluster.ConditionConsolidatable, Status: "True", Reason: "Consolidatable", TransitionUnix: now,
	}).With(cluster.Condition{
		Type: cluster.ConditionDisruptionReason, Status: "True", Reason: ReasonEmpty, Message: "no pod needs the node", TransitionUnix: now,
	})
	if !slices.ContainsFunc(node.Taints, disrupted) {
		node.Taints = append(slices.Clone(node.Taints), leavingTaint())
	}
	return plan.Move{Reason: "empty", Claim: m.Claim, Node: m.Node, WantNode: &node, WantClaim: &claim}
}

func keep(m cluster.Member, now int64) plan.Move {
	claim, node := *m.Claim, *m.Node
	for _, kind := range []string{conditionEmpty, cluster.ConditionConsolidatable, cluster.ConditionDisruptionReason} {
		if claim.Conditions.True(kind) {
			claim.Conditions = claim.Conditions.With(cluster.Condition{Type: kind, Status: "False", Reason: "PodsNeedNode", TransitionUnix: now})
		}
	}
	node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), disrupted)
	return plan.Move{Reason: "keep", Claim: m.Claim, Node: m.Node, WantNode: &node, WantClaim: &claim}
}
