package catalog

import (
	"math"

	"treadle/shared/cluster"
)

// The names of the extended resources that a type may bring (S-198 to S-202).
const (
	resourceNVIDIA     = "nvidia.com/gpu"
	resourceAMD        = "amd.com/gpu"
	resourceGaudi      = "habana.ai/gaudi"
	resourceNeuron     = "aws.amazon.com/neuron"
	resourceNeuronCore = "aws.amazon.com/neuroncore"
	resourceEFA        = "vpc.amazonaws.com/efa"
	resourcePodENI     = "vpc.amazonaws.com/pod-eni"
	resourceWindowsIP  = "vpc.amazonaws.com/PrivateIPv4Address"
)

// defaultPods is the pod limit of families whose pods do not take addresses from interfaces (S-187).
const defaultPods = 110

// armFirmwareMiB is what the firmware of arm64 instances keeps before the machine starts (S-181).
const armFirmwareMiB = 64

func (v *view) capacity(t *Type, image cluster.AMI) cluster.Resources {
	out := cluster.Resources{
		MilliCPU:       t.VCPU * 1000,
		MemoryBytes:    v.memory(t, image),
		EphemeralBytes: v.ephemeral(t),
		Pods:           v.pods(t),
	}
	add := func(name string, n int64) {
		if n > 0 {
			out.Set(name, out.Get(name)+n)
		}
	}
	for _, d := range t.GPUs {
		switch d.Manufacturer {
		case "NVIDIA":
			add(resourceNVIDIA, d.Count)
		case "AMD":
			add(resourceAMD, d.Count)
		case "Habana":
			add(resourceGaudi, d.Count)
		}
	}
	if len(t.Accelerators) > 0 && t.Accelerators[0].Neuron {
		add(resourceNeuron, t.Accelerators[0].Count)
		add(resourceNeuronCore, t.Accelerators[0].Count*t.Accelerators[0].Cores)
	}
	add(resourceEFA, v.efas(t))
	add(resourcePodENI, t.BranchENIs)
	if v.family.windowsBuild != "" {
		add(resourceWindowsIP, t.IPv4PerENI-1)
	}
	return out
}

func (v *view) memory(t *Type, image cluster.AMI) int64 {
	if v.options.LearnedMemory != nil {
		if bytes, known := v.options.LearnedMemory(t.Name, image.ID); known {
			return bytes
		}
	}
	size := t.MemoryMiB
	if t.Arch == "arm64" {
		size -= armFirmwareMiB
	}
	kept := int64(math.Ceil(float64(size) * max(v.options.VMMemoryOverheadPercent, 0)))
	return (size - kept) * mib
}

func (v *view) pods(t *Type) int64 {
	kubelet := v.kubelet()
	pods := int64(defaultPods)
	switch {
	case kubelet.MaxPods != nil:
		pods = int64(*kubelet.MaxPods)
	case v.family.eniPods:
		pods = v.eniPods(t, v.options.ReservedENIs)
	}
	if kubelet.PodsPerCore != nil && *kubelet.PodsPerCore > 0 && v.family.podsPerCore {
		pods = min(pods, int64(*kubelet.PodsPerCore)*t.VCPU)
	}
	return pods
}

// eniPods is the number of pods to which the interfaces of the default network card can give addresses, and two that use the
// host's (S-185).
func (v *view) eniPods(t *Type, reserved int64) int64 {
	usable := t.ENIs - reserved
	for _, n := range v.class.Spec.NetworkInterfaces {
		if n.NetworkCardIndex == 0 && n.Type == "efa-only" {
			usable--
		}
	}
	if usable <= 0 {
		return 0
	}
	return usable*(t.IPv4PerENI-1) + 2
}

func (v *view) efas(t *Type) int64 {
	if len(v.class.Spec.NetworkInterfaces) == 0 {
		return t.EFAs
	}
	var n int64
	for _, one := range v.class.Spec.NetworkInterfaces {
		if one.Type == "efa-only" {
			n++
		}
	}
	return n
}

// ephemeral is the size of the disk that holds images and pods' files (S-189).
func (v *view) ephemeral(t *Type) int64 {
	spec := &v.class.Spec
	if spec.InstanceStorePolicy == "RAID0" && t.NVMeGB > 0 {
		return t.NVMeGB * gb
	}
	for _, d := range spec.BlockDevices {
		if d.RootVolume && d.VolumeSizeBytes > 0 {
			return d.VolumeSizeBytes
		}
	}
	for i, d := range spec.BlockDevices {
		last := i == len(spec.BlockDevices)-1
		ours := d.DeviceName == v.family.ephemeralDevice || v.family.ephemeralDevice == "" && last
		if ours && d.VolumeSizeBytes > 0 {
			return d.VolumeSizeBytes
		}
	}
	return v.family.ephemeralBytes
}

func (v *view) kubelet() cluster.Kubelet {
	if v.class.Spec.Kubelet == nil {
		return cluster.Kubelet{}
	}
	return *v.class.Spec.Kubelet
}

// overhead is what kubelet keeps from pods: kube-reserved, system-reserved and the hard eviction thresholds (S-190 to S-197).
// A value of the class that does not parse is ignored here; validation of the class reports it.
func (v *view) overhead(t *Type, capacity cluster.Resources) cluster.Resources {
	kubelet := v.kubelet()
	pods := capacity.Pods
	if v.family.eniMemory {
		pods = v.eniPods(t, 0)
	}
	reserved := cluster.Resources{
		MilliCPU:       reservedMilliCPU(capacity.MilliCPU),
		MemoryBytes:    (255 + 11*pods) * mib,
		EphemeralBytes: gib,
	}
	override(&reserved, kubelet.KubeReserved)
	var system cluster.Resources
	override(&system, kubelet.SystemReserved)
	evict := cluster.Resources{
		MemoryBytes:    100 * mib,
		EphemeralBytes: int64(math.Ceil(float64(capacity.EphemeralBytes) / 10)),
	}
	if n, ok := threshold(kubelet.EvictionHard["memory.available"], capacity.MemoryBytes); ok {
		evict.MemoryBytes = n
	}
	if n, ok := threshold(kubelet.EvictionHard["nodefs.available"], capacity.EphemeralBytes); ok {
		evict.EphemeralBytes = n
	}
	return reserved.Plus(system).Plus(evict)
}

func override(r *cluster.Resources, given map[string]string) {
	for name, text := range given {
		scale := 1.0
		if name == "cpu" {
			scale = 1000
		}
		n, ok := quantity(text, scale)
		if ok && (name == "cpu" || name == "memory" || name == "ephemeral-storage") {
			r.Set(name, n)
		}
	}
}

// reservedMilliCPU keeps 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest, each part
// rounded down (S-190).
func reservedMilliCPU(milliCPU int64) int64 {
	bands := []struct{ upTo, perTenThousand int64 }{{1000, 600}, {2000, 100}, {4000, 50}, {math.MaxInt64, 25}}
	var kept, from int64
	for _, b := range bands {
		kept += max(min(milliCPU, b.upTo)-from, 0) * b.perTenThousand / 10_000
		from = b.upTo
	}
	return kept
}
