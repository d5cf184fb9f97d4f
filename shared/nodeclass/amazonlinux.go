package nodeclass

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"treadle/shared/cluster"
)

// nodeConfig is the file that nodeadm reads on AL2023, as far as Treadle writes it (C-106). Fields are in the order of the file.
type nodeConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Spec       nodeConfigSpec `json:"spec,omitzero"`
}

type nodeConfigSpec struct {
	Cluster  nodeConfigCluster  `json:"cluster"`
	Instance nodeConfigInstance `json:"instance,omitzero"`
	Kubelet  nodeConfigKubelet  `json:"kubelet"`
}

type nodeConfigCluster struct {
	Name                 string `json:"name"`
	APIServerEndpoint    string `json:"apiServerEndpoint"`
	CertificateAuthority string `json:"certificateAuthority"`
	CIDR                 string `json:"cidr"`
}

type nodeConfigInstance struct {
	LocalStorage struct {
		Strategy string `json:"strategy"`
	} `json:"localStorage"`
}

type nodeConfigKubelet struct {
	Config kubeletConfig `json:"config"`
	Flags  []string      `json:"flags,omitempty"`
}

// kubeletConfig is the part of KubeletConfiguration that a class can set.
type kubeletConfig struct {
	ClusterDNS                  []string          `json:"clusterDNS,omitempty"`
	MaxPods                     int64             `json:"maxPods"`
	PodsPerCore                 *int32            `json:"podsPerCore,omitempty"`
	RegisterWithTaints          []cluster.Taint   `json:"registerWithTaints,omitempty"`
	SystemReserved              map[string]string `json:"systemReserved,omitempty"`
	KubeReserved                map[string]string `json:"kubeReserved,omitempty"`
	EvictionHard                map[string]string `json:"evictionHard,omitempty"`
	EvictionSoft                map[string]string `json:"evictionSoft,omitempty"`
	EvictionSoftGracePeriod     map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMaxPodGracePeriod   *int32            `json:"evictionMaxPodGracePeriod,omitempty"`
	ImageGCHighThresholdPercent *int32            `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int32            `json:"imageGCLowThresholdPercent,omitempty"`
	CPUCFSQuota                 *bool             `json:"cpuCFSQuota,omitempty"`
}

const (
	nodeConfigGroup   = "node.eks.aws/"
	nodeConfigVersion = nodeConfigGroup + "v1alpha1"
	nodeConfigKind    = "NodeConfig"
)

// al2023Data puts the class's parts first: nodeadm merges its files in order, so that the generated one has the last word (C-105).
func al2023Data(b booting) (string, error) {
	own, err := customParts(b.custom, func(text string) string {
		var head nodeConfig
		if yaml.Unmarshal([]byte(text), &head) == nil && head.Kind == nodeConfigKind && strings.HasPrefix(head.APIVersion, nodeConfigGroup) {
			return typeNodeConfig
		}
		return typeShell
	})
	if err != nil {
		return "", err
	}
	k := b.kubelet
	config := nodeConfig{APIVersion: nodeConfigVersion, Kind: nodeConfigKind, Spec: nodeConfigSpec{
		Cluster: nodeConfigCluster{
			Name:                 b.facts.Cluster,
			APIServerEndpoint:    b.facts.Endpoint,
			CertificateAuthority: b.facts.CA,
			CIDR:                 b.facts.ServiceCIDR,
		},
		Kubelet: nodeConfigKubelet{
			Config: kubeletConfig{
				ClusterDNS:                  k.ClusterDNS,
				MaxPods:                     b.maxPods,
				PodsPerCore:                 k.PodsPerCore,
				RegisterWithTaints:          b.taints,
				SystemReserved:              k.SystemReserved,
				KubeReserved:                k.KubeReserved,
				EvictionHard:                k.EvictionHard,
				EvictionSoft:                k.EvictionSoft,
				EvictionSoftGracePeriod:     k.EvictionSoftGracePeriod,
				EvictionMaxPodGracePeriod:   k.EvictionMaxPodGracePeriod,
				ImageGCHighThresholdPercent: k.ImageGCHighThresholdPercent,
				ImageGCLowThresholdPercent:  k.ImageGCLowThresholdPercent,
				CPUCFSQuota:                 k.CPUCFSQuota,
			},
			Flags: []string{"--node-labels=" + pairs(b.labels, ",")},
		},
	}}
	if b.raid0 {
		config.Spec.Instance.LocalStorage.Strategy = "RAID0"
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("write node configuration: %w", err)
	}
	return joined(append(own, part{typeNodeConfig, string(text)})), nil
}

// al2Data puts the class's parts first and then the call of the script that the image carries (C-103).
func al2Data(b booting) (string, error) {
	own, err := customParts(b.custom, func(string) string { return typeShell })
	if err != nil {
		return "", err
	}
	args := []string{
		"--apiserver-endpoint '" + b.facts.Endpoint + "'",
		"--b64-cluster-ca '" + b.facts.CA + "'",
		"--use-max-pods false",
		"--kubelet-extra-args '" + strings.Join(b.kubeletFlags(), " ") + "'",
	}
	if dns := b.kubelet.ClusterDNS; len(dns) > 0 {
		args = append(args, "--dns-cluster-ip '"+dns[0]+"'")
	}
	if b.facts.ipv6() {
		args = append(args, "--ip-family ipv6")
	}
	if b.raid0 {
		args = append(args, "--local-disks raid0")
	}
	script := "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1\n" +
		"/etc/eks/bootstrap.sh '" + b.facts.Cluster + "' \\\n  " + strings.Join(args, " \\\n  ") + "\n"
	return joined(append(own, part{typeShell, script})), nil
}
