package packing

import (
	"maps"

	"treadle/shared/cluster"
)

// Expected returns the nodes on which pending pods are expected, or on which a CapacityBuffer keeps room, which nobody should take away
// from under them.
func Expected(snap *cluster.Snapshot) map[cluster.NodeName]bool {
	pods, buffers := Seats(snap)
	maps.Copy(pods, buffers)
	return pods
}

// Seats returns the nodes on which pending pods are expected, and those on which CapacityBuffers keep room.
func Seats(snap *cluster.Snapshot) (pods, buffers map[cluster.NodeName]bool) {
	only := *snap
	only.NodePools = nil // what is there already is all that counts
	pods, buffers = map[cluster.NodeName]bool{}, map[cluster.NodeName]bool{}
	for _, placed := range Pack(only, Options{}).Placed {
		if cluster.Virtual(placed.Pod.UID) {
			buffers[placed.Node] = true
		} else {
			pods[placed.Node] = true
		}
	}
	for i := range snap.Pods {
		if p := &snap.Pods[i]; p.NodeName == "" && p.NominatedNode != "" {
			pods[p.NominatedNode] = true
		}
	}
	return pods, buffers
}
