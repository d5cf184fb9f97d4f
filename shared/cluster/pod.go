package cluster

// PodUID identifies a pod for as long as it lives.
type PodUID string

// PodRef names a pod.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       PodUID `json:"uid"`
}

// Pod is one pod as planning sees it. Spec and the maps are shared between equal pods and are never written to.
type Pod struct {
	PodRef
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations holds only those that planning reads: do-not-disrupt and pod-deletion-cost.
	Annotations map[string]string `json:"annotations,omitempty"`
	Owner       Owner             `json:"owner,omitzero"`
	Spec        *PodSpec          `json:"spec"`

	NodeName      NodeName `json:"nodeName,omitempty"`
	NominatedNode NodeName `json:"nominatedNode,omitempty"`
	Phase         PodPhase `json:"phase,omitempty"`
	// Unschedulable says that the scheduler tried the pod and found no node. A pod may lack it for a moment after its
	// FailedScheduling Event, because the Event is sent first.
	Unschedulable bool  `json:"unschedulable,omitempty"`
	CreatedUnix   int64 `json:"created"`
	StartedUnix   int64 `json:"started,omitempty"`
	// DeletionUnix is the instant by which the pod has to be gone; zero while nobody deletes it.
	DeletionUnix int64 `json:"deletion,omitempty"`
	// DeletionGraceSeconds is the grace given by whoever deleted the pod.
	DeletionGraceSeconds int64 `json:"deletionGrace,omitempty"`
}

// Owner is the controller of an object.
type Owner struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// PodPhase is Kubernetes' summary of a pod's life.
type PodPhase string

// The phases that planning tells apart.
const (
	PodPending   PodPhase = "Pending"
	PodRunning   PodPhase = "Running"
	PodSucceeded PodPhase = "Succeeded"
	PodFailed    PodPhase = "Failed"
)

// PodSpec is what a pod asks of a node. One value serves all pods that ask the same, so it is read-only.
type PodSpec struct {
	// Requests is the effective request: the larger of initialisation and running phase, sidecars, overhead and pod-level
	// resources included, and one pod (S-167 to S-173).
	Requests     Resources           `json:"requests"`
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	NodeAffinity []NodeTerm          `json:"nodeAffinity,omitempty"` // alternatives in order; empty: no condition
	NodePrefers  []PreferredNodeTerm `json:"nodePrefers,omitempty"`
	Affinity     []PodTerm           `json:"affinity,omitempty"`
	AntiAffinity []PodTerm           `json:"antiAffinity,omitempty"`
	Prefers      []PreferredPodTerm  `json:"prefers,omitempty"`
	AntiPrefers  []PreferredPodTerm  `json:"antiPrefers,omitempty"`
	Spread       []Spread            `json:"spread,omitempty"`
	Tolerations  []Toleration        `json:"tolerations,omitempty"`
	HostPorts    []HostPort          `json:"hostPorts,omitempty"`
	// Claims names the PersistentVolumeClaims in the pod's namespace, generic ephemeral ones by their derived name suffix.
	Claims []VolumeClaimRef `json:"claims,omitempty"`
	// ResourceClaims says that the pod uses dynamic resource allocation, which Treadle does not plan for.
	ResourceClaims bool   `json:"resourceClaims,omitempty"`
	Gated          bool   `json:"gated,omitempty"`
	SchedulerName  string `json:"schedulerName,omitempty"`
	Priority       int32  `json:"priority,omitempty"`
	PriorityClass  string `json:"priorityClass,omitempty"`
	GraceSeconds   int64  `json:"graceSeconds,omitempty"`
}

// NodeTerm is one alternative of a node affinity: all expressions must hold. Fields says that the term also matches on
// node fields, which makes the pod one that no new node can be planned for (S-031).
type NodeTerm struct {
	Expressions []Expression `json:"expressions,omitempty"`
	Fields      bool         `json:"fields,omitempty"`
}

// PreferredNodeTerm is a wish about the node, heavier first.
type PreferredNodeTerm struct {
	Weight int32    `json:"weight"`
	Term   NodeTerm `json:"term"`
}

// PodTerm selects pods and the topology domain in which to be, or not to be, with them.
type PodTerm struct {
	Selector    *Selector `json:"selector,omitempty"` // nil matches no pod, an empty one every pod
	Namespaces  []string  `json:"namespaces,omitempty"`
	NamespaceBy *Selector `json:"namespaceSelector,omitempty"` // empty: every namespace
	TopologyKey string    `json:"topologyKey"`
}

// PreferredPodTerm is a wish about neighbours.
type PreferredPodTerm struct {
	Weight int32   `json:"weight"`
	Term   PodTerm `json:"term"`
}

// Selector is a label selector: every expression must hold. Equality is written as In with one value.
type Selector struct {
	Expressions []Expression `json:"expressions,omitempty"`
}

// Spread is a topology spread constraint. Hard says DoNotSchedule; MinDomains is zero where none is given.
type Spread struct {
	TopologyKey        string    `json:"topologyKey"`
	MaxSkew            int32     `json:"maxSkew"`
	MinDomains         int32     `json:"minDomains,omitempty"`
	Hard               bool      `json:"hard"`
	Selector           *Selector `json:"selector,omitempty"`
	MatchLabelKeys     []string  `json:"matchLabelKeys,omitempty"`
	IgnoreNodeAffinity bool      `json:"ignoreNodeAffinity,omitempty"` // nodeAffinityPolicy: Ignore
	HonorNodeTaints    bool      `json:"honorNodeTaints,omitempty"`    // nodeTaintsPolicy: Honor
}

// HostPort is a port that the pod takes on its node. IP is empty for every address.
type HostPort struct {
	IP       string `json:"ip,omitempty"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
}

// VolumeClaimRef names a volume claim of a pod. Ephemeral claims are called PODNAME-NAME.
type VolumeClaimRef struct {
	Name      string `json:"name"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
	// StorageClass is the class that an ephemeral claim's template names, nil if it names none.
	StorageClass *string `json:"storageClass,omitempty"`
}

// Terminal reports whether the pod has run to its end.
func (p *Pod) Terminal() bool { return p.Phase == PodSucceeded || p.Phase == PodFailed }

// Daemon reports whether a DaemonSet owns the pod.
func (p *Pod) Daemon() bool { return p.Owner.Kind == "DaemonSet" }

// Static reports whether the kubelet made the pod from a file: nobody can move or evict it.
func (p *Pod) Static() bool { return p.Owner.Kind == "Node" }

// Critical reports whether the pod belongs to one of the two system priority classes, which are drained last (D-110).
func (p *Pod) Critical() bool {
	return p.Spec.PriorityClass == "system-cluster-critical" || p.Spec.PriorityClass == "system-node-critical"
}
