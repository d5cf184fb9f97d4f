package packing

import (
	"slices"

	"treadle/shared/cluster"
)

// seatNominated takes room from hosts for pending pods that are nominated for them, by an earlier plan or by a preemption: the
// scheduler tries that node first (S-027). A pod that its node has no room for, or whose node is gone or leaving, is not seated
// and waits like any other.
func (k *packer) seatNominated() {
	var nominated []*cluster.Pod
	for i := range k.snap.Pods {
		p := &k.snap.Pods[i]
		if _, known := k.hostOf[p.NominatedNode]; known && p.NodeName == "" && p.NominatedNode != "" && p.DeletionUnix == 0 && !p.Terminal() {
			nominated = append(nominated, p)
		}
	}
	slices.SortFunc(nominated, comparePods)
	k.seated = make(map[cluster.PodUID]int32, len(nominated))
	for _, p := range nominated {
		at := k.hostOf[p.NominatedNode]
		h := &k.hosts[at]
		requests := k.dims.vec(p.Spec.Requests)
		if !requests.fits(h.free) {
			continue
		}
		h.free.sub(requests)
		h.ports = append(h.ports, p.Spec.HostPorts...)
		k.seated[p.UID] = at
	}
}

// hostOfPod returns the host that p runs on, or is seated on.
func (k *packer) hostOfPod(p *cluster.Pod) (at int32, known bool) {
	if p.NodeName == "" {
		at, known = k.seated[p.UID]
		return at, known
	}
	at, known = k.hostOf[p.NodeName]
	return at, known
}
