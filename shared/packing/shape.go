package packing

import (
	"encoding/json"
	"slices"
	"strconv"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// shape is a set of pods that ask for the same, so that one answer serves them all.
type shape struct {
	spec      *cluster.PodSpec
	namespace string
	labels    map[string]string // of the first pod; those that any selector reads are the same for all
	pods      []int32           // that have no place yet: indices into the snapshot, in the order of placement
	requests  vec
	attached  []attachment
	virtual   bool        // its pods only stand for room that is kept
	fault     plan.Reason // why nothing can serve it; Rule is "" if something may
	terms     []nodeTerm  // alternatives for the node, all wishes dropped
	levels    []level
	// selectedBy lists the groups that select the pods or that keep them away.
	selectedBy []int32
	// denied is what topology said last against a new claim, for the reasons of an unplaced pod.
	denied plan.Reason
}

// virtualMark keeps pods that do not exist apart from those that do.
const virtualMark = "\x00virtual"

// group puts the pods into shapes, in the order of their first pods, and works out their levels.
func (k *packer) group(pods []int32) {
	type identity struct {
		spec      *cluster.PodSpec
		namespace string
		virtual   bool
	}
	byKey := map[string]int32{}
	specs := map[*cluster.PodSpec]string{}
	quick := map[identity]int32{} // for pods whose labels nobody reads
	var key []byte
	for _, i := range pods {
		p := &k.snap.Pods[i]
		alike := len(k.labelKeys) == 0 && len(p.Spec.Claims) == 0
		id := identity{p.Spec, "", cluster.Virtual(p.UID)}
		if k.anyTopology {
			id.namespace = p.Namespace
		}
		if alike {
			if at, known := quick[id]; known {
				k.shapes[at].pods = append(k.shapes[at].pods, i)
				continue
			}
		}
		text, known := specs[p.Spec]
		if !known {
			text = string(specKey(nil, p.Spec))
			specs[p.Spec] = text
		}
		key = append(append(key[:0], text...), 0)
		key = k.labelText(append(key, id.namespace...), p.Labels)
		if id.virtual {
			key = append(key, virtualMark...)
		}
		if len(p.Spec.Claims) > 0 {
			key = append(append(append(key, p.Namespace...), '/'), p.Name...)
		}
		at, known := byKey[string(key)]
		if !known {
			at = int32(len(k.shapes))
			byKey[string(key)] = at
			k.shapes = append(k.shapes, shape{
				spec: p.Spec, namespace: p.Namespace, labels: p.Labels, requests: k.dims.vec(p.Spec.Requests), virtual: id.virtual,
			})
		}
		if alike {
			quick[id] = at
		}
		k.shapes[at].pods = append(k.shapes[at].pods, i)
	}
	known := map[string]*shape{}
	for i := range k.shapes {
		k.complete(&k.shapes[i], known)
	}
	k.findGroups()
}

// complete works out the volumes and levels of a shape. Shapes without topology that differ only in their requests share
// their levels.
func (k *packer) complete(s *shape, known map[string]*shape) {
	if lonely(s.spec) {
		rest := *s.spec
		rest.Requests = cluster.Resources{}
		key := string(specKey(nil, &rest))
		if like := known[key]; like != nil {
			s.fault, s.terms, s.levels = like.fault, like.terms, like.levels
			return
		}
		known[key] = s
	}
	rule, detail := podFault(s.spec)
	volumes := []cluster.Requirements{nil}
	if rule == "" && len(s.spec.Claims) > 0 {
		var fault string
		if volumes, s.attached, fault = k.volumes.of(&k.snap.Pods[s.pods[0]]); fault != "" {
			rule, detail = "volumes", fault
		}
	}
	if rule != "" {
		s.fault = plan.Reason{Rule: rule, Detail: detail}
		return
	}
	s.terms = nodeTerms(s.spec, volumes)
	s.levels = k.levelsOf(s)
}

// findGroups finds the groups that select each shape, once all groups are known. Shapes with the same labels share the answer.
func (k *packer) findGroups() {
	if len(k.topology.groups) == 0 {
		return
	}
	byText := map[string][]int32{}
	var key []byte
	for i := range k.shapes {
		s := &k.shapes[i]
		key = k.labelText(append(key[:0], s.namespace...), s.labels)
		groups, known := byText[string(key)]
		if !known {
			for id := range k.topology.groups {
				if k.topology.groups[id].selects(k, s.namespace, s.labels) {
					groups = append(groups, int32(id))
				}
			}
			byText[string(key)] = groups
		}
		s.selectedBy = groups
	}
}

// findLabelKeys collects the labels that any selector of topology reads, so that others do not tell shapes apart.
func (k *packer) findLabelKeys() {
	keys := map[string]bool{}
	learn := func(s *cluster.Selector) {
		k.anyTopology = true
		if s == nil {
			return
		}
		for _, e := range s.Expressions {
			keys[e.Key] = true
		}
	}
	seen := map[*cluster.PodSpec]bool{}
	for i := range k.snap.Pods {
		spec := k.snap.Pods[i].Spec
		if seen[spec] {
			continue
		}
		seen[spec] = true
		for _, c := range spec.Spread {
			learn(c.Selector)
			for _, key := range c.MatchLabelKeys {
				keys[key] = true
			}
		}
		for _, t := range slices.Concat(spec.Affinity, spec.AntiAffinity) {
			learn(t.Selector)
		}
		for _, t := range slices.Concat(spec.Prefers, spec.AntiPrefers) {
			learn(t.Term.Selector)
		}
	}
	for key := range keys {
		k.labelKeys = append(k.labelKeys, key)
	}
	slices.Sort(k.labelKeys)
}

// specKey appends a text that is the same for specs that ask for the same. Most specs ask for amounts only, which is quick.
func specKey(b []byte, s *cluster.PodSpec) []byte {
	r := s.Requests
	for _, n := range []int64{r.MilliCPU, r.MemoryBytes, r.EphemeralBytes, r.Pods} {
		b = strconv.AppendInt(b, n, 10)
		b = append(b, ' ')
	}
	rest := *s
	rest.Requests = cluster.Resources{Extended: r.Extended}
	rest.SchedulerName, rest.Priority, rest.PriorityClass, rest.GraceSeconds = "", 0, "", 0
	if plain(&rest) {
		return b
	}
	text, err := json.Marshal(rest)
	if err != nil {
		panic("packing: a pod spec is plain data: " + err.Error())
	}
	return append(b, text...)
}

// lonely reports whether s asks for nothing about other pods or volumes.
func lonely(s *cluster.PodSpec) bool {
	return len(s.Affinity)+len(s.AntiAffinity)+len(s.Prefers)+len(s.AntiPrefers)+len(s.Spread)+len(s.Claims) == 0
}

// plain reports whether s asks for nothing but fixed resources.
func plain(s *cluster.PodSpec) bool {
	return len(s.Requests.Extended)+len(s.NodeSelector)+len(s.NodeAffinity)+len(s.NodePrefers)+len(s.Affinity)+
		len(s.AntiAffinity)+len(s.Prefers)+len(s.AntiPrefers)+len(s.Spread)+len(s.Tolerations)+len(s.HostPorts)+
		len(s.Claims) == 0 && !s.ResourceClaims
}
