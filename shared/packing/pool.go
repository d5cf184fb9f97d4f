package packing

import (
	"cmp"
	"fmt"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// pool is a NodePool made ready for packing.
type pool struct {
	*cluster.NodePool
	sets   *sets
	base   int32                // the set of the pool's own requirements, none if no type can meet them
	free   []vec                // by type: allocatable less daemons; some amount is negative where daemons alone are too much
	daemon []vec                // by type: what daemons take
	ports  [][]cluster.HostPort // by type: host ports of daemons
	picky  bool                 // minValues must be kept
	supple bitset               // spot types that others can stand in for; nil until it is asked for
	left   vec                  // what the limits leave; unlimited where there is no limit
	nodes  int64                // how many more nodes the limits leave
	fault  plan.Reason          // why nothing can come from the pool; Rule is "" if something can
}

// sortedPools returns the pools that pods may be placed in, in the order in which they are tried: the heavier first, then
// by descending name (S-045, S-046). Static pools never serve pods (S-261).
func sortedPools(pools []cluster.NodePool) []*cluster.NodePool {
	var out []*cluster.NodePool
	for i := range pools {
		if pools[i].Replicas == nil {
			out = append(out, &pools[i])
		}
	}
	slices.SortFunc(out, func(a, b *cluster.NodePool) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(b.Name, a.Name))
	})
	return out
}

// newPool compiles p. The limits are set later, when it is known what the pool's nodes use.
func (k *packer) newPool(p *cluster.NodePool) pool {
	out := pool{NodePool: p, sets: k.sets(p.Name, p.Template.NodeClass), base: none}
	if out.fault = k.poolFault(p); out.fault.Rule != "" {
		return out
	}
	reqs := p.Requirements()
	if r, impossible := reqs.Impossible(); impossible {
		out.fault = plan.Reason{NodePool: p.Name, Rule: "pool", Detail: "its requirements and labels contradict each other on " + r.Key}
		return out
	}
	out.base = out.sets.intern(reqs)
	out.picky = hasMinValues(reqs) && !k.o.BestEffortMinValues
	base := &out.sets.all[out.base]
	switch {
	case len(out.sets.cat.types) == 0:
		out.fault = plan.Reason{NodePool: p.Name, Rule: "pool", Detail: fmt.Sprintf("EC2NodeClass %s offers no instance types", p.Template.NodeClass)}
	case base.types.empty():
		out.fault = plan.Reason{NodePool: p.Name, Rule: "requirements", Detail: "no instance type meets the pool's requirements: " + out.firstEmpty(reqs)}
	case base.has.empty():
		out.fault = plan.Reason{NodePool: p.Name, Rule: "offerings", Detail: fmt.Sprintf(
			"%s meet the pool's requirements, but none of them can be had now%s", count(len(members(base.types)), "instance type"), where(reqs))}
	}
	out.addDaemons(k)
	return out
}

// poolFault says why p cannot serve pods at all (S-044).
func (k *packer) poolFault(p *cluster.NodePool) plan.Reason {
	reason := func(rule, detail string) plan.Reason {
		return plan.Reason{NodePool: p.Name, Rule: rule, Detail: detail}
	}
	switch {
	case p.DeletionUnix != 0:
		return reason("pool", "the pool is being deleted")
	case p.Invalid != "":
		return reason("pool", "the pool cannot be understood: "+p.Invalid)
	case p.Conditions.True(cluster.ConditionPaused):
		return reason("pool", "the pool is paused: "+p.Conditions.Get(cluster.ConditionPaused).Message)
	case p.Asleep:
		return reason("pool", "the pool sleeps")
	case k.o.IgnoreReadiness || p.Conditions.True(cluster.ConditionReady):
		return plan.Reason{}
	}
	if detail := k.classFault(p.Template.NodeClass); detail != "" {
		return reason("class", detail)
	}
	for _, kind := range []string{cluster.ConditionValidationSucceeded, cluster.ConditionNodeClassReady, cluster.ConditionReady} {
		if c := p.Conditions.Get(kind); c.Type != "" && c.Status != "True" {
			return reason("pool", "the pool is not ready: "+explain(c))
		}
	}
	return reason("pool", "the pool has not been checked yet")
}

// classFault says why the class is not ready, naming the first of its conditions that fails; "" if it is ready.
func (k *packer) classFault(name string) string {
	at := slices.IndexFunc(k.snap.NodeClasses, func(c cluster.NodeClass) bool { return c.Name == name })
	if at < 0 {
		return fmt.Sprintf("EC2NodeClass %s does not exist", name)
	}
	class := &k.snap.NodeClasses[at]
	if class.DeletionUnix != 0 {
		return fmt.Sprintf("EC2NodeClass %s is being deleted", name)
	}
	if class.Invalid != "" {
		return fmt.Sprintf("EC2NodeClass %s cannot be understood: %s", name, class.Invalid)
	}
	conditions := class.Status.Conditions
	if conditions.True(cluster.ConditionReady) {
		return ""
	}
	for _, kind := range []string{
		cluster.ConditionSubnetsReady, cluster.ConditionSecurityGroupsReady, cluster.ConditionAMIsReady,
		cluster.ConditionInstanceProfileReady, cluster.ConditionReservationsReady, cluster.ConditionPlacementGroupReady,
		cluster.ConditionValidationSucceeded, cluster.ConditionReady,
	} {
		if c := conditions.Get(kind); c.Type != "" && c.Status != "True" {
			return fmt.Sprintf("EC2NodeClass %s is not ready: %s", name, explain(c))
		}
	}
	return fmt.Sprintf("EC2NodeClass %s has not been checked yet", name)
}

// explain says what a condition that is not True complains about.
func explain(c cluster.Condition) string {
	return c.Type + ": " + cmp.Or(c.Message, c.Reason, "status is "+c.Status)
}

// firstEmpty names the requirement after which no type is left.
func (p *pool) firstEmpty(reqs cluster.Requirements) string {
	cat := p.sets.cat
	left := newBitset(len(cat.types))
	for i := range cat.types {
		left.add(int32(i))
	}
	for _, r := range reqs {
		if left = left.and(cat.meeting(r)); left.empty() {
			return r.String()
		}
	}
	return ""
}

// setLimits takes what the pool's nodes use from its limits (S-050).
func (p *pool) setLimits(d *dims, used vec, nodes int64) {
	p.left, p.nodes = make(vec, len(d.names)), unlimited
	for i := range p.left {
		p.left[i] = unlimited
	}
	for name, limit := range p.Limits {
		if name == "nodes" {
			p.nodes = limit - nodes
			continue
		}
		i := d.index[name]
		p.left[i] = limit - used[i]
	}
}

// within reports whether a node of the given capacity keeps to the limits. Without a limit nothing is compared, so that
// amounts beyond counting do no harm.
func (p *pool) within(capacity vec) bool {
	for i, n := range capacity {
		if p.left[i] != unlimited && n > p.left[i] {
			return false
		}
	}
	return p.nodes > 0
}

// take books a node of the given capacity against the limits (S-052).
func (p *pool) take(capacity vec) {
	for i, n := range capacity {
		if p.left[i] != unlimited {
			p.left[i] -= n
		}
	}
	if p.nodes != unlimited {
		p.nodes--
	}
}

// limited reports whether the pool limits anything but nodes.
func (p *pool) limited() bool {
	return slices.ContainsFunc(p.left, func(n int64) bool { return n != unlimited })
}

func members(b bitset) []int32 { return slices.Collect(b.all) }

// count writes "1 instance type" or "5 instance types".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
