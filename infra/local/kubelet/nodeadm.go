package kubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	nodeConfigGroup     = "node.eks.aws"
	nodeConfigMediaType = "application/node.eks.aws"
)

// nodeConfig is the part of nodeadm's NodeConfig that decides what a node becomes.
type nodeConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Name                 string `json:"name"`
			APIServerEndpoint    string `json:"apiServerEndpoint"`
			CertificateAuthority []byte `json:"certificateAuthority"`
			CIDR                 string `json:"cidr"`
		} `json:"cluster"`
		Kubelet struct {
			Config map[string]any `json:"config"`
			Flags  []string       `json:"flags"`
		} `json:"kubelet"`
		Instance struct {
			LocalStorage struct {
				Strategy string `json:"strategy"`
			} `json:"localStorage"`
		} `json:"instance"`
		FeatureGates map[string]bool `json:"featureGates"`
	} `json:"spec"`
}

// kubeletConfig is the part of KubeletConfiguration that decides what a node offers.
type kubeletConfig struct {
	MaxPods            int64             `json:"maxPods"`
	PodsPerCore        int64             `json:"podsPerCore"`
	RegisterWithTaints []corev1.Taint    `json:"registerWithTaints"`
	KubeReserved       map[string]string `json:"kubeReserved"`
	SystemReserved     map[string]string `json:"systemReserved"`
	EvictionHard       map[string]string `json:"evictionHard"`
}

// parseNodeadm reads user data as nodeadm does on AL2023: every NodeConfig of a multi-part document, later
// ones over earlier ones, or one bare NodeConfig.
func parseNodeadm(data []byte) (bootstrap, error) {
	documents, err := parts(data)
	if err != nil {
		return bootstrap{}, err
	}
	var merged nodeConfig
	found := false
	for _, p := range documents {
		bare := p.mediaType == "" && len(documents) == 1
		if p.mediaType != nodeConfigMediaType && !(bare && bytes.Contains(p.body, []byte(nodeConfigGroup+"/"))) {
			continue
		}
		var one nodeConfig
		if err := yaml.Unmarshal(p.body, &one); err != nil {
			return bootstrap{}, fmt.Errorf("parse NodeConfig: %w", err)
		}
		if one.Kind != "NodeConfig" || !strings.HasPrefix(one.APIVersion, nodeConfigGroup+"/") {
			if bare {
				return bootstrap{}, errNoBootstrap // a script that only mentions the group
			}
			return bootstrap{}, fmt.Errorf("parse NodeConfig: unexpected kind %s %q", one.APIVersion, one.Kind)
		}
		found = true
		merged.merge(one)
	}
	if !found {
		return bootstrap{}, errNoBootstrap
	}
	return merged.bootstrap()
}

func (c *nodeConfig) merge(over nodeConfig) {
	to, from := &c.Spec, over.Spec
	setIf(&to.Cluster.Name, from.Cluster.Name)
	setIf(&to.Cluster.APIServerEndpoint, from.Cluster.APIServerEndpoint)
	setIf(&to.Cluster.CIDR, from.Cluster.CIDR)
	setIf(&to.Instance.LocalStorage.Strategy, from.Instance.LocalStorage.Strategy)
	if len(from.Cluster.CertificateAuthority) > 0 {
		to.Cluster.CertificateAuthority = from.Cluster.CertificateAuthority
	}
	to.Kubelet.Flags = append(to.Kubelet.Flags, from.Kubelet.Flags...)
	to.Kubelet.Config = mergeMaps(to.Kubelet.Config, from.Kubelet.Config)
	if to.FeatureGates == nil {
		to.FeatureGates = map[string]bool{}
	}
	maps.Copy(to.FeatureGates, from.FeatureGates)
}

func setIf(to *string, value string) {
	if value != "" {
		*to = value
	}
}

// mergeMaps lays over upon base, deeply; base is changed and returned.
func mergeMaps(base, over map[string]any) map[string]any {
	if base == nil {
		base = map[string]any{}
	}
	for k, v := range over {
		inner, isMap := v.(map[string]any)
		below, wasMap := base[k].(map[string]any)
		if isMap && wasMap {
			v = mergeMaps(below, inner)
		}
		base[k] = v
	}
	return base
}

func (c *nodeConfig) bootstrap() (bootstrap, error) {
	cluster := c.Spec.Cluster
	for _, field := range []struct{ name, value string }{
		{"name", cluster.Name},
		{"apiServerEndpoint", cluster.APIServerEndpoint},
		{"certificateAuthority", string(cluster.CertificateAuthority)},
		{"cidr", cluster.CIDR},
	} {
		if field.value == "" {
			return bootstrap{}, fmt.Errorf("validate NodeConfig: cluster.%s is missing", field.name)
		}
	}
	raw, err := json.Marshal(c.Spec.Kubelet.Config)
	if err != nil {
		return bootstrap{}, fmt.Errorf("parse kubelet config: %w", err)
	}
	var k kubeletConfig
	if err := json.Unmarshal(raw, &k); err != nil {
		return bootstrap{}, fmt.Errorf("parse kubelet config: %w", err)
	}
	b := bootstrap{
		family:         AL2023,
		cluster:        cluster.Name,
		endpoint:       cluster.APIServerEndpoint,
		ca:             cluster.CertificateAuthority,
		taints:         k.RegisterWithTaints,
		maxPods:        k.MaxPods,
		podsPerCore:    k.PodsPerCore,
		kubeReserved:   k.KubeReserved,
		systemReserved: k.SystemReserved,
		evictionHard:   k.EvictionHard,
		raid0:          c.Spec.Instance.LocalStorage.Strategy == "RAID0",
		instanceIDName: c.Spec.FeatureGates["InstanceIdNodeName"],
	}
	if err := b.applyFlags(c.Spec.Kubelet.Flags); err != nil {
		return bootstrap{}, err
	}
	return b, nil
}
