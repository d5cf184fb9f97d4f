package readiness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

const (
	// annotationJoins of a NodePool tells how its last nodes came: Karpenter keeps that in memory (N-028).
	annotationJoins = "treadle.sh/joins"
	// remembered is how many nodes count, tooMany how many of them may not have come for the pool to be called unhealthy.
	remembered, tooMany = 4, 2
	// paused is after how many equal failures in a row a pool makes no nodes for a while, and pauseSeconds for how long.
	paused, pauseSeconds = 3, 600
)

// joins is what annotationJoins holds: of the latest nodes, the latest last, why each did not come; empty for one that came. It is of one
// generation of the pool and of its class.
type joins struct {
	Generation      int64    `json:"generation"`
	ClassGeneration int64    `json:"classGeneration,omitempty"`
	Ends            []string `json:"ends"`
	LastUnix        int64    `json:"last"`
}

// joinsOf returns what is known of the nodes of a pool as it and its class are now.
func joinsOf(pool *cluster.NodePool, class *cluster.NodeClass) joins {
	now := joins{Generation: pool.Generation}
	if class != nil {
		now.ClassGeneration = class.Generation
	}
	var known joins
	err := json.Unmarshal([]byte(pool.Annotations[annotationJoins]), &known)
	if err != nil || known.Generation != now.Generation || known.ClassGeneration != now.ClassGeneration {
		return now
	}
	return known
}

// Joins returns the pools of snap whose history the moves add to, as they should be: nodes that have joined, and claims that end because
// theirs did not.
func Joins(snap *cluster.Snapshot, moves []plan.Move) map[string]cluster.NodePool {
	out := map[string]cluster.NodePool{}
	for i := range moves {
		end, ended := endOf(&moves[i])
		if !ended {
			continue
		}
		name := moves[i].Claim.NodePool()
		pool, changed := out[name]
		if !changed {
			known := snap.Pool(name)
			if known == nil {
				continue
			}
			pool = *known
		}
		j := joinsOf(&pool, snap.Class(pool.Template.NodeClass))
		j.Ends = append(j.Ends, end)
		j.Ends = j.Ends[max(0, len(j.Ends)-remembered):]
		j.LastUnix = snap.NowUnix
		text, err := json.Marshal(j)
		if err != nil {
			panic(err) // strings and integers always marshal
		}
		pool.Annotations = maps.Clone(pool.Annotations)
		if pool.Annotations == nil {
			pool.Annotations = map[string]string{}
		}
		pool.Annotations[annotationJoins] = string(text)
		out[name] = pool
	}
	return out
}

// endOf returns why a claim's node has not joined, empty if it has; ok is false for a move that says neither.
func endOf(m *plan.Move) (end string, ok bool) {
	switch {
	case m.Claim == nil:
		return "", false
	case m.Reason == "register" && m.WantNode != nil:
		return "", true
	case m.DeleteClaim && slices.Contains([]string{"launch_timeout", "registration_timeout", "instance_ended"}, m.Reason):
		return m.Events[0].Note, true
	}
	return "", false
}

// health returns the conditions that follow from how the last nodes came: NodeRegistrationHealthy, and Paused where one failure repeats
// itself. A pool that never paused has no condition Paused.
func health(pool *cluster.NodePool, class *cluster.NodeClass, nowUnix int64) []cluster.Condition {
	j := joinsOf(pool, class)
	was := pool.Conditions.Get(cluster.ConditionNodeRegistrationHealthy)
	healthy := cluster.Condition{
		Type: cluster.ConditionNodeRegistrationHealthy, Status: "Unknown", Reason: "AwaitingReconciliation",
		Message: "no node of this pool has registered yet",
	}
	failed := len(slices.DeleteFunc(slices.Clone(j.Ends), func(end string) bool { return end == "" }))
	last := ""
	if len(j.Ends) > 0 {
		last = j.Ends[len(j.Ends)-1]
	}
	switch {
	case len(j.Ends) == 0:
	case last == "":
		healthy.Status, healthy.Reason, healthy.Message = "True", cluster.ConditionNodeRegistrationHealthy, ""
	case failed >= tooMany:
		healthy.Status, healthy.Reason = "False", "RegistrationFailed"
		healthy.Message = fmt.Sprintf("of the last %d nodes %d did not join: %s", len(j.Ends), failed, last)
	case was.Type != "":
		healthy = was // one failure says nothing yet
	}
	out := []cluster.Condition{healthy}
	row := 0
	for _, end := range slices.Backward(j.Ends) {
		if end == "" || end != last {
			break
		}
		row++
	}
	if row >= paused && nowUnix < j.LastUnix+pauseSeconds {
		out = append(out, cluster.Condition{
			Type: cluster.ConditionPaused, Status: "True", Reason: "NodesDoNotJoin",
			Message: fmt.Sprintf("%d nodes in a row did not join, so the pool makes no more for 10 minutes, or until it or its class changes: %s", row, last),
		})
	} else if pool.Conditions.Get(cluster.ConditionPaused).Type != "" {
		out = append(out, cluster.Condition{Type: cluster.ConditionPaused, Status: "False", Reason: "NotPaused"})
	}
	return out
}
