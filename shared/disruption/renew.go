package disruption

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/packing"
	"treadle/shared/plan"
)

// ReasonDrifted is the disruption reason of a node that is no longer what its pool asks for, as budgets name it.
const ReasonDrifted = "Drifted"

// Renew returns commands that replace drifted nodes, as many as budgets allow: those that no pod needs first, then those that drifted
// first (D-023, D-073, D-074). Each pod of a leaving node has a place on another one, or on a replacement. What keeps a drifted node
// from being replaced is told in Events. It is deterministic, changes nothing in snap, and makes at most Options.Looks plans.
func Renew(snap *cluster.Snapshot, o Options) ([]plan.Command, []plan.Event) {
	var events []plan.Event
	blocked := func(m cluster.Member, why string) {
		if m.Claim.Conditions.True(cluster.ConditionDrifted) {
			events = append(events, tell(m, "DisruptionBlocked", false, why)...)
		}
	}
	drifted := slices.DeleteFunc(candidates(snap, o.Wanted, true, blocked), func(c candidate) bool {
		return !c.Claim.Conditions.True(cluster.ConditionDrifted)
	})
	if len(drifted) == 0 {
		return nil, events
	}
	since := func(c candidate) int64 { return c.Claim.Conditions.Get(cluster.ConditionDrifted).TransitionUnix }
	slices.SortFunc(drifted, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(min(len(a.moves), 1), min(len(b.moves), 1)), cmp.Compare(since(a), since(b)), cmp.Compare(a.Claim.Name, b.Claim.Name))
	})
	r := &renewal{work: *snap, buffers: o.Buffers, ready: inService(snap), leaving: Leaving(snap), left: cmp.Or(o.Looks, looks), exchanged: map[string]int{}}
	r.work.NodeClaims = slices.Clone(snap.NodeClaims)
	members := membersByPool(snap)
	allowed := map[string]int{}
	var commands []plan.Command
	for i := range drifted {
		c := &drifted[i]
		n, known := allowed[c.pool.Name]
		if !known {
			n = Allowed(c.pool, members[c.pool.Name], ReasonDrifted, snap.NowUnix)
		}
		if allowed[c.pool.Name] = n; n <= 0 || r.left == 0 {
			continue
		}
		command, why := r.renew(c)
		if why != "" {
			blocked(c.Member, why)
			continue
		}
		allowed[c.pool.Name]--
		commands = append(commands, command)
	}
	return commands, events
}

// renewal plans replacements one after the other, each on top of those before.
type renewal struct {
	work    cluster.Snapshot // with the replacements that are planned as claims in flight
	leaving []cluster.NodeName
	buffers map[cluster.NodeName]bool // have room that is kept
	ready   map[cluster.NodeName]bool // in service
	left    int                       // plans that may still be made
	// exchanged counts, by static pool, the replacements that are planned.
	exchanged map[string]int
}

// renew plans a command for one node, or says why there is none.
func (r *renewal) renew(c *candidate) (command plan.Command, why string) {
	command = plan.Command{Reason: ReasonDrifted, Leaving: []string{c.Claim.Name}, SavesMicroUSDPerHour: c.price}
	command.ID = commandID(command.Reason, command.Leaving, r.work.NowUnix)
	because := c.Claim.Conditions.Get(cluster.ConditionDrifted).Reason
	if c.pool.Replicas != nil {
		return r.exchange(c, command, because)
	}
	if len(c.moves) == 0 && !r.buffers[c.Node.Name] {
		r.leaving = append(r.leaving, c.Node.Name)
		command.Note = because + ", and no pod needs the node"
		return command, ""
	}
	r.left--
	moved := map[cluster.PodUID]bool{}
	for _, pod := range c.moves {
		moved[pod.UID] = true
	}
	p := packing.Pack(r.work, packing.Options{LeavingNodes: append(slices.Clone(r.leaving), c.Node.Name)})
	for _, u := range p.Unplaced {
		if moved[u.Pod.UID] {
			return command, fmt.Sprintf("pod %s/%s would have no place: %s", u.Pod.Namespace, u.Pod.Name, u.Reasons[0].Detail)
		}
	}
	for _, at := range p.Placed {
		if moved[at.Pod.UID] && !r.ready[at.Node] {
			return command, fmt.Sprintf("pod %s/%s would have to go to a node that is not in service yet", at.Pod.Namespace, at.Pod.Name)
		}
		if moved[at.Pod.UID] {
			command.Placed = append(command.Placed, at)
		}
	}
	for _, claim := range p.Claims {
		needed := func(pod cluster.PodRef) bool {
			return moved[pod.UID] || r.buffers[c.Node.Name] && cluster.Virtual(pod.UID)
		}
		if slices.ContainsFunc(claim.Pods, needed) {
			claim.Requirements = Narrowed(&claim).Expressions()
			command.Replacements = append(command.Replacements, claim)
			command.SavesMicroUSDPerHour -= claim.Options[0].PriceMicroUSDPerHour
			r.expect(claim)
		}
	}
	r.leaving = append(r.leaving, c.Node.Name)
	command.Note = fmt.Sprintf("%s; %s for it, %s to move", because, count(len(command.Replacements), "new node"), count(len(moved), "pod"))
	return command, ""
}

// exchange replaces a node of a static pool by its like, if the pool may have one more node for a while (D-075). Where it has too many
// already, those go first.
func (r *renewal) exchange(c *candidate, command plan.Command, because string) (plan.Command, string) {
	nodes, stay := int64(0), int64(0)
	for i := range r.work.NodeClaims {
		claim := &r.work.NodeClaims[i]
		if claim.NodePool() != c.pool.Name {
			continue
		}
		nodes++
		if claim.DeletionUnix == 0 && claim.Annotations[annotationCommand] == "" {
			stay++
		}
	}
	limit, limited := c.pool.Limits["nodes"]
	switch {
	case limited && nodes >= limit:
		return command, fmt.Sprintf("nodepool %s may have %d nodes and has them all", c.pool.Name, limit)
	case stay > *c.pool.Replicas+int64(r.exchanged[c.pool.Name]):
		return command, fmt.Sprintf("nodepool %s has more nodes than it is to have", c.pool.Name)
	}
	replacement := StaticClaim(c.pool)
	r.exchanged[c.pool.Name]++
	r.leaving = append(r.leaving, c.Node.Name)
	r.expect(replacement)
	command.Replacements = []plan.Claim{replacement}
	command.Note = because + "; a new node for it"
	return command, ""
}

// expect adds a replacement to what is on its way.
func (r *renewal) expect(c plan.Claim) {
	template := r.work.Pool(c.NodePool).Template
	labels := maps.Clone(template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[cluster.LabelNodePool] = c.NodePool
	r.work.NodeClaims = append(r.work.NodeClaims, cluster.NodeClaim{
		Name: fmt.Sprintf("%s/%d", c.NodePool, len(r.work.NodeClaims)), Labels: labels, Annotations: map[string]string{cluster.AnnotationPlanned: cluster.FormatPlanned(c.Pods)},
		Requirements: c.Requirements, Requests: c.Requests, Taints: template.Taints, StartupTaints: template.StartupTaints,
		NodeClass: template.NodeClass, CreatedUnix: r.work.NowUnix,
	})
}
