package cluster

import "strings"

// Member is one machine of the cluster as its objects see it: the claim that asked for it, the node that it became and the
// pods bound to it. Claim is nil for a node that Treadle did not make, Node is nil while there is none.
type Member struct {
	Claim *NodeClaim
	Node  *Node
	Pods  []*Pod
	// Twins are further nodes with the same provider id: an error state in which nobody can tell which is the real one (N-050).
	Twins []*Node
}

// Members joins claims and nodes by provider id and pods by node name (S-228): first every claim, then every node without one, each
// in the snapshot's order. The members point into the snapshot.
func (s *Snapshot) Members() []Member {
	members := make([]Member, 0, len(s.NodeClaims)+len(s.Nodes))
	byProvider := make(map[string]int, len(s.NodeClaims))
	byNode := make(map[NodeName]int, len(s.Nodes))
	for i := range s.NodeClaims {
		claim := &s.NodeClaims[i]
		if claim.ProviderID != "" {
			byProvider[claim.ProviderID] = len(members)
		}
		members = append(members, Member{Claim: claim})
	}
	for i := range s.Nodes {
		node := &s.Nodes[i]
		at, claimed := byProvider[node.ProviderID]
		switch {
		case !claimed || node.ProviderID == "":
			at = len(members)
			members = append(members, Member{Node: node})
		case members[at].Node == nil:
			members[at].Node = node
		default:
			members[at].Twins = append(members[at].Twins, node)
		}
		byNode[node.Name] = at
	}
	for i := range s.Pods {
		if at, bound := byNode[s.Pods[i].NodeName]; bound {
			members[at].Pods = append(members[at].Pods, &s.Pods[i])
		}
	}
	return members
}

// Pool returns the NodePool called name, or nil.
func (s *Snapshot) Pool(name string) *NodePool {
	for i := range s.NodePools {
		if s.NodePools[i].Name == name {
			return &s.NodePools[i]
		}
	}
	return nil
}

// Class returns the NodeClass called name, or nil.
func (s *Snapshot) Class(name string) *NodeClass {
	for i := range s.NodeClasses {
		if s.NodeClasses[i].Name == name {
			return &s.NodeClasses[i]
		}
	}
	return nil
}

// ProviderID returns the id under which Kubernetes knows an instance (N-041).
func ProviderID(zone string, id InstanceID) string { return "aws:///" + zone + "/" + string(id) }

// InstanceOf returns the instance that a provider id names, "" if it is not one of EC2's.
func InstanceOf(providerID string) InstanceID {
	rest, ok := strings.CutPrefix(providerID, "aws:///")
	if !ok {
		return ""
	}
	_, id, ok := strings.Cut(rest, "/")
	if !ok || !strings.HasPrefix(id, "i-") {
		return ""
	}
	return InstanceID(id)
}
