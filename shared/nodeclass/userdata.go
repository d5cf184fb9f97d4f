package nodeclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"treadle/shared/cluster"
)

// booting is what a node has to be told to join (C-101).
type booting struct {
	family  family
	facts   Facts
	custom  string // the class's own user data
	labels  map[string]string
	taints  []cluster.Taint
	kubelet cluster.Kubelet
	maxPods int64
	raid0   bool
	image   string // name of the image, which tells its version
}

func boot(o Order, g *group) booting {
	spec := &o.Class.Spec
	b := booting{
		family:  familyOf(*spec),
		facts:   o.Facts,
		custom:  spec.UserData,
		labels:  nodeLabels(o),
		maxPods: g.maxPods,
		raid0:   spec.InstanceStorePolicy == "RAID0",
		image:   g.image.Name,
	}
	if spec.Kubelet != nil {
		b.kubelet = *spec.Kubelet
	}
	if len(b.kubelet.ClusterDNS) == 0 && o.Facts.DNSIP != "" {
		b.kubelet.ClusterDNS = []string{o.Facts.DNSIP}
	}
	b.taints = slices.Concat(o.Pool.Template.Taints, o.Pool.Template.StartupTaints,
		[]cluster.Taint{{Key: cluster.TaintUnregistered, Effect: cluster.NoExecute}})
	return b
}

// nodeLabels returns the labels that a node registers with: those of the pool, those that the claim's requirements leave no
// choice about, and what says whose node it is. Keys in the domains of Kubernetes are left to registration, because kubelet
// may set only a few of them.
func nodeLabels(o Order) map[string]string {
	all := map[string]string{}
	for _, e := range o.Claim.Requirements {
		if e.Operator == cluster.In && len(e.Values) == 1 && !strings.Contains(domain(e.Key), "karpenter") {
			all[e.Key] = e.Values[0]
		}
	}
	maps.Copy(all, o.Pool.Template.Labels)
	if o.Pool.Name != "" {
		all[cluster.LabelNodePool] = o.Pool.Name
	}
	all[cluster.LabelNodeClass] = o.Class.Name
	if len(o.Claim.Options) > 0 {
		all[cluster.LabelCapacityType] = string(o.Claim.Options[0].CapacityType)
	}
	if familyOf(o.Class.Spec) != custom {
		all[cluster.LabelNoTaintSync] = "true"
	}
	maps.DeleteFunc(all, func(key, _ string) bool {
		d := domain(key)
		return d == "kubernetes.io" || d == "k8s.io" || strings.HasSuffix(d, ".kubernetes.io") || strings.HasSuffix(d, ".k8s.io")
	})
	return all
}

func domain(key string) string {
	d, _, found := strings.Cut(key, "/")
	if !found {
		return ""
	}
	return d
}

// userData returns what an image of the family is given at boot, before base64.
func userData(b booting) (string, error) {
	switch b.family {
	case al2023:
		return al2023Data(b)
	case bottlerocket:
		return bottlerocketData(b)
	case al2:
		return al2Data(b)
	case windows2019, windows2022, windows2025:
		return windowsData(b), nil
	case custom:
		return b.custom, nil
	case unknownFamily:
	}
	return "", fmt.Errorf("%w: no image family", ErrInvalid)
}

// pairs joins labels as key=value in the order of keys.
func pairs(labels map[string]string, between string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return strings.Join(out, between)
}

func taintText(t cluster.Taint) string { return t.Key + "=" + t.Value + ":" + string(t.Effect) }

// kubeletFlags is the class's kubelet configuration as flags, for images that take no file (C-103, C-109).
func (b booting) kubeletFlags() []string {
	k := b.kubelet
	var taints []string
	for _, t := range b.taints {
		taints = append(taints, taintText(t))
	}
	out := []string{
		fmt.Sprintf("--node-labels=%q", pairs(b.labels, ",")),
		fmt.Sprintf("--register-with-taints=%q", strings.Join(taints, ",")),
		fmt.Sprintf("--max-pods=%d", b.maxPods),
	}
	number := func(flag string, n *int32) {
		if n != nil {
			out = append(out, fmt.Sprintf("--%s=%d", flag, *n))
		}
	}
	list := func(flag, equals string, values map[string]string) {
		if len(values) > 0 {
			out = append(out, fmt.Sprintf("--%s=%q", flag, strings.ReplaceAll(pairs(values, ","), "=", equals)))
		}
	}
	number("pods-per-core", k.PodsPerCore)
	list("system-reserved", "=", k.SystemReserved)
	list("kube-reserved", "=", k.KubeReserved)
	list("eviction-hard", "<", k.EvictionHard)
	list("eviction-soft", "<", k.EvictionSoft)
	list("eviction-soft-grace-period", "=", k.EvictionSoftGracePeriod)
	number("eviction-max-pod-grace-period", k.EvictionMaxPodGracePeriod)
	number("image-gc-high-threshold", k.ImageGCHighThresholdPercent)
	number("image-gc-low-threshold", k.ImageGCLowThresholdPercent)
	if k.CPUCFSQuota != nil {
		out = append(out, fmt.Sprintf("--cpu-cfs-quota=%t", *k.CPUCFSQuota))
	}
	return out
}
