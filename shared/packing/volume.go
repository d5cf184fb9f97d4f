package packing

import (
	"cmp"
	"fmt"
	"slices"

	"treadle/shared/cluster"
)

// volumes is the persistent volumes of a snapshot, by name.
type volumes struct {
	claims  map[string]*cluster.VolumeClaim // by namespace/name
	volumes map[string]*cluster.Volume
	classes map[string]*cluster.StorageClass
	byDfl   *cluster.StorageClass
}

func newVolumes(snap *cluster.Snapshot) *volumes {
	v := &volumes{
		claims: map[string]*cluster.VolumeClaim{}, volumes: map[string]*cluster.Volume{}, classes: map[string]*cluster.StorageClass{},
	}
	for i := range snap.VolumeClaims {
		c := &snap.VolumeClaims[i]
		v.claims[c.Namespace+"/"+c.Name] = c
	}
	for i := range snap.Volumes {
		v.volumes[snap.Volumes[i].Name] = &snap.Volumes[i]
	}
	for i := range snap.StorageClasses {
		c := &snap.StorageClasses[i]
		v.classes[c.Name] = c
		if c.Default && (v.byDfl == nil || cmp.Or(cmp.Compare(c.CreatedUnix, v.byDfl.CreatedUnix), cmp.Compare(c.Name, v.byDfl.Name)) > 0) {
			v.byDfl = c // the newest default counts (S-140)
		}
	}
	return v
}

// attachment is a volume that a pod brings to its node: a name that is equal for equal volumes, and the driver.
type attachment struct{ name, driver string }

// of returns the alternatives that the volumes of a pod leave for its node, what it attaches, and why it cannot be placed if
// a claim is unusable (S-135 to S-152).
func (v *volumes) of(p *cluster.Pod) (alternatives []cluster.Requirements, attached []attachment, fault string) {
	alternatives = []cluster.Requirements{nil}
	for _, ref := range p.Spec.Claims {
		name := ref.Name
		if ref.Ephemeral {
			name = p.Name + "-" + ref.Name
		}
		terms, driver, fault := v.claim(p.Namespace, name, ref)
		if fault != "" {
			return nil, nil, fault
		}
		if driver != "" {
			attached = append(attached, attachment{p.Namespace + "/" + name, driver})
		}
		if len(terms) > 0 {
			alternatives = multiply(alternatives, terms)
		}
	}
	return alternatives, attached, ""
}

func multiply(a, b []cluster.Requirements) []cluster.Requirements {
	out := make([]cluster.Requirements, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, x.Intersect(y))
		}
	}
	return out
}

// claim resolves one claim: the terms of its node, and the driver that attaches it.
func (v *volumes) claim(namespace, name string, ref cluster.VolumeClaimRef) (terms []cluster.Requirements, driver, fault string) {
	c := v.claims[namespace+"/"+name]
	switch {
	case c == nil && ref.Ephemeral:
		return v.unbound(name, ref.StorageClass)
	case c == nil:
		return nil, "", fmt.Sprintf("volume claim %s does not exist", name)
	case c.Deleting:
		return nil, "", fmt.Sprintf("volume claim %s is being deleted", name)
	case c.Phase == "Lost":
		return nil, "", fmt.Sprintf("volume claim %s has lost its volume", name)
	case c.VolumeName == "":
		return v.unbound(name, c.StorageClass)
	case !c.BindComplete:
		return nil, "", fmt.Sprintf("volume claim %s is still being bound", name)
	}
	pv := v.volumes[c.VolumeName]
	switch {
	case pv == nil:
		return nil, "", fmt.Sprintf("volume %s of claim %s does not exist", c.VolumeName, name)
	case pv.Deleting:
		return nil, "", fmt.Sprintf("volume %s of claim %s is being deleted", c.VolumeName, name)
	}
	for _, term := range pv.Terms {
		r := cluster.NewRequirements(nil, term.Expressions...)
		if pv.Local { // such a node can be replaced (S-138)
			r = r.Without(func(key string) bool { return key == cluster.LabelHostname })
		}
		terms = append(terms, r)
	}
	return terms, pv.Driver, ""
}

// unbound resolves a claim whose volume will be made for the pod (S-136, S-140, S-144, S-145).
func (v *volumes) unbound(name string, class *string) (terms []cluster.Requirements, driver, fault string) {
	sc := v.byDfl
	if class != nil {
		if *class == "" {
			return nil, "", fmt.Sprintf("volume claim %s has no storage class and no volume", name)
		}
		sc = v.classes[*class]
	}
	switch {
	case sc == nil && class != nil:
		return nil, "", fmt.Sprintf("storage class %s of volume claim %s does not exist", *class, name)
	case sc == nil:
		return nil, "", fmt.Sprintf("volume claim %s names no storage class and there is no default", name)
	case !sc.WaitForPod:
		return nil, "", fmt.Sprintf("volume claim %s is not bound yet and its storage class does not wait for a pod", name)
	}
	for _, term := range sc.Topologies {
		terms = append(terms, cluster.NewRequirements(nil, term.Expressions...))
	}
	return terms, sc.Provisioner, ""
}

// attach counts the volumes on a host by driver; a volume that several pods use counts once (S-149).
type attach map[string]map[string]bool

func (a attach) add(all []attachment) {
	for _, v := range all {
		if a[v.driver] == nil {
			a[v.driver] = map[string]bool{}
		}
		a[v.driver][v.name] = true
	}
}

// fits reports whether the volumes can be attached beside those that are (S-148).
func (a attach) fits(all []attachment, limits map[string]int) bool {
	extra := map[string]int{}
	for i, v := range all {
		if !a[v.driver][v.name] && !slices.Contains(all[:i], v) {
			extra[v.driver]++
		}
	}
	for driver, n := range extra {
		if limit, limited := limits[driver]; limited && len(a[driver])+n > limit {
			return false
		}
	}
	return true
}

// conflict reports whether two host ports cannot be on one node (S-153).
func conflict(a, b cluster.HostPort) bool {
	every := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a.Port == b.Port && cmp.Or(a.Protocol, "TCP") == cmp.Or(b.Protocol, "TCP") && (a.IP == b.IP || every(a.IP) || every(b.IP))
}

func conflicts(a, b []cluster.HostPort) bool {
	for _, x := range a {
		if slices.ContainsFunc(b, func(y cluster.HostPort) bool { return conflict(x, y) }) {
			return true
		}
	}
	return false
}
