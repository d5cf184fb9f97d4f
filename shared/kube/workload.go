package kube

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"treadle/shared/cluster"
)

func daemonSource() source[cluster.Daemon] {
	return source[cluster.Daemon]{path: "/apis/apps/v1/daemonsets", decode: decodeDaemon}
}

func decodeDaemon(raw []byte, in *interner) (meta, cluster.Daemon, error) {
	var spec appsv1.DaemonSetSpec
	m, err := decodeCore(raw, in, map[int]part{2: {mask{2: nil}, spec.Unmarshal}})
	template := &spec.Template
	pod := podSpec(&template.Spec, &corev1.PodStatus{})
	pod.NodeAffinity = withoutFields(pod.NodeAffinity)
	pod.Tolerations = append(pod.Tolerations, daemonTolerations(template.Spec.HostNetwork)...)
	return m, cluster.Daemon{
		Namespace: m.namespace, Name: m.name, UID: m.uid, Labels: template.Labels, Spec: pod,
	}, err
}

// daemonTolerations are what the DaemonSet controller adds to every pod that it makes.
func daemonTolerations(hostNetwork bool) []cluster.Toleration {
	out := []cluster.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: "Exists", Effect: cluster.NoExecute},
		{Key: corev1.TaintNodeUnreachable, Operator: "Exists", Effect: cluster.NoExecute},
		{Key: corev1.TaintNodeDiskPressure, Operator: "Exists", Effect: cluster.NoSchedule},
		{Key: corev1.TaintNodeMemoryPressure, Operator: "Exists", Effect: cluster.NoSchedule},
		{Key: corev1.TaintNodePIDPressure, Operator: "Exists", Effect: cluster.NoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Operator: "Exists", Effect: cluster.NoSchedule},
	}
	if hostNetwork {
		out = append(out, cluster.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Operator: "Exists", Effect: cluster.NoSchedule})
	}
	return out
}

// withoutFields takes out what ties a daemon's pod to the one node that it was made for.
func withoutFields(terms []cluster.NodeTerm) []cluster.NodeTerm {
	var out []cluster.NodeTerm
	for _, t := range terms {
		if t.Fields && len(t.Expressions) == 0 {
			continue
		}
		t.Fields = false
		out = append(out, t)
	}
	return out
}

// injected gives each daemon the spec of its newest living pod, which carries what webhooks have added since (S-160).
func injected(daemons []cluster.Daemon, pods []cluster.Pod) {
	if len(daemons) == 0 {
		return
	}
	newest := map[string]*cluster.Pod{}
	for i := range pods {
		p := &pods[i]
		if !p.Daemon() || p.Terminal() || p.DeletionUnix != 0 {
			continue
		}
		if old := newest[p.Owner.UID]; old == nil || old.CreatedUnix < p.CreatedUnix {
			newest[p.Owner.UID] = p
		}
	}
	free := map[*cluster.PodSpec]*cluster.PodSpec{}
	for i := range daemons {
		p := newest[daemons[i].UID]
		if p == nil {
			continue
		}
		if free[p.Spec] == nil {
			spec := *p.Spec
			spec.NodeAffinity = withoutFields(spec.NodeAffinity)
			free[p.Spec] = &spec
		}
		daemons[i].Spec = free[p.Spec]
	}
}

func budgetSource() source[cluster.PodDisruptionBudget] {
	return source[cluster.PodDisruptionBudget]{path: "/apis/policy/v1/poddisruptionbudgets", decode: decodeBudget}
}

func decodeBudget(raw []byte, in *interner) (meta, cluster.PodDisruptionBudget, error) {
	var (
		spec   policyv1.PodDisruptionBudgetSpec
		status policyv1.PodDisruptionBudgetStatus
	)
	m, err := decodeCore(raw, in, map[int]part{2: {nil, spec.Unmarshal}, 3: {mask{3: nil}, status.Unmarshal}})
	return m, cluster.PodDisruptionBudget{
		Namespace: m.namespace,
		Name:      m.name,
		Selector:  selector(spec.Selector),
		Allowed:   status.DisruptionsAllowed,
		Blocked: is(spec.MaxUnavailable, "0", "0%") ||
			is(spec.MinAvailable, "100%"),
	}, err
}

// is reports whether v is written as one of the given texts; nil is none of them.
func is(v *intstr.IntOrString, texts ...string) bool {
	return v != nil && slices.Contains(texts, strings.TrimSpace(v.String()))
}
