package kubelet

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// hardware describes the instance types of the tests.
func hardware(instanceType string) (Type, bool) {
	t, ok := map[string]Type{
		"m5.large":    {VCPU: 2, MemoryMiB: 8192, Arch: "amd64", ENIs: 3, IPv4PerENI: 10},
		"m5.metal":    {VCPU: 96, MemoryMiB: 393216, Arch: "amd64", ENIs: 15, IPv4PerENI: 50},
		"t3.medium":   {VCPU: 2, MemoryMiB: 4096, Arch: "amd64", ENIs: 3, IPv4PerENI: 6},
		"m6gd.xlarge": {VCPU: 4, MemoryMiB: 16384, Arch: "arm64", ENIs: 4, IPv4PerENI: 15, NVMeGB: 237},
		"g4dn.xlarge": {VCPU: 4, MemoryMiB: 16384, Arch: "amd64", ENIs: 3, IPv4PerENI: 10, NVMeGB: 125, Devices: map[string]int64{"nvidia.com/gpu": 1}, VolumeSlots: 25},
	}[instanceType]
	return t, ok
}

// known is hardware for types that the tests are sure of.
func known(instanceType string) Type {
	t, _ := hardware(instanceType)
	return t
}

// TestResources_PublishedFigures holds the formula against allocatable figures of real EKS nodes.
func TestResources_PublishedFigures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		instanceType  string
		boot          bootstrap
		pods          int64
		milliCPU      int64 // allocatable
		memoryMissing int64 // capacity − allocatable, MiB
	}{
		"AL2023 m5.large has 29 pods and 1930m":            {"m5.large", bootstrap{family: AL2023}, 29, 1930, 255 + 11*29 + 100},
		"AL2023 t3.medium has 17 pods":                     {"t3.medium", bootstrap{family: AL2023}, 17, 1930, 255 + 11*17 + 100},
		"AL2023 m5.metal has 737 pods and 95690m":          {"m5.metal", bootstrap{family: AL2023}, 737, 95690, 255 + 11*737 + 100},
		"AL2023 m6gd.xlarge has 58 pods and 3920m":         {"m6gd.xlarge", bootstrap{family: AL2023}, 58, 3920, 255 + 11*58 + 100},
		"AL2023 reserves for the ENI pods despite maxPods": {"m5.large", bootstrap{family: AL2023, maxPods: 110}, 110, 1930, 255 + 11*29 + 100},
		"Bottlerocket reserves for maxPods":                {"m5.large", bootstrap{family: Bottlerocket, maxPods: 110}, 110, 1930, 255 + 11*110 + 100},
		"podsPerCore lowers the pods":                      {"m5.large", bootstrap{family: AL2023, podsPerCore: 4}, 8, 1930, 255 + 11*29 + 100},
		"podsPerCore does not raise the pods":              {"m5.large", bootstrap{family: AL2023, podsPerCore: 40}, 29, 1930, 255 + 11*29 + 100},
		"kubeReserved replaces one resource": {"m5.large",
			bootstrap{family: AL2023, kubeReserved: map[string]string{"cpu": "100m"}}, 29, 1900, 255 + 11*29 + 100},
		"kubeReserved as a flag replaces all": {"m5.large",
			bootstrap{family: AL2, kubeReserved: map[string]string{"cpu": "100m"}, onlyReserved: true}, 29, 1900, 100},
		"systemReserved adds": {"m5.large",
			bootstrap{family: AL2023, systemReserved: map[string]string{"cpu": "130m", "memory": "1Gi", "pid": "100"}}, 29, 1800, 255 + 11*29 + 100 + 1024},
		"evictionHard replaces the threshold": {"m5.large",
			bootstrap{family: AL2023, evictionHard: map[string]string{"memory.available": "500Mi"}}, 29, 1930, 255 + 11*29 + 500},
		"an eviction threshold of 100% is off": {"m5.large",
			bootstrap{family: AL2023, evictionHard: map[string]string{"memory.available": "100%"}}, 29, 1930, 255 + 11*29},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hw := known(c.instanceType)
			o, err := resources(Machine{Type: c.instanceType}, hw, c.boot)
			require.NoError(t, err)
			require.Equal(t, hw.VCPU, o.capacity.Cpu().Value())
			require.Equal(t, c.milliCPU, o.allocatable.Cpu().MilliValue())
			require.Equal(t, c.pods, o.capacity.Pods().Value())
			require.Equal(t, c.pods, o.allocatable.Pods().Value())
			require.Equal(t, c.memoryMissing*mib, o.capacity.Memory().Value()-o.allocatable.Memory().Value())
		})
	}
}

func TestResources_Storage(t *testing.T) {
	t.Parallel()
	storage := func(m Machine, hw Type, b bootstrap) (capacity, allocatable int64) {
		o, err := resources(m, hw, b)
		require.NoError(t, err)
		return o.capacity.StorageEphemeral().Value(), o.allocatable.StorageEphemeral().Value()
	}
	near := func(want, got int64) { require.InEpsilon(t, want, got, 0.002) }

	capacity, allocatable := storage(Machine{}, known("m6gd.xlarge"), bootstrap{})
	near(20*gib, capacity)
	require.Equal(t, capacity-gib-int64(float64(capacity)*float64(float32(10)/100)), allocatable, "1Gi and 10 % are kept")

	capacity, _ = storage(Machine{StorageGiB: 100}, known("m6gd.xlarge"), bootstrap{})
	near(100*gib, capacity)
	capacity, _ = storage(Machine{StorageGiB: 100}, known("m6gd.xlarge"), bootstrap{raid0: true})
	near(237e9, capacity)
	capacity, _ = storage(Machine{}, known("m5.large"), bootstrap{raid0: true})
	near(20*gib, capacity)
}

func TestResources_RefusesWhatKubeletRefuses(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]bootstrap{
		"more reserved than there is": {kubeReserved: map[string]string{"cpu": "3"}},
		"a quantity that is none":     {systemReserved: map[string]string{"memory": "much"}},
		"a negative quantity":         {systemReserved: map[string]string{"memory": "-1Gi"}},
		"a resource of its own":       {kubeReserved: map[string]string{"nvidia.com/gpu": "1"}},
		"a percentage above 100":      {evictionHard: map[string]string{"memory.available": "101%"}},
		"a threshold that is none":    {evictionHard: map[string]string{"nodefs.available": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := resources(Machine{Type: "m5.large"}, known("m5.large"), b)
			require.Error(t, err)
		})
	}
}

// TestMemoryBytes_StaysWithinTheUsualOverhead covers all sizes that EC2 sells, under many names.
func TestMemoryBytes_StaysWithinTheUsualOverhead(t *testing.T) {
	t.Parallel()
	for size := int64(512); size <= 32<<20; size *= 2 {
		for i := range 200 {
			m := Machine{Type: "x" + strconv.Itoa(i) + ".large"}
			got := memoryBytes(m, Type{MemoryMiB: size, Arch: "amd64"})
			require.Equal(t, got, memoryBytes(m, Type{MemoryMiB: size, Arch: "amd64"}))
			require.Less(t, got, size*mib)
			require.Greater(t, float64(got), float64(size*mib)*0.925)
			arm := memoryBytes(m, Type{MemoryMiB: size, Arch: "arm64"})
			require.Less(t, got-arm, 64*mib)
		}
	}
	sound := memoryBytes(Machine{Type: "m5.large"}, known("m5.large"))
	short := memoryBytes(Machine{Type: "m5.large", Fault: Fault{MissingMemory: 0.5}}, known("m5.large"))
	require.InEpsilon(t, sound/2, short, 0.001)
}

func TestRequests(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	c := func(cpu, memory string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}}
	}
	sidecar := func(cpu, memory string) corev1.Container {
		s := c(cpu, memory)
		s.RestartPolicy = &always
		return s
	}
	for name, tc := range map[string]struct {
		spec        corev1.PodSpec
		milliCPU    int64
		memoryBytes int64
	}{
		"containers add up":                             {corev1.PodSpec{Containers: []corev1.Container{c("1", "1Gi"), c("500m", "1Gi")}}, 1500, 2 * gib},
		"a hungry init container decides":               {corev1.PodSpec{InitContainers: []corev1.Container{c("2", "1Mi")}, Containers: []corev1.Container{c("1", "1Gi")}}, 2000, gib},
		"a sidecar counts beside the containers":        {corev1.PodSpec{InitContainers: []corev1.Container{sidecar("1", "1Gi")}, Containers: []corev1.Container{c("1", "1Gi")}}, 2000, 2 * gib},
		"a sidecar counts beside later init containers": {corev1.PodSpec{InitContainers: []corev1.Container{sidecar("1", "0"), c("3", "0")}, Containers: []corev1.Container{c("1", "0")}}, 4000, 0},
		"a later sidecar does not count beside an init": {corev1.PodSpec{InitContainers: []corev1.Container{c("3", "0"), sidecar("1", "0")}, Containers: []corev1.Container{c("1", "0")}}, 3000, 0},
		"overhead is added":                             {corev1.PodSpec{Overhead: c("250m", "1Gi").Resources.Requests, Containers: []corev1.Container{c("1", "1Gi")}}, 1250, 2 * gib},
		"requests of the whole pod replace the sum":     {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: c("4", "3Gi").Resources.Requests}, Containers: []corev1.Container{c("1", "1Gi")}}, 4000, 3 * gib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := requests(&tc.spec)
			require.Equal(t, tc.milliCPU, got[corev1.ResourceCPU])
			require.Equal(t, tc.memoryBytes, got[corev1.ResourceMemory])
			require.Equal(t, int64(1), got[corev1.ResourcePods])
		})
	}
}
