package cluster

// Label, annotation, taint and finalizer keys of Karpenter's API and of Kubernetes that decide something in Treadle.
// Source: spec rows S-016, S-017, N-052 to N-074.
const (
	LabelNodePool     = "karpenter.sh/nodepool"
	LabelCapacityType = "karpenter.sh/capacity-type"
	LabelRegistered   = "karpenter.sh/registered"
	LabelInitialized  = "karpenter.sh/initialized"
	LabelNoTaintSync  = "karpenter.sh/do-not-sync-taints"
	LabelNodeClass    = "karpenter.k8s.aws/ec2nodeclass"

	LabelHostname     = "kubernetes.io/hostname"
	LabelArch         = "kubernetes.io/arch"
	LabelOS           = "kubernetes.io/os"
	LabelInstanceType = "node.kubernetes.io/instance-type"
	LabelWindowsBuild = "node.kubernetes.io/windows-build"
	LabelZone         = "topology.kubernetes.io/zone"
	LabelRegion       = "topology.kubernetes.io/region"
	LabelZoneID       = "topology.k8s.aws/zone-id"
	LabelExcludeLB    = "node.kubernetes.io/exclude-from-external-load-balancers"

	AnnotationDoNotDisrupt         = "karpenter.sh/do-not-disrupt"
	AnnotationNodePoolHash         = "karpenter.sh/nodepool-hash"
	AnnotationNodePoolHashVersion  = "karpenter.sh/nodepool-hash-version"
	AnnotationNodeClassHash        = "karpenter.k8s.aws/ec2nodeclass-hash"
	AnnotationNodeClassHashVersion = "karpenter.k8s.aws/ec2nodeclass-hash-version"
	AnnotationTerminationTimestamp = "karpenter.sh/nodeclaim-termination-timestamp"
	AnnotationMinValuesRelaxed     = "karpenter.sh/nodeclaim-min-values-relaxed"
	AnnotationTagged               = "karpenter.k8s.aws/tagged"
	AnnotationInstanceProfile      = "karpenter.k8s.aws/instance-profile-name"
	AnnotationPodDeletionCost      = "controller.kubernetes.io/pod-deletion-cost"

	// AnnotationLaunch holds the launch that a NodeClaim was created for (plan.Launch as JSON). It is written with the claim,
	// before EC2 is called, so that whoever finishes an interrupted launch repeats the very same request.
	AnnotationLaunch = "treadle.sh/launch"

	// TagLaunch is the EC2 tag that holds the client token of the launch that an instance came from.
	TagLaunch = "treadle.sh/launch"

	TaintUnregistered = "karpenter.sh/unregistered"
	TaintDisrupted    = "karpenter.sh/disrupted"
	TaintNotReady     = "node.kubernetes.io/not-ready"
	TaintUnreachable  = "node.kubernetes.io/unreachable"
	TaintCloudUninit  = "node.cloudprovider.kubernetes.io/uninitialized"
	// TaintReadinessPrefix starts the keys of taints that a readiness controller puts on a node while it starts (S-102).
	TaintReadinessPrefix = "readiness.k8s.io/"

	// FinalizerTermination keeps a Node and a NodeClaim until their instance is gone.
	FinalizerTermination = "karpenter.sh/termination"
	// FinalizerNodeClass keeps an EC2NodeClass until no NodeClaim uses it.
	FinalizerNodeClass = "karpenter.k8s.aws/termination"
)

// What the hash-version annotations say beside hashes of NodePools and EC2NodeClasses. Hashes of different versions are never compared
// (N-033, N-035, C-117).
const (
	HashVersionNodePool  = "v3"
	HashVersionNodeClass = "v5"
)

// CapacityType is how EC2 sells an instance.
type CapacityType string

// The capacity types, in the order in which a launch prefers them (L-016).
const (
	Reserved CapacityType = "reserved"
	Spot     CapacityType = "spot"
	OnDemand CapacityType = "on-demand"
)
