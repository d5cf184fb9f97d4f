package disruption

import (
	"fmt"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Expire deletes the claims that have lived for as long as they may (D-096 to D-098). It is forceful: budgets and do-not-disrupt
// only slow the drain that follows. Decision.NextUnix is when the next one expires.
func Expire(snap *cluster.Snapshot) plan.Decision {
	var d plan.Decision
	for _, m := range snap.Members() {
		if m.Claim == nil || m.Claim.DeletionUnix != 0 {
			continue
		}
		at, expires := ExpiryUnix(m.Claim)
		switch {
		case !expires:
		case snap.NowUnix < at:
			d.Again(at)
		default:
			age := time.Duration(snap.NowUnix-m.Claim.CreatedUnix) * time.Second
			d.Moves = append(d.Moves, plan.Move{
				Reason: "expired", Claim: m.Claim, Node: m.Node, DeleteClaim: true,
				Events: tell(m, "Expired", false, fmt.Sprintf("%s old, and its expireAfter is %s", age, time.Duration(m.Claim.ExpireAfterSeconds)*time.Second)),
			})
			d.Waiting = true
		}
	}
	return d
}

// ExpiryUnix is the instant at which a claim expires; ok is false for one that never does.
func ExpiryUnix(c *cluster.NodeClaim) (unix int64, ok bool) {
	if c.ExpireAfterSeconds <= 0 {
		return 0, false
	}
	return c.CreatedUnix + c.ExpireAfterSeconds, true
}

// tell returns an Event about a claim, and the same one about its node if it has one.
func tell(m cluster.Member, reason string, warning bool, note string) []plan.Event {
	events := []plan.Event{plan.ClaimEvent(m.Claim, reason, warning, note)}
	if m.Node != nil {
		events = append(events, plan.NodeEvent(m.Node, reason, warning, note))
	}
	return events
}
