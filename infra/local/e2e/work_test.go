package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apply applies manifests.
func (s *scene) apply(t testing.TB, manifests ...string) {
	t.Helper()
	_, err := s.Apply(t.Context(), []byte(strings.Join(manifests, "\n---\n")))
	require.NoError(t, err)
}

// class is an EC2NodeClass that selects the subnets with a discovery tag.
func class(name, discovery string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: %s}
spec:
  role: KarpenterNodeRole-demo
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: %q}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
`, name, discovery)
}

// pool is a NodePool of the class that has its name, with requirements such as "karpenter.sh/capacity-type=on-demand,spot". Its nodes
// go as soon as they are empty.
func pool(name string, requirements ...string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %[1]s}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 0s}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: %[1]s}
      requirements:
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
`, name)
	for _, r := range requirements {
		key, values, _ := strings.Cut(r, "=")
		fmt.Fprintf(&out, "        - {key: %s, operator: In, values: [%s]}\n", key, values)
	}
	return out.String()
}

const (
	onDemand   = "karpenter.sh/capacity-type=on-demand"
	family     = "karpenter.k8s.aws/instance-family="
	typeIs     = "node.kubernetes.io/instance-type="
	hostname   = "kubernetes.io/hostname"
	zoneLabel  = "topology.kubernetes.io/zone"
	typeLabel  = "node.kubernetes.io/instance-type"
	capacityIs = "karpenter.sh/capacity-type"
)

// podSpec asks for CPU, and for a quarter of the memory that goes with it on most instances, so that CPU decides.
func podSpec(cpu string) corev1.PodSpec {
	amount := resource.MustParse(cpu)
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    amount,
				corev1.ResourceMemory: *resource.NewQuantity(amount.MilliValue()<<20/2, resource.BinarySI),
			},
		}}},
	}
}

// apart keeps the pods of an app on nodes of their own.
func apart(app string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: hostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}}}}
}

func labelled(app string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: app, Labels: map[string]string{"app": app}}
}

// deploy creates a Deployment whose pods carry its name as the label app.
func (s *scene) deploy(t testing.TB, app string, replicas int, spec corev1.PodSpec) {
	t.Helper()
	labels := map[string]string{"app": app}
	_, err := s.kube.AppsV1().Deployments("default").Create(context.Background(), &appsv1.Deployment{
		ObjectMeta: labelled(app),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// pod creates a pod.
func (s *scene) pod(t testing.TB, app string, spec corev1.PodSpec) {
	t.Helper()
	_, err := s.kube.CoreV1().Pods("default").Create(context.Background(), &corev1.Pod{ObjectMeta: labelled(app), Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// undeploy deletes a Deployment and its pods.
func (s *scene) undeploy(t testing.TB, app string) {
	t.Helper()
	err := s.kube.AppsV1().Deployments("default").Delete(context.Background(), app, metav1.DeleteOptions{})
	require.NoError(t, err)
}
