package plan

import "treadle/shared/cluster"

// Group is the claims that share one launch.
type Group struct {
	Launch Launch
	// Claims are all claims of the group that exist, in the order given, whether or not they have an instance yet.
	Claims []*cluster.NodeClaim
	// Token is the client token of the launch.
	Token string
}

// Groups returns the launches that claims were made for, in the order of their first claims. Claims made without a launch are
// left out.
func Groups(claims []cluster.NodeClaim) []Group {
	var groups []Group
	at := map[string]int{}
	for i := range claims {
		launch, ok := LaunchOf(&claims[i])
		if !ok {
			continue
		}
		n, seen := at[launch.Group]
		if !seen {
			n = len(groups)
			at[launch.Group] = n
			groups = append(groups, Group{Launch: launch})
		}
		groups[n].Claims = append(groups[n].Claims, &claims[i])
	}
	for i := range groups {
		uids := make([]string, 0, len(groups[i].Claims))
		for _, claim := range groups[i].Claims {
			uids = append(uids, claim.UID)
		}
		groups[i].Token = groups[i].Launch.Token(uids)
	}
	return groups
}

// Open returns the claims whose launch has not been brought to an end: no instance is known and none was refused. A claim that is
// being deleted counts too, because its instance may exist.
func (g Group) Open() []*cluster.NodeClaim {
	var open []*cluster.NodeClaim
	for _, claim := range g.Claims {
		if claim.ProviderID == "" && claim.Conditions.Get(cluster.ConditionLaunched).Status != "False" {
			open = append(open, claim)
		}
	}
	return open
}
