package disruption

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"treadle/shared/cluster"
)

// Allowed returns how many more nodes of the pool may be disrupted for the reason now: the smallest active budget, less the nodes
// that are not ready, leaving or about to leave (D-086 to D-092). A pool without a budget for the reason is not limited; one with
// a budget that cannot be read allows nothing.
func Allowed(pool *cluster.NodePool, members []cluster.Member, reason string, nowUnix int64) int {
	nodes, busy := 0, 0
	for _, m := range members {
		if m.Node == nil || !m.Claim.Conditions.True(cluster.ConditionInitialized) || m.Claim.Conditions.True(cluster.ConditionInstanceTerminating) {
			continue
		}
		nodes++
		if !m.Node.Ready() || m.Claim.DeletionUnix != 0 || m.Node.DeletionUnix != 0 || m.Claim.Conditions.True(cluster.ConditionDisruptionReason) {
			busy++
		}
	}
	limit := nodes
	for _, b := range pool.Budgets {
		active, err := ActiveBudget(b, nowUnix)
		if err != nil {
			return 0
		}
		if !active || (len(b.Reasons) > 0 && !slices.Contains(b.Reasons, reason)) {
			continue
		}
		n, err := budgetNodes(b.Nodes, nodes)
		if err != nil {
			return 0
		}
		limit = min(limit, n)
	}
	return max(limit-busy, 0)
}

// ActiveBudget reports whether the budget counts now: always without a schedule, else while the latest start of its schedule, in
// UTC, lies no further back than its duration. The error says what is wrong with the schedule.
func ActiveBudget(b cluster.Budget, nowUnix int64) (bool, error) {
	if b.Schedule == "" {
		return true, nil
	}
	schedule, err := parseCron(b.Schedule)
	if err != nil {
		return false, err
	}
	now := time.Unix(nowUnix, 0).UTC()
	for at := now.Truncate(time.Minute); nowUnix-at.Unix() < b.DurationSeconds; at = at.Add(-time.Minute) {
		if schedule.matches(at) {
			return true, nil
		}
	}
	return false, nil
}

// budgetNodes reads a count or a percentage of total, rounded up.
func budgetNodes(text string, total int) (int, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || (percent && n > 100) {
		return 0, fmt.Errorf("budget nodes %q is neither a count nor a percentage", text)
	}
	if percent {
		return (total*n + 99) / 100, nil
	}
	return n, nil
}
