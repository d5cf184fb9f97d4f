package cluster

// Effect is what a taint does to pods that do not tolerate it.
type Effect string

// The taint effects.
const (
	NoSchedule       Effect = "NoSchedule"
	PreferNoSchedule Effect = "PreferNoSchedule"
	NoExecute        Effect = "NoExecute"
)

// Taint keeps pods that do not tolerate it off a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect Effect `json:"effect"`
}

// Toleration lets a pod onto a node with matching taints. Operator is Exists, Equal (or empty, the same), or one of the
// numeric comparisons Lt and Gt (S-104). An empty Key with Exists tolerates everything; an empty Effect means every effect.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   Effect `json:"effect,omitempty"`
	// Seconds is how long a NoExecute taint is tolerated; nil means for ever.
	Seconds *int64 `json:"seconds,omitempty"`
}
