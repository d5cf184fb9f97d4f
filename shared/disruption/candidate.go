package disruption

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"treadle/shared/cluster"
)

// annotationRetryAfter of a NodeClaim says until when it is left alone after a command that came to nothing.
const annotationRetryAfter = "treadle.sh/retry-after"

// candidate is a node that may be disrupted by choice.
type candidate struct {
	cluster.Member
	pool *cluster.NodePool
	// price is that of its offering in micro-USD per hour, whether or not it can be had now; zero where it is not known (D-017).
	price int64
	// cost weighs the disruption: one for the node and about one for each pod that has to move (D-018 to D-020).
	cost float64
	// moves holds the pods that need another place, the largest first.
	moves []*cluster.Pod
}

// candidates returns the nodes that may be disrupted by choice (D-008 to D-014). stubborn drift may pass over pods that must not be
// evicted, where the claim has a grace period that ends the drain; consolidation may not. wanted holds nodes that pending pods are
// expected on. why is told for each node that only its pods or an annotation keep from being one.
func candidates(snap *cluster.Snapshot, wanted map[cluster.NodeName]bool, stubborn bool, why func(cluster.Member, string)) []candidate {
	var out []candidate
	for _, m := range snap.Members() {
		if m.Claim == nil || m.Node == nil || wanted[m.Node.Name] || busy(m, snap.NowUnix) {
			continue
		}
		pool := snap.Pool(m.Claim.NodePool())
		if pool == nil || pool.DeletionUnix != 0 {
			continue
		}
		if m.Node.Annotations[cluster.AnnotationDoNotDisrupt] == "true" {
			why(m, "the node is annotated "+cluster.AnnotationDoNotDisrupt)
			continue
		}
		if held := holder(snap, m); held != "" && (!stubborn || m.Claim.TerminationGracePeriodSeconds == nil) {
			why(m, held)
			continue
		}
		out = append(out, newCandidate(snap, m, pool))
	}
	return out
}

// busy reports whether the node is not in service yet, is leaving, or has just been tried.
func busy(m cluster.Member, now int64) bool {
	if m.Claim.DeletionUnix != 0 || m.Node.DeletionUnix != 0 || len(m.Twins) > 0 || !m.Claim.Conditions.True(cluster.ConditionInitialized) {
		return true
	}
	if m.Claim.Conditions.True(cluster.ConditionDisruptionReason) || m.Claim.Annotations[annotationCommand] != "" || slices.ContainsFunc(m.Node.Taints, disrupted) {
		return true
	}
	until, err := time.Parse(time.RFC3339, m.Claim.Annotations[annotationRetryAfter])
	return err == nil && now < until.Unix()
}

// holder names the pod that keeps a node from being disrupted, "" if none does (D-011 to D-013).
func holder(snap *cluster.Snapshot, m cluster.Member) string {
	for _, pod := range m.Pods {
		if pod.Terminal() || pod.DeletionUnix != 0 {
			continue
		}
		if until, ok := ProtectedUntil(pod); ok && (until == 0 || snap.NowUnix < until) {
			return fmt.Sprintf("pod %s/%s is annotated %s", pod.Namespace, pod.Name, cluster.AnnotationDoNotDisrupt)
		}
		if held := heldByBudget(snap, pod); held != "" {
			return held
		}
	}
	return ""
}

// heldByBudget says which disruption budget keeps a pod from being evicted. Two on one pod make every eviction fail.
func heldByBudget(snap *cluster.Snapshot, pod *cluster.Pod) string {
	if pod.Static() {
		return ""
	}
	matching := 0
	for i := range snap.Budgets {
		b := &snap.Budgets[i]
		if b.Namespace != pod.Namespace || !b.Selector.Matches(pod.Labels) {
			continue
		}
		if matching++; b.Allowed <= 0 || b.Blocked {
			return fmt.Sprintf("disruption budget %s/%s allows no eviction of pod %s", b.Namespace, b.Name, pod.Name)
		}
	}
	if matching > 1 {
		return fmt.Sprintf("pod %s/%s has %d disruption budgets, so that it cannot be evicted", pod.Namespace, pod.Name, matching)
	}
	return ""
}

func newCandidate(snap *cluster.Snapshot, m cluster.Member, pool *cluster.NodePool) candidate {
	c := candidate{Member: m, pool: pool, cost: 1, price: priceOf(snap.TypesOf(m.Claim.NodePool(), m.Claim.NodeClass), m.Node.Labels)}
	for _, pod := range m.Pods {
		if pod.Terminal() || pod.Daemon() || pod.Static() || pod.DeletionUnix != 0 && pod.Owner.Kind != "StatefulSet" {
			continue
		}
		c.moves = append(c.moves, pod)
		c.cost += max(0, evictionCost(pod))
	}
	slices.SortFunc(c.moves, func(a, b *cluster.Pod) int {
		return cmp.Or(cmp.Compare(b.Spec.Requests.MilliCPU, a.Spec.Requests.MilliCPU),
			cmp.Compare(b.Spec.Requests.MemoryBytes, a.Spec.Requests.MemoryBytes), cmp.Compare(a.UID, b.UID))
	})
	if at, expires := ExpiryUnix(m.Claim); expires {
		c.cost *= max(0, float64(at-snap.NowUnix)/float64(m.Claim.ExpireAfterSeconds))
	}
	return c
}

// evictionCost is what moving a pod costs (D-018).
func evictionCost(pod *cluster.Pod) float64 {
	cost := 1 + float64(pod.Spec.Priority)/(1<<25)
	if n, err := strconv.ParseInt(pod.Annotations[cluster.AnnotationPodDeletionCost], 10, 32); err == nil {
		cost += float64(n) / (1 << 27)
	}
	return math.Max(-10, math.Min(10, cost))
}

// priceOf returns the price of the offering that a node with these labels is, in micro-USD per hour; zero where it is not known.
func priceOf(types []cluster.InstanceType, labels map[string]string) int64 {
	at := slices.IndexFunc(types, func(t cluster.InstanceType) bool { return t.Name == labels[cluster.LabelInstanceType] })
	if at < 0 {
		return 0
	}
	reservation := labels[cluster.LabelReservationID]
	for _, o := range types[at].Offerings {
		if o.Zone == labels[cluster.LabelZone] && string(o.CapacityType) == labels[cluster.LabelCapacityType] &&
			(o.CapacityType != cluster.Reserved || o.ReservationID == reservation) {
			return o.PriceMicroUSDPerHour
		}
	}
	return 0
}

// bySavings puts first what saves most for its disruption (D-022).
func bySavings(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(float64(b.price)/max(b.cost, 0.01), float64(a.price)/max(a.cost, 0.01)),
		cmp.Compare(a.Claim.Name, b.Claim.Name),
	)
}
