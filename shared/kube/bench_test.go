package kube

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"treadle/shared/cluster"
)

// podList is the body of a LIST of n pods of n/100 workloads, each pod as large as real ones are.
func podList(tb testing.TB, n int) []byte {
	tb.Helper()
	managed := metav1.NewFieldsV1(`{"f:metadata":{` + strings.Repeat(`"f:labels":{"f:app":{}},`, 120) + `"f:x":{}}}`)
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1000"}}
	for i := range n {
		p := full()
		app := fmt.Sprintf("app-%d", i%(max(n/100, 1)))
		p.Name, p.UID = fmt.Sprintf("%s-%09d", app, i), types.UID(fmt.Sprintf("%08d-1111-2222-3333-444444444444", i))
		p.Labels = map[string]string{"app": app, "pod-template-hash": "5d4f8c7b9d", "team": "shop"}
		p.OwnerReferences[1].Name, p.OwnerReferences[1].UID = app, types.UID("owner-"+app)
		p.Spec.NodeName = fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i%4, i%250)
		p.Spec.Volumes[0].Name = fmt.Sprintf("kube-api-access-%05d", i)
		p.Spec.NodeSelector["workload"] = app
		p.Spec.Containers[0].Env = make([]corev1.EnvVar, 30)
		for e := range p.Spec.Containers[0].Env {
			p.Spec.Containers[0].Env[e] = corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "some value of some length"}
		}
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: managed}, {Manager: "scheduler", FieldsV1: managed}}
		list.Items = append(list.Items, p)
	}
	return envelope(tb, &list)
}

func readPods(tb testing.TB, body []byte) map[string]cluster.Pod {
	tb.Helper()
	source, in, out := podSource(), newInterner(), map[string]cluster.Pod{}
	_, err := readProtoList(bytes.NewReader(body), func(raw []byte) error {
		m, p, err := source.decode(raw, in)
		out[m.key()] = p
		return err
	})
	require.NoError(tb, err)
	return out
}

func BenchmarkDecode_TenThousandPods(b *testing.B) {
	body := podList(b, 10_000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		require.Len(b, readPods(b, body), 10_000)
	}
	b.ReportMetric(float64(live(func() any { return readPods(b, body) }))/(1<<20), "MiB-kept")
	runtime.KeepAlive(body)
}

func BenchmarkDecode_AThousandNodes(b *testing.B) {
	list := corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1000"}}
	for i := range 1000 {
		n := corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), ResourceVersion: "5", Labels: map[string]string{"zone": "a", "host": fmt.Sprint(i)}},
			Status:     corev1.NodeStatus{Capacity: list4("8"), Allocatable: list4("7"), Images: make([]corev1.ContainerImage, 50)},
		}
		for j := range n.Status.Images {
			n.Status.Images[j] = corev1.ContainerImage{Names: []string{"registry.example.com/team/image@sha256:0123456789abcdef", "registry.example.com/team/image:v1"}}
		}
		list.Items = append(list.Items, n)
	}
	body := envelope(b, &list)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		in, n := newInterner(), 0
		_, err := readProtoList(bytes.NewReader(body), func(raw []byte) error {
			n++
			_, _, err := decodeNode(raw, in)
			return err
		})
		require.NoError(b, err)
		require.Equal(b, 1000, n)
	}
}

func list4(cpu string) corev1.ResourceList {
	return list("cpu", cpu, "memory", "16Gi", "ephemeral-storage", "20Gi", "pods", "110")
}

// live returns how many bytes of heap what make returns keeps alive.
func live(make func() any) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
}
