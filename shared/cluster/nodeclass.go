package cluster

// NodeClass is an EC2NodeClass: what an instance is made of, as the user wrote it, and what that resolved to.
type NodeClass struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Generation      int64             `json:"generation,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Finalizers      []string          `json:"finalizers,omitempty"`
	DeletionUnix    int64             `json:"deletion,omitempty"`
	// Invalid says what of the object cannot be understood; nothing is launched from such a class. Empty: nothing.
	Invalid string `json:"invalid,omitempty"`
	// Hash is the hash of the spec, as C-116 has it, for telling drifted claims.
	Hash string `json:"hash,omitempty"`

	Spec   NodeClassSpec   `json:"spec"`
	Status NodeClassStatus `json:"status"`
}

// NodeClassSpec mirrors EC2NodeClass.spec of karpenter.k8s.aws/v1 field by field (C-001 to C-025). Quantities are bytes or
// millicores; durations are seconds; nil and empty mean "not given".
type NodeClassSpec struct {
	SubnetSelectorTerms        []SelectorTerm            `json:"subnetSelectorTerms,omitempty"`
	SecurityGroupSelectorTerms []SelectorTerm            `json:"securityGroupSelectorTerms,omitempty"`
	AMISelectorTerms           []SelectorTerm            `json:"amiSelectorTerms,omitempty"`
	ReservationSelectorTerms   []SelectorTerm            `json:"capacityReservationSelectorTerms,omitempty"`
	PlacementGroup             *SelectorTerm             `json:"placementGroupSelector,omitempty"`
	AMIFamily                  string                    `json:"amiFamily,omitempty"`
	UserData                   string                    `json:"userData,omitempty"`
	Role                       string                    `json:"role,omitempty"`
	InstanceProfile            string                    `json:"instanceProfile,omitempty"`
	Tags                       map[string]string         `json:"tags,omitempty"`
	Kubelet                    *Kubelet                  `json:"kubelet,omitempty"`
	BlockDevices               []BlockDevice             `json:"blockDeviceMappings,omitempty"`
	InstanceStorePolicy        string                    `json:"instanceStorePolicy,omitempty"` // "" or RAID0
	DetailedMonitoring         bool                      `json:"detailedMonitoring,omitempty"`
	AssociatePublicIP          *bool                     `json:"associatePublicIPAddress,omitempty"`
	IPPrefixCount              *int32                    `json:"ipPrefixCount,omitempty"`
	Metadata                   *MetadataOptions          `json:"metadataOptions,omitempty"`
	NestedVirtualization       string                    `json:"nestedVirtualization,omitempty"` // cpuOptions
	NetworkInterfaces          []NetworkInterface        `json:"networkInterfaces,omitempty"`
	ConnectionTracking         *ConnectionTrackingConfig `json:"connectionTracking,omitempty"`
	Context                    string                    `json:"context,omitempty"`
}

// SelectorTerm is one alternative of a selector; the fields given must all match. Which fields a selector accepts is in
// rows C-001 to C-007.
type SelectorTerm struct {
	Tags                  map[string]string `json:"tags,omitempty"` // value "*": the key exists
	ID                    string            `json:"id,omitempty"`
	Name                  string            `json:"name,omitempty"`
	Owner                 string            `json:"owner,omitempty"`
	Alias                 string            `json:"alias,omitempty"` // family@version
	SSMParameter          string            `json:"ssmParameter,omitempty"`
	InstanceMatchCriteria string            `json:"instanceMatchCriteria,omitempty"`
}

// Kubelet is the kubelet configuration of a class. Signals map the names of C-071 to a quantity or percentage.
type Kubelet struct {
	ClusterDNS                  []string          `json:"clusterDNS,omitempty"`
	MaxPods                     *int32            `json:"maxPods,omitempty"`
	PodsPerCore                 *int32            `json:"podsPerCore,omitempty"`
	SystemReserved              map[string]string `json:"systemReserved,omitempty"`
	KubeReserved                map[string]string `json:"kubeReserved,omitempty"`
	EvictionHard                map[string]string `json:"evictionHard,omitempty"`
	EvictionSoft                map[string]string `json:"evictionSoft,omitempty"`
	EvictionSoftGracePeriod     map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMaxPodGracePeriod   *int32            `json:"evictionMaxPodGracePeriod,omitempty"`
	ImageGCHighThresholdPercent *int32            `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int32            `json:"imageGCLowThresholdPercent,omitempty"`
	CPUCFSQuota                 *bool             `json:"cpuCFSQuota,omitempty"`
}

// BlockDevice is one volume of an instance.
type BlockDevice struct {
	DeviceName          string `json:"deviceName,omitempty"`
	RootVolume          bool   `json:"rootVolume,omitempty"`
	VolumeSizeBytes     int64  `json:"volumeSizeBytes,omitempty"` // 0: the snapshot's size
	VolumeType          string `json:"volumeType,omitempty"`
	IOPS                *int64 `json:"iops,omitempty"`
	Throughput          *int64 `json:"throughput,omitempty"` // MiB/s
	Encrypted           *bool  `json:"encrypted,omitempty"`
	KMSKeyID            string `json:"kmsKeyID,omitempty"`
	DeleteOnTermination *bool  `json:"deleteOnTermination,omitempty"`
	SnapshotID          string `json:"snapshotID,omitempty"`
	InitializationRate  *int32 `json:"volumeInitializationRate,omitempty"` // MiB/s
}

// MetadataOptions is the instance metadata service of an instance.
type MetadataOptions struct {
	HTTPEndpoint            string `json:"httpEndpoint,omitempty"`
	HTTPProtocolIPv6        string `json:"httpProtocolIPv6,omitempty"`
	HTTPPutResponseHopLimit *int64 `json:"httpPutResponseHopLimit,omitempty"`
	HTTPTokens              string `json:"httpTokens,omitempty"`
}

// NetworkInterface is one interface of an instance. Type is "interface" or "efa-only".
type NetworkInterface struct {
	NetworkCardIndex int32  `json:"networkCardIndex"`
	DeviceIndex      int32  `json:"deviceIndex"`
	Type             string `json:"interfaceType"`
}

// ConnectionTrackingConfig holds idle timeouts in seconds; nil: EC2's default.
type ConnectionTrackingConfig struct {
	TCPEstablishedSeconds *int32 `json:"tcpEstablishedTimeout,omitempty"`
	UDPStreamSeconds      *int32 `json:"udpStreamTimeout,omitempty"`
	UDPSeconds            *int32 `json:"udpTimeout,omitempty"`
}

// NodeClassStatus is what a class resolved to (C-026 to C-039).
type NodeClassStatus struct {
	Subnets         []Subnet        `json:"subnets,omitempty"`
	SecurityGroups  []SecurityGroup `json:"securityGroups,omitempty"`
	AMIs            []AMI           `json:"amis,omitempty"`
	Reservations    []Reservation   `json:"capacityReservations,omitempty"`
	InstanceProfile string          `json:"instanceProfile,omitempty"`
	Conditions      Conditions      `json:"conditions,omitempty"`
}

// Subnet is a subnet that instances may be launched into. FreeIPs is not part of the API's status; it is known only in
// memory, right after EC2 was asked, and -1 otherwise.
type Subnet struct {
	ID      string `json:"id"`
	Zone    string `json:"zone"`
	ZoneID  string `json:"zoneID,omitempty"`
	FreeIPs int    `json:"freeIPs,omitempty"`
}

// SecurityGroup is a group that instances are put into.
type SecurityGroup struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// AMI is an image and the instance types that it is for.
type AMI struct {
	ID           string       `json:"id"`
	Name         string       `json:"name,omitempty"`
	Deprecated   bool         `json:"deprecated,omitempty"`
	Requirements []Expression `json:"requirements,omitempty"`
}

// Reservation is a capacity reservation that instances may be launched into. Available is known only in memory.
type Reservation struct {
	ID            string `json:"id"`
	InstanceType  string `json:"instanceType"`
	Zone          string `json:"zone"`
	MatchCriteria string `json:"instanceMatchCriteria,omitempty"`
	OwnerID       string `json:"ownerID,omitempty"`
	Kind          string `json:"reservationType,omitempty"` // default or capacity-block
	State         string `json:"state,omitempty"`
	EndUnix       int64  `json:"endTime,omitempty"`
	Interruptible bool   `json:"interruptible,omitempty"`
	Available     int    `json:"available,omitempty"`
}

// The conditions of an EC2NodeClass (C-032 to C-039), besides ValidationSucceeded and Ready.
const (
	ConditionAMIsReady            = "AMIsReady"
	ConditionSubnetsReady         = "SubnetsReady"
	ConditionSecurityGroupsReady  = "SecurityGroupsReady"
	ConditionInstanceProfileReady = "InstanceProfileReady"
	ConditionReservationsReady    = "CapacityReservationsReady"
	ConditionPlacementGroupReady  = "PlacementGroupReady"
)
