package packing

import (
	"cmp"
	"slices"

	"treadle/shared/cluster"
)

// level is one way of reading a shape: what it requires, and those of its wishes that are still held as required. Levels go
// from all wishes to none (S-078 to S-087).
type level struct {
	wants []cluster.Requirements // alternatives for a host; the first is the one for a claim to make
	own   cluster.Requirements   // the first without what volumes add, for the domains that spread counts (S-121)
	rules []rule
	soft  bool    // PreferNoSchedule taints are tolerated
	in    []int32 // by pool: the set of a bin that holds only this shape; none where the two do not go together
}

// wishes is what is left of a pod's wishes while its levels are made.
type wishes struct {
	terms  []nodeTerm
	near   []cluster.PreferredPodTerm
	apart  []cluster.PreferredPodTerm
	node   []cluster.PreferredNodeTerm
	anyway []cluster.Spread
	soft   bool
}

// nodeTerm is one alternative for the node: what the pod says and what its volumes add.
type nodeTerm struct{ own, all cluster.Requirements }

// levelsOf makes the levels of a shape.
func (k *packer) levelsOf(s *shape) []level {
	all := s.terms
	w := newWishes(s.spec, all, k.o.IgnorePreferences)
	out := []level{k.newLevel(s, &w)}
	for w.relax(k.softTaints) {
		out = append(out, k.newLevel(s, &w))
	}
	// The terms that were dropped first are tried once more, now that no wish is left: a wish never makes a pod unplaceable.
	if len(out) > len(all) {
		for i := range len(all) - 1 {
			w.terms = all[i : i+1]
			out = append(out, k.newLevel(s, &w))
		}
	}
	return out
}

func newWishes(spec *cluster.PodSpec, terms []nodeTerm, ignore bool) wishes {
	w := wishes{terms: terms}
	if ignore {
		return w
	}
	heaviest := func(a, b cluster.PreferredPodTerm) int { return cmp.Compare(b.Weight, a.Weight) }
	w.near, w.apart, w.node = slices.Clone(spec.Prefers), slices.Clone(spec.AntiPrefers), slices.Clone(spec.NodePrefers)
	slices.SortStableFunc(w.near, heaviest)
	slices.SortStableFunc(w.apart, heaviest)
	slices.SortStableFunc(w.node, func(a, b cluster.PreferredNodeTerm) int { return cmp.Compare(b.Weight, a.Weight) })
	for _, c := range spec.Spread {
		if !c.Hard {
			w.anyway = append(w.anyway, c)
		}
	}
	return w
}

// nodeTerms multiplies the alternatives of the pod with those of its volumes and leaves out what no node can meet, unless
// that leaves nothing (S-137).
func nodeTerms(spec *cluster.PodSpec, volumes []cluster.Requirements) []nodeTerm {
	var all, possible []nodeTerm
	for _, own := range alternatives(spec) {
		for _, v := range volumes {
			t := nodeTerm{own: own, all: own.Intersect(v)}
			all = append(all, t)
			if _, impossible := t.all.Impossible(); !impossible {
				possible = append(possible, t)
			}
		}
	}
	if len(possible) == 0 {
		return all[:1]
	}
	return possible
}

// relax drops one wish, in the order of S-079 to S-084, and reports whether there was one.
func (w *wishes) relax(softTaints bool) bool {
	switch {
	case len(w.terms) > 1:
		w.terms = w.terms[1:]
	case len(w.near) > 0:
		w.near = w.near[1:]
	case len(w.apart) > 0:
		w.apart = w.apart[1:]
	case len(w.node) > 0:
		w.node = w.node[1:]
	case len(w.anyway) > 0:
		w.anyway = w.anyway[1:]
	case softTaints && !w.soft:
		w.soft = true
	default:
		return false
	}
	return true
}

func (k *packer) newLevel(s *shape, w *wishes) level {
	l := level{soft: w.soft || !k.softTaints, own: w.terms[0].own}
	for _, t := range w.terms {
		wants := t.all
		if len(w.node) > 0 { // S-085: only the heaviest
			wants = wants.Intersect(cluster.NewRequirements(nil, w.node[0].Term.Expressions...))
		}
		l.wants = append(l.wants, wants)
	}
	l.rules = k.rulesOf(s, &l, w)
	for i := range k.pools {
		l.in = append(l.in, k.pools[i].join(s, &l))
	}
	return l
}

// tolerates reports whether a pod of the shape at this level may be where the taints are.
func (l *level) tolerates(s *shape, taints []cluster.Taint) bool {
	_, kept := l.taintAgainst(s, taints)
	return !kept
}

func (l *level) taintAgainst(s *shape, taints []cluster.Taint) (cluster.Taint, bool) {
	if l.soft {
		return cluster.Untolerated(taints, s.spec.Tolerations)
	}
	return cluster.Unwelcome(taints, s.spec.Tolerations)
}

// join returns the set of a bin of the pool that holds only s at level l; none where the two do not go together.
func (p *pool) join(s *shape, l *level) int32 {
	if p.base == none || s.fault.Rule != "" || !l.tolerates(s, p.Template.Taints) {
		return none
	}
	base := p.sets.all[p.base].reqs
	if base.Conflict(l.wants[0]) != "" {
		return none
	}
	return p.sets.intern(base.Intersect(p.known(l.wants[0])))
}

// known leaves out of wants the labels that nodes of the pool will not have. Only NotIn and DoesNotExist ask for such labels
// without conflict, and they are met.
func (p *pool) known(wants cluster.Requirements) cluster.Requirements {
	base := p.sets.all[p.base].reqs
	return wants.Without(func(key string) bool {
		_, defined := base.Get(key)
		return !defined && !cluster.WellKnown(key)
	})
}
