package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/catalog"
	"treadle/shared/cluster"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

func m5Large() catalog.Type {
	return catalog.Type{
		Name: "m5.large", Arch: "amd64", VCPU: 2, MemoryMiB: 8192, CPUManufacturer: "Intel", ClockMHz: 3100,
		ENIs: 3, IPv4PerENI: 10, BranchENIs: 9, Mbps: 750, EBSMbps: 4750, Hypervisor: "nitro",
		OnDemand: true, Spot: true, OnDemandMicroUSDPerHour: 96000,
		Zones: []catalog.Zone{{Name: "us-east-1a", SpotMicroUSDPerHour: 40000}, {Name: "us-east-1b"}},
	}
}

func g5() catalog.Type {
	return catalog.Type{
		Name: "g5.xlarge", Arch: "amd64", VCPU: 4, MemoryMiB: 16384, CPUManufacturer: "AMD", ENIs: 4, IPv4PerENI: 15,
		NVMeGB: 250, Hypervisor: "nitro", OnDemand: true, OnDemandMicroUSDPerHour: 1_006_000,
		GPUs:  []catalog.Device{{Name: "A10G", Manufacturer: "NVIDIA", Count: 1, MemoryMiB: 22888}},
		Zones: []catalog.Zone{{Name: "us-east-1a"}},
	}
}

func m7g() catalog.Type {
	return catalog.Type{
		Name: "m7g.large", Arch: "arm64", VCPU: 2, MemoryMiB: 8192, CPUManufacturer: "AWS", ENIs: 3, IPv4PerENI: 10,
		Hypervisor: "nitro", EncryptsInTransit: true, OnDemand: true, OnDemandMicroUSDPerHour: 81600,
		Zones: []catalog.Zone{{Name: "us-east-1a"}},
	}
}

// class is an AL2023 class with images for amd64 without devices and for NVIDIA, and with subnets in zones a and b.
func class(change ...func(*cluster.NodeClass)) cluster.NodeClass {
	arch := cluster.Expression{Key: cluster.LabelArch, Operator: cluster.In, Values: []string{"amd64"}}
	c := cluster.NodeClass{
		Name: "default",
		Spec: cluster.NodeClassSpec{AMISelectorTerms: []cluster.SelectorTerm{{Alias: "al2023@latest"}}},
		Status: cluster.NodeClassStatus{
			Subnets: []cluster.Subnet{{ID: "subnet-a", Zone: "us-east-1a", ZoneID: "use1-az1"}, {ID: "subnet-b", Zone: "us-east-1b", ZoneID: "use1-az2"}},
			AMIs: []cluster.AMI{
				{ID: "ami-standard", Requirements: []cluster.Expression{arch, {Key: "karpenter.k8s.aws/instance-gpu-count", Operator: cluster.DoesNotExist}}},
				{ID: "ami-nvidia", Requirements: []cluster.Expression{arch, {Key: "karpenter.k8s.aws/instance-gpu-manufacturer", Operator: cluster.In, Values: []string{"nvidia"}}}},
			},
		},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func family(name string) func(*cluster.NodeClass) {
	return func(c *cluster.NodeClass) { c.Spec.AMIFamily, c.Spec.AMISelectorTerms = name, nil }
}

func kubelet(k cluster.Kubelet) func(*cluster.NodeClass) {
	return func(c *cluster.NodeClass) { c.Spec.Kubelet = &k }
}

func one(t *testing.T, of catalog.Type, c cluster.NodeClass, o catalog.Options) cluster.InstanceType {
	t.Helper()
	all := catalog.InstanceTypes(catalog.Catalog{Region: "us-east-1", Types: []catalog.Type{of}}, c, o)
	require.Len(t, all, 1)
	return all[0]
}

func TestInstanceTypes_Capacity(t *testing.T) {
	t.Parallel()
	pods := func(n int32) *int32 { return &n }
	for name, tt := range map[string]struct {
		of      catalog.Type
		class   cluster.NodeClass
		options catalog.Options
		want    cluster.Resources
	}{
		"pods follow interfaces, memory loses what the hypervisor takes": {
			of: m5Large(), class: class(),
			want: cluster.Resources{
				MilliCPU: 2000, MemoryBytes: (8192 - 615) * mib, EphemeralBytes: 20 * gib, Pods: 29,
				Extended: map[string]int64{"vpc.amazonaws.com/pod-eni": 9},
			},
		},
		"arm64 loses 64 MiB before the share is taken": {
			of: m7g(), class: class(),
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 20 * gib, Pods: 29},
		},
		"a negative share takes nothing": {
			of: m7g(), class: class(), options: catalog.Options{VMMemoryOverheadPercent: -1},
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: 8128 * mib, EphemeralBytes: 20 * gib, Pods: 29},
		},
		"learned memory replaces the estimate": {
			of: m7g(), class: class(func(c *cluster.NodeClass) { c.Status.AMIs = []cluster.AMI{{ID: "ami-1"}} }),
			options: catalog.Options{LearnedMemory: func(instanceType, image string) (int64, bool) {
				return 7777 * mib, instanceType == "m7g.large" && image == "ami-1"
			}},
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: 7777 * mib, EphemeralBytes: 20 * gib, Pods: 29},
		},
		"a reserved interface gives no addresses to pods": {
			of: m7g(), class: class(), options: catalog.Options{ReservedENIs: 1},
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 20 * gib, Pods: 20},
		},
		"no interface left means no pods": {
			of: m7g(), class: class(), options: catalog.Options{ReservedENIs: 3},
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 20 * gib},
		},
		"maxPods wins over interfaces": {
			of: m7g(), class: class(kubelet(cluster.Kubelet{MaxPods: pods(110)})),
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 20 * gib, Pods: 110},
		},
		"podsPerCore caps pods": {
			of: m7g(), class: class(kubelet(cluster.Kubelet{PodsPerCore: pods(4)})),
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 20 * gib, Pods: 8},
		},
		"Bottlerocket ignores podsPerCore and keeps files on its second disk": {
			of: m7g(), class: class(family("Bottlerocket"), kubelet(cluster.Kubelet{PodsPerCore: pods(4)}), func(c *cluster.NodeClass) {
				c.Spec.BlockDevices = []cluster.BlockDevice{{DeviceName: "/dev/xvda", VolumeSizeBytes: 4 * gib}, {DeviceName: "/dev/xvdb", VolumeSizeBytes: 77 * gib}}
			}),
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 77 * gib, Pods: 29},
		},
		"Windows has 110 pods, a larger disk and addresses as a resource": {
			of: m5Large(), class: class(family("Windows2022")),
			want: cluster.Resources{
				MilliCPU: 2000, MemoryBytes: (8192 - 615) * mib, EphemeralBytes: 50 * gib, Pods: 110,
				Extended: map[string]int64{"vpc.amazonaws.com/pod-eni": 9, "vpc.amazonaws.com/PrivateIPv4Address": 9},
			},
		},
		"the root volume decides where one is marked": {
			of: m7g(), class: class(func(c *cluster.NodeClass) {
				c.Spec.BlockDevices = []cluster.BlockDevice{{DeviceName: "/dev/xvda", VolumeSizeBytes: 4 * gib}, {DeviceName: "/dev/sdf", VolumeSizeBytes: 9 * gib, RootVolume: true}}
			}),
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 9 * gib, Pods: 29},
		},
		"a custom image's last volume holds the files": {
			of: m7g(), class: class(family("Custom"), func(c *cluster.NodeClass) {
				c.Spec.BlockDevices = []cluster.BlockDevice{{DeviceName: "/dev/a", VolumeSizeBytes: 4 * gib}, {DeviceName: "/dev/b", VolumeSizeBytes: 9 * gib}}
			}),
			want: cluster.Resources{MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 9 * gib, Pods: 29},
		},
		"RAID0 makes local disks the place for files": {
			of: g5(), class: class(func(c *cluster.NodeClass) { c.Spec.InstanceStorePolicy = "RAID0" }),
			want: cluster.Resources{
				MilliCPU: 4000, MemoryBytes: (16384 - 1229) * mib, EphemeralBytes: 250e9, Pods: 58,
				Extended: map[string]int64{"nvidia.com/gpu": 1},
			},
		},
		"Neuron devices count as devices and as cores": {
			of: func() catalog.Type {
				inf2 := m7g()
				inf2.Accelerators = []catalog.Device{{Name: "Inferentia2", Manufacturer: "AWS", Count: 6, Cores: 2, Neuron: true}}
				inf2.EFAs = 1
				return inf2
			}(),
			class: class(),
			want: cluster.Resources{
				MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 20 * gib, Pods: 29,
				Extended: map[string]int64{"aws.amazon.com/neuron": 6, "aws.amazon.com/neuroncore": 12, "vpc.amazonaws.com/efa": 1},
			},
		},
		"interfaces for EFA alone carry no pods and are what there is of EFA": {
			of: func() catalog.Type {
				big := m7g()
				big.EFAs, big.CardENIs = 4, []int{3, 3}
				return big
			}(),
			class: class(func(c *cluster.NodeClass) {
				c.Spec.NetworkInterfaces = []cluster.NetworkInterface{{Type: "interface"}, {DeviceIndex: 1, Type: "efa-only"}, {NetworkCardIndex: 1, DeviceIndex: 1, Type: "efa-only"}}
			}),
			want: cluster.Resources{
				MilliCPU: 2000, MemoryBytes: (8128 - 610) * mib, EphemeralBytes: 20 * gib, Pods: 20,
				Extended: map[string]int64{"vpc.amazonaws.com/efa": 2},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, one(t, tt.of, tt.class, tt.options).Capacity)
		})
	}
}

func TestInstanceTypes_Overhead(t *testing.T) {
	t.Parallel()
	pods := func(n int32) *int32 { return &n }
	disk := 20*gib/10 + gib
	for name, tt := range map[string]struct {
		class cluster.NodeClass
		want  cluster.Resources
	}{
		"kube-reserved, nothing for the system, 100 MiB and a tenth of the disk": {
			class: class(),
			want:  cluster.Resources{MilliCPU: 70, MemoryBytes: (255 + 11*29 + 100) * mib, EphemeralBytes: disk},
		},
		"memory follows interfaces even where maxPods is given": {
			class: class(kubelet(cluster.Kubelet{MaxPods: pods(8)})),
			want:  cluster.Resources{MilliCPU: 70, MemoryBytes: (255 + 11*29 + 100) * mib, EphemeralBytes: disk},
		},
		"Bottlerocket's memory follows maxPods": {
			class: class(family("Bottlerocket"), kubelet(cluster.Kubelet{MaxPods: pods(8)})),
			want:  cluster.Resources{MilliCPU: 70, MemoryBytes: (255 + 11*8 + 100) * mib, EphemeralBytes: disk},
		},
		"given values replace by resource, system-reserved is added, soft thresholds do not count": {
			class: class(kubelet(cluster.Kubelet{
				KubeReserved:   map[string]string{"cpu": "0.2", "pid": "1000"},
				SystemReserved: map[string]string{"memory": "1Gi", "cpu": "100m", "ephemeral-storage": "1G"},
				EvictionHard:   map[string]string{"memory.available": "5%", "nodefs.available": "3Gi"},
				EvictionSoft:   map[string]string{"memory.available": "50%"},
			})),
			want: cluster.Resources{
				MilliCPU:       300,
				MemoryBytes:    (255+11*29)*mib + gib + 397_253_018, // 5 % of 7577 MiB, rounded up
				EphemeralBytes: gib + 1e9 + 3*gib,
			},
		},
		"100 % switches a threshold off": {
			class: class(kubelet(cluster.Kubelet{EvictionHard: map[string]string{"memory.available": "100%", "nodefs.available": "100%"}})),
			want:  cluster.Resources{MilliCPU: 70, MemoryBytes: (255 + 11*29) * mib, EphemeralBytes: gib},
		},
		"what does not parse is ignored": {
			class: class(kubelet(cluster.Kubelet{
				KubeReserved: map[string]string{"cpu": "many"}, EvictionHard: map[string]string{"memory.available": "-3%", "nodefs.available": "1Zi"},
			})),
			want: cluster.Resources{MilliCPU: 70, MemoryBytes: (255 + 11*29 + 100) * mib, EphemeralBytes: disk},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := one(t, m5Large(), tt.class, catalog.Options{})
			require.Equal(t, tt.want, got.Overhead)
			require.Equal(t, got.Capacity, got.Allocatable.Plus(got.Overhead))
		})
	}
}

func TestInstanceTypes_ReservesCPUInBands(t *testing.T) {
	t.Parallel()
	for vcpu, want := range map[int64]int64{1: 60, 2: 70, 4: 80, 8: 90, 16: 110, 64: 230, 192: 550} {
		of := m5Large()
		of.VCPU = vcpu
		require.Equal(t, want, one(t, of, class(), catalog.Options{}).Overhead.MilliCPU, "%d vCPUs", vcpu)
	}
}

func TestInstanceTypes_Labels(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]string{
		"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
		"node.kubernetes.io/instance-type": "g5.xlarge", "topology.kubernetes.io/region": "us-east-1",
		"karpenter.k8s.aws/instance-category": "g", "karpenter.k8s.aws/instance-generation": "5",
		"karpenter.k8s.aws/instance-family": "g5", "karpenter.k8s.aws/instance-size": "xlarge",
		"karpenter.k8s.aws/instance-capability-flex": "false", "karpenter.k8s.aws/instance-hypervisor": "nitro",
		"karpenter.k8s.aws/instance-encryption-in-transit-supported": "false",
		"karpenter.k8s.aws/instance-cpu":                             "4", "karpenter.k8s.aws/instance-cpu-manufacturer": "amd",
		"karpenter.k8s.aws/instance-memory": "16384", "karpenter.k8s.aws/instance-local-nvme": "250",
		"karpenter.k8s.aws/instance-gpu-name": "a10g", "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
		"karpenter.k8s.aws/instance-gpu-count": "1", "karpenter.k8s.aws/instance-gpu-memory": "22888",
	}, one(t, g5(), class(), catalog.Options{}).Labels, "what a type lacks is no label")

	for name, want := range map[string][2]string{
		"m5dn.large": {"m", "5"}, "u-6tb1.metal": {"u", "1"}, "u7i-12tb.224xlarge": {"u", "7"}, "x2iedn.32xlarge": {"x", "2"},
		"inf2.xlarge": {"inf", "2"}, "c7i-flex.large": {"c", "7"}, "trn1n.32xlarge": {"trn", "1"}, "mac2-m2.metal": {"mac", "2"},
	} {
		of := m5Large()
		of.Name = name
		got := one(t, of, class(), catalog.Options{}).Labels
		require.Equal(t, want, [2]string{got["karpenter.k8s.aws/instance-category"], got["karpenter.k8s.aws/instance-generation"]}, name)
	}

	metal := m5Large()
	metal.Hypervisor = ""
	hypervisor, there := one(t, metal, class(), catalog.Options{}).Labels["karpenter.k8s.aws/instance-hypervisor"]
	require.True(t, there)
	require.Empty(t, hypervisor)

	windows := one(t, m5Large(), class(family("Windows2022")), catalog.Options{}).Labels
	require.Equal(t, "windows", windows["kubernetes.io/os"])
	require.Equal(t, "10.0.20348", windows["node.kubernetes.io/windows-build"])
	require.NotContains(t, one(t, m7g(), class(family("Windows2022")), catalog.Options{}).Labels, "kubernetes.io/os")

	two := g5()
	two.GPUs = append(two.GPUs, catalog.Device{Name: "Other", Manufacturer: "NVIDIA", Count: 1})
	require.NotContains(t, one(t, two, class(), catalog.Options{}).Labels, "karpenter.k8s.aws/instance-gpu-name", "two kinds are no one kind")
}

func TestInstanceTypes_Offerings(t *testing.T) {
	t.Parallel()
	available := func(it cluster.InstanceType) []string {
		var out []string
		for _, o := range it.Offerings {
			if o.Available {
				out = append(out, o.Zone+" "+string(o.CapacityType))
			}
		}
		return out
	}
	require.Equal(t, []cluster.Offering{
		{Zone: "us-east-1a", ZoneID: "use1-az1", CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: 96000, Available: true},
		{Zone: "us-east-1a", ZoneID: "use1-az1", CapacityType: cluster.Spot, PriceMicroUSDPerHour: 40000, Available: true},
		{Zone: "us-east-1b", ZoneID: "use1-az2", CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: 96000, Available: true},
		{Zone: "us-east-1b", ZoneID: "use1-az2", CapacityType: cluster.Spot, Available: false},
	}, one(t, m5Large(), class(), catalog.Options{}).Offerings, "no Spot price was seen in zone b")

	conn := int32(60)
	for name, tt := range map[string]struct {
		of      catalog.Type
		class   cluster.NodeClass
		options catalog.Options
		want    []string
	}{
		"a zone without subnet has nothing to offer": {
			of: m5Large(), class: class(func(c *cluster.NodeClass) { c.Status.Subnets = c.Status.Subnets[1:] }),
			want: []string{"us-east-1b on-demand"},
		},
		"a type without image has nothing to offer": {of: m7g(), class: class()},
		"a type with devices takes the image for them": {
			of: g5(), class: class(), want: []string{"us-east-1a on-demand"},
		},
		"what was refused is not offered": {
			of: m5Large(), class: class(),
			options: catalog.Options{Refused: func(instanceType, place string, kind cluster.CapacityType) bool {
				return instanceType == "m5.large" && place == "us-east-1a" && kind == cluster.OnDemand
			}},
			want: []string{"us-east-1a spot", "us-east-1b on-demand"},
		},
		"a1 does not boot AL2023": {
			of: func() catalog.Type {
				a1 := m5Large()
				a1.Name = "a1.large"
				return a1
			}(),
			class: class(),
		},
		"nested virtualisation has to be there if asked for": {
			of: m5Large(), class: class(func(c *cluster.NodeClass) { c.Spec.NestedVirtualization = "enabled" }),
		},
		"connection tracking is for Nitro": {
			of: func() catalog.Type {
				old := m5Large()
				old.Hypervisor = "xen"
				return old
			}(),
			class: class(func(c *cluster.NodeClass) {
				c.Spec.ConnectionTracking = &cluster.ConnectionTrackingConfig{UDPSeconds: &conn}
			}),
		},
		"a type with one network card cannot take interfaces on two": {
			of: m5Large(), class: class(func(c *cluster.NodeClass) {
				c.Spec.NetworkInterfaces = []cluster.NetworkInterface{{Type: "interface"}, {NetworkCardIndex: 1, DeviceIndex: 1, Type: "interface"}}
			}),
		},
		"a type without EFA cannot take an interface for it": {
			of: m5Large(), class: class(func(c *cluster.NodeClass) {
				c.Spec.NetworkInterfaces = []cluster.NetworkInterface{{Type: "interface"}, {DeviceIndex: 1, Type: "efa-only"}}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, available(one(t, tt.of, tt.class, tt.options)))
		})
	}
}

func TestInstanceTypes_ReservedOfferings(t *testing.T) {
	t.Parallel()
	reserved := class(func(c *cluster.NodeClass) {
		c.Status.Reservations = []cluster.Reservation{
			{ID: "cr-full", InstanceType: "g5.xlarge", Zone: "us-east-1a"},
			{ID: "cr-room", InstanceType: "g5.xlarge", Zone: "us-east-1a", Available: 3},
			{ID: "cr-far", InstanceType: "g5.xlarge", Zone: "us-east-1f", Available: 3},
			{ID: "cr-other", InstanceType: "p5.48xlarge", Zone: "us-east-1a", Available: 3},
		}
	})
	find := func(o catalog.Options) map[string]bool {
		out := map[string]bool{}
		for _, offering := range one(t, g5(), reserved, o).Offerings {
			if offering.CapacityType == cluster.Reserved {
				require.Less(t, offering.PriceMicroUSDPerHour, int64(2), "what is paid for is almost free")
				out[offering.ReservationID] = offering.Available
			}
		}
		return out
	}
	require.Equal(t, map[string]bool{"cr-full": false, "cr-room": true}, find(catalog.Options{}))
	require.Equal(t, map[string]bool{"cr-full": false, "cr-room": false},
		find(catalog.Options{Refused: func(_, place string, _ cluster.CapacityType) bool { return place == "cr-room" }}))
}
