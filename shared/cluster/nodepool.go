package cluster

// NodePool is a user's description of the nodes that may be made, and the limits that they keep to.
type NodePool struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Generation      int64             `json:"generation,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	DeletionUnix    int64             `json:"deletion,omitempty"`
	// Invalid says what of the object cannot be understood; such a pool makes no nodes. Empty: nothing.
	Invalid string `json:"invalid,omitempty"`

	Weight   int32  `json:"weight,omitempty"`
	Replicas *int64 `json:"replicas,omitempty"` // set: a static pool
	// Limits caps the capacity of the pool's nodes by resource name: millicores for cpu, bytes for memory and
	// ephemeral-storage, a count for all else, "nodes" included. A name that is absent is not limited.
	Limits   map[string]int64 `json:"limits,omitempty"`
	Template NodeTemplate     `json:"template"`

	ConsolidateAfterSeconds *int64   `json:"consolidateAfterSeconds,omitempty"` // nil: Never
	ConsolidationPolicy     string   `json:"consolidationPolicy,omitempty"`
	Budgets                 []Budget `json:"budgets,omitempty"`

	// Asleep says that the pool is to have no nodes now. It is no part of the object: whoever decides works it out.
	Asleep bool `json:"asleep,omitempty"`

	// Hash is the hash of the template, as N-032 has it, for telling drifted claims.
	Hash string `json:"hash,omitempty"`

	StatusResources Resources  `json:"statusResources"`
	StatusNodes     int64      `json:"statusNodes"`
	Conditions      Conditions `json:"conditions,omitempty"`
}

// Requirements is what every node of p is like: its requirements and its labels, the two that Karpenter adds included (S-014, S-020).
func (p *NodePool) Requirements() Requirements {
	own := NewRequirements(map[string]string{LabelNodePool: p.Name, LabelNodeClass: p.Template.NodeClass})
	return NewRequirements(p.Template.Labels, p.Template.Requirements...).Intersect(own)
}

// NodeTemplate is what each claim of a pool is made from.
type NodeTemplate struct {
	Labels                        map[string]string `json:"labels,omitempty"`
	Annotations                   map[string]string `json:"annotations,omitempty"`
	Requirements                  []Expression      `json:"requirements,omitempty"`
	Taints                        []Taint           `json:"taints,omitempty"`
	StartupTaints                 []Taint           `json:"startupTaints,omitempty"`
	NodeClassGroup                string            `json:"nodeClassGroup"`
	NodeClassKind                 string            `json:"nodeClassKind"`
	NodeClass                     string            `json:"nodeClass"`
	ExpireAfterSeconds            int64             `json:"expireAfterSeconds,omitempty"`            // 0: never
	TerminationGracePeriodSeconds *int64            `json:"terminationGracePeriodSeconds,omitempty"` // nil: wait for ever
}

// Budget is how many nodes of a pool may be disrupted at once. Nodes is a count or a percentage such as "10%".
type Budget struct {
	Nodes           string   `json:"nodes"`
	Schedule        string   `json:"schedule,omitempty"`
	DurationSeconds int64    `json:"durationSeconds,omitempty"`
	Reasons         []string `json:"reasons,omitempty"`
}

// The conditions of a NodePool (N-025 to N-028).
const (
	ConditionValidationSucceeded     = "ValidationSucceeded"
	ConditionNodeClassReady          = "NodeClassReady"
	ConditionNodeRegistrationHealthy = "NodeRegistrationHealthy"
	// ConditionPaused is Treadle's own: the pool makes no nodes, because the last ones did not join.
	ConditionPaused = "Paused"
)
