package packing

import (
	"fmt"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// ruleKind tells how a rule reads the counts of its group.
type ruleKind int8

const (
	spread ruleKind = iota // the count of a domain may exceed the smallest by so much
	near                   // the domain must hold a selected pod
	apart                  // the domain must not hold one
)

// rule is a topology constraint of a level.
type rule struct {
	kind       ruleKind
	group      int32
	key        int32
	self       bool  // the group selects the pod that has the rule
	required   bool  // not a wish
	maxSkew    int32 // of a spread
	minDomains int32
	universe   []int32 // of a spread: the domains whose smallest count matters; not used for hostname
}

// rulesOf makes the rules of a level from what is required and what is still wished for.
func (k *packer) rulesOf(s *shape, l *level, w *wishes) []rule {
	var out []rule
	for _, c := range s.spec.Spread {
		if c.Hard {
			out = append(out, k.spreadRule(s, l, c, true))
		}
	}
	for _, c := range w.anyway {
		out = append(out, k.spreadRule(s, l, c, false))
	}
	// A pod counts for the affinity of another only if it meets all its terms, so each term's group has all of them.
	var all []podSet
	for _, t := range s.spec.Affinity {
		all = append(all, podSetOf(s.namespace, t))
	}
	for _, t := range s.spec.Affinity {
		out = append(out, k.podRule(s, near, t.TopologyKey, all, true))
	}
	for _, t := range w.near {
		out = append(out, k.podRule(s, near, t.Term.TopologyKey, []podSet{podSetOf(s.namespace, t.Term)}, false))
	}
	for _, t := range s.spec.AntiAffinity {
		out = append(out, k.podRule(s, apart, t.TopologyKey, []podSet{podSetOf(s.namespace, t)}, true))
	}
	for _, t := range w.apart {
		out = append(out, k.podRule(s, apart, t.Term.TopologyKey, []podSet{podSetOf(s.namespace, t.Term)}, false))
	}
	return out
}

func (k *packer) podRule(s *shape, kind ruleKind, key string, terms []podSet, required bool) rule {
	id := k.topology.groupOf(k, key, terms, nil)
	g := &k.topology.groups[id]
	return rule{kind: kind, group: id, key: g.key, self: g.selects(k, s.namespace, s.labels), required: required}
}

func (k *packer) spreadRule(s *shape, l *level, c cluster.Spread, required bool) rule {
	selector := c.Selector
	for _, key := range c.MatchLabelKeys { // S-116
		if value, present := s.labels[key]; present {
			selector = selector.And(cluster.Expression{Key: key, Operator: cluster.In, Values: []string{value}})
		}
	}
	filter := &nodeFilter{taints: c.HonorNodeTaints}
	own := l.own
	if c.IgnoreNodeAffinity {
		own = nil
	} else {
		filter.wants = alternatives(s.spec)
	}
	if c.HonorNodeTaints {
		filter.tolerations = s.spec.Tolerations
	}
	id := k.topology.groupOf(k, c.TopologyKey, []podSet{{Namespaces: []string{s.namespace}, Selector: selector}}, filter)
	g := &k.topology.groups[id]
	r := rule{
		kind: spread, group: id, key: g.key, self: g.selects(k, s.namespace, s.labels), required: required,
		maxSkew: max(c.MaxSkew, 1), minDomains: c.MinDomains,
	}
	if r.key != hostname {
		r.universe = k.universe(s, l, own, g)
	}
	return r
}

// universe returns the domains over which a spread of the shape counts: those of nodes that it could get from some pool, and
// those of hosts that count (S-108, S-109). A pool that cannot serve the shape adds no domain, as no node of the shape will
// ever be there.
func (k *packer) universe(s *shape, l *level, own cluster.Requirements, g *group) []int32 {
	var out []int32
	add := func(d int32) {
		if d != unknown && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	for i := range k.pools {
		p := &k.pools[i]
		if p.base == none || !l.tolerates(s, p.Template.Taints) {
			continue
		}
		base := p.sets.all[p.base].reqs
		if base.Conflict(own) != "" {
			continue
		}
		if id := p.sets.intern(base.Intersect(p.known(own))); id != none {
			for _, d := range k.domainsOf(p, id, g.key) {
				add(d)
			}
		}
	}
	for h := range k.hosts {
		if d := k.hostDomain(int32(h), g.key); d != unknown && !slices.Contains(out, d) && k.counts(g, int32(h)) {
			add(d)
		}
	}
	return out
}

// domainsOf returns the domains of a key that nodes made under a set may be in, whether they can be had now or not.
func (k *packer) domainsOf(p *pool, set, key int32) []int32 {
	s := &p.sets.all[set]
	if domains, known := s.domains[key]; known {
		return domains
	}
	name := k.topology.keys[key].name
	values := p.sets.cat.values(s, name)
	if values == nil {
		if r, found := s.reqs.Get(name); found {
			listed, _ := r.Values()
			values = slices.Clone(listed)
		}
	}
	slices.Sort(values)
	out := make([]int32, 0, len(values))
	for _, v := range values {
		out = append(out, k.topology.domain(key, v))
	}
	if s.domains == nil {
		s.domains = map[int32][]int32{}
	}
	s.domains[key] = out
	return out
}

// values returns the values that a label may have on nodes made under a set, as far as types and offerings decide it; nil for
// a label that they do not have.
func (c *catalog) values(s *set, name string) []string {
	var out []string
	add := func(v string) {
		if v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	switch col := c.columns[name]; {
	case name == cluster.LabelZone, name == cluster.LabelZoneID, name == cluster.LabelCapacityType:
		for i := range c.offers {
			o := &c.offers[i]
			if v := o.label(name); s.types.has(o.typ) && !slices.Contains(out, v) && o.meets(s.reqs) {
				add(v)
			}
		}
	case col != nil:
		for t := range s.types.all {
			if v := col.of[t]; v >= 0 {
				add(col.values[v])
			}
		}
	}
	return out
}

func (o *offer) label(key string) string {
	value, _ := o.Label(key)
	return value
}

// floor returns the count that a domain is held against: the smallest of the universe, or zero if the universe has too few
// domains (S-113). New nodes can always be made, so for hostname it is zero (S-112).
func (k *packer) floor(r *rule) int32 {
	if r.key == hostname || int32(len(r.universe)) < r.minDomains || len(r.universe) == 0 {
		return 0
	}
	g := &k.topology.groups[r.group]
	least := int32(1<<31 - 1)
	for _, d := range r.universe {
		least = min(least, at(g.matched, d))
	}
	return least
}

// allows returns how many pods of a shape that has the rule may be added to a domain now, at most limit.
func (k *packer) allows(r *rule, domain int32, limit int64) int64 {
	g := &k.topology.groups[r.group]
	if domain == unknown {
		if r.kind == apart {
			return limit // a node without the label is apart from everything
		}
		return 0
	}
	have := at(g.matched, domain)
	switch r.kind {
	case near:
		if have > 0 || g.total == 0 && r.self {
			return limit
		}
		return 0
	case apart:
		switch {
		case have > 0:
			return 0
		case r.self:
			return min(limit, 1)
		}
		return limit
	case spread:
	}
	if r.key != hostname && !slices.Contains(r.universe, domain) {
		return 0
	}
	room := int64(r.maxSkew + k.floor(r) - have)
	switch {
	case !r.self && room >= 0:
		return limit
	case !r.self:
		return 0
	}
	return max(0, min(limit, room))
}

// domainOf returns the domain of a place: of a host, or of a bin by the number of hosts plus its own.
func (k *packer) domainOf(place, key int32) int32 {
	if key == hostname {
		return place
	}
	if int(place) < len(k.hosts) {
		return k.hostDomain(place, key)
	}
	b := &k.bins[int(place)-len(k.hosts)]
	return k.setDomain(&k.pools[b.pool], b.set, key)
}

// setDomain returns the one domain that every node made under a set is in, or unknown.
func (k *packer) setDomain(p *pool, set, key int32) int32 {
	r, found := p.sets.all[set].reqs.Get(k.topology.keys[key].name)
	if values, listed := r.Values(); found && listed && len(values) == 1 {
		return k.topology.domain(key, values[0])
	}
	if domains := k.domainsOf(p, set, key); len(domains) == 1 {
		return domains[0]
	}
	return unknown
}

// mayJoin returns how many pods of the shape topology lets onto a place now, at most limit. If the place is a bin, set is
// what it will be once they have joined.
func (k *packer) mayJoin(s *shape, l *level, place, set int32, limit int64) int64 {
	domain := func(key int32) int32 {
		if key == hostname || int(place) < len(k.hosts) {
			return k.domainOf(place, key)
		}
		return k.setDomain(&k.pools[k.bins[int(place)-len(k.hosts)].pool], set, key)
	}
	if int(place) < len(k.hosts) && k.undecided(s, l, place) {
		return 0
	}
	for i := range l.rules {
		r := &l.rules[i]
		if limit = k.allows(r, domain(r.key), limit); limit == 0 {
			return 0
		}
		if r.key != hostname {
			limit = 1 // counts elsewhere in the domain move with each pod
		}
	}
	for _, id := range s.selectedBy {
		g := &k.topology.groups[id]
		if len(g.owners) == 0 {
			continue
		}
		if d := domain(g.key); d != unknown && at(g.owners, d) > 0 {
			return 0
		}
	}
	return limit
}

// undecided reports whether a host is a claim in flight of which it is open in which domain that matters to the shape it will
// be: it could be anywhere (E-024).
func (k *packer) undecided(s *shape, l *level, h int32) bool {
	reqs := k.hosts[h].reqs
	return len(reqs) > 0 && slices.ContainsFunc(k.pinnedKeys(s, l), func(key int32) bool { return k.hostDomain(h, key) == unknown })
}

// settle narrows the set of a bin that the shape is about to join until every domain that topology cares about is certain
// and allowed; none if there is no such domain.
func (k *packer) settle(s *shape, l *level, pool *pool, set int32) int32 {
	for _, key := range k.pinnedKeys(s, l) {
		if set == none {
			return none
		}
		if k.setDomain(pool, set, key) != unknown {
			continue
		}
		narrowed := none
		for _, d := range k.domainsOf(pool, set, key) {
			if _, ok := k.judge(s, l, key, d); ok {
				if narrowed = k.narrow(pool, set, []pin{{key, d}}); narrowed != none {
					break
				}
			}
		}
		set = narrowed
	}
	return set
}

// record counts n pods of a shape in the domains of a place.
func (k *packer) record(s *shape, l *level, place int32, n int32) {
	for _, id := range s.selectedBy {
		g := &k.topology.groups[id]
		d := k.domainOf(place, g.key)
		if d == unknown || int(place) < len(k.hosts) && !k.counts(g, place) {
			continue
		}
		g.add(&g.matched, d, n)
		g.total += n
	}
	for i := range l.rules {
		r := &l.rules[i]
		if r.kind != apart || !r.required {
			continue
		}
		if d := k.domainOf(place, r.key); d != unknown {
			g := &k.topology.groups[r.group]
			g.add(&g.owners, d, n)
		}
	}
}

// denial says what a rule that cannot be kept asks for.
func (k *packer) denial(r *rule) plan.Reason {
	key := k.topology.keys[r.key].name
	switch r.kind {
	case near:
		return plan.Reason{Rule: "affinity", Detail: "must be near pods that its affinity selects, by " + key + ", and no node for it is"}
	case apart:
		return plan.Reason{Rule: "affinity", Detail: "must be apart from pods that its anti-affinity selects, by " + key + ", and they are everywhere"}
	case spread:
	}
	return plan.Reason{Rule: "topology", Detail: fmt.Sprintf(
		"must spread over %s with a skew of at most %d, and no node can be had in the domains that lag behind", key, r.maxSkew)}
}
