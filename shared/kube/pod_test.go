package kube

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/shared/cluster"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(name string, pairs ...string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(pairs...)}}
}

func sidecar(name string, pairs ...string) corev1.Container {
	c := container(name, pairs...)
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestPodSpec_Requests(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		spec   corev1.PodSpec
		status corev1.PodStatus
		want   cluster.Resources
	}{
		"a pod without requests takes one pod": {want: cluster.Resources{Pods: 1}},
		"containers add up, rounded up to the unit": {
			spec: corev1.PodSpec{Containers: []corev1.Container{
				container("a", "cpu", "100m", "memory", "1Gi", "nvidia.com/gpu", "1"), container("b", "cpu", "100u", "memory", "1500m"),
			}},
			want: cluster.Resources{MilliCPU: 101, MemoryBytes: 1<<30 + 2, Pods: 1, Extended: map[string]int64{"nvidia.com/gpu": 1}},
		},
		"the larger of initialisation and running counts, by resource": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{container("i", "cpu", "3", "memory", "1Gi"), container("j", "cpu", "1", "memory", "5Gi")},
				Containers:     []corev1.Container{container("a", "cpu", "1", "memory", "2Gi"), container("b", "cpu", "1")},
			},
			want: cluster.Resources{MilliCPU: 3000, MemoryBytes: 5 << 30, Pods: 1},
		},
		"a sidecar adds to the running phase and to what starts after it": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{container("i", "cpu", "4"), sidecar("s", "cpu", "1"), container("j", "cpu", "3500m")},
				Containers:     []corev1.Container{container("a", "cpu", "3")},
			},
			want: cluster.Resources{MilliCPU: 4500, Pods: 1},
		},
		"a sidecar does not add to what starts before it": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{container("i", "cpu", "4"), sidecar("s", "cpu", "1")},
				Containers:     []corev1.Container{container("a", "cpu", "1")},
			},
			want: cluster.Resources{MilliCPU: 4000, Pods: 1},
		},
		"overhead comes on top": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container("a", "cpu", "1")}, Overhead: list("cpu", "250m", "memory", "64Mi")},
			want: cluster.Resources{MilliCPU: 1250, MemoryBytes: 64 << 20, Pods: 1},
		},
		"pod-level requests replace the sum for the resources that they name": {
			spec: corev1.PodSpec{
				Containers: []corev1.Container{container("a", "cpu", "1", "memory", "1Gi")},
				Resources:  &corev1.ResourceRequirements{Requests: list("cpu", "500m")},
			},
			want: cluster.Resources{MilliCPU: 500, MemoryBytes: 1 << 30, Pods: 1},
		},
		"a pod that shrinks holds its old size until the kubelet has let go": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container("a", "cpu", "1")}},
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: "a", AllocatedResources: list("cpu", "2"), Resources: &corev1.ResourceRequirements{Requests: list("cpu", "1500m")},
			}}},
			want: cluster.Resources{MilliCPU: 2000, Pods: 1},
		},
		"a pod that grows takes its new size at once": {
			spec:   corev1.PodSpec{Containers: []corev1.Container{container("a", "cpu", "3")}},
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", AllocatedResources: list("cpu", "2")}}},
			want:   cluster.Resources{MilliCPU: 3000, Pods: 1},
		},
		"a limit stands in for a request": {
			spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
				Limits: list("cpu", "2", "memory", "1Gi"), Requests: list("cpu", "1"),
			}}}},
			want: cluster.Resources{MilliCPU: 1000, MemoryBytes: 1 << 30, Pods: 1},
		},
		"amounts beyond all reason do not overflow": {
			spec: corev1.PodSpec{Containers: []corev1.Container{
				container("a", "cpu", "9223372036854775807", "memory", "9E"), container("b", "cpu", "9223372036854775807"),
			}},
			want: cluster.Resources{MilliCPU: 2 * maxAmount, MemoryBytes: maxAmount, Pods: 1},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, requests(&c.spec, &c.status))
		})
	}
}

// full is a pod that uses everything that a noun carries.
func full() corev1.Pod {
	labels := func(v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": v}, MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "tier", Operator: metav1.LabelSelectorOpExists},
		}}
	}
	term := corev1.PodAffinityTerm{LabelSelector: labels("db"), TopologyKey: "failure-domain.beta.kubernetes.io/zone", Namespaces: []string{"data"}, NamespaceSelector: &metav1.LabelSelector{}}
	node := corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "beta.kubernetes.io/arch", Operator: "In", Values: []string{"arm64"}}},
		MatchFields:      []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n1"}}},
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop", UID: "u1", ResourceVersion: "41", CreationTimestamp: metav1.Unix(100, 0),
			DeletionTimestamp: new(metav1.Unix(200, 0)), DeletionGracePeriodSeconds: new(int64(30)),
			Labels:      map[string]string{"app": "web", "pod-template-hash": "abc"},
			Annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true", "controller.kubernetes.io/pod-deletion-cost": "5", "noise": "x"},
			OwnerReferences: []metav1.OwnerReference{
				{Kind: "Other", Name: "o", UID: "o1"}, {Kind: "ReplicaSet", Name: "web", UID: "r1", Controller: new(true)},
			},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}},
		},
		Spec: corev1.PodSpec{
			NodeName:                      "n1",
			SchedulerName:                 "default-scheduler",
			Priority:                      new(int32(7)),
			PriorityClassName:             "high",
			TerminationGracePeriodSeconds: new(int64(45)),
			NodeSelector:                  map[string]string{"beta.kubernetes.io/os": "linux"},
			InitContainers:                []corev1.Container{sidecar("log", "cpu", "100m")},
			Containers: []corev1.Container{{
				Name: "main", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Gi")},
				Ports: []corev1.ContainerPort{{HostPort: 80, ContainerPort: 8080, Protocol: "TCP", HostIP: "0.0.0.0"}, {ContainerPort: 9}},
			}},
			Volumes: []corev1.Volume{
				{Name: "kube-api-access-x1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-1"}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
					Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("gp3")},
				}}}},
			},
			Affinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{node}},
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 3, Preference: node}},
				},
				PodAffinity: &corev1.PodAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{term},
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 4, PodAffinityTerm: term}},
				},
				PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{term},
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 5, PodAffinityTerm: term}},
				},
			},
			Tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Equal", Value: "yes", Effect: "NoExecute", TolerationSeconds: new(int64(60))}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 2, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: "DoNotSchedule", LabelSelector: labels("web"), MinDomains: new(int32(3)),
				NodeAffinityPolicy: new(corev1.NodeInclusionPolicyIgnore), NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor), MatchLabelKeys: []string{"pod-template-hash"},
			}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "wait"}},
			ResourceClaims:  []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("g")}},
			Overhead:        list("memory", "16Mi"),
		},
		Status: corev1.PodStatus{
			Phase: "Pending", NominatedNodeName: "n2", StartTime: new(metav1.Unix(150, 0)),
			Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/3 nodes"}},
		},
	}
}

func decodePod(t *testing.T, p *corev1.Pod) cluster.Pod {
	t.Helper()
	_, got, err := podSource().decode(marshal(t, p), newInterner())
	require.NoError(t, err)
	return got
}

func TestPod_CarriesEverythingThatPlanningReads(t *testing.T) {
	t.Parallel()
	p := full()
	selector := &cluster.Selector{Expressions: []cluster.Expression{{Key: "app", Operator: "In", Values: []string{"db"}}, {Key: "tier", Operator: "Exists"}}}
	term := cluster.PodTerm{Selector: selector, Namespaces: []string{"data"}, NamespaceBy: &cluster.Selector{}, TopologyKey: "topology.kubernetes.io/zone"}
	node := cluster.NodeTerm{Fields: true, Expressions: []cluster.Expression{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"arm64"}}}}
	want := cluster.Pod{
		PodRef:      cluster.PodRef{Namespace: "shop", Name: "web-1", UID: "u1"},
		Labels:      map[string]string{"app": "web", "pod-template-hash": "abc"},
		Annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true", "controller.kubernetes.io/pod-deletion-cost": "5"},
		Owner:       cluster.Owner{Kind: "ReplicaSet", Name: "web", UID: "r1"},
		Spec: &cluster.PodSpec{
			Requests:       cluster.Resources{MilliCPU: 1100, MemoryBytes: 1<<30 + 16<<20, Pods: 1},
			NodeSelector:   map[string]string{"kubernetes.io/os": "linux"},
			NodeAffinity:   []cluster.NodeTerm{node},
			NodePrefers:    []cluster.PreferredNodeTerm{{Weight: 3, Term: node}},
			Affinity:       []cluster.PodTerm{term},
			AntiAffinity:   []cluster.PodTerm{term},
			Prefers:        []cluster.PreferredPodTerm{{Weight: 4, Term: term}},
			AntiPrefers:    []cluster.PreferredPodTerm{{Weight: 5, Term: term}},
			Tolerations:    []cluster.Toleration{{Key: "gpu", Operator: "Equal", Value: "yes", Effect: "NoExecute", Seconds: new(int64(60))}},
			HostPorts:      []cluster.HostPort{{Port: 80, Protocol: "TCP"}},
			Claims:         []cluster.VolumeClaimRef{{Name: "data-web-1"}, {Name: "tmp", Ephemeral: true, StorageClass: new("gp3")}},
			ResourceClaims: true,
			Gated:          true,
			SchedulerName:  "default-scheduler",
			Priority:       7,
			PriorityClass:  "high",
			GraceSeconds:   45,
			Spread: []cluster.Spread{{
				TopologyKey: "topology.kubernetes.io/zone", MaxSkew: 2, MinDomains: 3, Hard: true, MatchLabelKeys: []string{"pod-template-hash"},
				Selector:           &cluster.Selector{Expressions: []cluster.Expression{{Key: "app", Operator: "In", Values: []string{"web"}}, {Key: "tier", Operator: "Exists"}}},
				IgnoreNodeAffinity: true, HonorNodeTaints: true,
			}},
		},
		NodeName: "n1", NominatedNode: "n2", Phase: "Pending", Unschedulable: true,
		CreatedUnix: 100, StartedUnix: 150, DeletionUnix: 200, DeletionGraceSeconds: 30,
	}
	require.Equal(t, want, decodePod(t, &p))
}

// TestPod_MasksLoseNothing holds the field numbers of the masks against the conversion of the whole, undiminished pod.
func TestPod_MasksLoseNothing(t *testing.T) {
	t.Parallel()
	p := full()
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: list("cpu", "3")}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "log", Resources: &corev1.ResourceRequirements{Requests: list("cpu", "5")}}}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "9Gi")}
	p.Status.Resources = &corev1.ResourceRequirements{Requests: list("memory", "10Gi")}
	p.Status.AllocatedResources = list("memory", "11Gi")
	require.Equal(t, podSpec(&p.Spec, &p.Status), decodePod(t, &p).Spec)
	require.Equal(t, int64(11<<30+16<<20), decodePod(t, &p).Spec.Requests.MemoryBytes)
	require.Equal(t, int64(8000), decodePod(t, &p).Spec.Requests.MilliCPU)
}

func TestPod_EqualSpecsAreOne(t *testing.T) {
	t.Parallel()
	source, in := podSource(), newInterner()
	read := func(p corev1.Pod) cluster.Pod {
		_, got, err := source.decode(marshal(t, &p), in)
		require.NoError(t, err)
		return got
	}
	a, b, c := full(), full(), full()
	b.Name, b.Spec.NodeName, b.Spec.Volumes[0].Name = "web-2", "n9", "kube-api-access-x2"
	b.Status.Phase, b.Status.Conditions = "Running", nil
	c.Spec.Priority = new(int32(8))
	first, second, third := read(a), read(b), read(c)
	require.Same(t, first.Spec, second.Spec)
	require.False(t, second.Unschedulable)
	require.NotSame(t, first.Spec, third.Spec)
	before, err := json.Marshal(first)
	require.NoError(t, err)
	require.NotContains(t, string(before), "kube-api-access")
}

func TestPod_WithoutAnythingIsAPodAllTheSame(t *testing.T) {
	t.Parallel()
	got := decodePod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}})
	require.Equal(t, cluster.Resources{Pods: 1}, got.Spec.Requests)
	require.Equal(t, int64(30), got.Spec.GraceSeconds)
	require.Nil(t, got.Spec.NodeAffinity)
}
