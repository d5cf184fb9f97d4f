package packing

import "treadle/shared/cluster"

// Expected returns the nodes on which pending pods are expected, which nobody should take away from under them.
func Expected(snap *cluster.Snapshot) map[cluster.NodeName]bool {
	only := *snap
	only.NodePools = nil // what is there already is all that counts
	out := map[cluster.NodeName]bool{}
	for _, placed := range Pack(only, Options{}).Placed {
		out[placed.Node] = true
	}
	for i := range snap.Pods {
		if p := &snap.Pods[i]; p.NodeName == "" && p.NominatedNode != "" {
			out[p.NominatedNode] = true
		}
	}
	return out
}
