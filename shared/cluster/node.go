package cluster

import "slices"

// NodeName names a Kubernetes Node.
type NodeName string

// InstanceID names an EC2 instance.
type InstanceID string

// Condition is a condition of a NodePool, NodeClaim, EC2NodeClass or Node. Status is True, False or Unknown.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason,omitempty"`
	Message            string `json:"message,omitempty"`
	TransitionUnix     int64  `json:"transition,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

// Conditions is a list of conditions with at most one of each type.
type Conditions []Condition

// Get returns the condition of the given type, or the zero Condition.
func (c Conditions) Get(kind string) Condition {
	for _, one := range c {
		if one.Type == kind {
			return one
		}
	}
	return Condition{}
}

// True reports whether the condition of the given type is True.
func (c Conditions) True(kind string) bool { return c.Get(kind).Status == "True" }

// With returns a copy of c in which one stands for its type. The transition instant of an unchanged status is kept.
func (c Conditions) With(one Condition) Conditions {
	out := make(Conditions, 0, len(c)+1)
	found := false
	for _, old := range c {
		if old.Type == one.Type {
			if old.Status == one.Status {
				one.TransitionUnix = old.TransitionUnix
			}
			old, found = one, true
		}
		out = append(out, old)
	}
	if !found {
		out = append(out, one)
	}
	return out
}

// Without returns a copy of c that has no condition of the given type.
func (c Conditions) Without(kind string) Conditions {
	return slices.DeleteFunc(slices.Clone(c), func(one Condition) bool { return one.Type == kind })
}

// Node is a Kubernetes Node.
type Node struct {
	Name            NodeName          `json:"name"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	ProviderID      string            `json:"providerID,omitempty"` // aws:///zone/instance
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Finalizers      []string          `json:"finalizers,omitempty"`
	OwnedBy         string            `json:"ownedBy,omitempty"` // UID of the owning NodeClaim
	OwnedByName     string            `json:"ownedByName,omitempty"`
	Taints          []Taint           `json:"taints,omitempty"`
	Unschedulable   bool              `json:"unschedulable,omitempty"`
	Capacity        Resources         `json:"capacity"`
	Allocatable     Resources         `json:"allocatable"`
	Conditions      Conditions        `json:"conditions,omitempty"`
	CreatedUnix     int64             `json:"created"`
	DeletionUnix    int64             `json:"deletion,omitempty"`
	// VolumeLimits is, by CSI driver, how many volumes may be attached (CSINode); absent: no limit known.
	VolumeLimits map[string]int `json:"volumeLimits,omitempty"`
}

// Ready reports whether the kubelet says that the node can run pods.
func (n *Node) Ready() bool { return n.Conditions.True("Ready") }

// NodeClaim is the intent to have one node, and how far it has come.
type NodeClaim struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Generation      int64             `json:"generation,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Finalizers      []string          `json:"finalizers,omitempty"`
	// OwnerPool is the NodePool that owns the claim; the zero value for a claim that a user made.
	OwnerPool Owner `json:"ownerPool,omitzero"`

	Requirements                  []Expression `json:"requirements,omitempty"`
	Requests                      Resources    `json:"requests"`
	Taints                        []Taint      `json:"taints,omitempty"`
	StartupTaints                 []Taint      `json:"startupTaints,omitempty"`
	NodeClass                     string       `json:"nodeClass"`
	ExpireAfterSeconds            int64        `json:"expireAfterSeconds,omitempty"`            // 0: never
	TerminationGracePeriodSeconds *int64       `json:"terminationGracePeriodSeconds,omitempty"` // nil: wait for ever

	NodeName         NodeName   `json:"nodeName,omitempty"`
	ProviderID       string     `json:"providerID,omitempty"`
	ImageID          string     `json:"imageID,omitempty"`
	Capacity         Resources  `json:"capacity"`
	Allocatable      Resources  `json:"allocatable"`
	Conditions       Conditions `json:"conditions,omitempty"`
	LastPodEventUnix int64      `json:"lastPodEvent,omitempty"`

	CreatedUnix  int64 `json:"created"`
	DeletionUnix int64 `json:"deletion,omitempty"`
	// Invalid says what of the object cannot be understood. Empty: nothing.
	Invalid string `json:"invalid,omitempty"`
}

// NodePool returns the name of the pool that the claim belongs to, "" for a claim that a user made.
func (c *NodeClaim) NodePool() string { return c.Labels[LabelNodePool] }

// The conditions of a NodeClaim (N-045).
const (
	ConditionLaunched            = "Launched"
	ConditionRegistered          = "Registered"
	ConditionInitialized         = "Initialized"
	ConditionReady               = "Ready"
	ConditionDrained             = "Drained"
	ConditionInstanceTerminating = "InstanceTerminating"
	ConditionConsolidatable      = "Consolidatable"
	ConditionDrifted             = "Drifted"
	ConditionDisruptionReason    = "DisruptionReason"
)

// Instance is what EC2 says about an instance.
type Instance struct {
	ID             InstanceID        `json:"id"`
	Type           string            `json:"type"`
	Zone           string            `json:"zone"`
	ZoneID         string            `json:"zoneID,omitempty"`
	CapacityType   CapacityType      `json:"capacityType"`
	ImageID        string            `json:"imageID,omitempty"`
	SubnetID       string            `json:"subnetID,omitempty"`
	SecurityGroups []string          `json:"securityGroups,omitempty"` // ids
	PrivateDNSName string            `json:"privateDNSName,omitempty"`
	State          InstanceState     `json:"state"`
	StateReason    string            `json:"stateReason,omitempty"` // "Code: message", set once it is going
	LaunchUnix     int64             `json:"launch"`
	ClientToken    string            `json:"clientToken,omitempty"`
	Tags           map[string]string `json:"tags,omitempty"`
}

// InstanceState is EC2's word for the state of an instance.
type InstanceState string

// The instance states. All but InstanceTerminated count as existing (L-072).
const (
	InstancePending      InstanceState = "pending"
	InstanceRunning      InstanceState = "running"
	InstanceStopping     InstanceState = "stopping"
	InstanceStopped      InstanceState = "stopped"
	InstanceShuttingDown InstanceState = "shutting-down"
	InstanceTerminated   InstanceState = "terminated"
)

// WithReady returns a copy of c whose Ready condition follows the given ones: True if all are, False if one is, else Unknown. Reason and
// message are those of the first that decides.
func (c Conditions) WithReady(nowUnix int64, of ...string) Conditions {
	out := Condition{Type: ConditionReady, Status: "True", Reason: "Ready"}
	for _, kind := range of {
		one := c.Get(kind)
		switch {
		case one.Status == "False" && out.Status != "False":
			out.Status, out.Reason, out.Message = "False", one.Reason, one.Message
		case one.Status != "True" && out.Status == "True":
			out.Status, out.Reason, out.Message = "Unknown", one.Reason, one.Message
		}
		if out.Reason == "" {
			out.Reason = kind + "Pending"
		}
	}
	out.TransitionUnix = nowUnix
	return c.With(out)
}
