package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"treadle/shared/cluster"
)

func decoded[T any](t *testing.T, s source[T], object marshaler) T {
	t.Helper()
	_, got, err := s.decode(marshal(t, object), newInterner())
	require.NoError(t, err)
	return got
}

func TestNode_CarriesEverythingThatPlanningReads(t *testing.T) {
	t.Parallel()
	got := decoded(t, nodeSource(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "u1", ResourceVersion: "17", CreationTimestamp: metav1.Unix(100, 0), DeletionTimestamp: new(metav1.Unix(200, 0)),
			Labels:          map[string]string{"topology.kubernetes.io/zone": "us-east-1a"},
			Annotations:     map[string]string{"karpenter.sh/do-not-disrupt": "true", lastApplied: "{}"},
			Finalizers:      []string{"karpenter.sh/termination"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "NodeClaim", Name: "c1", UID: "cu1"}},
		},
		Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-1", Unschedulable: true, Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}},
		Status: corev1.NodeStatus{
			Capacity: list("cpu", "4", "memory", "16Gi", "ephemeral-storage", "20Gi", "pods", "58", "nvidia.com/gpu", "1"), Allocatable: list("cpu", "3920m"),
			Images:     []corev1.ContainerImage{{Names: []string{"x"}}},
			Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "ok", LastTransitionTime: metav1.Unix(150, 0), LastHeartbeatTime: metav1.Unix(999, 0)}},
		},
	})
	require.Equal(t, cluster.Node{
		Name: "n1", UID: "u1", ResourceVersion: "17", CreatedUnix: 100, DeletionUnix: 200,
		Labels:      map[string]string{"topology.kubernetes.io/zone": "us-east-1a"},
		Annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true"},
		Finalizers:  []string{"karpenter.sh/termination"},
		OwnedBy:     "cu1", OwnedByName: "c1",
		ProviderID: "aws:///us-east-1a/i-1", Unschedulable: true, Taints: []cluster.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}},
		Capacity:    cluster.Resources{MilliCPU: 4000, MemoryBytes: 16 << 30, EphemeralBytes: 20 << 30, Pods: 58, Extended: map[string]int64{"nvidia.com/gpu": 1}},
		Allocatable: cluster.Resources{MilliCPU: 3920},
		Conditions:  cluster.Conditions{{Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "ok", TransitionUnix: 150}},
	}, got)
}

func TestDaemon_IsReadFromItsTemplate(t *testing.T) {
	t.Parallel()
	got := decoded(t, daemonSource(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cni", UID: "d1"},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "cni"}},
			Spec: corev1.PodSpec{
				HostNetwork: true,
				Containers:  []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: list("cpu", "50m")}}},
				Tolerations: []corev1.Toleration{{Operator: "Exists"}},
			},
		}},
	})
	require.Equal(t, "kube-system", got.Namespace)
	require.Equal(t, map[string]string{"app": "cni"}, got.Labels)
	require.Equal(t, int64(50), got.Spec.Requests.MilliCPU)
	require.Equal(t, cluster.Toleration{Operator: "Exists"}, got.Spec.Tolerations[0])
	require.Contains(t, got.Spec.Tolerations, cluster.Toleration{Key: "node.kubernetes.io/network-unavailable", Operator: "Exists", Effect: "NoSchedule"})
}

func TestInjected_TakesTheNewestLivingPodAndUntiesItFromItsNode(t *testing.T) {
	t.Parallel()
	tied := &cluster.PodSpec{
		Requests:     cluster.Resources{MilliCPU: 70},
		NodeAffinity: []cluster.NodeTerm{{Fields: true}, {Fields: true, Expressions: []cluster.Expression{{Key: "a", Operator: cluster.Exists}}}},
	}
	template, older := &cluster.PodSpec{}, &cluster.PodSpec{}
	of := func(uid string) cluster.Owner { return cluster.Owner{Kind: "DaemonSet", UID: uid} }
	daemons := []cluster.Daemon{{UID: "d1", Spec: template}, {UID: "d2", Spec: template}}
	injected(daemons, []cluster.Pod{
		{Owner: of("d1"), Spec: older, CreatedUnix: 1},
		{Owner: of("d1"), Spec: tied, CreatedUnix: 2},
		{Owner: of("d1"), Spec: older, CreatedUnix: 3, DeletionUnix: 9},
		{Owner: of("d1"), Spec: older, CreatedUnix: 4, Phase: cluster.PodFailed},
		{Owner: cluster.Owner{Kind: "ReplicaSet", UID: "d2"}, Spec: older},
	})
	require.Equal(t, int64(70), daemons[0].Spec.Requests.MilliCPU)
	require.Equal(t, []cluster.NodeTerm{{Expressions: []cluster.Expression{{Key: "a", Operator: cluster.Exists}}}}, daemons[0].Spec.NodeAffinity)
	require.Len(t, tied.NodeAffinity, 2, "the pod's own spec stays as it is")
	require.Same(t, template, daemons[1].Spec)
}

func TestBudget_IsBlockedWhereItNeverAllowsAnything(t *testing.T) {
	t.Parallel()
	number, text := intstr.FromInt32, intstr.FromString
	cases := map[string]struct {
		spec    policyv1.PodDisruptionBudgetSpec
		blocked bool
	}{
		"maxUnavailable 0":   {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(number(0))}, true},
		"maxUnavailable 0%":  {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(text("0%"))}, true},
		"minAvailable 100%":  {policyv1.PodDisruptionBudgetSpec{MinAvailable: new(text("100%"))}, true},
		"maxUnavailable 1":   {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(number(1))}, false},
		"minAvailable 100":   {policyv1.PodDisruptionBudgetSpec{MinAvailable: new(number(100))}, false},
		"minAvailable 50%":   {policyv1.PodDisruptionBudgetSpec{MinAvailable: new(text("50%"))}, false},
		"minAvailable 0":     {policyv1.PodDisruptionBudgetSpec{MinAvailable: new(number(0))}, false},
		"neither of the two": {policyv1.PodDisruptionBudgetSpec{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decoded(t, budgetSource(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: c.spec, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3},
			})
			require.Equal(t, cluster.PodDisruptionBudget{Namespace: "shop", Name: "web", Allowed: 3, Blocked: c.blocked}, got)
		})
	}
}

func TestVolumes_AreReadWithTodaysNames(t *testing.T) {
	t.Parallel()
	terms := func(key string) *corev1.VolumeNodeAffinity {
		return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: "In", Values: []string{"us-east-1a"}}},
		}}}}
	}
	zone := []cluster.NodeTerm{{Expressions: []cluster.Expression{{Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"us-east-1a"}}}}}
	cases := map[string]struct {
		pv   corev1.PersistentVolume
		want cluster.Volume
	}{
		"an EBS volume of the CSI driver": {
			corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}},
				NodeAffinity:           terms("topology.ebs.csi.aws.com/zone"),
			}},
			cluster.Volume{Driver: "ebs.csi.aws.com", Terms: zone},
		},
		"an EBS volume of the time before CSI, placed by its labels": {
			corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"failure-domain.beta.kubernetes.io/zone": "us-east-1a__us-east-1b", "other": "x"}},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}},
			},
			cluster.Volume{Driver: "ebs.csi.aws.com", Terms: []cluster.NodeTerm{{Expressions: []cluster.Expression{{
				Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"us-east-1a", "us-east-1b"},
			}}}}},
		},
		"a local volume": {
			corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}}}},
			cluster.Volume{Local: true},
		},
		"a volume that is being deleted": {
			corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Unix(5, 0))}},
			cluster.Volume{Deleting: true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.pv.Name, c.want.Name = "pv", "pv"
			require.Equal(t, c.want, decoded(t, volumeSource(), &c.pv))
		})
	}
	require.Equal(t, cluster.VolumeClaim{
		Namespace: "shop", Name: "data", StorageClass: new("gp3"), VolumeName: "pv", Phase: "Bound", BindComplete: true,
	}, decoded(t, volumeClaimSource(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: map[string]string{bindDone: "yes"}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: new("gp3"), VolumeName: "pv"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: "Bound"},
	}))
	require.Equal(t, cluster.StorageClass{
		Name: "gp3", Provisioner: "ebs.csi.aws.com", WaitForPod: true, Topologies: zone, Default: true, CreatedUnix: 9,
	}, decoded(t, storageClassSource(), &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "gp3", CreationTimestamp: metav1.Unix(9, 0), Annotations: map[string]string{defaultSC: "true"}},
		Provisioner:       "kubernetes.io/aws-ebs",
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
			Key: "topology.ebs.csi.aws.com/zone", Values: []string{"us-east-1a"},
		}}}},
	}))
	require.Equal(t, csiNode{map[string]int{"ebs.csi.aws.com": 26}}, decoded(t, csiNodeSource(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(26))}}, {Name: "nfs"},
		}},
	}))
}

func TestNodeClass_ThatCannotBeUnderstoodSaysWhy(t *testing.T) {
	t.Parallel()
	_, got, err := decodeNodeClass([]byte(`{"metadata":{"name":"al","uid":"u"},"spec":{
		"blockDeviceMappings":[{"ebs":{"volumeSize":"big"}}],
		"kubelet":{"kubeReserved":{"cpu":"x"},"evictionHard":{"memory.available":"110%"},"evictionSoftGracePeriod":{"memory.available":"soon"}}}}`), nil)
	require.NoError(t, err)
	require.Equal(t, "al", got.Name)
	require.Equal(t, `spec.kubelet.kubeReserved.cpu: "x" is no quantity; `+
		`spec.kubelet.evictionHard.memory.available: "110%" is neither a quantity nor a percentage; `+
		`spec.kubelet.evictionSoftGracePeriod.memory.available: "soon" is no duration; `+
		`spec.blockDeviceMappings[0].ebs.volumeSize: "big" is no quantity`, got.Invalid)
}

func TestNodePool_DurationsAreReadStrictly(t *testing.T) {
	t.Parallel()
	read := func(expire, grace, after string) cluster.NodePool {
		_, got, err := decodeNodePool([]byte(`{"metadata":{"name":"p"},"spec":{"template":{"spec":{"expireAfter":"`+expire+
			`","terminationGracePeriod":"`+grace+`"}},"disruption":{"consolidateAfter":"`+after+`"}}}`), nil)
		require.NoError(t, err)
		return got
	}
	good := read("Never", "1h30m", "Never")
	require.Empty(t, good.Invalid)
	require.Zero(t, good.Template.ExpireAfterSeconds)
	require.Equal(t, int64(5400), *good.Template.TerminationGracePeriodSeconds)
	require.Nil(t, good.ConsolidateAfterSeconds)
	require.Equal(t, int64(30), *read("1h", "", "30s").ConsolidateAfterSeconds)
	for _, bad := range []cluster.NodePool{read("1d", "", "0s"), read("1h", "-1h", "0s"), read("1h", "", "1.5h"), read("9999999999h", "", "0s")} {
		require.Contains(t, bad.Invalid, "is no duration in hours, minutes and seconds")
	}
}

func TestQuantity_IsReadBackAsWritten(t *testing.T) {
	t.Parallel()
	for name, amounts := range map[string][]int64{
		"cpu": {0, 1, 999, 1000, 1500, 64_000}, "memory": {0, 1, 1023, 1024, 3 << 20, 5 << 30, 1<<30 + 1}, "pods": {110}, "nvidia.com/gpu": {8},
	} {
		for _, n := range amounts {
			got, err := parseAmount("x", name, quantity(name, n))
			require.NoError(t, err)
			require.Equal(t, n, got, "%s of %s", quantity(name, n), name)
		}
	}
}
