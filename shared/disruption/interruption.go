package disruption

import (
	"maps"
	"slices"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/notice"
	"treadle/shared/plan"
)

const (
	// annotationReclaimed of a NodeClaim says when EC2 announced that it takes the instance back. It is what tells provisioning, in
	// another process, that the offering is not to be had for a while.
	annotationReclaimed = "treadle.sh/reclaimed"
	// reclaimedSeconds is for how long an announcement is news about the offering (I-012).
	reclaimedSeconds = 3 * 60

	// annotationRebalance of a NodePool says what a rebalance recommendation does to its nodes: "replace" deletes them, anything
	// else leaves them, because few recommendations are followed by an interruption (R38).
	annotationRebalance = "treadle.sh/rebalance"
)

// Interruption is what a notice says about one instance.
type Interruption struct {
	Instance cluster.InstanceID
	Kind     notice.Kind
	Detail   string // in words
}

// Interrupt says what happens to the claims of instances that EC2 or Health speaks of (I-012 to I-017, I-029): their nodes are
// tainted and the claims deleted, whatever budgets and annotations say; the drain still honours them (I-031). Of a rebalance
// recommendation only an Event remains. Instances without a claim are nobody's, and a claim that is being deleted
// already is left to that: so a notice may come late, twice, or after the one that follows from it.
//
// Decision.Waiting says that nodes are leaving which somebody has to see through.
func Interrupt(snap *cluster.Snapshot, all []Interruption) plan.Decision {
	var d plan.Decision
	about := map[cluster.InstanceID][]Interruption{}
	for _, one := range all {
		if !slices.ContainsFunc(about[one.Instance], func(o Interruption) bool { return o.Kind == one.Kind }) {
			about[one.Instance] = append(about[one.Instance], one)
		}
	}
	for _, m := range snap.Members() {
		if m.Claim == nil {
			continue
		}
		if heard := about[cluster.InstanceOf(m.Claim.ProviderID)]; len(heard) > 0 {
			interrupt(&d, snap, m, heard)
		}
	}
	return d
}

func interrupt(d *plan.Decision, snap *cluster.Snapshot, m cluster.Member, heard []Interruption) {
	move := plan.Move{Claim: m.Claim, Node: m.Node}
	leaves, reclaimed := false, false
	for _, one := range heard {
		reason, warning := eventReason(one.Kind)
		move.Events = append(move.Events, tell(m, reason, warning, one.Detail)...)
		if one.Kind == notice.RebalanceRecommended && !replaces(snap.Pool(m.Claim.NodePool())) {
			continue
		}
		leaves = true
		reclaimed = reclaimed || reclaims(one.Kind)
		move.Reason = string(one.Kind)
	}
	d.Waiting = d.Waiting || leaves
	if reclaimed && m.Claim.Annotations[annotationReclaimed] == "" {
		claim := *m.Claim
		claim.Annotations = maps.Clone(claim.Annotations)
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[annotationReclaimed] = time.Unix(snap.NowUnix, 0).UTC().Format(time.RFC3339)
		move.WantClaim = &claim
	}
	switch {
	case m.Claim.DeletionUnix != 0:
		move.Events = nil
		if move.WantClaim != nil {
			d.Moves = append(d.Moves, move)
		}
		return
	case !leaves:
		move.Reason = string(notice.RebalanceRecommended)
	default:
		move.Events = append(move.Events, tell(m, "TerminatingOnInterruption", true, "the interruption triggered the termination of the node")...)
		move.WantNode = barred(m.Node)
		move.DeleteClaim = true
	}
	d.Moves = append(d.Moves, move)
}

// barred returns the node as it is once no new pod may come to it, nil where there is nothing to change.
func barred(n *cluster.Node) *cluster.Node {
	if n == nil || slices.ContainsFunc(n.Taints, disrupted) {
		return nil
	}
	out := *n
	out.Taints = append(slices.Clone(n.Taints), leavingTaint())
	return &out
}

func replaces(pool *cluster.NodePool) bool {
	return pool != nil && pool.Annotations[annotationRebalance] == "replace"
}

// reclaims reports whether EC2 wants the capacity back, so that asking for the same again is of no use.
func reclaims(k notice.Kind) bool {
	return k == notice.SpotInterrupted || k == notice.ReservationInterrupted || k == notice.BlockExpiring
}

// eventReason returns the reason under which Karpenter reports a notice (M-081).
func eventReason(k notice.Kind) (reason string, warning bool) {
	switch k {
	case notice.SpotInterrupted:
		return "SpotInterrupted", true
	case notice.ReservationInterrupted, notice.BlockExpiring:
		return "CapacityReservationInstanceInterrupted", true
	case notice.InstanceStopped:
		return "InstanceStopping", true
	case notice.InstanceTerminated:
		return "InstanceTerminating", true
	case notice.RebalanceRecommended:
		return "SpotRebalanceRecommendation", false
	default: // a scheduled change
		return "InstanceUnhealthy", true
	}
}

// Reclaimed returns the offerings that EC2 has just taken back from leaving claims, as if a launch had been refused them.
// Telling a memory of refusals again what it knows is harmless.
func Reclaimed(snap *cluster.Snapshot) []plan.Refusal {
	var out []plan.Refusal
	for i := range snap.NodeClaims {
		c := &snap.NodeClaims[i]
		at, err := time.Parse(time.RFC3339, c.Annotations[annotationReclaimed])
		if err != nil || snap.NowUnix-at.Unix() >= reclaimedSeconds {
			continue
		}
		r := plan.Refusal{
			InstanceType: c.Labels[cluster.LabelInstanceType], Zone: c.Labels[cluster.LabelZone],
			CapacityType: cluster.CapacityType(c.Labels[cluster.LabelCapacityType]),
			Code:         "Reclaimed", Message: "EC2 takes the capacity of nodeclaim " + c.Name + " back", Kind: plan.RefusedCapacity,
		}
		if r.CapacityType == cluster.Reserved {
			r.Zone = c.Labels[cluster.LabelReservationID] // where a reserved offering is
		}
		if r.InstanceType != "" && r.Zone != "" && r.CapacityType != "" {
			out = append(out, r)
		}
	}
	return out
}
