package disruption

import (
	"cmp"
	"slices"

	"treadle/shared/cluster"
)

// rooms estimates which nodes have room for which pods, by requests, node selectors and taints. What it says is a guess, which
// packing.Pack has to confirm; its use is that it is quick.
type rooms struct {
	hosts []room
	at    map[cluster.NodeName]int
	wants map[*cluster.PodSpec][]cluster.Requirements
}

type room struct {
	node  *cluster.Node
	free  cluster.Resources
	shut  bool // leaves, or is no target
	taken bool // has got pods of leaving nodes, so it has to stay
}

func newRooms(snap *cluster.Snapshot, leaving []cluster.NodeName) *rooms {
	r := &rooms{at: map[cluster.NodeName]int{}, wants: map[*cluster.PodSpec][]cluster.Requirements{}}
	for _, m := range snap.Members() {
		if m.Node == nil {
			continue
		}
		h := room{node: m.Node, free: m.Node.Allocatable}
		h.shut = !m.Node.Ready() || m.Node.Unschedulable || m.Node.DeletionUnix != 0 || slices.Contains(leaving, m.Node.Name) ||
			m.Claim != nil && (m.Claim.DeletionUnix != 0 || !m.Claim.Conditions.True(cluster.ConditionInitialized))
		for _, pod := range m.Pods {
			if !pod.Terminal() {
				h.free = h.free.Minus(pod.Spec.Requests)
			}
		}
		r.hosts = append(r.hosts, h)
	}
	slices.SortFunc(r.hosts, func(a, b room) int { // the fullest first: they are worth keeping
		return cmp.Or(cmp.Compare(a.free.MilliCPU, b.free.MilliCPU), cmp.Compare(a.free.MemoryBytes, b.free.MemoryBytes), cmp.Compare(a.node.Name, b.node.Name))
	})
	for i := range r.hosts {
		r.at[r.hosts[i].node.Name] = i
	}
	return r
}

// vacate books room elsewhere for the pods of a node and reports whether there is enough; if not, nothing is booked.
func (r *rooms) vacate(c *candidate) bool {
	own := &r.hosts[r.at[c.Node.Name]]
	if own.shut || own.taken {
		return false
	}
	own.shut = true
	booked := make([]int, 0, len(c.moves))
	for _, pod := range c.moves {
		to := slices.IndexFunc(r.hosts, func(h room) bool { return !h.shut && r.holds(&h, pod) })
		if to < 0 {
			for i, at := range booked {
				r.hosts[at].free = r.hosts[at].free.Plus(c.moves[i].Spec.Requests)
			}
			own.shut = false
			return false
		}
		r.hosts[to].free = r.hosts[to].free.Minus(pod.Spec.Requests)
		booked = append(booked, to)
	}
	for _, at := range booked {
		r.hosts[at].taken = true
	}
	return true
}

// book gives a pod room on a node, which then has to stay.
func (r *rooms) book(at int, pod *cluster.Pod) {
	r.hosts[at].free = r.hosts[at].free.Minus(pod.Spec.Requests)
	r.hosts[at].taken = true
}

func (r *rooms) holds(h *room, pod *cluster.Pod) bool {
	spec := pod.Spec
	if spec.Requests.MilliCPU > h.free.MilliCPU || spec.Requests.MemoryBytes > h.free.MemoryBytes || !spec.Requests.Fits(h.free) {
		return false
	}
	if _, kept := cluster.Untolerated(h.node.Taints, spec.Tolerations); kept {
		return false
	}
	if len(spec.NodeSelector) == 0 && len(spec.NodeAffinity) == 0 {
		return true
	}
	return slices.ContainsFunc(r.alternatives(spec), func(wants cluster.Requirements) bool {
		_, meets := wants.MeetsLabels(h.node.Labels)
		return meets
	})
}

// alternatives returns what a pod wants of its node's labels; one of them has to be met.
func (r *rooms) alternatives(spec *cluster.PodSpec) []cluster.Requirements {
	if known, ok := r.wants[spec]; ok {
		return known
	}
	out := []cluster.Requirements{}
	for _, term := range spec.NodeAffinity {
		out = append(out, cluster.NewRequirements(spec.NodeSelector, term.Expressions...))
	}
	if len(out) == 0 {
		out = append(out, cluster.NewRequirements(spec.NodeSelector))
	}
	r.wants[spec] = out
	return out
}
