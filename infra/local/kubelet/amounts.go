package kubelet

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// amounts are resources as kubelet counts them: CPU in milli, the rest in units or bytes.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			a[name] = q.MilliValue()
		} else {
			a[name] = q.Value()
		}
	}
	return a
}

func (a amounts) add(b amounts) {
	for name, v := range b {
		a[name] += v
	}
}

func (a amounts) subtract(b amounts) {
	for name, v := range b {
		a[name] -= v
	}
}

func (a amounts) raise(b amounts) {
	for name, v := range b {
		a[name] = max(a[name], v)
	}
}

// requests is what kubelet sets aside for a pod: all containers and sidecars together, or the
// hungriest init container with the sidecars started before it, and the overhead of its runtime.
// Requests of the pod as a whole replace the sum.
func requests(spec *corev1.PodSpec) amounts {
	sidecars, initial := amounts{}, amounts{}
	for _, c := range spec.InitContainers {
		need := amountsOf(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.add(need)
			initial.raise(sidecars)
			continue
		}
		need.add(sidecars)
		initial.raise(need)
	}
	total := sidecars
	for _, c := range spec.Containers {
		total.add(amountsOf(c.Resources.Requests))
	}
	total.raise(initial)
	if spec.Resources != nil {
		for name, v := range amountsOf(spec.Resources.Requests) {
			total[name] = v
		}
	}
	total.add(amountsOf(spec.Overhead))
	total[corev1.ResourcePods] = 1
	return total
}

// refusal is why kubelet does not admit a pod.
type refusal struct{ reason, message string }

// shortage returns the first resource of which want does not fit beside used, nil if all fit.
func shortage(want, used, allocatable amounts) *refusal {
	names := make([]corev1.ResourceName, 0, len(want))
	for name, v := range want {
		if v > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b corev1.ResourceName) int { return strings.Compare(checkOrder(a), checkOrder(b)) })
	for _, name := range names {
		has, known := allocatable[name]
		if want[name] <= has-used[name] {
			continue
		}
		if !known {
			return &refusal{"UnexpectedAdmissionError", fmt.Sprintf("node offers no %s", name)}
		}
		return &refusal{"OutOf" + string(name), fmt.Sprintf("%s: %d requested, %d of %d in use", name, want[name], used[name], has)}
	}
	return nil
}

// checkOrder sorts resources in the order in which kubelet looks at them.
func checkOrder(name corev1.ResourceName) string {
	switch name {
	case corev1.ResourcePods:
		return "0"
	case corev1.ResourceCPU:
		return "1"
	case corev1.ResourceMemory:
		return "2"
	case corev1.ResourceEphemeralStorage:
		return "3"
	}
	return "4" + string(name)
}
