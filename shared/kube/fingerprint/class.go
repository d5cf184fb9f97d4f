package fingerprint

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EC2NodeClassSpec leaves the selectors out: what they select is compared instead.
type EC2NodeClassSpec struct {
	PlacementGroupSelector   *PlacementGroupSelector `json:"placementGroupSelector"`
	AssociatePublicIPAddress *bool                   `json:"associatePublicIPAddress"`
	AMISelectorTerms         []amiTerm               `json:"amiSelectorTerms" hash:"ignore"`
	AMIFamily                *string                 `json:"amiFamily" hash:"ignore"`
	UserData                 *string                 `json:"userData"`
	Role                     string                  `json:"role"`
	InstanceProfile          *string                 `json:"instanceProfile"`
	Tags                     map[string]string       `json:"tags"`
	Kubelet                  *KubeletConfiguration   `json:"kubelet"`
	BlockDeviceMappings      []*BlockDeviceMapping   `json:"blockDeviceMappings"`
	InstanceStorePolicy      *string                 `json:"instanceStorePolicy"`
	NetworkInterfaces        []*NetworkInterface     `json:"networkInterfaces"`
	DetailedMonitoring       *bool                   `json:"detailedMonitoring"`
	MetadataOptions          *MetadataOptions        `json:"metadataOptions"`
	ConnectionTracking       *ConnectionTracking     `json:"connectionTracking"`
	Context                  *string                 `json:"context"`
	CPUOptions               *CPUOptions             `json:"cpuOptions"`
}

type amiTerm struct {
	Alias string `json:"alias"`
}

// PlacementGroupSelector names the placement group of the instances.
type PlacementGroupSelector struct {
	Name *string `json:"name"`
	ID   *string `json:"id"`
}

// KubeletConfiguration is what a class sets of kubelet's configuration.
type KubeletConfiguration struct {
	ClusterDNS                  []string                   `json:"clusterDNS"`
	MaxPods                     *int32                     `json:"maxPods"`
	PodsPerCore                 *int32                     `json:"podsPerCore"`
	SystemReserved              map[string]string          `json:"systemReserved"`
	KubeReserved                map[string]string          `json:"kubeReserved"`
	EvictionHard                map[string]string          `json:"evictionHard"`
	EvictionSoft                map[string]string          `json:"evictionSoft"`
	EvictionSoftGracePeriod     map[string]metav1.Duration `json:"evictionSoftGracePeriod"`
	EvictionMaxPodGracePeriod   *int32                     `json:"evictionMaxPodGracePeriod"`
	ImageGCHighThresholdPercent *int32                     `json:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent  *int32                     `json:"imageGCLowThresholdPercent"`
	CPUCFSQuota                 *bool                      `json:"cpuCFSQuota"`
}

// BlockDeviceMapping is a volume of the instances.
type BlockDeviceMapping struct {
	DeviceName *string      `json:"deviceName"`
	EBS        *BlockDevice `json:"ebs"`
	RootVolume bool         `json:"rootVolume"`
}

// BlockDevice is an EBS volume.
type BlockDevice struct {
	DeleteOnTermination      *bool              `json:"deleteOnTermination"`
	Encrypted                *bool              `json:"encrypted"`
	IOPS                     *int64             `json:"iops"`
	KMSKeyID                 *string            `json:"kmsKeyID"`
	SnapshotID               *string            `json:"snapshotID"`
	Throughput               *int64             `json:"throughput"`
	VolumeInitializationRate *int32             `json:"volumeInitializationRate"`
	VolumeSize               *resource.Quantity `json:"volumeSize" hash:"string"`
	VolumeType               *string            `json:"volumeType"`
}

// NetworkInterface is a network interface of the instances.
type NetworkInterface struct {
	NetworkCardIndex int32  `json:"networkCardIndex"`
	DeviceIndex      int32  `json:"deviceIndex"`
	InterfaceType    string `json:"interfaceType"`
}

// MetadataOptions says how instances reach their metadata.
type MetadataOptions struct {
	HTTPEndpoint            *string `json:"httpEndpoint"`
	HTTPProtocolIPv6        *string `json:"httpProtocolIPv6"`
	HTTPPutResponseHopLimit *int64  `json:"httpPutResponseHopLimit"`
	HTTPTokens              *string `json:"httpTokens"`
}

// ConnectionTracking holds the timeouts of tracked connections in seconds.
type ConnectionTracking struct {
	TCPEstablishedTimeout *int32 `json:"tcpEstablishedTimeout"`
	UDPStreamTimeout      *int32 `json:"udpStreamTimeout"`
	UDPTimeout            *int32 `json:"udpTimeout"`
}

// CPUOptions are options of the instances' processors.
type CPUOptions struct {
	NestedVirtualization *string `json:"nestedVirtualization"`
}

// NodeClass returns the hash of an EC2NodeClass, which is given as JSON, in a cluster whose certificate authority is given in PEM; it is of
// version cluster.HashVersionNodeClass.
func NodeClass(object, authority []byte) (string, error) {
	var class struct {
		Spec EC2NodeClassSpec `json:"spec"`
	}
	if err := json.Unmarshal(object, &class); err != nil {
		return "", fmt.Errorf("hash of an ec2nodeclass: %w", err)
	}
	return sum([]any{class.Spec, class.Spec.family(), base64.StdEncoding.EncodeToString(authority)})
}

// family is the image family given, or that of the alias as Karpenter spells it.
func (s EC2NodeClassSpec) family() string {
	if s.AMIFamily != nil {
		return *s.AMIFamily
	}
	for _, term := range s.AMISelectorTerms {
		name, _, found := strings.Cut(term.Alias, "@")
		if !found {
			continue
		}
		for _, known := range []string{"AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025"} {
			if strings.EqualFold(name, known) {
				return known
			}
		}
		return name
	}
	return "Custom"
}
