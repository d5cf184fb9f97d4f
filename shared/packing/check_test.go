package packing_test

import (
	"fmt"
	"maps"
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
	c.topology(p)
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
	maps.Copy(labels, t.Labels)
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

// applied is snap after p was written down: pods placed on nodes are bound, and each claim is in flight, launched as its
// cheapest option if launched is set.
func applied(snap cluster.Snapshot, p plan.Plan, launched bool) cluster.Snapshot {
	c := checker{snap: snap}
	snap.NodeClaims, snap.Pods = slices.Clone(snap.NodeClaims), slices.Clone(snap.Pods)
	c.snap.Pods = snap.Pods
	for _, pl := range p.Placed {
		if pod := c.pod(pl.Pod); pl.Node != "" {
			pod.NodeName, pod.Phase, pod.Unschedulable = pl.Node, cluster.PodRunning, false
		}
	}
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

// spot is where a pod ends up: the labels of its node, or of every node that its claim may become.
type spot struct {
	pod   *cluster.Pod
	place string
	zones []string
}

func (s spot) domain(key string) (string, bool) {
	if key == cluster.LabelHostname {
		return s.place, true
	}
	if len(s.zones) != 1 {
		return "", false
	}
	return s.zones[0], true
}

// topology holds the places of all pods together against spread, affinity and anti-affinity; keys are hostname and zone.
func (c *checker) topology(p plan.Plan) {
	var all []spot
	zoneOf := map[string]string{}
	for i := range c.snap.Nodes {
		zoneOf[string(c.snap.Nodes[i].Name)] = c.snap.Nodes[i].Labels[cluster.LabelZone]
	}
	for i := range c.snap.Pods {
		if pod := &c.snap.Pods[i]; pod.NodeName != "" && !pod.Terminal() {
			all = append(all, spot{pod, string(pod.NodeName), []string{zoneOf[string(pod.NodeName)]}})
		}
	}
	bound := len(all)
	for _, pl := range p.Placed {
		all = append(all, spot{c.pod(pl.Pod), string(pl.Node) + pl.NodeClaim, []string{zoneOf[string(pl.Node)]}})
	}
	for i := range p.Claims {
		var zones []string
		for _, o := range p.Claims[i].Options {
			zones = append(zones, o.Zone)
		}
		slices.Sort(zones)
		for _, ref := range p.Claims[i].Pods {
			all = append(all, spot{c.pod(ref), fmt.Sprintf("claim %d", i), slices.Compact(slices.Clone(zones))})
		}
	}
	ports := map[string]string{}
	for i, s := range all {
		for _, port := range s.pod.Spec.HostPorts {
			key := fmt.Sprint(s.place, port)
			if ports[key] != "" {
				c.fault("%s and %s take the same port of %s", ports[key], s.pod.Name, s.place)
			}
			ports[key] = s.pod.Name
		}
		for _, term := range s.pod.Spec.AntiAffinity {
			for j, o := range all {
				if i != j && term.Selector.Matches(o.pod.Labels) && (i >= bound || j >= bound) && mayMeet(s, o, term.TopologyKey) {
					c.fault("%s may meet %s by %s", s.pod.Name, o.pod.Name, term.TopologyKey)
				}
			}
		}
		if i >= bound {
			c.affinity(all, i)
			c.spread(all, i)
		}
	}
}

func mayMeet(a, b spot, key string) bool {
	if key == cluster.LabelHostname {
		return a.place == b.place
	}
	return slices.ContainsFunc(a.zones, func(z string) bool { return slices.Contains(b.zones, z) })
}

func (c *checker) affinity(all []spot, i int) {
	s := all[i]
	for _, term := range s.pod.Spec.Affinity {
		others, together := 0, false
		for j, o := range all {
			if i == j || !term.Selector.Matches(o.pod.Labels) {
				continue
			}
			others++
			mine, known := s.domain(term.TopologyKey)
			theirs, _ := o.domain(term.TopologyKey)
			together = together || known && mine == theirs
		}
		alone := others == 0 && term.Selector.Matches(s.pod.Labels)
		if !together && !alone {
			c.fault("%s is not with the pods that it must be with by %s", s.pod.Name, term.TopologyKey)
		}
	}
}

// spread compares with the smallest of the domains that pods are in, which is what can be said without packing's universe.
func (c *checker) spread(all []spot, i int) {
	s := all[i]
	for _, sp := range s.pod.Spec.Spread {
		if !sp.Hard || !sp.Selector.Matches(s.pod.Labels) {
			continue
		}
		mine, known := s.domain(sp.TopologyKey)
		if !known {
			c.fault("%s is in no certain domain of %s", s.pod.Name, sp.TopologyKey)
			continue
		}
		counts := map[string]int32{}
		for _, o := range all {
			if d, known := o.domain(sp.TopologyKey); known && sp.Selector.Matches(o.pod.Labels) {
				counts[d]++
			}
		}
		least := int32(0)
		if sp.TopologyKey == cluster.LabelZone {
			least = counts[mine]
			for _, zone := range c.zonesFor(s.pod) {
				least = min(least, counts[zone])
			}
		}
		if counts[mine]-least > sp.MaxSkew {
			c.fault("%s is in %s with %d pods, %d more than the least", s.pod.Name, mine, counts[mine], counts[mine]-least)
		}
	}
}

// zonesFor returns the zones of the nodes that exist and meet the pod's node affinity.
func (c *checker) zonesFor(pod *cluster.Pod) []string {
	var out []string
	for i := range c.snap.Nodes {
		if n := &c.snap.Nodes[i]; meets(pod.Spec, n.Labels) {
			out = append(out, n.Labels[cluster.LabelZone])
		}
	}
	return out
}
