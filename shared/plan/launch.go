package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"treadle/shared/cluster"
)

// Launch is one CreateFleet request for a group of equal claims. It is stored with each claim of the group before EC2 is
// called: repeating it with the same token is safe, because EC2 answers a repeated token with the instances of the first call.
type Launch struct {
	// Group tells the claims that share the call; it is unique to one plan.
	Group        string               `json:"group"`
	CapacityType cluster.CapacityType `json:"capacityType"`
	Configs      []LaunchConfig       `json:"configs"`
	// Prioritized has EC2 go by the prices of the overrides: NodeOverlays know better than EC2 what some of them cost (S-275).
	Prioritized bool `json:"prioritized,omitempty"`
}

// NewLaunch returns the launch of claims that may become any of the options, by the given templates.
func NewLaunch(group string, options []Option, configs []LaunchConfig) Launch {
	return Launch{
		Group: group, CapacityType: options[0].CapacityType, Configs: configs,
		Prioritized: slices.ContainsFunc(options, func(o Option) bool { return o.Overlaid }),
	}
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

// LaunchOf returns the launch that a claim was made for; ok is false for a claim that was made without one, by a user or by another
// controller.
func LaunchOf(c *cluster.NodeClaim) (l Launch, ok bool) {
	text := c.Annotations[cluster.AnnotationLaunch]
	if text == "" {
		return Launch{}, false
	}
	return l, json.Unmarshal([]byte(text), &l) == nil && l.Group != ""
}

// Annotation returns the launch as LaunchOf reads it.
func (l Launch) Annotation() string {
	body, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	return string(body)
}

// Token returns the client token of the launch for the claims with the given UIDs, in any order: 64 hex digits that change with any
// UID and with any part of the request, so that new parameters never meet an old token.
func (l Launch) Token(uids []string) string {
	sorted := slices.Sorted(slices.Values(uids))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n") + "\n" + l.Annotation()))
	return hex.EncodeToString(sum[:])
}

// Request is a launch about to be made.
type Request struct {
	// Token makes the launch repeatable.
	Token string
	// Count is how many instances are wanted, one for each claim.
	Count  int
	Launch Launch
	// Tags go on the fleet, its instances and their volumes.
	Tags map[string]string
	// Context is the class's CreateFleet context, "" for none.
	Context string
}

// Result is what a launch gave.
type Result struct {
	FleetID string
	// Instances holds every instance in the answer, in EC2's order: id, type, zone, subnet, capacity type and image. They may be fewer
	// than asked for and, rarely, more.
	Instances []cluster.Instance
	// Refusals holds what EC2 could not give, beside instances or instead of them.
	Refusals []Refusal
}

// Refusal is an offering that EC2 did not give. InstanceType, Zone and SubnetID are empty where the answer names none: then
// the refusal speaks about the request as a whole.
type Refusal struct {
	InstanceType string
	Zone         string
	SubnetID     string
	CapacityType cluster.CapacityType
	Code         string
	Message      string
	Kind         RefusalKind
}

// RefusalKind is what a refusal means for the next plan.
type RefusalKind string

// The kinds of refusals. The empty kind is for codes that nobody knows and for EC2's own trouble.
const (
	RefusedCapacity      RefusalKind = "capacity"      // the offering is sold out
	RefusedQuota         RefusalKind = "quota"         // a quota on the whole capacity type is used up
	RefusedTypeQuota     RefusalKind = "type-quota"    // a quota on types like this one is used up
	RefusedAddresses     RefusalKind = "addresses"     // the subnet is full
	RefusedConfiguration RefusalKind = "configuration" // the request is wrong
	RefusedDenied        RefusalKind = "denied"        // the caller may not do this
	RefusedThrottled     RefusalKind = "throttled"     // not tried
	RefusedGone          RefusalKind = "gone"          // something that the request names does not exist
	RefusedMismatch      RefusalKind = "mismatch"      // the token belongs to another request
)
