package joining

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Deadlines and the time that EC2 may take to show an instance that it has launched, in seconds (L-086, L-087).
const (
	launchSeconds       = 5 * 60
	registrationSeconds = 15 * 60
	visibilitySeconds   = 60
)

// Decide says what happens next to each claim that nobody deletes. sights holds what EC2 said about instances; those that were
// not asked about are absent.
func Decide(snap *cluster.Snapshot, sights cluster.Sights) plan.Decision {
	var d plan.Decision
	waiting := waitingPods(snap)
	for _, m := range snap.Members() {
		if m.Claim == nil || m.Claim.DeletionUnix != 0 {
			continue
		}
		before := len(d.Moves)
		one(&d, snap.NowUnix, m, sights, waiting)
		for i := range d.Moves[before:] {
			tell(&d.Moves[before+i], waiting)
		}
	}
	return d
}

// told is how many pods of a claim are told of its end: it is news for one or two readers, not for a thousand.
const told = 10

// tell has the pods that a claim was made for know why its node does not come.
func tell(m *plan.Move, waiting map[cluster.PodUID]cluster.PodRef) {
	if !m.DeleteClaim || m.Claim.Conditions.True(cluster.ConditionRegistered) {
		return
	}
	note := "nodeclaim " + m.Claim.Name + ": " + m.Events[0].Note
	for _, uid := range cluster.PlannedPods(m.Claim) {
		if ref, waits := waiting[uid]; waits && len(m.Events) <= told {
			m.Events = append(m.Events, plan.PodEvent(ref, "NodeNotJoined", true, note))
		}
	}
}

// waitingPods returns the pods that no node has and none is nominated for.
func waitingPods(snap *cluster.Snapshot) map[cluster.PodUID]cluster.PodRef {
	out := map[cluster.PodUID]cluster.PodRef{}
	for i := range snap.Pods {
		if p := &snap.Pods[i]; p.NodeName == "" && p.NominatedNode == "" && p.DeletionUnix == 0 && !p.Terminal() && !cluster.Virtual(p.UID) {
			out[p.UID] = p.PodRef
		}
	}
	return out
}

func one(d *plan.Decision, now int64, m cluster.Member, sights cluster.Sights, waiting map[cluster.PodUID]cluster.PodRef) {
	claim := m.Claim
	switch {
	case claim.ProviderID != "" && !slices.Contains(claim.Finalizers, cluster.FinalizerTermination):
		hold(d, m)
	case claim.ProviderID == "" && claim.Conditions.Get(cluster.ConditionLaunched).Status == "False":
		fail(d, m, "launch_failed", "LaunchFailed", cause(claim, cluster.ConditionLaunched))
	case claim.ProviderID == "":
		deadline := claim.CreatedUnix + launchSeconds
		if now < deadline {
			d.Again(deadline)
			return
		}
		fail(d, m, "launch_timeout", "LaunchTimeout", "the instance was not launched within 5 minutes: "+cause(claim, cluster.ConditionLaunched))
	case !claim.Conditions.True(cluster.ConditionRegistered):
		register(d, now, m, sights, waiting)
	case m.Node == nil:
		fail(d, m, "node_gone", "NodeGone", fmt.Sprintf("node %s no longer exists", claim.NodeName))
	case lost(now, m, sights):
		fail(d, m, "instance_gone", "InstanceTerminated", "the instance has ended and its node is not ready")
	case !claim.Conditions.True(cluster.ConditionInitialized):
		initialize(d, now, m)
	}
}

// hold puts back the finalizers of a claim that has an instance, and of its node: whoever was uninstalled and installed again finds
// them without, and a claim that goes without a drain leaves its instance behind.
func hold(d *plan.Decision, m cluster.Member) {
	claim := *m.Claim
	claim.Finalizers = append(slices.Clone(claim.Finalizers), cluster.FinalizerTermination)
	move := plan.Move{Reason: "hold", Claim: m.Claim, Node: m.Node, WantClaim: &claim}
	registered := m.Node != nil && claim.Conditions.True(cluster.ConditionRegistered)
	if registered && m.Node.DeletionUnix == 0 && !slices.Contains(m.Node.Finalizers, cluster.FinalizerTermination) {
		node := *m.Node
		node.Finalizers = append(slices.Clone(node.Finalizers), cluster.FinalizerTermination)
		move.WantNode = &node
	}
	d.Moves = append(d.Moves, move)
	d.Waiting = true
}

// register joins the node to the claim, or ends a claim whose node will not come.
func register(d *plan.Decision, now int64, m cluster.Member, sights cluster.Sights, waiting map[cluster.PodUID]cluster.PodRef) {
	claim := m.Claim
	if len(m.Twins) > 0 {
		names := []string{string(m.Node.Name)}
		for _, twin := range m.Twins {
			names = append(names, string(twin.Name))
		}
		set(d, now, m, "register", cluster.Condition{
			Type: cluster.ConditionRegistered, Status: "Unknown", Reason: "MultipleNodesFound",
			Message: "several nodes have this provider id: " + strings.Join(names, ", "),
		})
		d.Waiting = true
		return
	}
	if m.Node != nil {
		d.Moves = append(d.Moves, registration(now, m, waiting))
		d.Waiting = true
		return
	}
	if sight, asked := sights[cluster.InstanceOf(claim.ProviderID)]; asked && sight.Gone(settled(now, claim)) {
		reason := sight.Instance.StateReason
		if reason == "" {
			reason = "EC2 does not know it any more"
		}
		fail(d, m, "instance_ended", "InstanceTerminated", "the instance ended before its node joined: "+reason)
		return
	}
	if deadline := launchedUnix(claim) + registrationSeconds; now < deadline {
		d.Waiting = true
		d.Again(deadline)
		return
	}
	fail(d, m, "registration_timeout", "RegistrationTimeout", "no node with this provider id joined within 15 minutes")
}

// registration also nominates the node for the pods that it was made for: left alone, the scheduler spreads them over whatever
// room it finds, and the last ones find none.
func registration(now int64, m cluster.Member, waiting map[cluster.PodUID]cluster.PodRef) plan.Move {
	claim, node := *m.Claim, *m.Node
	node.Labels = merged(node.Labels, claim.Labels, map[string]string{cluster.LabelRegistered: "true"})
	node.Annotations = merged(node.Annotations, forNode(claim.Annotations))
	node.OwnedBy, node.OwnedByName = claim.UID, claim.Name
	if !slices.Contains(node.Finalizers, cluster.FinalizerTermination) {
		node.Finalizers = append(slices.Clone(node.Finalizers), cluster.FinalizerTermination)
	}
	unregistered := cluster.Taint{Key: cluster.TaintUnregistered, Effect: cluster.NoExecute}
	move := plan.Move{Reason: "register", Claim: m.Claim, Node: m.Node}
	if !slices.ContainsFunc(node.Taints, same(unregistered)) {
		move.Events = append(move.Events, plan.ClaimEvent(m.Claim, "UnregisteredTaintMissing", true,
			"node "+string(node.Name)+" came without the taint karpenter.sh/unregistered: pods may have started before it was ready for them"))
	}
	node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), same(unregistered))
	if node.Labels[cluster.LabelNoTaintSync] != "true" {
		for _, taint := range slices.Concat(claim.Taints, claim.StartupTaints) {
			if !slices.ContainsFunc(node.Taints, same(taint)) {
				node.Taints = append(node.Taints, taint)
			}
		}
	}
	claim.NodeName = node.Name
	claim.Conditions = ready(claim.Conditions, now, cluster.Condition{
		Type: cluster.ConditionRegistered, Status: "True", Reason: "Registered", TransitionUnix: now,
	})
	for _, uid := range cluster.PlannedPods(m.Claim) {
		if ref, waits := waiting[uid]; waits {
			move.Nominate = append(move.Nominate, ref)
		}
	}
	move.WantNode, move.WantClaim = &node, &claim
	return move
}

// forNode drops the annotations of a claim that are about the claim itself.
func forNode(claim map[string]string) map[string]string {
	out := maps.Clone(claim)
	delete(out, cluster.AnnotationLaunch)
	delete(out, cluster.AnnotationTagged)
	delete(out, cluster.AnnotationPlanned)
	return out
}

// initialize waits for the node to be what the claim asked for (L-084); no deadline ends that wait (L-088).
func initialize(d *plan.Decision, now int64, m cluster.Member) {
	d.Waiting = true
	if reason, message := missing(m); reason != "" {
		set(d, now, m, "initialize", cluster.Condition{Type: cluster.ConditionInitialized, Status: "Unknown", Reason: reason, Message: message})
		return
	}
	claim, node := *m.Claim, *m.Node
	node.Labels = merged(node.Labels, map[string]string{cluster.LabelInitialized: "true"})
	claim.Capacity, claim.Allocatable = node.Capacity, node.Allocatable
	claim.Conditions = ready(claim.Conditions, now, cluster.Condition{
		Type: cluster.ConditionInitialized, Status: "True", Reason: "Initialized", TransitionUnix: now,
	})
	d.Moves = append(d.Moves, plan.Move{Reason: "initialize", Claim: m.Claim, Node: m.Node, WantNode: &node, WantClaim: &claim})
}

// missing names the first thing that keeps a node from being initialised.
func missing(m cluster.Member) (reason, message string) {
	node, claim := m.Node, m.Claim
	if !node.Ready() {
		return "NodeNotReady", "node " + string(node.Name) + " is not ready"
	}
	for _, taint := range claim.StartupTaints {
		if slices.ContainsFunc(node.Taints, same(taint)) {
			return "StartupTaintsExist", "startup taint " + taint.Key + " is still there"
		}
	}
	for _, taint := range node.Taints {
		if taint.Ephemeral() {
			return "KnownEphemeralTaintsExist", "taint " + taint.Key + " is still there"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Requests.Extended)) {
		if claim.Requests.Extended[name] > 0 && node.Allocatable.Extended[name] == 0 {
			return "ResourceNotRegistered", "resource " + name + " was requested and has not been registered"
		}
	}
	return "", ""
}

// lost reports whether the instance of a registered node has ended. A ready node is believed rather than EC2 (L-091).
func lost(now int64, m cluster.Member, sights cluster.Sights) bool {
	sight, asked := sights[cluster.InstanceOf(m.Claim.ProviderID)]
	return asked && !m.Node.Ready() && sight.Gone(settled(now, m.Claim))
}

// settled reports whether EC2 has had the time to show the instance of a claim: before that, not to know it means nothing.
func settled(now int64, claim *cluster.NodeClaim) bool {
	return now-launchedUnix(claim) > visibilitySeconds
}

func launchedUnix(claim *cluster.NodeClaim) int64 {
	if at := claim.Conditions.Get(cluster.ConditionLaunched).TransitionUnix; at != 0 {
		return at
	}
	return claim.CreatedUnix
}

func fail(d *plan.Decision, m cluster.Member, reason, event, message string) {
	d.Moves = append(d.Moves, plan.Move{
		Reason: reason, Claim: m.Claim, Node: m.Node, DeleteClaim: true,
		Events: []plan.Event{plan.ClaimEvent(m.Claim, event, true, message)},
	})
	d.Waiting = true
}

// set writes a condition if it says something that the claim does not say yet.
func set(d *plan.Decision, now int64, m cluster.Member, reason string, c cluster.Condition) {
	c.TransitionUnix = now
	old := m.Claim.Conditions.Get(c.Type)
	if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		return
	}
	claim := *m.Claim
	claim.Conditions = ready(claim.Conditions, now, c)
	d.Moves = append(d.Moves, plan.Move{Reason: reason, Claim: m.Claim, Node: m.Node, WantClaim: &claim})
}

// ready adds a condition and lets Ready follow: True once launched, registered and initialised, else what is missing.
func ready(conditions cluster.Conditions, now int64, c cluster.Condition) cluster.Conditions {
	return conditions.With(c).WithReady(now, cluster.ConditionLaunched, cluster.ConditionRegistered, cluster.ConditionInitialized)
}

// cause returns what a condition says about why it is not true.
func cause(c *cluster.NodeClaim, kind string) string {
	if one := c.Conditions.Get(kind); one.Message != "" {
		return one.Message
	}
	return "no cause is known"
}

func same(t cluster.Taint) func(cluster.Taint) bool {
	return func(o cluster.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }
}

func merged(base map[string]string, over ...map[string]string) map[string]string {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}
	for _, m := range over {
		maps.Copy(out, m)
	}
	return out
}
