package disruption

import (
	"fmt"
	"slices"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// ailment is a condition of a Node under which it is given up after a while.
type ailment struct {
	condition, status string
	toleration        int64 // seconds
}

// ailments are those that kubelet and the EKS node monitoring agent report (D-101).
func ailments() []ailment {
	return []ailment{
		{"Ready", "False", 30 * 60},
		{"Ready", "Unknown", 30 * 60},
		{"AcceleratedHardwareReady", "False", 10 * 60},
		{"StorageReady", "False", 30 * 60},
		{"NetworkingReady", "False", 30 * 60},
		{"KernelReady", "False", 30 * 60},
		{"ContainerRuntimeReady", "False", 30 * 60},
	}
}

const (
	// repairBrake is the share of a pool's nodes, in percent and rounded up, beyond which sick nodes speak of something that replacing them
	// does not mend (D-102).
	repairBrake = 20
	// repairRetrySeconds is when a pool under the brake is looked at again.
	repairRetrySeconds = 5 * 60
)

// Repair deletes the claims of nodes that have been sick for too long, at once and without a drain, whatever budgets, annotations and
// grace periods say (D-100 to D-104). Where too many of a pool are sick it deletes none and says so.
func Repair(snap *cluster.Snapshot) plan.Decision {
	var d plan.Decision
	pools := map[string][]cluster.Member{}
	for _, m := range snap.Members() {
		if m.Claim != nil && m.Node != nil && m.Claim.Conditions.True(cluster.ConditionRegistered) {
			pools[m.Claim.NodePool()] = append(pools[m.Claim.NodePool()], m)
		}
	}
	for i := range snap.NodeClaims { // in the snapshot's order
		name := snap.NodeClaims[i].NodePool()
		repair(&d, snap.NowUnix, pools[name])
		delete(pools, name)
	}
	return d
}

func repair(d *plan.Decision, now int64, pool []cluster.Member) {
	sick := 0
	for _, m := range pool {
		if _, _, is := sickness(m.Node); is {
			sick++
		}
	}
	blocked := sick > (len(pool)*repairBrake+99)/100
	told := false
	for _, m := range pool {
		condition, due, is := sickness(m.Node)
		switch {
		case !is || m.Claim.DeletionUnix != 0:
		case now < due:
			d.Again(due)
		case blocked:
			d.Again(now + repairRetrySeconds)
			if told {
				continue // one speaks for all
			}
			told = true
			d.Moves = append(d.Moves, plan.Move{Reason: "repair_blocked", Claim: m.Claim, Node: m.Node, Events: tell(m, "NodeRepairBlocked", true,
				fmt.Sprintf("%d of %d nodes of the pool are sick, more than %d %%", sick, len(pool), repairBrake))})
		default:
			claim := *m.Claim
			claim.Annotations = noted(claim.Annotations, cluster.AnnotationTerminationTimestamp, time.Unix(now, 0).UTC().Format(time.RFC3339))
			d.Moves = append(d.Moves, plan.Move{
				Reason: "repair", Claim: m.Claim, Node: m.Node, WantClaim: &claim, DeleteClaim: true,
				Events: tell(m, "NodeRepair", true, fmt.Sprintf("%s has been %s for too long", condition.Type, condition.Status)),
			})
			d.Waiting = true
		}
	}
}

// sickness returns the condition that gives a node up first, and when.
func sickness(n *cluster.Node) (condition cluster.Condition, dueUnix int64, sick bool) {
	for _, a := range ailments() {
		at := slices.IndexFunc(n.Conditions, func(c cluster.Condition) bool { return c.Type == a.condition && c.Status == a.status })
		if at < 0 {
			continue
		}
		if due := n.Conditions[at].TransitionUnix + a.toleration; !sick || due < dueUnix {
			condition, dueUnix, sick = n.Conditions[at], due, true
		}
	}
	return condition, dueUnix, sick
}
