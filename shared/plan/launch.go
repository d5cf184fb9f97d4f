package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"treadle/shared/cluster"
)

// Launch is one CreateFleet request for a group of equal claims. It is stored with each claim of the group before EC2 is
// called: repeating it with the same token is safe, because EC2 answers a repeated token with the instances of the first call.
type Launch struct {
	// Group tells the claims that share the call; it is unique to one plan.
	Group        string               `json:"group"`
	CapacityType cluster.CapacityType `json:"capacityType"`
	Configs      []LaunchConfig       `json:"configs"`
}

// LaunchConfig is a launch template and the pools that it may be launched into.
type LaunchConfig struct {
	Template  string     `json:"template"`
	Overrides []Override `json:"overrides"`
}

// Override is one pool that EC2 may choose: an instance type in the zone of a subnet.
type Override struct {
	InstanceType string `json:"type"`
	SubnetID     string `json:"subnet"`
	Zone         string `json:"zone"`
	ImageID      string `json:"image,omitempty"`
	// PriceMicroUSDPerHour becomes the priority of a prioritized strategy and is the price shown for the node.
	PriceMicroUSDPerHour int64 `json:"price,omitempty"`
}

// Token returns the client token of the launch for the claims with the given UIDs, in any order: 64 hex digits that change with any
// UID and with any part of the request, so that new parameters never meet an old token.
func (l Launch) Token(uids []string) (string, error) {
	sorted := slices.Sorted(slices.Values(uids))
	body, err := json.Marshal(struct {
		UIDs   []string
		Launch Launch
	}{sorted, l})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}
