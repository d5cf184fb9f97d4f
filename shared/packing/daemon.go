package packing

import (
	"slices"

	"treadle/shared/cluster"
)

// daemon is a DaemonSet's pod as packing sees it.
type daemon struct {
	spec     *cluster.PodSpec
	wants    []cluster.Requirements // alternatives
	requests vec
}

// newDaemons compiles the daemons of the snapshot; those with resource claims are left out (S-166).
func newDaemons(d *dims, daemons []cluster.Daemon) []daemon {
	var out []daemon
	for i := range daemons {
		if spec := daemons[i].Spec; !spec.ResourceClaims {
			out = append(out, daemon{spec: spec, wants: alternatives(spec), requests: d.vec(spec.Requests)})
		}
	}
	return out
}

// addDaemons works out what daemons take on each instance type of the pool (S-157). A daemon counts on a type if its pod
// tolerates the pool's taints and any of its required node-affinity terms fits the pool and the type; its wishes do not
// matter (S-158), nor do startup taints (S-163).
func (p *pool) addDaemons(k *packer) {
	n := len(p.sets.cat.types)
	p.free, p.daemon, p.ports = make([]vec, n), make([]vec, n), make([][]cluster.HostPort, n)
	for i := range n {
		p.daemon[i] = make(vec, len(k.dims.names))
	}
	for i := range k.daemons {
		p.addDaemon(&k.daemons[i])
	}
	for i := range n {
		p.free[i] = slices.Clone(p.sets.cat.types[i].allocatable)
		p.free[i].sub(p.daemon[i])
	}
}

func (p *pool) addDaemon(d *daemon) {
	if _, kept := cluster.Untolerated(p.Template.Taints, d.spec.Tolerations); kept {
		return
	}
	on := newBitset(len(p.sets.cat.types))
	base := p.sets.all[p.base].reqs
	node := base.Intersect(cluster.NewRequirements(started(nil)))
	for _, wants := range d.wants {
		if node.Conflict(wants) != "" {
			continue
		}
		for i := range p.sets.cat.structurally(wants).and(p.sets.all[p.base].types).all {
			on.add(i)
		}
	}
	for i := range on.all {
		p.daemon[i].add(d.requests)
		p.ports[i] = append(p.ports[i], d.spec.HostPorts...)
	}
}

// structurally returns the types that meet wants themselves and have an offering that does, whether it can be had or not.
func (c *catalog) structurally(wants cluster.Requirements) bitset {
	out := newBitset(len(c.types))
	for i := range c.offers {
		if c.offers[i].meets(wants) {
			out.add(c.offers[i].typ)
		}
	}
	for _, r := range wants {
		out = out.and(c.meeting(r))
	}
	return out
}

// alternatives returns what a pod with spec wants of its node: its node selector joined with each node-affinity term, in
// order; one alternative if it has no terms.
func alternatives(spec *cluster.PodSpec) []cluster.Requirements {
	if len(spec.NodeAffinity) == 0 {
		return []cluster.Requirements{cluster.NewRequirements(spec.NodeSelector)}
	}
	out := make([]cluster.Requirements, 0, len(spec.NodeAffinity))
	for _, term := range spec.NodeAffinity {
		out = append(out, cluster.NewRequirements(spec.NodeSelector, term.Expressions...))
	}
	return out
}
