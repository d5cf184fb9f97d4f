package kubelet

import (
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// offer is what a node says it has, and what of it pods may use.
type offer struct {
	capacity, allocatable corev1.ResourceList
}

// resources computes what a machine of type t offers once b has configured its kubelet. Devices are
// left out: they appear when their plugin registers. An error means that kubelet refuses to start.
func resources(m Machine, t Type, b bootstrap) (offer, error) {
	pods := t.eniPods()
	if b.maxPods > 0 {
		pods = b.maxPods
	}
	if b.podsPerCore > 0 {
		pods = min(pods, b.podsPerCore*t.VCPU)
	}
	capacity := map[corev1.ResourceName]int64{
		corev1.ResourceCPU:              t.VCPU * 1000, // milli
		corev1.ResourceMemory:           memoryBytes(m, t),
		corev1.ResourceEphemeralStorage: storageBytes(m, t, b),
		corev1.ResourcePods:             pods,
	}
	kube, err := kubeReserved(t, b)
	if err != nil {
		return offer{}, err
	}
	system, err := reserve(nil, b.systemReserved)
	if err != nil {
		return offer{}, fmt.Errorf("read systemReserved: %w", err)
	}
	eviction, err := evictionReserved(b, capacity)
	if err != nil {
		return offer{}, err
	}

	o := offer{corev1.ResourceList{}, corev1.ResourceList{}}
	for name, has := range capacity {
		left := has - kube[name] - system[name]
		if left < 0 {
			return offer{}, fmt.Errorf("invalid node allocatable: %s reserves %d of %d", name, has-left, has)
		}
		o.capacity[name] = quantity(name, has)
		o.allocatable[name] = quantity(name, max(0, left-eviction[name]))
	}
	for _, pages := range []corev1.ResourceName{"hugepages-1Gi", "hugepages-2Mi"} {
		o.capacity[pages] = resource.Quantity{}
		o.allocatable[pages] = resource.Quantity{}
	}
	return o, nil
}

func quantity(name corev1.ResourceName, value int64) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(value, resource.DecimalSI)
	case corev1.ResourcePods:
		return *resource.NewQuantity(value, resource.DecimalSI)
	}
	return *resource.NewQuantity(value, resource.BinarySI)
}

// memoryBytes is what the guest's kernel sees: the hypervisor and the kernel keep a fixed part and a
// share, a little different for each type. The part stays below 7.5 %, the share that a cautious
// planner takes off; arm64 loses another 64 MiB to the allocator for contiguous memory.
func memoryBytes(m Machine, t Type) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(m.Type)) // never fails
	spread := int64(h.Sum32() % 1000)

	total := t.MemoryMiB * mib
	kept := 96*mib + total*(15+spread/100)/1000 + spread*kib
	kept = min(kept, total*74/1000)
	if t.Arch == "arm64" {
		kept += 63 * mib
	}
	has := total - kept
	has -= int64(m.Fault.MissingMemory * float64(has))
	return has / kib * kib
}

// storageBytes is the file system that holds pods: a volume, or all instance-store disks in one array.
func storageBytes(m Machine, t Type, b bootstrap) int64 {
	size := m.StorageGiB * gib
	if m.StorageGiB == 0 {
		size = 20 * gib
	}
	if b.raid0 && t.NVMeGB > 0 {
		size = t.NVMeGB * 1_000_000_000
	}
	return (size - size/1000) / kib * kib // the file system's own
}

// kubeReserved is what the image reserves for kubelet and the runtime, with the user's values over it.
func kubeReserved(t Type, b bootstrap) (map[corev1.ResourceName]int64, error) {
	// Amazon Linux counts the pods that the interfaces allow even where maxPods says otherwise.
	pods := t.eniPods()
	if b.family == Bottlerocket && b.maxPods > 0 {
		pods = b.maxPods
	}
	base := map[corev1.ResourceName]int64{
		corev1.ResourceCPU:              reservedMilliCPU(t.VCPU * 1000),
		corev1.ResourceMemory:           (255 + 11*pods) * mib,
		corev1.ResourceEphemeralStorage: gib,
	}
	if b.onlyReserved {
		base = nil
	}
	reserved, err := reserve(base, b.kubeReserved)
	if err != nil {
		return nil, fmt.Errorf("read kubeReserved: %w", err)
	}
	return reserved, nil
}

// reservedMilliCPU takes 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 %
// of the rest, each band rounded down.
func reservedMilliCPU(total int64) int64 {
	var reserved int64
	for _, band := range []struct{ from, to, per10000 int64 }{
		{0, 1000, 600}, {1000, 2000, 100}, {2000, 4000, 50}, {4000, total, 25},
	} {
		if total > band.from {
			reserved += (min(total, band.to) - band.from) * band.per10000 / 10000
		}
	}
	return reserved
}

// reserve lays the quantities of over upon base.
func reserve(base map[corev1.ResourceName]int64, over map[string]string) (map[corev1.ResourceName]int64, error) {
	reserved := map[corev1.ResourceName]int64{}
	maps.Copy(reserved, base)
	for key, text := range over {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", key, text, err)
		}
		if q.Sign() < 0 {
			return nil, fmt.Errorf("%s %q: negative", key, text)
		}
		switch name := corev1.ResourceName(key); name {
		case corev1.ResourceCPU:
			reserved[name] = q.MilliValue()
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			reserved[name] = q.Value()
		case "pid":
		default:
			return nil, fmt.Errorf("cannot reserve %q", key)
		}
	}
	return reserved, nil
}

// evictionReserved is what the hard eviction thresholds keep free.
func evictionReserved(b bootstrap, capacity map[corev1.ResourceName]int64) (map[corev1.ResourceName]int64, error) {
	thresholds := map[string]string{}
	if !b.onlyEviction {
		thresholds["memory.available"] = "100Mi"
		thresholds["nodefs.available"] = "10%"
	}
	maps.Copy(thresholds, b.evictionHard)
	reserved := map[corev1.ResourceName]int64{}
	for signal, value := range thresholds {
		name := map[string]corev1.ResourceName{
			"memory.available": corev1.ResourceMemory,
			"nodefs.available": corev1.ResourceEphemeralStorage,
		}[signal]
		amount, err := threshold(value, capacity[name])
		if err != nil {
			return nil, fmt.Errorf("read evictionHard %s: %w", signal, err)
		}
		if name != "" {
			reserved[name] = amount
		}
	}
	return reserved, nil
}

// threshold reads a quantity or a percentage of capacity. 0 % and 100 % turn the signal off.
func threshold(value string, capacity int64) (int64, error) {
	if text, ok := strings.CutSuffix(value, "%"); ok {
		percent, err := strconv.ParseFloat(text, 32)
		if err != nil || percent < 0 || percent > 100 {
			return 0, fmt.Errorf("%q is no percentage", value)
		}
		if percent == 100 {
			return 0, nil
		}
		return int64(float64(capacity) * float64(float32(percent)/100)), nil
	}
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", value, err)
	}
	if q.Sign() < 0 {
		return 0, fmt.Errorf("%q: negative", value)
	}
	return q.Value(), nil
}
