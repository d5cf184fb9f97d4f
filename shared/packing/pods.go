package packing

import (
	"cmp"
	"slices"

	"treadle/shared/cluster"
)

// wanted returns the pods that this run has to find a place for, as indices into the snapshot, in the order of placement:
// most CPU first, then most memory, then the oldest, then by UID (S-058).
func (k *packer) wanted() []int32 {
	var out []int32
	for i := range k.snap.Pods {
		p := &k.snap.Pods[i]
		if k.provisionable(p) || k.displaced(p) {
			out = append(out, int32(i))
		}
	}
	slices.SortFunc(out, func(a, b int32) int { return comparePods(&k.snap.Pods[a], &k.snap.Pods[b]) })
	return out
}

func comparePods(a, b *cluster.Pod) int {
	return cmp.Or(
		cmp.Compare(b.Spec.Requests.MilliCPU, a.Spec.Requests.MilliCPU),
		cmp.Compare(b.Spec.Requests.MemoryBytes, a.Spec.Requests.MemoryBytes),
		cmp.Compare(a.CreatedUnix, b.CreatedUnix),
		cmp.Compare(a.UID, b.UID),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// provisionable reports whether p waits for a node that Treadle may make (S-026 to S-030). A pod that the scheduler has not
// called unschedulable yet counts once it is old enough, because the call that wakes Treadle comes before the condition.
func (k *packer) provisionable(p *cluster.Pod) bool {
	_, seated := k.seated[p.UID]
	switch {
	case p.NodeName != "" || seated || p.Terminal() || p.DeletionUnix != 0:
		return false
	case p.Daemon() || p.Static() || p.Spec.Gated || optedOut(p.Spec):
		return false
	}
	return p.Unschedulable || p.CreatedUnix+k.o.MinAgeSeconds <= k.snap.NowUnix
}

// optedOut reports whether the pod asks for nodes that belong to no pool.
func optedOut(spec *cluster.PodSpec) bool {
	if len(spec.NodeAffinity) == 0 {
		return false
	}
	for _, term := range spec.NodeAffinity {
		if !slices.ContainsFunc(term.Expressions, func(e cluster.Expression) bool {
			return e.Key == cluster.LabelNodePool && e.Operator == cluster.DoesNotExist
		}) {
			return false
		}
	}
	return true
}

// displaced reports whether p runs on a node that is leaving and will need another one (S-041, S-042).
func (k *packer) displaced(p *cluster.Pod) bool {
	if p.NodeName == "" || !k.leaving[p.NodeName] || p.Terminal() || p.Daemon() || p.Static() {
		return false
	}
	if p.DeletionUnix != 0 && p.Owner.Kind != "StatefulSet" {
		return false
	}
	return p.Annotations[cluster.AnnotationDoNotDisrupt] != "true" && !k.blocked(p)
}

// blocked reports whether a budget never lets p go.
func (k *packer) blocked(p *cluster.Pod) bool {
	for i := range k.snap.Budgets {
		b := &k.snap.Budgets[i]
		if b.Blocked && b.Namespace == p.Namespace && b.Selector.Matches(p.Labels) {
			return true
		}
	}
	return false
}

// podFault says why p can be placed nowhere whatever the pools are like; "" if nothing is wrong with it (S-031, S-032).
func podFault(spec *cluster.PodSpec) (rule, detail string) {
	if spec.ResourceClaims {
		return "pod", "uses dynamic resource allocation, which is not planned for"
	}
	if r, found := restricted(spec); found {
		return "pod", "selects on " + r + ", a label that no new node can be chosen by"
	}
	for _, term := range spec.NodeAffinity {
		if term.Fields {
			return "pod", "its node affinity matches on node fields, which no new node can be planned for"
		}
	}
	return "", ""
}

func restricted(spec *cluster.PodSpec) (string, bool) {
	for _, wants := range alternatives(spec) {
		for _, r := range wants {
			if cluster.Restricted(r.Key) {
				return r.Key, true
			}
		}
	}
	return "", false
}
