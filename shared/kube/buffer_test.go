package kube

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/shared/cluster"
)

func bufferJSON(name, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","uid":"u-%s","resourceVersion":"7","generation":2},"spec":%s,
		"status":{"replicas":1,"conditions":[{"type":"Provisioning","status":"True","reason":"FitsExistingCapacity","message":"","lastTransitionTime":"2026-12-01T00:00:00Z"}]}}`, name, name, spec)
}

func templateSpec() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
		}}}},
	}
}

func bufferMirror(t *testing.T, buffers ...string) cluster.Snapshot {
	t.Helper()
	a := newAPI(t)
	a.on("GET", buffersPath, func(w http.ResponseWriter, _ *http.Request) {
		list := ""
		for i, b := range buffers {
			if i > 0 {
				list += ","
			}
			list += b
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"9"},"items":[%s]}`, list)
	})
	seven := int32(7)
	meta := metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 5, ResourceVersion: "3"}
	for path, object := range map[string]marshaler{
		"/api/v1/namespaces/default/podtemplates/web":       &corev1.PodTemplate{ObjectMeta: meta, Template: templateSpec()},
		"/apis/apps/v1/namespaces/default/deployments/web":  &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &seven, Template: templateSpec()}},
		"/apis/apps/v1/namespaces/default/statefulsets/web": &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &seven, Template: templateSpec()}},
		"/apis/apps/v1/namespaces/default/replicasets/web":  &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Template: templateSpec()}},
	} {
		body := envelope(t, object)
		a.on("GET", path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	}
	m := NewMirror(a.client(), Buffers)
	t.Cleanup(m.Pause)
	require.NoError(t, m.Sync(t.Context()))
	return m.Snapshot(0)
}

func TestMirror_ReadsWhatBuffersName(t *testing.T) {
	t.Parallel()
	for kind, replicas := range map[string]int64{"Deployment": 7, "StatefulSet": 7, "ReplicaSet": 1} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			snap := bufferMirror(t, bufferJSON("b", fmt.Sprintf(`{"scalableRef":{"apiGroup":"apps","kind":%q,"name":"web"},"percentage":20}`, kind)))
			require.Len(t, snap.Buffers, 1)
			require.Equal(t, int64(20), *snap.Buffers[0].Percentage)
			require.Empty(t, snap.Buffers[0].Invalid)
			require.Len(t, snap.Templates, 1)
			got := snap.Templates[0]
			require.Equal(t, snap.Buffers[0].Template, got.TemplateRef)
			require.Equal(t, replicas, got.Replicas)
			require.Equal(t, int64(500), got.Spec.Requests.MilliCPU)
			require.Equal(t, map[string]string{"app": "web"}, got.Labels)
		})
	}
	snap := bufferMirror(t, bufferJSON("b", `{"podTemplateRef":{"name":"web"},"replicas":2,"limits":{"cpu":"2","memory":1024}}`))
	require.Equal(t, map[string]int64{"cpu": 2000, "memory": 1024}, snap.Buffers[0].Limits)
	require.Equal(t, int64(5), snap.Templates[0].Generation)
	require.Equal(t, int64(500), snap.Templates[0].Spec.Requests.MilliCPU)
	require.True(t, snap.Buffers[0].Status.Conditions.True(cluster.ConditionProvisioning))
}

func TestMirror_ABuffersTemplateThatCannotBeReadIsItsOwnTrouble(t *testing.T) {
	t.Parallel()
	snap := bufferMirror(t,
		bufferJSON("both", `{"podTemplateRef":{"name":"web"},"scalableRef":{"kind":"Deployment","name":"web"}}`),
		bufferJSON("gone", `{"podTemplateRef":{"name":"gone"}}`),
		bufferJSON("none", `{}`),
		bufferJSON("odd", `{"scalableRef":{"apiGroup":"argoproj.io","kind":"Rollout","name":"web"}}`),
	)
	require.Contains(t, snap.Buffers[0].Invalid, "only one of them may be set")
	at := map[string]cluster.PodTemplate{}
	for _, one := range snap.Templates {
		at[one.Kind+one.Name] = one
	}
	require.True(t, at["PodTemplategone"].Absent)
	require.Nil(t, at["PodTemplategone"].Spec)
	require.Contains(t, at["Rolloutweb"].Fault, "kind must be Deployment, StatefulSet or ReplicaSet")
	require.False(t, at["Rolloutweb"].Absent)
}

func TestPatchCapacityBufferStatus_WritesWhatDiffers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.on("PATCH", "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers/b/status", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	n := int64(3)
	old := cluster.CapacityBuffer{Namespace: "default", Name: "b", UID: "u", ResourceVersion: "7"}
	next := old
	next.Status = cluster.CapacityBufferStatus{Replicas: &n, PodTemplate: "web"}
	require.NoError(t, a.client().PatchCapacityBufferStatus(t.Context(), old, old))
	require.Empty(t, a.writes())
	require.NoError(t, a.client().PatchCapacityBufferStatus(t.Context(), old, next))
	require.Len(t, a.writes(), 1)
	require.Equal(t, map[string]any{"replicas": 3.0, "podTemplateRef": map[string]any{"name": "web"}}, a.writes()[0].Body["status"])
}
