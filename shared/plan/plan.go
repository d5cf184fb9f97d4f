package plan

import "treadle/shared/cluster"

// Plan is the result of packing a snapshot. The zero value asks for nothing.
type Plan struct {
	// ID is the same for equal plans of equal snapshots.
	ID string `json:"id"`
	// Placed holds the pods that fit on nodes or claims that exist already, in the order they were placed.
	Placed []Placement `json:"placed,omitempty"`
	// Claims holds the node claims to make, in the order they were opened.
	Claims []Claim `json:"claims,omitempty"`
	// Unplaced holds the pods that fit nowhere, each with its reasons.
	Unplaced []Unplaced `json:"unplaced,omitempty"`
}

// Placement says that a pod is expected on a node, or on the node of a claim in flight; one of Node and NodeClaim is set.
type Placement struct {
	Pod       cluster.PodRef   `json:"pod"`
	Node      cluster.NodeName `json:"node,omitempty"`
	NodeClaim string           `json:"nodeClaim,omitempty"`
}

// Claim is a node to be made: the pool it comes from, what its node must be like, and which offerings will do.
type Claim struct {
	NodePool string `json:"nodePool"`
	// Requirements are those of the pool, its labels included, narrowed by the pods placed here.
	Requirements []cluster.Expression `json:"requirements"`
	// Requests is the sum of the pods' requests and the smallest daemon overhead of the options (S-073).
	Requests cluster.Resources `json:"requests"`
	// Options are the offerings that can hold all pods of the claim, cheapest first, all of one capacity type, at most
	// MaxOptions. Prices are what the plan was made with.
	Options []Option         `json:"options"`
	Pods    []cluster.PodRef `json:"pods"`
	// MinValuesRelaxed says that fewer distinct values were found than the pool asked for (S-096).
	MinValuesRelaxed bool `json:"minValuesRelaxed,omitempty"`
}

// MaxOptions is how many overrides Treadle puts into one CreateFleet call (L-014).
const MaxOptions = 60

// Option is an offering that a claim may be launched as.
type Option struct {
	InstanceType         string               `json:"instanceType"`
	Zone                 string               `json:"zone"`
	CapacityType         cluster.CapacityType `json:"capacityType"`
	PriceMicroUSDPerHour int64                `json:"priceMicroUSDPerHour"`
	ReservationID        string               `json:"reservationID,omitempty"`
	// Overlaid says that a NodeOverlay set the price, so that EC2's own idea of it is not to be used.
	Overlaid bool `json:"overlaid,omitempty"`
}

// Unplaced is a pod that fits nowhere. Reasons has one entry for each NodePool that was tried, in that order, or a single
// entry with an empty NodePool where the pod itself is at fault.
type Unplaced struct {
	Pod     cluster.PodRef `json:"pod"`
	Reasons []Reason       `json:"reasons"`
}

// Reason names the rule that a pod failed first in a pool, and by how much.
type Reason struct {
	NodePool string `json:"nodePool,omitempty"`
	// Rule is a short constant word for counting: resources, requirements, taints, offerings, limits, topology, affinity,
	// volumes, ports, minValues, pool, class, pod.
	Rule string `json:"rule"`
	// Detail is one sentence for people: "needs 96 GiB of memory; the largest allowed type has 61.2 GiB".
	Detail string `json:"detail"`
}
