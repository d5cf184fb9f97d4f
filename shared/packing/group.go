package packing

import (
	"encoding/json"
	"slices"

	"treadle/shared/cluster"
)

// group counts pods by topology domain: those that a spread constraint or an affinity selects, and those that want to be
// apart from such pods. Rules of several shapes share a group if they count the same.
type group struct {
	key    int32 // number of the topology key
	terms  []podSet
	filter *nodeFilter // of a spread: which nodes count; nil: all

	matched []int32 // by domain: pods that all terms select
	owners  []int32 // by domain: pods with a required anti-affinity to the selected ones (S-128)
	total   int32   // sum of matched
}

// podSet selects pods by namespace and labels.
type podSet struct {
	Everywhere bool `json:"everywhere,omitempty"` // all namespaces
	Namespaces []string
	By         *cluster.Selector // namespaces by label, besides Namespaces
	Selector   *cluster.Selector
}

// nodeFilter says which nodes count for a spread (S-114, S-115).
type nodeFilter struct {
	wants       []cluster.Requirements // nil: every node
	tolerations []cluster.Toleration
	taints      bool // nodes with taints that are not tolerated do not count
}

// hostname is the number of the topology key whose domains are places themselves.
const hostname int32 = 0

// topology holds the groups and the domains of each topology key.
type topology struct {
	groups  []group
	byText  map[string]int32
	keys    []topologyKey // keys[hostname] has no values
	keyID   map[string]int32
	classes []podClass // bound pods
}

type topologyKey struct {
	name   string
	values []string
	id     map[string]int32
}

// unknown is the domain of a place that may still be in several, or that lacks the label.
const unknown int32 = -1

func newTopology() *topology {
	t := &topology{byText: map[string]int32{}, keyID: map[string]int32{}}
	t.keyOf(cluster.LabelHostname)
	return t
}

func (t *topology) keyOf(name string) int32 {
	name = cluster.NormalKey(name)
	id, known := t.keyID[name]
	if !known {
		id = int32(len(t.keys))
		t.keyID[name] = id
		t.keys = append(t.keys, topologyKey{name: name, id: map[string]int32{}})
	}
	return id
}

// domain returns the number of a value of a key.
func (t *topology) domain(key int32, value string) int32 {
	k := &t.keys[key]
	id, known := k.id[value]
	if !known {
		id = int32(len(k.values))
		k.id[value] = id
		k.values = append(k.values, value)
	}
	return id
}

// groupOf interns a group.
func (t *topology) groupOf(k *packer, key string, terms []podSet, filter *nodeFilter) int32 {
	var by any
	if filter != nil {
		by = struct {
			Wants       []string
			Taints      bool
			Tolerations []cluster.Toleration
		}{texts(filter.wants), filter.taints, filter.tolerations}
	}
	text, err := json.Marshal(struct {
		Key    int32
		Terms  []podSet
		Filter any
	}{t.keyOf(key), terms, by})
	if err != nil {
		panic("packing: a topology group is plain data: " + err.Error())
	}
	if id, known := t.byText[string(text)]; known {
		return id
	}
	id := int32(len(t.groups))
	t.byText[string(text)] = id
	t.groups = append(t.groups, group{key: t.keyOf(key), terms: terms, filter: filter})
	k.countBound(id)
	return id
}

func texts(all []cluster.Requirements) []string {
	out := make([]string, 0, len(all))
	for _, r := range all {
		out = append(out, r.String())
	}
	return out
}

// selects reports whether every term of the group selects a pod with the given namespace and labels.
func (g *group) selects(k *packer, namespace string, labels map[string]string) bool {
	for i := range g.terms {
		t := &g.terms[i]
		in := t.Everywhere || slices.Contains(t.Namespaces, namespace) || t.By != nil && t.By.Matches(k.snap.Namespaces[namespace])
		if !in || !t.Selector.Matches(labels) {
			return false
		}
	}
	return true
}

func (g *group) add(counts *[]int32, domain, n int32) {
	for int(domain) >= len(*counts) {
		*counts = append(*counts, 0)
	}
	(*counts)[domain] += n
}

func at(counts []int32, domain int32) int32 {
	if int(domain) < len(counts) {
		return counts[domain]
	}
	return 0
}

// podClass is bound pods that no group can tell apart, with the hosts that they are on.
type podClass struct {
	namespace string
	labels    map[string]string
	hosts     []int32 // one entry a pod
}

// classify sorts the bound pods that count for topology into classes: running pods on hosts that stay (S-118).
func (k *packer) classify() {
	if len(k.labelKeys) == 0 && !k.anyTopology {
		return
	}
	byText := map[string]int{}
	var key []byte
	for i := range k.snap.Pods {
		p := &k.snap.Pods[i]
		at, known := k.hostOfPod(p)
		if !known || p.Terminal() || p.DeletionUnix != 0 {
			continue
		}
		key = k.labelText(append(key[:0], p.Namespace...), p.Labels)
		c, seen := byText[string(key)]
		if !seen {
			c = len(k.topology.classes)
			byText[string(key)] = c
			k.topology.classes = append(k.topology.classes, podClass{namespace: p.Namespace, labels: p.Labels})
		}
		k.topology.classes[c].hosts = append(k.topology.classes[c].hosts, at)
	}
}

// labelText appends the labels that any selector reads.
func (k *packer) labelText(b []byte, labels map[string]string) []byte {
	for _, key := range k.labelKeys {
		b = append(b, 0)
		if value, present := labels[key]; present {
			b = append(append(b, 1), value...)
		}
	}
	return b
}

// countBound counts the bound pods of a new group.
func (k *packer) countBound(id int32) {
	g := &k.topology.groups[id]
	for i := range k.topology.classes {
		c := &k.topology.classes[i]
		if !g.selects(k, c.namespace, c.labels) {
			continue
		}
		for _, h := range c.hosts {
			if d := k.hostDomain(h, g.key); d != unknown && k.counts(g, h) {
				g.add(&g.matched, d, 1)
				g.total++
			}
		}
	}
}

// counts reports whether pods on a host count for the group.
func (k *packer) counts(g *group, h int32) bool {
	if g.filter == nil {
		return true
	}
	host := &k.hosts[h]
	if g.filter.taints {
		if _, kept := cluster.Untolerated(host.taints, g.filter.tolerations); kept {
			return false
		}
	}
	return g.filter.wants == nil ||
		slices.ContainsFunc(g.filter.wants, func(wants cluster.Requirements) bool { return host.meets(wants, host.labels) })
}

// hostDomain returns the domain of a host.
func (k *packer) hostDomain(h, key int32) int32 {
	if key == hostname {
		return h
	}
	name := k.topology.keys[key].name
	host := &k.hosts[h]
	if value, present := host.labels[name]; present {
		return k.topology.domain(key, value)
	}
	if r, found := host.reqs.Get(name); found {
		if values, listed := r.Values(); listed && len(values) == 1 {
			return k.topology.domain(key, values[0])
		}
	}
	return unknown
}

// ownBound notes where bound pods with required anti-affinity are, so that they keep new pods away (S-128).
func (k *packer) ownBound() {
	for i := range k.snap.Pods {
		p := &k.snap.Pods[i]
		h, known := k.hostOf[p.NodeName]
		if p.NodeName == "" || !known || len(p.Spec.AntiAffinity) == 0 || p.Terminal() {
			continue
		}
		for _, term := range p.Spec.AntiAffinity {
			id := k.topology.groupOf(k, term.TopologyKey, []podSet{podSetOf(p.Namespace, term)}, nil)
			g := &k.topology.groups[id]
			if d := k.hostDomain(h, g.key); d != unknown {
				g.add(&g.owners, d, 1)
			}
		}
	}
}

// podSetOf returns what a pod affinity term of a pod in the given namespace selects (S-129).
func podSetOf(namespace string, term cluster.PodTerm) podSet {
	s := podSet{Namespaces: slices.Sorted(slices.Values(term.Namespaces)), By: term.NamespaceBy, Selector: term.Selector}
	switch {
	case term.NamespaceBy != nil && len(term.NamespaceBy.Expressions) == 0:
		return podSet{Everywhere: true, Selector: term.Selector}
	case term.NamespaceBy == nil && len(term.Namespaces) == 0:
		s.Namespaces = []string{namespace}
	}
	return s
}
