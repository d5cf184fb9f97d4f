package fleet

import (
	"maps"

	"treadle/shared/cluster"
)

const (
	// TagNodeClaim names the claim that an instance is for. It is written once the node has registered (L-028).
	TagNodeClaim = "karpenter.sh/nodeclaim"
	// TagClusterName is how EKS marks what belongs to a cluster.
	TagClusterName = "eks:eks-cluster-name"
	// TagName is what the console shows.
	TagName = "Name"

	owned = "owned"
)

func ownedBy(clusterName string) string { return "kubernetes.io/cluster/" + clusterName }

// Tags returns the tags that everything of a launch carries: those of the class, and over them what says whose it is (L-027).
func Tags(clusterName, nodePool string, class cluster.NodeClass) map[string]string {
	out := maps.Clone(class.Spec.Tags)
	if out == nil {
		out = map[string]string{}
	}
	out[ownedBy(clusterName)] = owned
	out[TagClusterName] = clusterName
	out[cluster.LabelNodePool] = nodePool
	out[cluster.LabelNodeClass] = class.Name
	return out
}

// LaterTags returns the tags that an instance gets once its node has registered (L-028). A Name that the class gives stays.
func LaterTags(clusterName, nodeClaim string, node cluster.NodeName, class cluster.NodeClass) map[string]string {
	out := map[string]string{TagNodeClaim: nodeClaim, TagClusterName: clusterName, TagName: string(node)}
	if _, given := class.Spec.Tags[TagName]; given {
		delete(out, TagName)
	}
	return out
}
