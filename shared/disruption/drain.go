package disruption

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Seconds of a drain: how long a node is kept at least after its drain began (D-113), how long past its time a terminating
// pod is waited for (D-111), and how often an instance that is ending is looked at (D-119).
const (
	minDrainSeconds   = 5
	stuckSeconds      = 60
	terminationSecond = 5
)

// Drain says what happens next to each claim and node that is being deleted: it is tainted, its pods are evicted group by group, its
// instance is ended, and when that is over its objects are released (D-105 to D-121).
func Drain(snap *cluster.Snapshot, sights cluster.Sights) plan.Decision {
	var d plan.Decision
	for _, m := range snap.Members() {
		drainer{&d, snap.NowUnix, m, sights}.next()
	}
	return d
}

type drainer struct {
	d   *plan.Decision
	now int64
	cluster.Member
	sights cluster.Sights
}

func (r drainer) next() {
	claimGoes := r.Claim != nil && r.Claim.DeletionUnix != 0
	nodeGoes := r.Node != nil && r.Node.DeletionUnix != 0 && slices.Contains(r.Node.Finalizers, cluster.FinalizerTermination)
	switch {
	case nodeGoes && r.Claim != nil && !claimGoes:
		r.move(plan.Move{Reason: "node_deleted", DeleteClaim: true})
	case claimGoes && !slices.Contains(r.Claim.Finalizers, cluster.FinalizerTermination):
		// Somebody took the finalizer away; the instance, if any, is an orphan now (D-125).
	case claimGoes && r.Claim.ProviderID == "":
		r.unlaunched()
	case claimGoes || nodeGoes:
		r.leave()
	}
}

// unlaunched releases a claim that stands for no instance. A launch whose outcome is not known is left for its owner to
// finish: the claim's UID is part of its client token, so it must not go before EC2's answer is known.
func (r drainer) unlaunched() {
	if r.Claim.Annotations[cluster.AnnotationLaunch] != "" && r.Claim.Conditions.Get(cluster.ConditionLaunched).Status != "False" {
		r.d.Waiting = true
		return
	}
	r.move(plan.Move{Reason: "release", Release: true})
}

func (r drainer) leave() {
	id := r.instance()
	sight, asked := r.sights[id]
	ended := id == "" || (asked && sight.Ended())
	if ended && r.settled() && (r.Node == nil || !r.Node.Ready()) {
		r.move(plan.Move{Reason: "release", Release: true}) // D-109
		return
	}
	if r.Claim != nil && r.Claim.Conditions.Get(cluster.ConditionInstanceTerminating).Status == "True" {
		if ended {
			r.move(plan.Move{Reason: "release", Release: true})
			return
		}
		r.terminate(id, sight)
		return
	}
	if r.Node == nil {
		r.terminate(id, sight)
		return
	}
	if r.mark() {
		return
	}
	if r.evict() {
		return
	}
	r.terminate(id, sight)
}

// settled reports whether EC2 has had the time to show an instance that it launched; before that "unknown" proves nothing.
func (r drainer) settled() bool {
	if r.Claim == nil {
		return r.now-r.Node.CreatedUnix > stuckSeconds
	}
	return r.now-max(r.Claim.CreatedUnix, r.Claim.Conditions.Get(cluster.ConditionLaunched).TransitionUnix) > stuckSeconds
}

func (r drainer) instance() cluster.InstanceID {
	if r.Claim != nil {
		return cluster.InstanceOf(r.Claim.ProviderID)
	}
	return cluster.InstanceOf(r.Node.ProviderID)
}

// mark keeps new pods off the node and says in its claim that the drain has begun. It reports whether there was anything to write.
func (r drainer) mark() bool {
	move := plan.Move{Reason: "drain"}
	node := *r.Node
	changed := false
	if !slices.ContainsFunc(node.Taints, disrupted) {
		node.Taints = append(slices.Clone(node.Taints), leavingTaint())
		changed = true
	}
	if node.Labels[cluster.LabelExcludeLB] == "" {
		node.Labels = maps.Clone(node.Labels)
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[cluster.LabelExcludeLB] = "karpenter"
		changed = true
	}
	if changed {
		move.WantNode = &node
	}
	if r.Claim != nil {
		claim := *r.Claim
		grace := claim.TerminationGracePeriodSeconds
		if grace != nil && claim.Annotations[cluster.AnnotationTerminationTimestamp] == "" {
			claim.Annotations = maps.Clone(claim.Annotations)
			if claim.Annotations == nil {
				claim.Annotations = map[string]string{}
			}
			claim.Annotations[cluster.AnnotationTerminationTimestamp] = time.Unix(claim.DeletionUnix+*grace, 0).UTC().Format(time.RFC3339)
			move.WantClaim = &claim
		}
		if claim.Conditions.Get(cluster.ConditionDrained).Type == "" {
			claim.Conditions = claim.Conditions.With(cluster.Condition{
				Type: cluster.ConditionDrained, Status: "Unknown", Reason: "Draining", TransitionUnix: r.now,
			})
			move.WantClaim = &claim
		}
	}
	if move.WantNode == nil && move.WantClaim == nil {
		return false
	}
	r.move(move)
	return true
}

// evict asks the next group of pods to go and reports whether pods are still in the way. Past the deadline of the claim, budgets and
// do-not-disrupt no longer count (D-115, D-117).
func (r drainer) evict() bool {
	deadline := r.deadline()
	var waiting []*cluster.Pod
	for _, pod := range r.Pods {
		if r.inTheWay(pod) {
			waiting = append(waiting, pod)
		}
	}
	move := plan.Move{Reason: "drain"}
	if deadline != 0 {
		move.Kill = r.kills(waiting, deadline)
	}
	if group := firstGroup(waiting); group != nil && (deadline == 0 || r.now < deadline) {
		for _, pod := range group {
			if pod.DeletionUnix == 0 && !r.protected(pod) && !killed(move.Kill, pod) {
				move.Evict = append(move.Evict, pod.PodRef)
			}
		}
	}
	if len(move.Evict)+len(move.Kill) > 0 {
		r.move(move)
		r.d.Again(r.now + 1) // an eviction that a budget refuses changes nothing in the cluster
		return true
	}
	if len(waiting) > 0 && (deadline == 0 || r.now < deadline) {
		r.d.Waiting = true
		r.d.Again(r.now + 10)
		return true
	}
	return r.young()
}

// young keeps the node for a moment after the drain began, for load balancers to notice.
func (r drainer) young() bool {
	if r.Claim == nil {
		return false
	}
	since := r.Claim.Conditions.Get(cluster.ConditionDrained).TransitionUnix
	if r.Claim.Conditions.True(cluster.ConditionDrained) || r.now >= since+minDrainSeconds {
		return false
	}
	r.d.Waiting = true
	r.d.Again(since + minDrainSeconds)
	return true
}

// terminate ends the instance and says so in the claim first, so that nobody drains a node whose instance is going.
func (r drainer) terminate(id cluster.InstanceID, sight cluster.Sight) {
	r.d.Waiting = true
	r.d.Again(r.now + terminationSecond)
	if sight.Found && sight.Instance.State == cluster.InstanceShuttingDown {
		return
	}
	move := plan.Move{Reason: "terminate", Terminate: id}
	if r.Claim != nil && !r.Claim.Conditions.True(cluster.ConditionInstanceTerminating) {
		claim := *r.Claim
		if r.Node != nil {
			claim.Conditions = claim.Conditions.With(cluster.Condition{
				Type: cluster.ConditionDrained, Status: "True", Reason: "Drained", TransitionUnix: r.now,
			})
		}
		claim.Conditions = claim.Conditions.With(cluster.Condition{
			Type: cluster.ConditionInstanceTerminating, Status: "True", Reason: "InstanceTerminating", TransitionUnix: r.now,
		})
		move.WantClaim = &claim
	}
	r.move(move)
}

// inTheWay reports whether the drain has to wait for the pod (D-111).
func (r drainer) inTheWay(pod *cluster.Pod) bool {
	stuck := pod.DeletionUnix != 0 && r.now > pod.DeletionUnix+stuckSeconds
	_, refuses := cluster.Untolerated([]cluster.Taint{leavingTaint()}, pod.Spec.Tolerations)
	return !pod.Terminal() && !pod.Static() && !stuck && refuses
}

func (r drainer) protected(pod *cluster.Pod) bool {
	until, ok := ProtectedUntil(pod)
	return ok && (until == 0 || r.now < until)
}

// deadline is the instant at which the claim's termination grace period is over, zero for none.
func (r drainer) deadline() int64 {
	if r.Claim == nil {
		return 0
	}
	stamp, err := time.Parse(time.RFC3339, r.Claim.Annotations[cluster.AnnotationTerminationTimestamp])
	if err != nil {
		return 0
	}
	return stamp.Unix()
}

// kills lists the pods that have to be deleted now to have their own grace period before the deadline, and those whose
// deletion would end after it (D-115, D-116).
func (r drainer) kills(pods []*cluster.Pod, deadline int64) []plan.Kill {
	var out []plan.Kill
	for _, pod := range pods {
		left := max(deadline-r.now, 1)
		late := pod.DeletionUnix > deadline
		due := pod.DeletionUnix == 0 && r.now >= deadline-pod.Spec.GraceSeconds
		if late || due {
			out = append(out, plan.Kill{Pod: pod.PodRef, GraceSeconds: min(left, max(pod.Spec.GraceSeconds, 1))})
		} else if pod.DeletionUnix == 0 {
			r.d.Again(deadline - pod.Spec.GraceSeconds)
		}
	}
	return out
}

func killed(kills []plan.Kill, pod *cluster.Pod) bool {
	return slices.ContainsFunc(kills, func(k plan.Kill) bool { return k.Pod.UID == pod.UID })
}

// firstGroup returns the pods that go first: those of workloads before daemons, and the critical of both after the others (D-110).
func firstGroup(pods []*cluster.Pod) []*cluster.Pod {
	var groups [4][]*cluster.Pod
	for _, pod := range pods {
		at := 0
		if pod.Daemon() {
			at++
		}
		if pod.Critical() {
			at += 2
		}
		groups[at] = append(groups[at], pod)
	}
	for _, group := range groups {
		if len(group) > 0 {
			return group
		}
	}
	return nil
}

func (r drainer) move(m plan.Move) {
	m.Claim, m.Node = r.Claim, r.Node
	r.d.Moves = append(r.d.Moves, m)
	r.d.Waiting = true
}

func leavingTaint() cluster.Taint {
	return cluster.Taint{Key: cluster.TaintDisrupted, Effect: cluster.NoSchedule}
}

func disrupted(t cluster.Taint) bool { return t.Key == cluster.TaintDisrupted }

// ProtectedUntil reads a pod's do-not-disrupt annotation: ok says that it protects the pod, until when, with zero for as long as it
// lives. "true" protects for ever, a duration from the pod's start; anything else does not protect (D-011, D-012).
func ProtectedUntil(pod *cluster.Pod) (untilUnix int64, ok bool) {
	value := pod.Annotations[cluster.AnnotationDoNotDisrupt]
	if value == "true" {
		return 0, true
	}
	length, err := time.ParseDuration(value)
	if err != nil || length <= 0 {
		return 0, false
	}
	start := pod.StartedUnix
	if start == 0 {
		start = pod.CreatedUnix
	}
	return start + int64(length/time.Second), true
}

// describe says what a node was, for an Event.
func describe(n *cluster.Node) string {
	return fmt.Sprintf("%s (%s, %s)", n.Name, n.Labels[cluster.LabelInstanceType], n.Labels[cluster.LabelCapacityType])
}
