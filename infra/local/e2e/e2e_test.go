package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"treadle/infra/local/stack"
)

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) { w.t.Log(string(p)); return len(p), nil }

func TestFirst(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := os.Getenv("E2E_DIR")
	s, err := stack.Start(ctx, stack.Options{Build: "../../../build", Dir: dir, Progress: testWriter{t}, SweepEvery: 10 * time.Second, ShutdownFor: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop(context.Background())) }()
	require.NoError(t, s.ApplyFile(ctx, filepath.Join("..", "quickstart", "default.yaml")))
	kube, err := clientset.NewForConfig(s.Kubernetes.AdminConfig())
	require.NoError(t, err)
	labels := map[string]string{"app": "web"}
	_, err = kube.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(10)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
				}}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	start := time.Now()
	require.Eventually(t, func() bool {
		d, err := kube.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == 10
	}, 90*time.Second, 200*time.Millisecond)
	t.Log("running after", time.Since(start))
	require.NoError(t, kube.AppsV1().Deployments("default").Delete(ctx, "web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && len(nodes.Items) == 0
	}, 150*time.Second, 200*time.Millisecond)
	t.Log("zero after", time.Since(start))
}
