package nodeclass

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// table is a table of a TOML document.
type table = map[string]any

// bottlerocketData writes Treadle's settings over those of the class (C-107); what Treadle does not set stays as it was.
func bottlerocketData(b booting) (string, error) {
	doc := table{}
	if err := toml.Unmarshal([]byte(b.custom), &doc); err != nil {
		return "", fmt.Errorf("%w: user data is no TOML: %w", ErrInvalid, err)
	}
	settings, err := below(doc, "settings")
	if err != nil {
		return "", err
	}
	kubernetes, err := below(settings, "kubernetes")
	if err != nil {
		return "", err
	}
	b.kubernetesSettings(kubernetes)
	if b.raid0 {
		commands, err := below(settings, "bootstrap-commands")
		if err != nil {
			return "", err
		}
		commands["000-mount-instance-storage"] = b.mountInstanceStorage()
	}
	text, err := toml.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("write Bottlerocket settings: %w", err)
	}
	return string(text), nil
}

func (b booting) kubernetesSettings(out table) {
	k := b.kubelet
	out["cluster-name"] = b.facts.Cluster
	out["api-server"] = b.facts.Endpoint
	out["cluster-certificate"] = b.facts.CA
	out["max-pods"] = b.maxPods
	out["node-labels"] = b.labels
	taints := map[string][]string{}
	for _, t := range b.taints {
		taints[t.Key] = append(taints[t.Key], t.Value+":"+string(t.Effect))
	}
	out["node-taints"] = taints
	if len(k.ClusterDNS) > 0 {
		out["cluster-dns-ip"] = k.ClusterDNS[0]
	}
	for name, values := range map[string]map[string]string{
		"system-reserved":            k.SystemReserved,
		"kube-reserved":              k.KubeReserved,
		"eviction-hard":              k.EvictionHard,
		"eviction-soft":              k.EvictionSoft,
		"eviction-soft-grace-period": k.EvictionSoftGracePeriod,
	} {
		if len(values) > 0 {
			out[name] = values
		}
	}
	if n := k.EvictionMaxPodGracePeriod; n != nil {
		out["eviction-max-pod-grace-period"] = *n
	}
	if n := k.ImageGCHighThresholdPercent; n != nil {
		out["image-gc-high-threshold-percent"] = strconv.Itoa(int(*n))
	}
	if n := k.ImageGCLowThresholdPercent; n != nil {
		out["image-gc-low-threshold-percent"] = strconv.Itoa(int(*n))
	}
	if k.CPUCFSQuota != nil {
		out["cpu-cfs-quota-enforced"] = *k.CPUCFSQuota
	}
}

// mountInstanceStorage returns the command that puts images and pods' files on local disks (C-108).
func (b booting) mountInstanceStorage() table {
	bind := []string{"apiclient", "ephemeral-storage", "bind"}
	if !b.knowsWhatToBind() {
		bind = append(bind, "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
	}
	return table{
		"commands":  [][]string{{"apiclient", "ephemeral-storage", "init"}, bind},
		"mode":      "always",
		"essential": true,
	}
}

// knowsWhatToBind reports whether the image is of version 1.46 or later, which needs no list of directories. An image whose
// name tells no version is given the list.
func (b booting) knowsWhatToBind() bool {
	_, version, found := strings.Cut(b.image, "-v")
	if !found {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 1 || major == 1 && minor >= 46
}

// below returns the table called name in t, made if there is none.
func below(t table, name string) (table, error) {
	switch old := t[name].(type) {
	case nil:
		made := table{}
		t[name] = made
		return made, nil
	case table:
		return old, nil
	default:
		return nil, fmt.Errorf("%w: %s in the user data is no table", ErrInvalid, name)
	}
}
