package readiness

import (
	"fmt"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
)

// Pool returns pool with the conditions and sums that it should have (N-022 to N-028). members are its claims and nodes; class
// is the one that it names, nil if there is none.
func Pool(pool *cluster.NodePool, class *cluster.NodeClass, members []cluster.Member, nowUnix int64) cluster.NodePool {
	want := *pool
	want.StatusResources, want.StatusNodes = sums(members)
	want.Conditions = pool.Conditions.
		With(at(validation(pool, nowUnix), nowUnix, pool.Generation)).
		With(at(classReady(pool, class), nowUnix, pool.Generation))
	for _, c := range health(pool, class, nowUnix) {
		want.Conditions = want.Conditions.With(at(c, nowUnix, pool.Generation))
	}
	want.Conditions = want.Conditions.WithReady(nowUnix, cluster.ConditionValidationSucceeded, cluster.ConditionNodeClassReady)
	return want
}

func at(c cluster.Condition, nowUnix, generation int64) cluster.Condition {
	c.TransitionUnix, c.ObservedGeneration = nowUnix, generation
	return c
}

func validation(pool *cluster.NodePool, nowUnix int64) cluster.Condition {
	c := cluster.Condition{Type: cluster.ConditionValidationSucceeded, Status: "False", Reason: "NodePoolValidationFailed"}
	if pool.Invalid != "" {
		c.Message = pool.Invalid
		return c
	}
	if err := cluster.ValidateTemplate(pool.Template); err != nil {
		c.Message = err.Error()
		return c
	}
	for i, budget := range pool.Budgets {
		if _, err := disruption.ActiveBudget(budget, nowUnix); err != nil {
			c.Message = fmt.Sprintf("spec.disruption.budgets[%d]: %v", i, err)
			return c
		}
	}
	return cluster.Condition{Type: cluster.ConditionValidationSucceeded, Status: "True", Reason: "ValidationSucceeded"}
}

func classReady(pool *cluster.NodePool, class *cluster.NodeClass) cluster.Condition {
	c := cluster.Condition{Type: cluster.ConditionNodeClassReady, Status: "False"}
	name := pool.Template.NodeClass
	if class == nil {
		c.Reason, c.Message = "NodeClassNotFound", fmt.Sprintf("there is no EC2NodeClass %q", name)
		return c
	}
	if class.DeletionUnix != 0 {
		c.Reason, c.Message = "NodeClassTerminating", fmt.Sprintf("EC2NodeClass %q is being deleted", name)
		return c
	}
	switch ready := class.Status.Conditions.Get(cluster.ConditionReady); ready.Status {
	case "True":
		return cluster.Condition{Type: cluster.ConditionNodeClassReady, Status: "True", Reason: "NodeClassReady"}
	case "False":
		c.Reason, c.Message = ready.Reason, fmt.Sprintf("EC2NodeClass %q is not ready: %s", name, ready.Message)
	default:
		c.Status, c.Reason, c.Message = "Unknown", "NodeClassReadinessUnknown", fmt.Sprintf("EC2NodeClass %q has not been looked at yet", name)
	}
	return c
}

// sums adds up the capacity of the pool's claims that have an instance, and counts their nodes.
func sums(members []cluster.Member) (cluster.Resources, int64) {
	var total cluster.Resources
	var nodes int64
	for _, m := range members {
		switch {
		case m.Claim == nil:
			continue
		case m.Node != nil && !m.Node.Capacity.IsZero():
			total = total.Plus(m.Node.Capacity)
		default:
			total = total.Plus(m.Claim.Capacity)
		}
		if m.Claim.ProviderID != "" {
			nodes++
		}
	}
	return total, nodes
}

// Pools returns every pool of the snapshot as it should be, in the snapshot's order.
func Pools(snap *cluster.Snapshot) []cluster.NodePool {
	byPool := map[string][]cluster.Member{}
	for _, m := range snap.Members() {
		if m.Claim != nil {
			byPool[m.Claim.NodePool()] = append(byPool[m.Claim.NodePool()], m)
		}
	}
	out := make([]cluster.NodePool, 0, len(snap.NodePools))
	for i := range snap.NodePools {
		pool := &snap.NodePools[i]
		out = append(out, Pool(pool, snap.Class(pool.Template.NodeClass), byPool[pool.Name], snap.NowUnix))
	}
	return out
}
