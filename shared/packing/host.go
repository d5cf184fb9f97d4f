package packing

import (
	"cmp"
	"maps"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// host is room that exists or is on its way: a node, or a claim in flight.
type host struct {
	node  *cluster.Node      // nil while the claim has not registered
	claim *cluster.NodeClaim // nil for a node that no claim made

	labels map[string]string    // what is certain about the node
	reqs   cluster.Requirements // of a claim that is not launched: what the node may become
	taints []cluster.Taint
	free   vec
	ready  bool // initialized, or not made by a claim

	ports    []cluster.HostPort // taken
	attached attach
}

// placement names h for the plan.
func (h *host) placement(ref cluster.PodRef) plan.Placement {
	if h.node != nil {
		return plan.Placement{Pod: ref, Node: h.node.Name}
	}
	return plan.Placement{Pod: ref, NodeClaim: h.claim.Name}
}

func (h *host) name() string {
	if h.node != nil {
		return string(h.node.Name)
	}
	return h.claim.Name
}

// joinClaims pairs nodes with their claims by provider id (S-228). Claims without a node come last.
func joinClaims(snap *cluster.Snapshot) []host {
	byProvider := make(map[string]*cluster.NodeClaim, len(snap.NodeClaims))
	for i := range snap.NodeClaims {
		if c := &snap.NodeClaims[i]; c.ProviderID != "" {
			byProvider[c.ProviderID] = c
		}
	}
	paired := map[*cluster.NodeClaim]bool{}
	hosts := make([]host, 0, len(snap.Nodes)+len(snap.NodeClaims))
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		h := host{node: n}
		if n.ProviderID != "" {
			h.claim = byProvider[n.ProviderID]
			paired[h.claim] = true
		}
		hosts = append(hosts, h)
	}
	for i := range snap.NodeClaims {
		if c := &snap.NodeClaims[i]; !paired[c] {
			hosts = append(hosts, host{claim: c})
		}
	}
	return hosts
}

// pool returns the name of the NodePool that h belongs to, "" if none.
func (h *host) pool() string {
	if h.claim != nil {
		return h.claim.NodePool()
	}
	return h.node.Labels[cluster.LabelNodePool]
}

// leaves reports whether h is on its way out, so that it is no target and its pods need another place (S-234).
func (h *host) leaves(o *Options) bool {
	if h.claim != nil && (h.claim.DeletionUnix != 0 || slices.Contains(o.LeavingClaims, h.claim.Name)) {
		return true
	}
	return h.node != nil && (h.node.DeletionUnix != 0 || slices.Contains(o.LeavingNodes, h.node.Name))
}

// findHosts fills k.hosts with the places that pods may go to, in the order in which they are tried: initialized nodes
// first, then by name (S-062). It notes which nodes are leaving and what each pool uses of its limits.
func (k *packer) findHosts() {
	used := map[string]vec{}
	nodes := map[string]int64{}
	for _, h := range joinClaims(k.snap) {
		if h.leaves(&k.o) {
			if h.node != nil {
				k.leaving[h.node.Name] = true
			}
			continue
		}
		k.prepare(&h)
		if name := h.pool(); name != "" {
			if used[name] == nil {
				used[name] = make(vec, len(k.dims.names))
			}
			used[name].add(k.capacity(&h))
			nodes[name]++
		}
		k.hosts = append(k.hosts, h)
	}
	slices.SortFunc(k.hosts, func(a, b host) int {
		return cmp.Or(order(!a.ready, !b.ready), order(a.node == nil, b.node == nil), cmp.Compare(a.name(), b.name()))
	})
	for i := range k.pools {
		p := &k.pools[i]
		u := used[p.Name]
		if u == nil {
			u = make(vec, len(k.dims.names))
		}
		p.setLimits(k.dims, u, nodes[p.Name])
	}
	k.occupy()
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// prepare works out labels, taints and room of h before pods and daemons. Until a node is initialized, what the claim says
// stands for what the node lacks (S-228, S-229), and the taints that it will shed do not count (S-101, S-102).
func (k *packer) prepare(h *host) {
	h.ready = h.node != nil && (h.claim == nil && h.pool() == "" || h.node.Labels[cluster.LabelInitialized] == "true")
	if h.claim == nil {
		h.labels, h.taints, h.free = h.node.Labels, blocking(h.node), k.dims.vec(h.node.Allocatable)
		return
	}
	if h.node == nil {
		h.labels, h.taints = h.claim.Labels, h.claim.Taints
		h.free = k.promised(h.claim)
		h.reqs = cluster.NewRequirements(h.claim.Labels, h.claim.Requirements...)
		return
	}
	h.free = k.dims.vec(h.node.Allocatable)
	if h.ready {
		h.labels, h.taints = h.node.Labels, blocking(h.node)
		return
	}
	h.labels = make(map[string]string, len(h.claim.Labels)+len(h.node.Labels))
	maps.Copy(h.labels, h.claim.Labels)
	maps.Copy(h.labels, h.node.Labels)
	h.taints = slices.DeleteFunc(slices.Clone(blocking(h.node)), func(t cluster.Taint) bool {
		return t.Ephemeral() || slices.Contains(h.claim.StartupTaints, t)
	})
	for i, n := range k.promised(h.claim) {
		if h.free[i] == 0 {
			h.free[i] = n
		}
	}
}

// blocking returns the taints of n, cordoning included.
func blocking(n *cluster.Node) []cluster.Taint {
	if !n.Unschedulable {
		return n.Taints
	}
	cordon := cluster.Taint{Key: "node.kubernetes.io/unschedulable", Effect: cluster.NoSchedule}
	if slices.Contains(n.Taints, cordon) {
		return n.Taints
	}
	return append(slices.Clone(n.Taints), cordon)
}

// promised returns the allocatable that a claim's node will have at least: what its status says or, before it is launched,
// the smallest of each resource among the types that it may become.
func (k *packer) promised(c *cluster.NodeClaim) vec {
	if !c.Allocatable.IsZero() {
		return k.dims.vec(c.Allocatable)
	}
	var least vec
	for _, t := range k.typesOf(c) {
		if least == nil {
			least = slices.Clone(t.allocatable)
		}
		least.minWith(t.allocatable)
	}
	if least == nil {
		return k.dims.vec(c.Requests)
	}
	return least
}

// capacity returns what h counts against its pool's limits; a claim that is not launched counts as its largest type.
func (k *packer) capacity(h *host) vec {
	switch {
	case h.node != nil && !h.node.Capacity.IsZero():
		return k.dims.vec(h.node.Capacity)
	case h.claim != nil && !h.claim.Capacity.IsZero():
		return k.dims.vec(h.claim.Capacity)
	}
	most := make(vec, len(k.dims.names))
	if h.claim != nil {
		for _, t := range k.typesOf(h.claim) {
			most.maxWith(t.capacity)
		}
	}
	return most
}

// typesOf returns the instance types that a claim which is not launched yet may become.
func (k *packer) typesOf(c *cluster.NodeClaim) []*ctype {
	cat := k.sets(c.NodePool(), c.NodeClass).cat
	wants := cluster.NewRequirements(c.Labels, c.Requirements...)
	left := newBitset(len(cat.types))
	for i := range cat.types {
		left.add(int32(i))
	}
	for _, r := range wants {
		left = left.and(cat.meeting(r))
	}
	requests := k.dims.vec(c.Requests)
	var out []*ctype
	for i := range left.all {
		if requests.fits(cat.types[i].allocatable) {
			out = append(out, &cat.types[i])
		}
	}
	return out
}

// occupy takes bound pods and the daemons that are still to come from the room of the hosts.
func (k *packer) occupy() {
	for i := range k.hosts {
		if n := k.hosts[i].node; n != nil {
			k.hostOf[n.Name] = int32(i)
		}
		k.softTaints = k.softTaints || soft(k.hosts[i].taints)
	}
	for i := range k.pools {
		k.softTaints = k.softTaints || soft(k.pools[i].Template.Taints)
	}
	running := make([]vec, len(k.hosts)) // requests of daemons
	for i := range k.snap.Pods {
		p := &k.snap.Pods[i]
		at, known := k.hostOf[p.NodeName]
		if p.NodeName == "" || !known || p.Terminal() {
			continue
		}
		requests := k.dims.vec(p.Spec.Requests)
		k.occupyBy(&k.hosts[at], p, requests)
		if p.Daemon() {
			if running[at] == nil {
				running[at] = make(vec, len(requests))
			}
			running[at].add(requests)
		}
	}
	for i := range k.hosts {
		k.expectDaemons(&k.hosts[i], running[i])
	}
}

// occupyBy takes what a bound pod holds from its host.
func (k *packer) occupyBy(h *host, p *cluster.Pod, requests vec) {
	h.free.sub(requests)
	h.ports = append(h.ports, p.Spec.HostPorts...)
	if len(p.Spec.Claims) == 0 {
		return
	}
	if h.attached == nil {
		h.attached = attach{}
	}
	_, attached, _ := k.volumes.of(p)
	h.attached.add(attached)
}

// expectDaemons takes what daemons that do not run yet will hold from a host; running is what those hold that do, nil for
// none. Daemons that should not be there do not make up for others (S-162).
func (k *packer) expectDaemons(h *host, running vec) {
	if len(k.daemons) == 0 {
		return
	}
	missing := make(vec, len(k.dims.names))
	labels := started(h.labels)
	for j := range k.daemons {
		if d := &k.daemons[j]; h.expects(d, labels) {
			missing.add(d.requests)
		}
	}
	if running != nil {
		missing.sub(running)
	}
	missing.floorZero()
	h.free.sub(missing)
}

// soft reports whether a taint only asks pods to stay away.
func soft(taints []cluster.Taint) bool {
	return slices.ContainsFunc(taints, func(t cluster.Taint) bool { return t.Effect == cluster.PreferNoSchedule })
}

// started returns labels as they are once the node is in service, which is what daemons see (S-159).
func started(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[cluster.LabelRegistered], out[cluster.LabelInitialized] = "true", "true"
	return out
}

// expects reports whether d will run on h.
func (h *host) expects(d *daemon, labels map[string]string) bool {
	if _, kept := cluster.Untolerated(h.taints, d.spec.Tolerations); kept {
		return false
	}
	return slices.ContainsFunc(d.wants, func(wants cluster.Requirements) bool { return h.meets(wants, labels) })
}

// accepts reports whether a pod of shape s read at level l may run on h, room and topology left aside. On a claim that is
// not launched yet, whatever the node becomes must do.
func (h *host) accepts(s *shape, l *level) bool {
	if !l.tolerates(s, h.taints) {
		return false
	}
	return slices.ContainsFunc(l.wants, func(wants cluster.Requirements) bool { return h.meets(wants, h.labels) })
}

func (h *host) meets(wants cluster.Requirements, labels map[string]string) bool {
	for _, want := range wants {
		value, present := labels[want.Key]
		switch have, open := h.reqs.Get(want.Key); {
		case present:
			if !want.Has(value) {
				return false
			}
		case open:
			if both := have.Intersect(want); !both.Equal(have) {
				return false
			}
		case !want.AllowsAbsent():
			return false
		}
	}
	return true
}
