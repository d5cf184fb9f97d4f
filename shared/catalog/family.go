package catalog

import (
	"strings"

	"treadle/shared/cluster"
)

// family is what the image family of a class changes about capacity (C-096 to C-100).
type family struct {
	windowsBuild    string
	ephemeralDevice string
	ephemeralBytes  int64
	eniPods         bool // pods are limited by interfaces and their addresses
	eniMemory       bool // kube-reserved memory follows that limit even where maxPods says otherwise
	podsPerCore     bool
}

const (
	mib = 1 << 20
	gib = 1 << 30
	gb  = 1_000_000_000
)

func familyOf(class *cluster.NodeClass) family {
	switch familyName(class.Spec) {
	case "bottlerocket":
		return family{ephemeralDevice: "/dev/xvdb", ephemeralBytes: 20 * gib, eniPods: true}
	case "windows2019":
		return windows("10.0.17763")
	case "windows2022":
		return windows("10.0.20348")
	case "windows2025":
		return windows("10.0.26100")
	case "custom":
		return family{ephemeralBytes: 20 * gib, eniPods: true, eniMemory: true, podsPerCore: true}
	default: // AL2 and AL2023
		return family{ephemeralDevice: "/dev/xvda", ephemeralBytes: 20 * gib, eniPods: true, eniMemory: true, podsPerCore: true}
	}
}

func windows(build string) family {
	return family{windowsBuild: build, ephemeralDevice: "/dev/sda1", ephemeralBytes: 50 * gib, podsPerCore: true}
}

// familyName returns the image family of a class in lower case: the one given, or else the one that its alias names.
func familyName(spec cluster.NodeClassSpec) string {
	if spec.AMIFamily != "" {
		return strings.ToLower(spec.AMIFamily)
	}
	for _, term := range spec.AMISelectorTerms {
		if name, _, found := strings.Cut(term.Alias, "@"); found {
			return strings.ToLower(name)
		}
	}
	return ""
}
