package catalog

import (
	"strconv"
	"strings"

	"treadle/shared/cluster"
)

const awsLabel = "karpenter.k8s.aws/instance-"

// labels returns what a node of type t carries in whatever zone it runs (S-211 to S-227). A fact that the type lacks is an
// absent label, never an empty one; the hypervisor of a bare-metal type is the one exception that users rely on.
func labels(t *Type, region string, f family) map[string]string {
	name, size, _ := strings.Cut(t.Name, ".")
	category, generation := split(name)
	out := map[string]string{
		cluster.LabelInstanceType:                    t.Name,
		cluster.LabelArch:                            t.Arch,
		cluster.LabelRegion:                          region,
		awsLabel + "hypervisor":                      t.Hypervisor,
		awsLabel + "encryption-in-transit-supported": strconv.FormatBool(t.EncryptsInTransit),
		awsLabel + "category":                        category,
		awsLabel + "generation":                      generation,
		awsLabel + "family":                          name,
		awsLabel + "size":                            size,
		awsLabel + "capability-flex":                 strconv.FormatBool(strings.Contains(name, "-flex")),
		awsLabel + "cpu":                             decimal(t.VCPU),
		awsLabel + "memory":                          decimal(t.MemoryMiB),
		awsLabel + "cpu-manufacturer":                kebab(t.CPUManufacturer),
		awsLabel + "cpu-sustained-clock-speed-mhz":   positive(t.ClockMHz),
		awsLabel + "local-nvme":                      positive(t.NVMeGB),
		awsLabel + "ebs-bandwidth":                   positive(t.EBSMbps),
		awsLabel + "network-bandwidth":               positive(t.Mbps),
		cluster.LabelOS:                              "linux",
	}
	if f.windowsBuild != "" {
		out[cluster.LabelOS] = ""
		if t.Arch == "amd64" {
			out[cluster.LabelOS] = "windows"
			out[cluster.LabelWindowsBuild] = f.windowsBuild
		}
	}
	device(out, "gpu", t.GPUs)
	device(out, "accelerator", t.Accelerators)
	for key, value := range out {
		if value == "" && key != awsLabel+"hypervisor" {
			delete(out, key)
		}
	}
	return out
}

// device adds the labels of GPUs or accelerators, which only a type with devices of one kind has.
func device(out map[string]string, kind string, devices []Device) {
	if len(devices) != 1 {
		return
	}
	d := devices[0]
	out[awsLabel+kind+"-name"] = kebab(d.Name)
	out[awsLabel+kind+"-manufacturer"] = kebab(d.Manufacturer)
	out[awsLabel+kind+"-count"] = decimal(d.Count)
	if kind == "gpu" {
		out[awsLabel+kind+"-memory"] = positive(d.MemoryMiB)
	}
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
