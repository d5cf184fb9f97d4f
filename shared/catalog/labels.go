package catalog

import (
	"strconv"
	"strings"

	"treadle/shared/cluster"
)

const awsLabel = "karpenter.k8s.aws/instance-"

// labels returns what a node of type t carries in whatever zone it runs (S-211 to S-227). A fact that the type lacks is an
// absent label; only the hypervisor of a bare-metal type is there and empty.
func labels(t *Type, region string, f family) map[string]string {
	name, size, _ := strings.Cut(t.Name, ".")
	category, generation := split(name)
	const most = 28 // fits a map of 32 slots
	out := make(map[string]string, most)
	put := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}
	put(cluster.LabelInstanceType, t.Name)
	put(cluster.LabelArch, t.Arch)
	put(cluster.LabelRegion, region)
	switch {
	case f.windowsBuild == "":
		put(cluster.LabelOS, "linux")
	case t.Arch == "amd64":
		put(cluster.LabelOS, "windows")
		put(cluster.LabelWindowsBuild, f.windowsBuild)
	}
	out[awsLabel+"hypervisor"] = t.Hypervisor
	put(awsLabel+"encryption-in-transit-supported", strconv.FormatBool(t.EncryptsInTransit))
	put(awsLabel+"category", category)
	put(awsLabel+"generation", generation)
	put(awsLabel+"family", name)
	put(awsLabel+"size", size)
	put(awsLabel+"capability-flex", strconv.FormatBool(strings.Contains(name, "-flex")))
	put(awsLabel+"cpu", decimal(t.VCPU))
	put(awsLabel+"memory", decimal(t.MemoryMiB))
	put(awsLabel+"cpu-manufacturer", kebab(t.CPUManufacturer))
	put(awsLabel+"cpu-sustained-clock-speed-mhz", positive(t.ClockMHz))
	put(awsLabel+"local-nvme", positive(t.NVMeGB))
	put(awsLabel+"ebs-bandwidth", positive(t.EBSMbps))
	put(awsLabel+"network-bandwidth", positive(t.Mbps))
	if len(t.GPUs) == 1 { // two kinds are no one kind
		put(awsLabel+"gpu-name", kebab(t.GPUs[0].Name))
		put(awsLabel+"gpu-manufacturer", kebab(t.GPUs[0].Manufacturer))
		put(awsLabel+"gpu-count", decimal(t.GPUs[0].Count))
		put(awsLabel+"gpu-memory", positive(t.GPUs[0].MemoryMiB))
	}
	if len(t.Accelerators) == 1 {
		put(awsLabel+"accelerator-name", kebab(t.Accelerators[0].Name))
		put(awsLabel+"accelerator-manufacturer", kebab(t.Accelerators[0].Manufacturer))
		put(awsLabel+"accelerator-count", decimal(t.Accelerators[0].Count))
	}
	return out
}

// split returns the letters and the digits that a family name starts with: m and 5 of m5dn, u and 1 of u-6tb1.
func split(family string) (category, generation string) {
	rest := strings.TrimLeft(family, "abcdefghijklmnopqrstuvwxyz")
	category = family[:len(family)-len(rest)]
	if size, tail, found := strings.Cut(strings.TrimPrefix(rest, "-"), "tb"); found && rest[0] == '-' && digits(size) == size {
		rest = tail
	}
	return category, digits(rest)
}

func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

func kebab(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return decimal(n)
}
