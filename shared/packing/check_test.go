package packing_test

import (
	"fmt"
	"slices"
	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// check looks at a plan with none of packing's own code and returns what is wrong with it.
func check(snap cluster.Snapshot, p plan.Plan) []string {
	c := checker{snap: snap, seen: map[cluster.PodRef]int{}}
	c.placed(p.Placed)
	for i := range p.Claims {
		c.claim(&p.Claims[i])
	}
	for _, u := range p.Unplaced {
		c.seen[u.Pod]++
		if len(u.Reasons) == 0 || u.Reasons[0].Rule == "" || u.Reasons[0].Detail == "" {
			c.fault("%s is unplaced without a reason", u.Pod.Name)
		}
	}
	for ref, n := range c.seen {
		if n != 1 {
			c.fault("%s is in the plan %d times", ref.Name, n)
		}
	}
	for i := range snap.Pods {
		if pod := &snap.Pods[i]; pod.Unschedulable && c.seen[pod.PodRef] == 0 {
			c.fault("%s is not in the plan", pod.Name)
		}
	}
	slices.Sort(c.faults)
	return c.faults
}

type checker struct {
	snap   cluster.Snapshot
	seen   map[cluster.PodRef]int
	faults []string
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *checker) pod(ref cluster.PodRef) *cluster.Pod {
	for i := range c.snap.Pods {
		if c.snap.Pods[i].PodRef == ref {
			return &c.snap.Pods[i]
		}
	}
	return nil
}

// placed holds pods on nodes against the nodes' labels, taints and allocatable.
func (c *checker) placed(placements []plan.Placement) {
	used := map[cluster.NodeName]cluster.Resources{}
	for i := range c.snap.Pods {
		if p := &c.snap.Pods[i]; p.NodeName != "" && !p.Terminal() {
			used[p.NodeName] = used[p.NodeName].Plus(p.Spec.Requests)
		}
	}
	for _, pl := range placements {
		c.seen[pl.Pod]++
		pod := c.pod(pl.Pod)
		for i := range c.snap.Nodes {
			n := &c.snap.Nodes[i]
			if n.Name != pl.Node {
				continue
			}
			used[n.Name] = used[n.Name].Plus(pod.Spec.Requests)
			if !used[n.Name].Fits(n.Allocatable) {
				c.fault("node %s holds more %s than it has", n.Name, used[n.Name].Short(n.Allocatable))
			}
			if !meets(pod.Spec, n.Labels) {
				c.fault("%s does not want to be on node %s", pod.Name, n.Name)
			}
			if _, kept := cluster.Untolerated(n.Taints, pod.Spec.Tolerations); kept {
				c.fault("%s does not tolerate node %s", pod.Name, n.Name)
			}
		}
	}
}

// claim holds a claim against each of its options.
func (c *checker) claim(claim *plan.Claim) {
	pool := c.pool(claim.NodePool)
	var sum cluster.Resources
	for _, ref := range claim.Pods {
		c.seen[ref]++
		pod := c.pod(ref)
		sum = sum.Plus(pod.Spec.Requests)
		if _, kept := cluster.Untolerated(pool.Template.Taints, pod.Spec.Tolerations); kept {
			c.fault("%s does not tolerate pool %s", ref.Name, pool.Name)
		}
	}
	if len(claim.Options) == 0 || len(claim.Options) > plan.MaxOptions {
		c.fault("a claim has %d options", len(claim.Options))
	}
	for i, o := range claim.Options {
		if i > 0 && o.PriceMicroUSDPerHour < claim.Options[i-1].PriceMicroUSDPerHour || o.CapacityType != claim.Options[0].CapacityType {
			c.fault("the options of a claim are not one capacity type by price")
		}
		t := c.instanceType(pool.Template.NodeClass, o.InstanceType)
		labels := nodeLabels(claim, t, o)
		need := sum
		for j := range c.snap.Daemons {
			spec := c.snap.Daemons[j].Spec
			if _, kept := cluster.Untolerated(pool.Template.Taints, spec.Tolerations); !kept && meets(spec, labels) {
				need = need.Plus(spec.Requests)
			}
		}
		if !need.Fits(t.Allocatable) {
			c.fault("%s has too little %s for a claim", t.Name, need.Short(t.Allocatable))
		}
		for _, ref := range claim.Pods {
			if !meets(c.pod(ref).Spec, labels) {
				c.fault("%s does not want a node like %s in %s", ref.Name, o.InstanceType, o.Zone)
			}
		}
	}
}

func nodeLabels(claim *plan.Claim, t *cluster.InstanceType, o plan.Option) map[string]string {
	labels := cluster.NewRequirements(nil, claim.Requirements...).Labels()
	for key, value := range t.Labels {
		labels[key] = value
	}
	labels[cluster.LabelZone], labels[cluster.LabelCapacityType] = o.Zone, string(o.CapacityType)
	labels[cluster.LabelNodePool] = claim.NodePool
	return labels
}

// meets is node selector and node affinity, word for word.
func meets(spec *cluster.PodSpec, labels map[string]string) bool {
	for key, value := range spec.NodeSelector {
		if labels[key] != value {
			return false
		}
	}
	if len(spec.NodeAffinity) == 0 {
		return true
	}
	return slices.ContainsFunc(spec.NodeAffinity, func(term cluster.NodeTerm) bool {
		return !slices.ContainsFunc(term.Expressions, func(e cluster.Expression) bool {
			_, ok := cluster.NewRequirements(nil, e).MeetsLabels(labels)
			return !ok
		})
	})
}

func (c *checker) pool(name string) *cluster.NodePool {
	at := slices.IndexFunc(c.snap.NodePools, func(p cluster.NodePool) bool { return p.Name == name })
	return &c.snap.NodePools[at]
}

func (c *checker) instanceType(class, name string) *cluster.InstanceType {
	types := c.snap.Types[class]
	at := slices.IndexFunc(types, func(t cluster.InstanceType) bool { return t.Name == name })
	return &types[at]
}

// applied is snap after p was written down: each claim in flight, and launched as its cheapest option if launched is set.
func applied(snap cluster.Snapshot, p plan.Plan, launched bool) cluster.Snapshot {
	c := checker{snap: snap}
	snap.NodeClaims = slices.Clone(snap.NodeClaims)
	for i := range p.Claims {
		from := &p.Claims[i]
		pool := c.pool(from.NodePool)
		claim := cluster.NodeClaim{
			Name: fmt.Sprintf("%s-%03d", from.NodePool, i), UID: fmt.Sprintf("claim-%03d", i), NodeClass: pool.Template.NodeClass,
			Requirements: from.Requirements, Requests: from.Requests, Taints: pool.Template.Taints, StartupTaints: pool.Template.StartupTaints,
			Annotations: map[string]string{cluster.AnnotationPlanned: cluster.FormatPlanned(from.Pods)},
			Labels:      cluster.NewRequirements(nil, from.Requirements...).Labels(),
		}
		claim.Labels[cluster.LabelNodePool] = from.NodePool
		if launched {
			o := from.Options[0]
			t := c.instanceType(claim.NodeClass, o.InstanceType)
			claim.Labels = nodeLabels(from, t, o)
			claim.Capacity, claim.Allocatable, claim.ProviderID = t.Capacity, t.Allocatable, "aws:///"+o.Zone+"/i-"+claim.UID
		}
		snap.NodeClaims = append(snap.NodeClaims, claim)
	}
	return snap
}
