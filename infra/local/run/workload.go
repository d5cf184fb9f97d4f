package main

import (
	"embed"
	"encoding/csv"
	"fmt"
	"os"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed data/openb-300.csv
var pods embed.FS

const gpuResource = "nvidia.com/gpu"

// shape is what a pod of the list asks for.
type shape struct{ milliCPU, memoryMiB, gpus int64 }

// workload returns the manifests to run: those of the user's file, or a Deployment for each shape in the list of pods.
func workload(file string) ([]byte, error) {
	if file != "" {
		return os.ReadFile(file)
	}
	shapes, counts, err := list()
	if err != nil {
		return nil, err
	}
	var out []byte
	for i, s := range shapes {
		body, err := yaml.Marshal(deployment(fmt.Sprintf("openb-%02d", i+1), s, counts[s]))
		if err != nil {
			return nil, err
		}
		out = append(out, "---\n"...)
		out = append(out, body...)
	}
	return out, nil
}

// list reads the pods and returns their shapes in the order of their first pods.
func list() ([]shape, map[shape]int32, error) {
	f, err := pods.Open("data/openb-300.csv")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	var shapes []shape
	counts := map[shape]int32{}
	for n, row := range rows[1:] {
		var s shape
		for i, into := range []*int64{&s.milliCPU, &s.memoryMiB, &s.gpus} {
			if *into, err = strconv.ParseInt(row[i+1], 10, 64); err != nil {
				return nil, nil, fmt.Errorf("openb-300.csv line %d, column %s: %w", n+2, rows[0][i+1], err)
			}
		}
		if counts[s] == 0 {
			shapes = append(shapes, s)
		}
		counts[s]++
	}
	return shapes, counts, nil
}

func deployment(name string, s shape, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	requests := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(s.milliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(s.memoryMiB<<20, resource.BinarySI),
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}}
	spec.Containers[0].Resources.Requests = requests
	if s.gpus > 0 {
		gpus := *resource.NewQuantity(s.gpus, resource.DecimalSI)
		requests[gpuResource] = gpus
		spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuResource: gpus}
		spec.Tolerations = []corev1.Toleration{{Key: gpuResource, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}
