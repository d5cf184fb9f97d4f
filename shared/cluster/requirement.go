package cluster

// Operator is the relation between a label and the values of a requirement.
type Operator string

// The operators of NodePool requirements and of node affinity (S-001).
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	Gt           Operator = "Gt"
	Lt           Operator = "Lt"
	Gte          Operator = "Gte"
	Lte          Operator = "Lte"
)

// Expression is one requirement as a user wrote it: in a NodePool, a NodeClaim or a pod's node affinity. MinValues is zero
// where none was given.
type Expression struct {
	Key       string   `json:"key"`
	Operator  Operator `json:"operator"`
	Values    []string `json:"values,omitempty"`
	MinValues int      `json:"minValues,omitempty"`
}
