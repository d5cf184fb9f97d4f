package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/shared/cluster"
)

// What of a pod decides about nodes, by protobuf field number. All else, most of a real pod, is skipped undecoded.
// Names are beside the numbers; a test holds them against the conversion of whole pods.
//
//nolint:gochecknoglobals // compiled tables
var (
	requirementsMask = mask{1: nil, 2: nil} // limits, requests
	containerMask    = mask{
		1:  nil,                          // name
		6:  mask{2: nil, 4: nil, 5: nil}, // ports: hostPort, protocol, hostIP
		8:  requirementsMask,             // resources
		24: nil,                          // restartPolicy
	}
	volumeMask = mask{
		1:     nil,                    // name, which is another for every pod where the API server adds the volume
		2:     mask{10: nil, 29: nil}, // volumeSource: persistentVolumeClaim, ephemeral
		needs: mask{2: nil},
	}
	podSpecMask = mask{
		1:  volumeMask,
		2:  containerMask,
		4:  nil, // terminationGracePeriodSeconds
		7:  nil, // nodeSelector
		18: nil, // affinity
		19: nil, // schedulerName
		20: containerMask,
		22: nil, // tolerations
		24: nil, // priorityClassName
		25: nil, // priority
		32: nil, // overhead
		33: nil, // topologySpreadConstraints
		38: nil, // schedulingGates
		39: mask{1: nil},
		40: requirementsMask, // pod-level resources
	}
	statusContainerMask = mask{1: nil, 10: nil, 11: requirementsMask} // name, allocatedResources, resources
	podStatusMask       = mask{
		1:  nil,                          // phase
		2:  mask{1: nil, 2: nil, 5: nil}, // conditions: type, status, reason
		8:  statusContainerMask,
		10: statusContainerMask,
		11: nil, // nominatedNodeName
		19: nil, // allocatedResources
		20: requirementsMask,
	}
)

// podReader decodes pods. Pods of one workload differ in little but their names: what is left of spec and status under the
// masks is nearly always seen before, and then nothing of it is decoded.
type podReader struct {
	seen  map[string]podShape
	specs map[string]*cluster.PodSpec // by their JSON
	buf   []byte
}

// podShape is what pods with equal masked spec and status have in common.
type podShape struct {
	spec          *cluster.PodSpec
	phase         cluster.PodPhase
	nominated     cluster.NodeName
	unschedulable bool
}

func podSource() source[cluster.Pod] {
	r := &podReader{seen: map[string]podShape{}, specs: map[string]*cluster.PodSpec{}}
	return source[cluster.Pod]{path: "/api/v1/pods", decode: r.decode}
}

func (r *podReader) decode(raw []byte, in *interner) (meta, cluster.Pod, error) {
	var (
		m            meta
		p            cluster.Pod
		spec, status []byte
	)
	err := fields(raw, func(f field) (err error) {
		switch f.number {
		case 1:
			m, err = decodeMeta(f.bytes, in, podAnnotation)
		case 2:
			spec = f.bytes
		case 3:
			status = f.bytes
		}
		return err
	})
	if err != nil {
		return m, p, err
	}
	shape, err := r.shape(spec, status)
	if err != nil {
		return m, p, err
	}
	p = cluster.Pod{
		PodRef:               cluster.PodRef{Namespace: m.namespace, Name: m.name, UID: cluster.PodUID(m.uid)},
		Labels:               m.labels,
		Annotations:          m.annotations,
		Spec:                 shape.spec,
		Phase:                shape.phase,
		NominatedNode:        shape.nominated,
		Unschedulable:        shape.unschedulable,
		CreatedUnix:          m.createdUnix,
		DeletionUnix:         m.deletionUnix,
		DeletionGraceSeconds: m.deletionGraceSeconds,
	}
	if o := m.controller(); o.UID != "" {
		p.Owner = cluster.Owner{Kind: o.Kind, Name: o.Name, UID: o.UID}
	}
	err = fields(spec, func(f field) error {
		if f.number == 10 {
			p.NodeName = cluster.NodeName(in.text(f.bytes))
		}
		return nil
	})
	if err != nil {
		return m, p, err
	}
	err = fields(status, func(f field) (err error) {
		if f.number == 7 {
			p.StartedUnix, err = decodeTime(f.bytes)
		}
		return err
	})
	return m, p, err
}

func podAnnotation(key []byte) bool {
	return string(key) == cluster.AnnotationDoNotDisrupt || string(key) == cluster.AnnotationPodDeletionCost
}

func (r *podReader) shape(rawSpec, rawStatus []byte) (podShape, error) {
	buf, err := podSpecMask.prune(r.buf[:0], rawSpec)
	if err != nil {
		return podShape{}, err
	}
	split := len(buf)
	buf, err = podStatusMask.prune(buf, rawStatus)
	if err != nil {
		return podShape{}, err
	}
	r.buf = buf
	if s, ok := r.seen[string(buf)]; ok {
		return s, nil
	}
	var (
		spec   corev1.PodSpec
		status corev1.PodStatus
	)
	if err := spec.Unmarshal(buf[:split]); err != nil {
		return podShape{}, fmt.Errorf("pod spec: %w", err)
	}
	if err := status.Unmarshal(buf[split:]); err != nil {
		return podShape{}, fmt.Errorf("pod status: %w", err)
	}
	shape := podShape{
		phase:         cluster.PodPhase(status.Phase),
		nominated:     cluster.NodeName(status.NominatedNodeName),
		unschedulable: unschedulable(&status),
	}
	converted := podSpec(&spec, &status)
	key, err := json.Marshal(converted)
	if err != nil {
		return podShape{}, fmt.Errorf("pod spec: %w", err)
	}
	known, ok := r.specs[string(key)]
	if !ok {
		known = converted
		r.specs[string(key)] = known
	}
	shape.spec = known
	if len(r.seen) > maxShapes {
		clear(r.seen)
		clear(r.specs)
	}
	r.seen[string(buf)] = shape
	return shape, nil
}

// maxShapes bounds what a mirror remembers about pods that may be long gone.
const maxShapes = 20_000

func unschedulable(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// podSpec converts a spec. The status matters for pods that are being resized; it may be empty.
func podSpec(spec *corev1.PodSpec, status *corev1.PodStatus) *cluster.PodSpec {
	out := &cluster.PodSpec{
		Requests:       requests(spec, status),
		NodeSelector:   stableKeys(spec.NodeSelector),
		Tolerations:    tolerations(spec.Tolerations),
		HostPorts:      hostPorts(spec.Containers),
		Claims:         volumeClaims(spec.Volumes),
		ResourceClaims: len(spec.ResourceClaims) > 0,
		Gated:          len(spec.SchedulingGates) > 0,
		SchedulerName:  spec.SchedulerName,
		PriorityClass:  spec.PriorityClassName,
		GraceSeconds:   corev1.DefaultTerminationGracePeriodSeconds,
	}
	if spec.Priority != nil {
		out.Priority = *spec.Priority
	}
	if spec.TerminationGracePeriodSeconds != nil {
		out.GraceSeconds = *spec.TerminationGracePeriodSeconds
	}
	for _, t := range spec.TopologySpreadConstraints {
		out.Spread = append(out.Spread, spread(t))
	}
	if spec.Affinity != nil {
		affinity(out, spec.Affinity)
	}
	return out
}

func affinity(out *cluster.PodSpec, a *corev1.Affinity) {
	if n := a.NodeAffinity; n != nil {
		if required := n.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			out.NodeAffinity = nodeTerms(required.NodeSelectorTerms)
		}
		for _, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			out.NodePrefers = append(out.NodePrefers, cluster.PreferredNodeTerm{Weight: p.Weight, Term: nodeTerm(p.Preference)})
		}
	}
	if p := a.PodAffinity; p != nil {
		out.Affinity = podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution)
		out.Prefers = preferredPodTerms(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		out.AntiAffinity = podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution)
		out.AntiPrefers = preferredPodTerms(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func nodeTerms(terms []corev1.NodeSelectorTerm) []cluster.NodeTerm {
	var out []cluster.NodeTerm
	for _, t := range terms {
		out = append(out, nodeTerm(t))
	}
	return out
}

func nodeTerm(t corev1.NodeSelectorTerm) cluster.NodeTerm {
	out := cluster.NodeTerm{Fields: len(t.MatchFields) > 0}
	for _, e := range t.MatchExpressions {
		out.Expressions = append(out.Expressions, cluster.Expression{
			Key: stableKey(e.Key), Operator: cluster.Operator(e.Operator), Values: e.Values,
		})
	}
	return out
}

func podTerms(terms []corev1.PodAffinityTerm) []cluster.PodTerm {
	var out []cluster.PodTerm
	for _, t := range terms {
		out = append(out, podTerm(t))
	}
	return out
}

func preferredPodTerms(terms []corev1.WeightedPodAffinityTerm) []cluster.PreferredPodTerm {
	var out []cluster.PreferredPodTerm
	for _, t := range terms {
		out = append(out, cluster.PreferredPodTerm{Weight: t.Weight, Term: podTerm(t.PodAffinityTerm)})
	}
	return out
}

// podTerm leaves matchLabelKeys and mismatchLabelKeys aside: the API server has merged them into the selector.
func podTerm(t corev1.PodAffinityTerm) cluster.PodTerm {
	return cluster.PodTerm{
		Selector:    selector(t.LabelSelector),
		Namespaces:  t.Namespaces,
		NamespaceBy: selector(t.NamespaceSelector),
		TopologyKey: stableKey(t.TopologyKey),
	}
}

// selector writes equality as In with one value, keys sorted, and then the expressions in their order.
func selector(s *metav1.LabelSelector) *cluster.Selector {
	if s == nil {
		return nil
	}
	out := &cluster.Selector{}
	for _, key := range sortedKeys(s.MatchLabels) {
		out.Expressions = append(out.Expressions, cluster.Expression{
			Key: key, Operator: cluster.In, Values: []string{s.MatchLabels[key]},
		})
	}
	for _, e := range s.MatchExpressions {
		out.Expressions = append(out.Expressions, cluster.Expression{
			Key: e.Key, Operator: cluster.Operator(e.Operator), Values: e.Values,
		})
	}
	return out
}

func spread(t corev1.TopologySpreadConstraint) cluster.Spread {
	out := cluster.Spread{
		TopologyKey:        stableKey(t.TopologyKey),
		MaxSkew:            t.MaxSkew,
		Hard:               t.WhenUnsatisfiable == corev1.DoNotSchedule,
		Selector:           selector(t.LabelSelector),
		MatchLabelKeys:     t.MatchLabelKeys,
		IgnoreNodeAffinity: t.NodeAffinityPolicy != nil && *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore,
		HonorNodeTaints:    t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
	}
	if t.MinDomains != nil {
		out.MinDomains = *t.MinDomains
	}
	return out
}

func tolerations(in []corev1.Toleration) []cluster.Toleration {
	var out []cluster.Toleration
	for _, t := range in {
		out = append(out, cluster.Toleration{
			Key: t.Key, Operator: string(t.Operator), Value: t.Value, Effect: cluster.Effect(t.Effect), Seconds: t.TolerationSeconds,
		})
	}
	return out
}

// hostPorts lists the ports that containers take on the node; those of init containers do not count (S-155). An address of
// 0.0.0.0 or :: is every address.
func hostPorts(containers []corev1.Container) []cluster.HostPort {
	var out []cluster.HostPort
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			h := cluster.HostPort{IP: p.HostIP, Port: p.HostPort, Protocol: orElse(string(p.Protocol), "TCP")}
			if h.IP == "0.0.0.0" || h.IP == "::" {
				h.IP = ""
			}
			out = append(out, h)
		}
	}
	return out
}

func volumeClaims(volumes []corev1.Volume) []cluster.VolumeClaimRef {
	var out []cluster.VolumeClaimRef
	for _, v := range volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, cluster.VolumeClaimRef{Name: v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			ref := cluster.VolumeClaimRef{Name: v.Name, Ephemeral: true}
			if t := v.Ephemeral.VolumeClaimTemplate; t != nil {
				ref.StorageClass = t.Spec.StorageClassName
			}
			out = append(out, ref)
		}
	}
	return out
}

// requests is what a pod takes of a node, and one pod: the larger of its initialisation and its running phase, sidecars
// counted from their place in the order on, pod-level amounts instead of the containers' where given, overhead on top. While a
// pod is being resized the larger of the old and the new amount counts (S-167 to S-173).
func requests(spec *corev1.PodSpec, status *corev1.PodStatus) cluster.Resources {
	var running, sidecars, peak cluster.Resources
	for _, c := range spec.Containers {
		running = running.Plus(containerRequests(c, status.ContainerStatuses))
	}
	for _, c := range spec.InitContainers {
		own := containerRequests(c, status.InitContainerStatuses)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = sidecars.Plus(own)
			own = cluster.Resources{}
		}
		peak = peak.Max(sidecars.Plus(own))
	}
	total := running.Plus(sidecars).Max(peak)
	if spec.Resources != nil {
		podLevel := withLimits(*spec.Resources)
		actual := resources(status.AllocatedResources)
		if status.Resources != nil {
			actual = actual.Max(resources(status.Resources.Requests))
		}
		for name, q := range podLevel {
			total.Set(string(name), max(amount(string(name), q), actual.Get(string(name))))
		}
	}
	total = total.Plus(resources(spec.Overhead))
	total.Pods = 1
	return total
}

func containerRequests(c corev1.Container, statuses []corev1.ContainerStatus) cluster.Resources {
	r := resources(withLimits(c.Resources))
	for _, s := range statuses {
		if s.Name != c.Name {
			continue
		}
		r = r.Max(resources(s.AllocatedResources))
		if s.Resources != nil {
			r = r.Max(resources(s.Resources.Requests))
		}
	}
	return r
}

// withLimits returns the requests, a limit standing in where there is none, as the API server does it for pods but not for
// templates (S-172).
func withLimits(r corev1.ResourceRequirements) corev1.ResourceList {
	if len(r.Limits) == 0 {
		return r.Requests
	}
	out := corev1.ResourceList{}
	maps.Copy(out, r.Limits)
	maps.Copy(out, r.Requests)
	return out
}

// stableKeys rewrites the keys of a selector to today's (S-022). It returns nil for none.
func stableKeys(in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[stableKey(k)] = v
	}
	return out
}

// stableKey returns the present name of a label that Kubernetes or a driver has renamed (S-022).
func stableKey(key string) string {
	switch key {
	case "failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone":
		return cluster.LabelZone
	case "failure-domain.beta.kubernetes.io/region":
		return cluster.LabelRegion
	case "beta.kubernetes.io/instance-type":
		return cluster.LabelInstanceType
	}
	if name, beta := strings.CutPrefix(key, "beta.kubernetes.io/"); beta && (name == "arch" || name == "os") {
		return "kubernetes.io/" + name
	}
	return key
}
