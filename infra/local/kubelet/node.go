package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	version       = "v1.37.2"
	leaseSeconds  = 40
	csiDriver     = "ebs.csi.aws.com"
	controllerAD  = "volumes.kubernetes.io/controller-managed-attach-detach"
	topologyZone  = "topology.ebs.csi.aws.com/zone"
	zoneIDLabel   = "topology.k8s.aws/zone-id"
	kubeletPort   = 10250
	archLabelBeta = "beta.kubernetes.io/arch"
	osLabelBeta   = "beta.kubernetes.io/os"
)

// node is one simulated kubelet. Its fields are guarded by the Fleet's mutex.
type node struct {
	Machine
	hardware Type
	boot     bootstrap
	name     string
	uid      types.UID
	state    State
	reason   string
	attempts int // of registering

	bootAt    time.Time
	readyAt   time.Time
	devicesAt time.Time
	reportAt  time.Time

	offer       offer
	allocatable amounts
	used        amounts
	devices     bool // plugins have registered
	conditions  []corev1.NodeCondition

	lease *coordinationv1.Lease
}

// registered says whether the Node exists and the kubelet lives.
func (n *node) registered() bool { return n.state == NotReady || n.state == Ready }

// runsPods says whether anything is done for the pods of the node.
func (n *node) runsPods() bool { return n.registered() && !n.Fault.Silent }

// configure reads the user data against the hardware. An error says why no kubelet comes up.
func (n *node) configure(cluster Cluster) error {
	b, err := parseUserData(n.Family, n.UserData)
	if err != nil {
		return err
	}
	if err := cluster.accepts(b); err != nil {
		return err
	}
	if err := checkLabels(b.labels); err != nil {
		return err
	}
	o, err := resources(n.Machine, n.hardware, b)
	if err != nil {
		return err
	}
	n.boot, n.offer, n.allocatable = b, o, amountsOf(o.allocatable)
	n.UserData = nil
	n.name = n.PrivateDNSName
	if b.instanceIDName {
		n.name = n.InstanceID
	}
	return nil
}

// checkLabels refuses what kubelet refuses in --node-labels: labels of Kubernetes' own domains, but
// for those that describe the node. NodeRestriction would refuse them as well.
func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		domain, _, ok := strings.Cut(key, "/")
		if !ok || !within(domain, "kubernetes.io") && !within(domain, "k8s.io") {
			continue
		}
		if within(domain, "kubelet.kubernetes.io") || within(domain, "node.kubernetes.io") {
			continue
		}
		switch key {
		case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
			corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
			corev1.LabelInstanceType, corev1.LabelOSStable, corev1.LabelArchStable, archLabelBeta, osLabelBeta:
			continue
		}
		return fmt.Errorf("check node-labels: %s is not for a kubelet to set", key)
	}
	return nil
}

func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// object is the Node as it registers: not ready, without devices.
func (n *node) object(now time.Time) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:                n.name,
		corev1.LabelOSStable:                "linux",
		corev1.LabelArchStable:              n.hardware.Arch,
		osLabelBeta:                         "linux",
		archLabelBeta:                       n.hardware.Arch,
		corev1.LabelInstanceTypeStable:      n.Type,
		corev1.LabelInstanceType:            n.Type,
		corev1.LabelTopologyZone:            n.Zone,
		corev1.LabelTopologyRegion:          n.Region,
		corev1.LabelFailureDomainBetaZone:   n.Zone,
		corev1.LabelFailureDomainBetaRegion: n.Region,
	}
	if n.ZoneID != "" {
		labels[zoneIDLabel] = n.ZoneID
	}
	maps.Copy(labels, n.boot.labels)
	n.observe(now, false)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        n.name,
			Labels:      labels,
			Annotations: map[string]string{controllerAD: "true"},
		},
		Spec: corev1.NodeSpec{
			ProviderID: "aws:///" + n.Zone + "/" + n.InstanceID,
			Taints:     n.boot.taints,
		},
		Status: corev1.NodeStatus{
			Capacity:    n.offer.capacity,
			Allocatable: n.offer.allocatable,
			Conditions:  n.conditions,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: n.PrivateIP},
				{Type: corev1.NodeInternalDNS, Address: n.PrivateDNSName},
				{Type: corev1.NodeHostName, Address: n.PrivateDNSName},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubeletPort}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               "ec2" + strings.TrimPrefix(n.InstanceID, "i-"),
				SystemUUID:              "ec2" + strings.TrimPrefix(n.InstanceID, "i-"),
				BootID:                  n.InstanceID,
				KernelVersion:           "6.12.40-63.114.amzn2023." + map[string]string{"arm64": "aarch64", "amd64": "x86_64"}[n.hardware.Arch],
				OSImage:                 osImage(n.boot.family),
				ContainerRuntimeVersion: "containerd://2.1.4",
				KubeletVersion:          version,
				OperatingSystem:         "linux",
				Architecture:            n.hardware.Arch,
			},
		},
	}
}

func osImage(f Family) string {
	switch f {
	case Bottlerocket:
		return "Bottlerocket OS 1.50.0 (aws-k8s-1.37)"
	case AL2:
		return "Amazon Linux 2"
	}
	return "Amazon Linux 2023"
}

// observe brings the conditions to their state at now and says whether any of them changed.
func (n *node) observe(now time.Time, ready bool) bool {
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
	want := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: status[false], Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: status[false], Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: status[false], Reason: "KubeletHasSufficientPID"},
		{Type: corev1.NodeReady, Status: status[ready], Reason: "KubeletReady", Message: "pods can run"},
	}
	if !ready {
		want[3].Reason, want[3].Message = "KubeletNotReady", "container network is not up"
	}
	for _, name := range slices.Sorted(maps.Keys(n.Fault.Conditions)) {
		want = append(want, corev1.NodeCondition{
			Type: corev1.NodeConditionType(name), Status: status[n.Fault.Conditions[name]], Reason: "Injected",
		})
	}
	changed := len(want) != len(n.conditions)
	for i := range want {
		w := &want[i]
		w.LastHeartbeatTime, w.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		for _, had := range n.conditions {
			if had.Type == w.Type && had.Status == w.Status {
				w.LastTransitionTime = had.LastTransitionTime
			}
		}
		changed = changed || w.LastTransitionTime.Time.Equal(now)
	}
	n.conditions = want
	return changed
}

// nodeReport is the part of a Node's status that a kubelet repeats.
type nodeReport struct {
	Conditions  []corev1.NodeCondition `json:"conditions"`
	Capacity    corev1.ResourceList    `json:"capacity,omitempty"`
	Allocatable corev1.ResourceList    `json:"allocatable,omitempty"`
}

// plugDevices adds what the device plugins of the hardware offer.
func (n *node) plugDevices() {
	o := offer{maps.Clone(n.offer.capacity), maps.Clone(n.offer.allocatable)}
	for name, count := range n.hardware.Devices {
		o.capacity[corev1.ResourceName(name)] = quantity(corev1.ResourcePods, count)
		o.allocatable[corev1.ResourceName(name)] = quantity(corev1.ResourcePods, count)
	}
	n.offer, n.allocatable, n.devices = o, amountsOf(o.allocatable), true
}

// owner refers to the Node from what belongs to it.
func (n *node) owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.uid}}
}

// csiNode lists the volume drivers of the node.
func (n *node) csiNode() *storagev1.CSINode {
	c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.name, OwnerReferences: n.owner()}}
	if slots := n.hardware.VolumeSlots; slots > 0 {
		c.Spec.Drivers = []storagev1.CSINodeDriver{{
			Name:         csiDriver,
			NodeID:       n.InstanceID,
			TopologyKeys: []string{corev1.LabelOSStable, corev1.LabelTopologyZone, topologyZone},
			Allocatable:  &storagev1.VolumeNodeResources{Count: &slots},
		}}
	}
	return c
}

// renewed is the lease to write at now.
func (n *node) renewed(now time.Time) *coordinationv1.Lease {
	lease := n.lease.DeepCopy()
	if lease == nil {
		seconds := int32(leaseSeconds)
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: corev1.NamespaceNodeLease, OwnerReferences: n.owner()},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds},
		}
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	return lease
}

func (n *node) status() Status {
	s := Status{
		Machine:                n.Machine,
		Name:                   n.name,
		State:                  n.state,
		Reason:                 n.reason,
		Pods:                   int(n.used[corev1.ResourcePods]),
		RequestedMilliCPU:      n.used[corev1.ResourceCPU],
		AllocatableMilliCPU:    n.allocatable[corev1.ResourceCPU],
		RequestedMemoryBytes:   n.used[corev1.ResourceMemory],
		AllocatableMemoryBytes: n.allocatable[corev1.ResourceMemory],
	}
	s.UserData = nil
	return s
}
