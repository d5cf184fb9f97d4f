package cluster

import "strings"

// CapacityBuffer asks for room that is kept free for pods that do not exist yet (autoscaling.x-k8s.io/v1beta1, N-082 to N-085).
type CapacityBuffer struct {
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Generation      int64  `json:"generation,omitempty"`
	CreatedUnix     int64  `json:"created,omitempty"`
	DeletionUnix    int64  `json:"deletion,omitempty"`
	// Invalid says what of the object cannot be understood. Empty: nothing.
	Invalid string `json:"invalid,omitempty"`

	// Template names what the pods would be like. Its zero value: the buffer names nothing.
	Template TemplateRef `json:"template"`
	// Strategy is how room is to be kept; empty stands for ActiveCapacity.
	Strategy string `json:"strategy,omitempty"`
	// Replicas, Percentage (of the replicas of a workload) and Limits (as of a NodePool) say for how many pods.
	Replicas   *int64           `json:"replicas,omitempty"`
	Percentage *int64           `json:"percentage,omitempty"`
	Limits     map[string]int64 `json:"limits,omitempty"`

	Status CapacityBufferStatus `json:"status"`
}

// CapacityBufferStatus is what was made of a buffer.
type CapacityBufferStatus struct {
	PodTemplate           string     `json:"podTemplate,omitempty"` // name; empty where a workload is the template
	PodTemplateGeneration *int64     `json:"podTemplateGeneration,omitempty"`
	Replicas              *int64     `json:"replicas,omitempty"`
	Strategy              string     `json:"strategy,omitempty"`
	Conditions            Conditions `json:"conditions,omitempty"`
}

// ActiveCapacity is the one strategy of buffers there is: nodes that are there.
const ActiveCapacity = "buffer.x-k8s.io/active-capacity"

// The conditions of a CapacityBuffer (S-283).
const (
	ConditionReadyForProvisioning = "ReadyForProvisioning"
	ConditionProvisioning         = "Provisioning"
)

// The kinds of objects that can be the template of a buffer.
const (
	KindPodTemplate = "PodTemplate"
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
	KindReplicaSet  = "ReplicaSet"
)

// TemplateRef names an object that has a pod template: a PodTemplate or a workload.
type TemplateRef struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// PodTemplate is what the pods of a workload, or of a PodTemplate, are like.
type PodTemplate struct {
	TemplateRef
	Generation int64             `json:"generation,omitempty"`
	Replicas   int64             `json:"replicas,omitempty"` // wanted of a workload
	Labels     map[string]string `json:"labels,omitempty"`
	Spec       *PodSpec          `json:"spec,omitempty"` // nil: see Fault
	// Fault says why there is no Spec; Absent that the object does not exist.
	Fault  string `json:"fault,omitempty"`
	Absent bool   `json:"absent,omitempty"`
}

const virtual = "buffer/"

// VirtualUID identifies pod n of those that a CapacityBuffer stands for.
func VirtualUID(buffer string, n string) PodUID { return PodUID(virtual + buffer + "/" + n) }

// BufferOf returns the UID of the CapacityBuffer that a pod stands for; ok is false for a pod that exists.
func BufferOf(pod PodUID) (uid string, ok bool) {
	rest, ok := strings.CutPrefix(string(pod), virtual)
	uid, _, _ = strings.Cut(rest, "/")
	return uid, ok
}

// Virtual reports whether a pod does not exist and only stands for room that a CapacityBuffer keeps.
func Virtual(pod PodUID) bool { return strings.HasPrefix(string(pod), virtual) }
