package cluster

import (
	"strconv"
	"strings"
)

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

// String writes t as kubectl does: key=value:effect.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// Tolerates reports whether o lets a pod onto a node with taint t. Whether a NoExecute taint is tolerated only for a while
// does not matter.
func (o Toleration) Tolerates(t Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	switch o.Operator {
	case "Exists":
		return true
	case "", "Equal":
		return o.Key != "" && o.Value == t.Value
	case "Lt", "Gt":
		have, err1 := strconv.ParseInt(t.Value, 10, 64)
		bound, err2 := strconv.ParseInt(o.Value, 10, 64)
		if err1 != nil || err2 != nil {
			return false
		}
		return o.Operator == "Lt" && have < bound || o.Operator == "Gt" && have > bound
	}
	return false
}

// Untolerated returns the first taint that keeps a pod with the given tolerations away, and whether there is one.
// PreferNoSchedule keeps nobody away.
func Untolerated(taints []Taint, tolerations []Toleration) (Taint, bool) {
	for _, t := range taints {
		if t.Effect != PreferNoSchedule && !tolerated(t, tolerations) {
			return t, true
		}
	}
	return Taint{}, false
}

// Unwelcome is Untolerated with PreferNoSchedule taken as strictly as NoSchedule.
func Unwelcome(taints []Taint, tolerations []Toleration) (Taint, bool) {
	for _, t := range taints {
		if !tolerated(t, tolerations) {
			return t, true
		}
	}
	return Taint{}, false
}

func tolerated(t Taint, tolerations []Toleration) bool {
	for _, o := range tolerations {
		if o.Tolerates(t) {
			return true
		}
	}
	return false
}

// Ephemeral reports whether t is one of the taints that a starting node sheds by itself, so that they do not count before
// the node is initialized (S-102).
func (t Taint) Ephemeral() bool {
	switch t.Key {
	case TaintNotReady:
		return t.Effect == NoSchedule || t.Effect == NoExecute
	case TaintUnreachable:
		return t.Effect == NoSchedule
	case TaintCloudUninit:
		return t.Value == "true"
	case TaintUnregistered:
		return t.Effect == NoExecute
	}
	return strings.HasPrefix(t.Key, TaintReadinessPrefix)
}
