package kubelet

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// bottlerocketSettings is the part of Bottlerocket's settings that decides what a node becomes.
type bottlerocketSettings struct {
	Settings struct {
		Kubernetes struct {
			ClusterName        string              `toml:"cluster-name"`
			APIServer          string              `toml:"api-server"`
			ClusterCertificate string              `toml:"cluster-certificate"`
			NodeLabels         map[string]string   `toml:"node-labels"`
			NodeTaints         map[string][]string `toml:"node-taints"`
			MaxPods            int64               `toml:"max-pods"`
			KubeReserved       map[string]string   `toml:"kube-reserved"`
			SystemReserved     map[string]string   `toml:"system-reserved"`
			EvictionHard       map[string]string   `toml:"eviction-hard"`
			HostnameSource     string              `toml:"hostname-override-source"`
		} `toml:"kubernetes"`
		BootstrapCommands map[string]struct {
			Commands [][]string `toml:"commands"`
		} `toml:"bootstrap-commands"`
	} `toml:"settings"`
}

// parseBottlerocket reads user data as Bottlerocket does: one TOML document.
func parseBottlerocket(data []byte) (bootstrap, error) {
	var doc bottlerocketSettings
	if err := toml.Unmarshal(data, &doc); err != nil {
		return bootstrap{}, fmt.Errorf("parse Bottlerocket settings: %w", err)
	}
	k := doc.Settings.Kubernetes
	if k.ClusterName == "" || k.APIServer == "" || k.ClusterCertificate == "" {
		return bootstrap{}, errors.New("parse Bottlerocket settings: cluster-name, api-server or cluster-certificate is missing")
	}
	ca, err := base64.StdEncoding.DecodeString(k.ClusterCertificate)
	if err != nil {
		return bootstrap{}, fmt.Errorf("parse Bottlerocket cluster-certificate: %w", err)
	}
	b := bootstrap{
		family:         Bottlerocket,
		cluster:        k.ClusterName,
		endpoint:       k.APIServer,
		ca:             ca,
		labels:         k.NodeLabels,
		maxPods:        k.MaxPods,
		kubeReserved:   k.KubeReserved,
		systemReserved: k.SystemReserved,
		evictionHard:   k.EvictionHard,
		instanceIDName: k.HostnameSource == "instance-id",
	}
	for key, values := range k.NodeTaints {
		for _, v := range values {
			value, effect, ok := strings.Cut(v, ":")
			if !ok {
				return bootstrap{}, fmt.Errorf("parse Bottlerocket node-taints: %q is not value:effect", v)
			}
			taint, err := newTaint(key, value, effect)
			if err != nil {
				return bootstrap{}, fmt.Errorf("parse Bottlerocket node-taints: %w", err)
			}
			b.taints = append(b.taints, taint)
		}
	}
	for _, c := range doc.Settings.BootstrapCommands {
		for _, words := range c.Commands {
			if strings.Contains(strings.Join(words, " "), "ephemeral-storage init") {
				b.raid0 = true
			}
		}
	}
	return b, nil
}
