package packing

import (
	"encoding/json"
	"strconv"
	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// shape is a set of pods that ask for the same, so that one answer serves them all.
type shape struct {
	spec     *cluster.PodSpec
	pods     []int32 // indices into the snapshot, in the order of placement; those that have a place are cut off the front
	requests vec
	wants    []cluster.Requirements // alternatives for its node, the first that works is taken
	fault    plan.Reason            // why no pool can serve it; Rule is "" if one may
	// in holds, by pool and alternative, the set of a bin that holds only this shape; none if they do not go together.
	in [][]int32
}

// group puts the pods into shapes, in the order of their first pods.
func (k *packer) group(pods []int32) {
	byKey := map[string]int32{}
	bySpec := map[*cluster.PodSpec]int32{}
	var key []byte
	for _, i := range pods {
		spec := k.snap.Pods[i].Spec
		at, known := bySpec[spec]
		if !known {
			key = specKey(key[:0], spec)
			if at, known = byKey[string(key)]; !known {
				at = int32(len(k.shapes))
				byKey[string(key)] = at
				k.shapes = append(k.shapes, k.newShape(spec))
			}
			bySpec[spec] = at
		}
		k.shapes[at].pods = append(k.shapes[at].pods, i)
	}
}

func (k *packer) newShape(spec *cluster.PodSpec) shape {
	s := shape{spec: spec, requests: k.dims.vec(spec.Requests), wants: alternatives(spec)}
	if rule, detail := podFault(spec); rule != "" {
		s.fault = plan.Reason{Rule: rule, Detail: detail}
	}
	for i := range k.pools {
		s.in = append(s.in, k.pools[i].join(&s))
	}
	return s
}

// join returns, by alternative, the set of a bin of the pool that holds s; none where the two do not go together.
func (p *pool) join(s *shape) []int32 {
	out := make([]int32, len(s.wants))
	_, kept := cluster.Untolerated(p.Template.Taints, s.spec.Tolerations)
	for i, wants := range s.wants {
		out[i] = none
		if kept || p.base == none || s.fault.Rule != "" {
			continue
		}
		base := p.sets.all[p.base].reqs
		if base.Conflict(wants) == "" {
			out[i] = p.sets.intern(base.Intersect(wants.Without(func(key string) bool {
				_, defined := base.Get(key)
				return !defined && !cluster.WellKnown(key)
			})))
		}
	}
	return out
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

// plain reports whether s asks for nothing but fixed resources.
func plain(s *cluster.PodSpec) bool {
	return len(s.Requests.Extended)+len(s.NodeSelector)+len(s.NodeAffinity)+len(s.NodePrefers)+len(s.Affinity)+
		len(s.AntiAffinity)+len(s.Prefers)+len(s.AntiPrefers)+len(s.Spread)+len(s.Tolerations)+len(s.HostPorts)+
		len(s.Claims) == 0 && !s.ResourceClaims
}
