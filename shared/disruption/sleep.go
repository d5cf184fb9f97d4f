package disruption

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// AnnotationSleep of a NodePool says when it is to have no nodes: windows of the form "SCHEDULE for DURATION", separated by semicolons, in
// UTC. "0 20 * * mon-thu for 11h; 0 20 * * fri for 59h" sleeps every night from eight to seven, and over the weekend.
const AnnotationSleep = "treadle.sh/sleep"

// ReasonSleeping is the disruption reason of a node whose pool sleeps. Karpenter's API has no such word, so that only budgets for all
// reasons count.
const ReasonSleeping = "Sleeping"

// Asleep reports whether a pool sleeps at an instant. The error says what is wrong with its annotation; such a pool does not sleep.
func Asleep(pool *cluster.NodePool, nowUnix int64) (bool, error) {
	text := pool.Annotations[AnnotationSleep]
	if text == "" {
		return false, nil
	}
	asleep := false
	for window := range strings.SplitSeq(text, ";") {
		schedule, length, ok := strings.Cut(window, " for ")
		duration, err := time.ParseDuration(strings.TrimSpace(length))
		if !ok || err != nil || duration < time.Minute {
			return false, fmt.Errorf("annotation %s: %q is not of the form SCHEDULE for DURATION", AnnotationSleep, strings.TrimSpace(window))
		}
		active, err := ActiveBudget(cluster.Budget{Schedule: strings.TrimSpace(schedule), DurationSeconds: int64(duration / time.Second)}, nowUnix)
		if err != nil {
			return false, fmt.Errorf("annotation %s: %w", AnnotationSleep, err)
		}
		asleep = asleep || active
	}
	return asleep, nil
}

// Bed marks the pools of snap that sleep now, for whoever plans to leave them alone. The error says what is wrong with annotations.
func Bed(snap *cluster.Snapshot) error {
	snap.NodePools = slices.Clone(snap.NodePools) // others may hold the list
	var errs []error
	for i := range snap.NodePools {
		pool := &snap.NodePools[i]
		asleep, err := Asleep(pool, snap.NowUnix)
		if err != nil {
			errs = append(errs, fmt.Errorf("nodepool %s: %w", pool.Name, err))
		}
		pool.Asleep = asleep
	}
	return errors.Join(errs...)
}

// retire returns commands that take the nodes of sleeping pools away, as budgets allow: those that no pod needs first. Their pods wait for the
// morning, unless another pool takes them; what must not be evicted keeps its node.
func retire(snap *cluster.Snapshot) []plan.Command {
	members := membersByPool(snap)
	allowed := map[string]int{}
	for i := range snap.NodePools {
		if pool := &snap.NodePools[i]; pool.Asleep {
			allowed[pool.Name] = Allowed(pool, members[pool.Name], ReasonSleeping, snap.NowUnix)
		}
	}
	if len(allowed) == 0 {
		return nil
	}
	all := candidates(snap, nil, false, func(cluster.Member, string) {})
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.Claim.Name, b.Claim.Name))
	})
	var commands []plan.Command
	for _, c := range all {
		if allowed[c.pool.Name] <= 0 {
			continue
		}
		allowed[c.pool.Name]--
		leaving := []string{c.Claim.Name}
		commands = append(commands, plan.Command{
			ID: commandID(ReasonSleeping, leaving, snap.NowUnix), Reason: ReasonSleeping, Leaving: leaving, SavesMicroUSDPerHour: c.price,
			Note: fmt.Sprintf("nodepool %s sleeps; %s wait for the morning", c.pool.Name, count(len(c.moves), "pod")),
		})
	}
	return commands
}
