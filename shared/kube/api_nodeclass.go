package kube

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"treadle/shared/cluster"
	"treadle/shared/kube/fingerprint"
)

type wireNodeClass struct {
	typeMeta
	Metadata objectMeta      `json:"metadata"`
	Spec     wireClassSpec   `json:"spec"`
	Status   wireClassStatus `json:"status"`
}

type wireClassSpec struct {
	SubnetSelectorTerms              []wireSubnetTerm        `json:"subnetSelectorTerms,omitempty"`
	SecurityGroupSelectorTerms       []wireGroupTerm         `json:"securityGroupSelectorTerms,omitempty"`
	AMISelectorTerms                 []wireAMITerm           `json:"amiSelectorTerms,omitempty"`
	CapacityReservationSelectorTerms []wireReservationTerm   `json:"capacityReservationSelectorTerms,omitempty"`
	PlacementGroupSelector           *wirePlacement          `json:"placementGroupSelector,omitempty"`
	AMIFamily                        string                  `json:"amiFamily,omitempty"`
	UserData                         string                  `json:"userData,omitempty"`
	Role                             string                  `json:"role,omitempty"`
	InstanceProfile                  string                  `json:"instanceProfile,omitempty"`
	Tags                             map[string]string       `json:"tags,omitempty"`
	Kubelet                          *wireKubelet            `json:"kubelet,omitempty"`
	BlockDeviceMappings              []wireBlockDevice       `json:"blockDeviceMappings,omitempty"`
	InstanceStorePolicy              string                  `json:"instanceStorePolicy,omitempty"`
	DetailedMonitoring               bool                    `json:"detailedMonitoring,omitempty"`
	AssociatePublicIPAddress         *bool                   `json:"associatePublicIPAddress,omitempty"`
	IPPrefixCount                    *int32                  `json:"ipPrefixCount,omitempty"`
	MetadataOptions                  *wireMetadataOptions    `json:"metadataOptions,omitempty"`
	CPUOptions                       *wireCPUOptions         `json:"cpuOptions,omitempty"`
	NetworkInterfaces                []wireNetworkInterface  `json:"networkInterfaces,omitempty"`
	ConnectionTracking               *wireConnectionTracking `json:"connectionTracking,omitempty"`
	Context                          string                  `json:"context,omitempty"`
}

type wireSubnetTerm struct {
	Tags map[string]string `json:"tags,omitempty"`
	ID   string            `json:"id,omitempty"`
}

type wireGroupTerm struct {
	Tags map[string]string `json:"tags,omitempty"`
	ID   string            `json:"id,omitempty"`
	Name string            `json:"name,omitempty"`
}

type wireAMITerm struct {
	Alias        string            `json:"alias,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	ID           string            `json:"id,omitempty"`
	Name         string            `json:"name,omitempty"`
	Owner        string            `json:"owner,omitempty"`
	SSMParameter string            `json:"ssmParameter,omitempty"`
}

type wireReservationTerm struct {
	Tags                  map[string]string `json:"tags,omitempty"`
	ID                    string            `json:"id,omitempty"`
	OwnerID               string            `json:"ownerID,omitempty"`
	InstanceMatchCriteria string            `json:"instanceMatchCriteria,omitempty"`
}

type wirePlacement struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

type wireKubelet struct {
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

type wireBlockDevice struct {
	DeviceName string   `json:"deviceName,omitempty"`
	RootVolume bool     `json:"rootVolume,omitempty"`
	EBS        *wireEBS `json:"ebs,omitempty"`
}

type wireEBS struct {
	VolumeSize               string `json:"volumeSize,omitempty"`
	VolumeType               string `json:"volumeType,omitempty"`
	IOPS                     *int64 `json:"iops,omitempty"`
	Throughput               *int64 `json:"throughput,omitempty"`
	Encrypted                *bool  `json:"encrypted,omitempty"`
	KMSKeyID                 string `json:"kmsKeyID,omitempty"`
	DeleteOnTermination      *bool  `json:"deleteOnTermination,omitempty"`
	SnapshotID               string `json:"snapshotID,omitempty"`
	VolumeInitializationRate *int32 `json:"volumeInitializationRate,omitempty"`
}

type wireMetadataOptions struct {
	HTTPEndpoint            string `json:"httpEndpoint,omitempty"`
	HTTPProtocolIPv6        string `json:"httpProtocolIPv6,omitempty"`
	HTTPPutResponseHopLimit *int64 `json:"httpPutResponseHopLimit,omitempty"`
	HTTPTokens              string `json:"httpTokens,omitempty"`
}

type wireCPUOptions struct {
	NestedVirtualization string `json:"nestedVirtualization,omitempty"`
}

type wireNetworkInterface struct {
	NetworkCardIndex int32  `json:"networkCardIndex"`
	DeviceIndex      int32  `json:"deviceIndex"`
	InterfaceType    string `json:"interfaceType"`
}

type wireConnectionTracking struct {
	TCPEstablishedTimeout *int32 `json:"tcpEstablishedTimeout,omitempty"`
	UDPStreamTimeout      *int32 `json:"udpStreamTimeout,omitempty"`
	UDPTimeout            *int32 `json:"udpTimeout,omitempty"`
}

type wireClassStatus struct {
	Subnets              []wireSubnet      `json:"subnets,omitempty"`
	SecurityGroups       []wireGroup       `json:"securityGroups,omitempty"`
	AMIs                 []wireAMI         `json:"amis,omitempty"`
	CapacityReservations []wireReservation `json:"capacityReservations,omitempty"`
	InstanceProfile      string            `json:"instanceProfile,omitempty"`
	Conditions           []wireCondition   `json:"conditions,omitempty"`
}

type wireSubnet struct {
	ID     string `json:"id"`
	Zone   string `json:"zone"`
	ZoneID string `json:"zoneID,omitempty"`
}

type wireGroup struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

type wireAMI struct {
	ID           string           `json:"id"`
	Name         string           `json:"name,omitempty"`
	Deprecated   bool             `json:"deprecated,omitempty"`
	Requirements []wireExpression `json:"requirements"`
}

type wireReservation struct {
	ID                    string     `json:"id"`
	InstanceType          string     `json:"instanceType"`
	AvailabilityZone      string     `json:"availabilityZone"`
	InstanceMatchCriteria string     `json:"instanceMatchCriteria"`
	OwnerID               string     `json:"ownerID"`
	ReservationType       string     `json:"reservationType,omitempty"`
	State                 string     `json:"state,omitempty"`
	EndTime               *time.Time `json:"endTime,omitempty"`
	Interruptible         bool       `json:"interruptible"`
}

// nodeClassSource reads the classes of a cluster with the given certificate authority.
func nodeClassSource(authority []byte) source[cluster.NodeClass] {
	return source[cluster.NodeClass]{
		path: classesPath,
		json: true,
		decode: func(raw []byte, _ *interner) (meta, cluster.NodeClass, error) {
			return decodeNodeClass(raw, authority)
		},
		unversioned: func(c *cluster.NodeClass) { c.ResourceVersion = "" },
	}
}

func decodeNodeClass(raw, authority []byte) (meta, cluster.NodeClass, error) {
	var w wireNodeClass
	m, bad, err := decodeWire(raw, &w)
	if err != nil {
		return m, cluster.NodeClass{}, err
	}
	c := cluster.NodeClass{
		Name:            m.name,
		UID:             m.uid,
		ResourceVersion: m.resourceVersion(),
		Generation:      m.generation,
		Annotations:     m.annotations,
		Finalizers:      m.finalizers,
		DeletionUnix:    m.deletionUnix,
		Spec:            fromClassSpec(&w.Spec, &bad),
		Status:          fromClassStatus(&w.Status),
	}
	c.Hash = bad.hash(fingerprint.NodeClass(raw, authority))
	c.Invalid = bad.String()
	return m, c, nil
}

func fromClassSpec(w *wireClassSpec, bad *problems) cluster.NodeClassSpec {
	s := cluster.NodeClassSpec{
		AMIFamily:           w.AMIFamily,
		UserData:            w.UserData,
		Role:                w.Role,
		InstanceProfile:     w.InstanceProfile,
		Tags:                w.Tags,
		InstanceStorePolicy: w.InstanceStorePolicy,
		DetailedMonitoring:  w.DetailedMonitoring,
		AssociatePublicIP:   w.AssociatePublicIPAddress,
		IPPrefixCount:       w.IPPrefixCount,
		Context:             w.Context,
	}
	for _, t := range w.SubnetSelectorTerms {
		s.SubnetSelectorTerms = append(s.SubnetSelectorTerms, cluster.SelectorTerm{Tags: t.Tags, ID: t.ID})
	}
	for _, t := range w.SecurityGroupSelectorTerms {
		s.SecurityGroupSelectorTerms = append(s.SecurityGroupSelectorTerms, cluster.SelectorTerm{Tags: t.Tags, ID: t.ID, Name: t.Name})
	}
	for _, t := range w.AMISelectorTerms {
		s.AMISelectorTerms = append(s.AMISelectorTerms, cluster.SelectorTerm{
			Alias: t.Alias, Tags: t.Tags, ID: t.ID, Name: t.Name, Owner: t.Owner, SSMParameter: t.SSMParameter,
		})
	}
	for _, t := range w.CapacityReservationSelectorTerms {
		s.ReservationSelectorTerms = append(s.ReservationSelectorTerms, cluster.SelectorTerm{
			Tags: t.Tags, ID: t.ID, Owner: t.OwnerID, InstanceMatchCriteria: t.InstanceMatchCriteria,
		})
	}
	if p := w.PlacementGroupSelector; p != nil {
		s.PlacementGroup = &cluster.SelectorTerm{ID: p.ID, Name: p.Name}
	}
	if k := w.Kubelet; k != nil {
		kubelet := cluster.Kubelet(*k)
		s.Kubelet = &kubelet
		bad.kubelet(&kubelet)
	}
	for i, d := range w.BlockDeviceMappings {
		s.BlockDevices = append(s.BlockDevices, blockDevice(fmt.Sprintf("spec.blockDeviceMappings[%d]", i), d, bad))
	}
	if o := w.MetadataOptions; o != nil {
		options := cluster.MetadataOptions(*o)
		s.Metadata = &options
	}
	if w.CPUOptions != nil {
		s.NestedVirtualization = w.CPUOptions.NestedVirtualization
	}
	for _, n := range w.NetworkInterfaces {
		s.NetworkInterfaces = append(s.NetworkInterfaces, cluster.NetworkInterface{
			NetworkCardIndex: n.NetworkCardIndex, DeviceIndex: n.DeviceIndex, Type: n.InterfaceType,
		})
	}
	if t := w.ConnectionTracking; t != nil {
		s.ConnectionTracking = &cluster.ConnectionTrackingConfig{
			TCPEstablishedSeconds: t.TCPEstablishedTimeout, UDPStreamSeconds: t.UDPStreamTimeout, UDPSeconds: t.UDPTimeout,
		}
	}
	return s
}

func blockDevice(field string, d wireBlockDevice, bad *problems) cluster.BlockDevice {
	out := cluster.BlockDevice{DeviceName: d.DeviceName, RootVolume: d.RootVolume}
	e := d.EBS
	if e == nil {
		return out
	}
	if e.VolumeSize != "" {
		n, err := parseAmount(field+".ebs.volumeSize", "", e.VolumeSize)
		bad.add(err)
		out.VolumeSizeBytes = n
	}
	out.VolumeType, out.IOPS, out.Throughput, out.Encrypted = e.VolumeType, e.IOPS, e.Throughput, e.Encrypted
	out.KMSKeyID, out.DeleteOnTermination, out.SnapshotID = e.KMSKeyID, e.DeleteOnTermination, e.SnapshotID
	out.InitializationRate = e.VolumeInitializationRate
	return out
}

// kubelet checks what the kubelet configuration holds as text: quantities, percentages and durations.
func (p *problems) kubelet(k *cluster.Kubelet) {
	for field, reserved := range map[string]map[string]string{"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved} {
		for _, name := range sortedKeys(reserved) {
			_, err := parseAmount("spec.kubelet."+field+"."+name, name, reserved[name])
			p.add(err)
		}
	}
	for field, signals := range map[string]map[string]string{"evictionHard": k.EvictionHard, "evictionSoft": k.EvictionSoft} {
		for _, name := range sortedKeys(signals) {
			if !threshold(signals[name]) {
				p.add(fmt.Errorf("spec.kubelet.%s.%s: %q is neither a quantity nor a percentage", field, name, signals[name]))
			}
		}
	}
	for _, name := range sortedKeys(k.EvictionSoftGracePeriod) {
		text := k.EvictionSoftGracePeriod[name]
		if _, err := time.ParseDuration(text); err != nil {
			p.add(fmt.Errorf("spec.kubelet.evictionSoftGracePeriod.%s: %q is no duration", name, text))
		}
	}
}

func threshold(text string) bool {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(percent, 64)
		return err == nil && n >= 0 && n <= 100
	}
	_, err := resource.ParseQuantity(text)
	return err == nil
}

func fromClassStatus(w *wireClassStatus) cluster.NodeClassStatus {
	s := cluster.NodeClassStatus{InstanceProfile: w.InstanceProfile, Conditions: fromConditions(w.Conditions)}
	for _, n := range w.Subnets {
		s.Subnets = append(s.Subnets, cluster.Subnet{ID: n.ID, Zone: n.Zone, ZoneID: n.ZoneID, FreeIPs: -1})
	}
	for _, g := range w.SecurityGroups {
		s.SecurityGroups = append(s.SecurityGroups, cluster.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	for _, a := range w.AMIs {
		ami := cluster.AMI{ID: a.ID, Name: a.Name, Deprecated: a.Deprecated}
		for _, e := range a.Requirements {
			ami.Requirements = append(ami.Requirements, expression(e))
		}
		s.AMIs = append(s.AMIs, ami)
	}
	for _, r := range w.CapacityReservations {
		s.Reservations = append(s.Reservations, cluster.Reservation{
			ID: r.ID, InstanceType: r.InstanceType, Zone: r.AvailabilityZone, MatchCriteria: r.InstanceMatchCriteria, OwnerID: r.OwnerID,
			Kind: r.ReservationType, State: r.State, EndUnix: unix(r.EndTime), Interruptible: r.Interruptible,
		})
	}
	return s
}

func toClassStatus(s *cluster.NodeClassStatus) wireClassStatus {
	w := wireClassStatus{InstanceProfile: s.InstanceProfile, Conditions: toConditions(s.Conditions)}
	for _, n := range s.Subnets {
		w.Subnets = append(w.Subnets, wireSubnet{ID: n.ID, Zone: n.Zone, ZoneID: n.ZoneID})
	}
	for _, g := range s.SecurityGroups {
		w.SecurityGroups = append(w.SecurityGroups, wireGroup{ID: g.ID, Name: g.Name})
	}
	for _, a := range s.AMIs {
		ami := wireAMI{ID: a.ID, Name: a.Name, Deprecated: a.Deprecated, Requirements: []wireExpression{}}
		for _, e := range a.Requirements {
			ami.Requirements = append(ami.Requirements, toExpression(e))
		}
		w.AMIs = append(w.AMIs, ami)
	}
	for _, r := range s.Reservations {
		w.CapacityReservations = append(w.CapacityReservations, wireReservation{
			ID: r.ID, InstanceType: r.InstanceType, AvailabilityZone: r.Zone, InstanceMatchCriteria: r.MatchCriteria, OwnerID: r.OwnerID,
			ReservationType: r.Kind, State: r.State, EndTime: toTime(r.EndUnix), Interruptible: r.Interruptible,
		})
	}
	return w
}
