package cluster

// Snapshot is everything that one decision is made from. Decisions never change it.
type Snapshot struct {
	Cluster string `json:"cluster"`
	// NowUnix is the instant that the decision takes for "now".
	NowUnix     int64       `json:"now"`
	Pods        []Pod       `json:"pods,omitempty"`
	Nodes       []Node      `json:"nodes,omitempty"`
	NodeClaims  []NodeClaim `json:"nodeClaims,omitempty"`
	NodePools   []NodePool  `json:"nodePools,omitempty"`
	NodeClasses []NodeClass `json:"nodeClasses,omitempty"`
	Daemons     []Daemon    `json:"daemons,omitempty"`
	// Buffers holds the CapacityBuffers, Templates what those name.
	Buffers   []CapacityBuffer `json:"buffers,omitempty"`
	Templates []PodTemplate    `json:"templates,omitempty"`
	// Types holds, by class name, the instance types as that class sees them.
	Types map[string][]InstanceType `json:"types,omitempty"`
	// Overlays holds the NodeOverlays; Overlaid, by pool, the instance types of pools that they change anything for.
	Overlays []NodeOverlay             `json:"overlays,omitempty"`
	Overlaid map[string][]InstanceType `json:"overlaid,omitempty"`

	Namespaces     map[string]map[string]string `json:"namespaces,omitempty"` // labels by namespace
	VolumeClaims   []VolumeClaim                `json:"volumeClaims,omitempty"`
	Volumes        []Volume                     `json:"volumes,omitempty"`
	StorageClasses []StorageClass               `json:"storageClasses,omitempty"`
	Budgets        []PodDisruptionBudget        `json:"podDisruptionBudgets,omitempty"`
}

// TypesOf returns the instance types as the nodes of a pool see them, whose class is named too: a claim of no pool has only that.
func (s *Snapshot) TypesOf(pool, class string) []InstanceType {
	if types, changed := s.Overlaid[pool]; changed {
		return types
	}
	return s.Types[class]
}

// Daemon is a DaemonSet, by the pod that it would put on a node.
type Daemon struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	UID       string            `json:"uid"`
	Labels    map[string]string `json:"labels,omitempty"` // of its pods
	Spec      *PodSpec          `json:"spec"`
}

// VolumeClaim is a PersistentVolumeClaim.
type VolumeClaim struct {
	Namespace    string  `json:"namespace"`
	Name         string  `json:"name"`
	StorageClass *string `json:"storageClass,omitempty"`
	VolumeName   string  `json:"volumeName,omitempty"`
	Phase        string  `json:"phase,omitempty"`
	BindComplete bool    `json:"bindComplete,omitempty"`
	Deleting     bool    `json:"deleting,omitempty"`
}

// Volume is a PersistentVolume. Driver is the CSI driver, in-tree names translated.
type Volume struct {
	Name     string     `json:"name"`
	Terms    []NodeTerm `json:"terms,omitempty"`
	Driver   string     `json:"driver,omitempty"`
	Local    bool       `json:"local,omitempty"` // local or hostPath
	Deleting bool       `json:"deleting,omitempty"`
}

// StorageClass says where and when a volume is made.
type StorageClass struct {
	Name        string     `json:"name"`
	Provisioner string     `json:"provisioner"`
	WaitForPod  bool       `json:"waitForPod,omitempty"` // volumeBindingMode WaitForFirstConsumer
	Topologies  []NodeTerm `json:"topologies,omitempty"`
	Default     bool       `json:"default,omitempty"`
	CreatedUnix int64      `json:"created,omitempty"`
}

// PodDisruptionBudget is how many pods of a selection may be away at once.
type PodDisruptionBudget struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Selector  *Selector `json:"selector,omitempty"`
	Allowed   int32     `json:"allowed"` // status.disruptionsAllowed
	// Blocked says that the budget never allows a disruption: maxUnavailable 0 or 0 %, or minAvailable 100 %.
	Blocked bool `json:"blocked,omitempty"`
}
