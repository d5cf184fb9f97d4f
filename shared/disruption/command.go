package disruption

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// annotationCommand of a NodeClaim holds the command by which its node leaves (underway as JSON). It is all that is remembered of a
// command, so that whoever looks next goes on with it.
const annotationCommand = "treadle.sh/command"

const (
	// replacementSeconds is how long a command waits for its replacements to be initialized (D-081).
	replacementSeconds = 10 * 60
	// retrySeconds is how long nodes are left alone after a command that came to nothing.
	retrySeconds = 5 * 60
)

// underway is a command as the claims that leave by it carry it.
type underway struct {
	ID           string   `json:"id"`
	Reason       string   `json:"reason"`
	Of           int      `json:"of"` // how many claims leave by it
	Replacements []string `json:"replacements,omitempty"`
	StartUnix    int64    `json:"start"`
}

// Replacing returns the names of the claims that replace leaving ones until these are gone: nobody may take them for empty ones.
func Replacing(snap *cluster.Snapshot) map[string]bool {
	out := map[string]bool{}
	for i := range snap.NodeClaims {
		if u, ok := commandOf(&snap.NodeClaims[i]); ok {
			for _, name := range u.Replacements {
				out[name] = true
			}
		}
	}
	return out
}

// Leaving returns the nodes that are about to leave by commands: they still serve their pods, but are nobody's target.
func Leaving(snap *cluster.Snapshot) []cluster.NodeName {
	var out []cluster.NodeName
	for _, m := range snap.Members() {
		if m.Claim != nil && m.Node != nil && m.Claim.Annotations[annotationCommand] != "" {
			out = append(out, m.Node.Name)
		}
	}
	return out
}

func commandOf(c *cluster.NodeClaim) (u underway, ok bool) {
	text := c.Annotations[annotationCommand]
	if text == "" {
		return u, false
	}
	if err := json.Unmarshal([]byte(text), &u); err != nil {
		return underway{ID: text}, true // nobody can finish it, so it is rolled back
	}
	return u, true
}

// Begin returns the moves that announce a command on the claims that leave by it: taint, condition, and what is to be remembered. All must
// go through before the replacements, which have the given names, are made: a command that is announced in part is taken back by
// the next look.
func Begin(snap *cluster.Snapshot, c plan.Command, replacements []string) []plan.Move {
	text, err := json.Marshal(underway{ID: c.ID, Reason: c.Reason, Of: len(c.Leaving), Replacements: replacements, StartUnix: snap.NowUnix})
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	var moves []plan.Move
	for _, m := range snap.Members() {
		if m.Claim == nil || m.Node == nil || !slices.Contains(c.Leaving, m.Claim.Name) {
			continue
		}
		claim := *m.Claim
		claim.Annotations = noted(claim.Annotations, annotationCommand, string(text))
		claim.Conditions = claim.Conditions.With(cluster.Condition{
			Type: cluster.ConditionDisruptionReason, Status: "True", Reason: c.Reason, Message: c.Note, TransitionUnix: snap.NowUnix,
		})
		moves = append(moves, plan.Move{
			Reason: "disrupt", Claim: m.Claim, Node: m.Node, WantNode: barred(m.Node), WantClaim: &claim,
			Events: tell(m, "DisruptionLaunching", false, c.Reason+": "+c.Note),
		})
	}
	return moves
}

// Carry says what happens next to the commands that are under way: once every replacement is initialized the leaving claims are
// deleted; a command that was announced in part only, that lost a replacement or that takes too long is taken back (D-077 to D-085).
func Carry(snap *cluster.Snapshot) plan.Decision {
	var d plan.Decision
	leaving := map[string][]cluster.Member{}
	var order []string
	for _, m := range snap.Members() {
		if m.Claim == nil {
			continue
		}
		u, ok := commandOf(m.Claim)
		switch {
		case ok:
			if leaving[u.ID] == nil {
				order = append(order, u.ID)
			}
			leaving[u.ID] = append(leaving[u.ID], m)
		case stray(m):
			d.Moves = append(d.Moves, back(snap.NowUnix, m, "")) // D-004
		}
	}
	for _, id := range order {
		carry(&d, snap, leaving[id])
	}
	return d
}

// stray reports whether a node bears the marks of a command that nobody remembers: a kill in the middle of announcing one leaves them, and
// so does Karpenter when it stops.
func stray(m cluster.Member) bool {
	if m.Node == nil || m.Claim.DeletionUnix != 0 || m.Node.DeletionUnix != 0 {
		return false
	}
	reason := m.Claim.Conditions.Get(cluster.ConditionDisruptionReason)
	if reason.Status == "True" {
		return reason.Reason != ReasonEmpty
	}
	return slices.ContainsFunc(m.Node.Taints, disrupted)
}

func carry(d *plan.Decision, snap *cluster.Snapshot, leaving []cluster.Member) {
	u, _ := commandOf(leaving[0].Claim)
	begun := slices.ContainsFunc(leaving, func(m cluster.Member) bool { return m.Claim.DeletionUnix != 0 })
	if !begun {
		fault, ready := progress(snap, u, len(leaving))
		if fault != "" {
			for _, m := range leaving {
				d.Moves = append(d.Moves, back(snap.NowUnix, m, fault))
			}
			return
		}
		if !ready {
			d.Waiting = true
			d.Again(u.StartUnix + replacementSeconds)
			return
		}
	}
	for _, m := range leaving {
		if m.Claim.DeletionUnix == 0 {
			d.Moves = append(d.Moves, plan.Move{
				Reason: strings.ToLower(u.Reason), Claim: m.Claim, Node: m.Node, DeleteClaim: true,
				Events: tell(m, "DisruptionTerminating", false, u.Reason),
			})
		}
	}
}

// progress says what keeps a command from ever being carried out, or whether its replacements are ready.
func progress(snap *cluster.Snapshot, u underway, leaving int) (fault string, ready bool) {
	if leaving < u.Of || u.StartUnix == 0 {
		return "the command was announced in part only", false
	}
	ready = true
	for _, name := range u.Replacements {
		at := slices.IndexFunc(snap.NodeClaims, func(c cluster.NodeClaim) bool { return c.Name == name })
		if at < 0 || snap.NodeClaims[at].DeletionUnix != 0 {
			return "replacement " + name + " could not be had", false
		}
		ready = ready && snap.NodeClaims[at].Conditions.True(cluster.ConditionInitialized)
	}
	if !ready && snap.NowUnix >= u.StartUnix+replacementSeconds {
		return fmt.Sprintf("the replacements were not ready after %d minutes", replacementSeconds/60), false
	}
	return "", ready
}

// back takes a command off a node; fault says why, empty where nobody knows of the command any more.
func back(now int64, m cluster.Member, fault string) plan.Move {
	claim := *m.Claim
	claim.Annotations = maps.Clone(claim.Annotations)
	delete(claim.Annotations, annotationCommand)
	claim.Conditions = claim.Conditions.Without(cluster.ConditionDisruptionReason)
	move := plan.Move{Reason: "rollback", Claim: m.Claim, Node: m.Node, WantClaim: &claim}
	if m.Node != nil && slices.ContainsFunc(m.Node.Taints, disrupted) {
		node := *m.Node
		node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), disrupted)
		move.WantNode = &node
	}
	if fault != "" {
		claim.Annotations = noted(claim.Annotations, annotationRetryAfter, time.Unix(now+retrySeconds, 0).UTC().Format(time.RFC3339))
		move.Events = tell(m, "DisruptionBlocked", true, "the node stays: "+fault)
	}
	return move
}

func noted(annotations map[string]string, key, value string) map[string]string {
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}

// commandID is the same for equal commands of equal snapshots, and different for the same command at another time.
func commandID(reason string, leaving []string, now int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", reason, strings.Join(leaving, ","), now))
	return hex.EncodeToString(sum[:8])
}
