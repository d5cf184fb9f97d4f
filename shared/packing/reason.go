package packing

import (
	"fmt"
	"slices"
	"strings"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// reasons says, pool by pool, which rule keeps the pods of a shape from being placed.
func (k *packer) reasons(s *shape) []plan.Reason {
	switch {
	case s.fault.Rule != "":
		return []plan.Reason{s.fault}
	case len(k.pools) == 0:
		return []plan.Reason{{Rule: "pool", Detail: "there is no NodePool that could serve it"}}
	}
	out := make([]plan.Reason, 0, len(k.pools))
	for i := range k.pools {
		r := k.pools[i].reason(k.dims, s)
		r.NodePool = k.pools[i].Name
		out = append(out, r)
	}
	return out
}

// reason names the first rule that a pod of shape s fails in p, in the order pool, taints, requirements, resources,
// offerings, limits.
func (p *pool) reason(d *dims, s *shape) plan.Reason {
	if p.fault.Rule != "" {
		return p.fault
	}
	if taint, kept := cluster.Untolerated(p.Template.Taints, s.spec.Tolerations); kept {
		return plan.Reason{Rule: "taints", Detail: "does not tolerate the pool's taint " + taint.String()}
	}
	var first plan.Reason
	for _, term := range s.terms {
		r := p.reasonFor(d, s, term.all)
		if first.Rule == "" || severity(r.Rule) > severity(first.Rule) {
			first = r
		}
	}
	return first
}

// severity orders the rules by how far a pod came before it failed.
func severity(rule string) int {
	return slices.Index([]string{"requirements", "resources", "offerings", "limits", "minValues", "topology", "affinity"}, rule)
}

func (p *pool) reasonFor(d *dims, s *shape, wants cluster.Requirements) plan.Reason {
	base := p.sets.all[p.base].reqs
	if conflict := base.Conflict(wants); conflict != "" {
		return plan.Reason{Rule: "requirements", Detail: conflict}
	}
	both := base.Intersect(wants)
	set := &p.sets.all[p.base]
	if id := p.sets.intern(both.Without(func(key string) bool {
		_, defined := base.Get(key)
		return !defined && !cluster.WellKnown(key)
	})); id != none {
		set = &p.sets.all[id]
	}
	if set.types.empty() {
		return plan.Reason{Rule: "requirements", Detail: "no instance type of the pool has " + p.firstEmpty(both)}
	}
	fitting := newBitset(len(p.sets.cat.types))
	for t := range set.types.all {
		if s.requests.fits(p.free[t]) {
			fitting.add(t)
		}
	}
	if fitting.empty() {
		return plan.Reason{Rule: "resources", Detail: p.shortage(d, s.requests, set.types)}
	}
	can := fitting.and(set.has)
	if can.empty() {
		return plan.Reason{Rule: "offerings", Detail: fmt.Sprintf("%s would hold it, but none can be had now%s",
			count(len(members(fitting)), "instance type"), where(wants))}
	}
	if p.picky {
		if r, n, lacking := p.lacking(p.sets.intern(set.reqs), can); lacking {
			return plan.Reason{Rule: "minValues", Detail: fmt.Sprintf("the pool wants %s of %s to choose from; those that would hold it have %d",
				count(r.MinValues, "value"), r.Key, n)}
		}
	}
	switch {
	case p.affordable(can).empty():
		return plan.Reason{Rule: "limits", Detail: p.limitShortage(d, can)}
	case s.denied.Rule != "":
		return s.denied
	}
	return plan.Reason{Rule: "offerings", Detail: "what would hold it is taken by other pods of this plan"}
}

// affordable returns the types that the pool's limits leave room for.
func (p *pool) affordable(types bitset) bitset {
	out := newBitset(len(p.sets.cat.types))
	for t := range types.all {
		if p.within(p.sets.cat.types[t].capacity) {
			out.add(t)
		}
	}
	return out
}

// where names the zone and capacity type that a pod insists on, for a message.
func where(wants cluster.Requirements) string {
	var parts []string
	for _, key := range []string{cluster.LabelCapacityType, cluster.LabelZone} {
		if r, found := wants.Get(key); found {
			parts = append(parts, r.String())
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " with " + strings.Join(parts, " and ")
}

// shortage says of which resource the request asks for more than any of the types has free, and how much the best has.
// Where each resource fits some type but no type fits all, it says so.
func (p *pool) shortage(d *dims, requests vec, types bitset) string {
	for i, n := range requests {
		if n <= 0 {
			continue
		}
		best, at := int64(0), int32(-1)
		for t := range types.all {
			if free := p.free[t][i]; at < 0 || free > best {
				best, at = free, t
			}
		}
		if n > best && best <= 0 && p.daemon[at][i] == 0 {
			return fmt.Sprintf("needs %s; no allowed instance type has any", amount(d.names[i], n))
		}
		if n > best {
			return fmt.Sprintf("needs %s; the largest allowed type, %s, has %s allocatable%s%s", amount(d.names[i], n),
				p.sets.cat.types[at].Name, amount(d.names[i], max(best, 0)), p.afterDaemons(d, at, i), suspicious(i, n))
		}
	}
	return "each resource fits some allowed instance type, but no type fits all: needs " + amounts(d, requests)
}

func (p *pool) afterDaemons(d *dims, t int32, i int) string {
	if taken := p.daemon[t][i]; taken > 0 {
		return fmt.Sprintf(" after %s for daemons", amount(d.names[i], taken))
	}
	return ""
}

// suspicious hints at a request that mixes up m and M (S-069).
func suspicious(i int, n int64) string {
	const million = 1_000_000_000
	if i == cpu && n >= million {
		return " (a million CPUs or more: was M written for m?)"
	}
	return ""
}

// limitShortage says which limit of the pool is in the way of the smallest type.
func (p *pool) limitShortage(d *dims, types bitset) string {
	if p.nodes <= 0 {
		return fmt.Sprintf("the pool's limit of %d nodes is reached", p.Limits["nodes"])
	}
	for i, left := range p.left {
		if left == unlimited {
			continue
		}
		least := int64(unlimited)
		for t := range types.all {
			least = min(least, p.sets.cat.types[t].capacity[i])
		}
		if least > left {
			return fmt.Sprintf("all instance types that would hold it exceed the pool's limits: %s of %s left, the smallest type has %s",
				amount(d.names[i], max(left, 0)), amount(d.names[i], p.Limits[d.names[i]]), amount(d.names[i], least))
		}
	}
	return "all instance types that would hold it exceed the pool's limits"
}

func amounts(d *dims, v vec) string {
	var parts []string
	for i, n := range v {
		if n > 0 && i != pods {
			parts = append(parts, amount(d.names[i], n))
		}
	}
	return strings.Join(parts, ", ")
}

// amount writes an amount of a resource for people: "1.5 CPU", "61.2 GiB of memory", "2 of nvidia.com/gpu".
func amount(name string, n int64) string {
	switch name {
	case "cpu":
		return trim(float64(n)/1000, 3) + " CPU"
	case "memory":
		return bytesText(n) + " of memory"
	case "ephemeral-storage":
		return bytesText(n) + " of ephemeral storage"
	case "pods":
		return count(int(n), "pod")
	}
	if strings.HasPrefix(name, "hugepages-") {
		return bytesText(n) + " of " + name
	}
	return fmt.Sprintf("%d of %s", n, name)
}

func bytesText(n int64) string {
	const ki, mi, gi = 1 << 10, 1 << 20, 1 << 30
	switch {
	case n >= gi:
		return trim(float64(n)/gi, 1) + " GiB"
	case n >= mi:
		return trim(float64(n)/mi, 1) + " MiB"
	default:
		return trim(float64(n)/ki, 1) + " KiB"
	}
}

// trim writes x with at most the given number of decimals.
func trim(x float64, decimals int) string {
	text := fmt.Sprintf("%.*f", decimals, x)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}
