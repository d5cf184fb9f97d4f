package nodeclass

import (
	"strings"

	"treadle/shared/cluster"
)

// Labels of instance types that tell images apart (C-092).
const (
	labelGPUCount          = "karpenter.k8s.aws/instance-gpu-count"
	labelGPUMaker          = "karpenter.k8s.aws/instance-gpu-manufacturer"
	labelAcceleratorCount  = "karpenter.k8s.aws/instance-accelerator-count"
	labelAcceleratorMaker  = "karpenter.k8s.aws/instance-accelerator-manufacturer"
	labelTenancy           = "karpenter.k8s.aws/instance-tenancy"
	resourceEFA            = "vpc.amazonaws.com/efa"
	gib                    = 1 << 30
	reasonUnsupportedAlias = "UnsupportedAlias"
)

// family is an image family.
type family string

const (
	al2           family = "AL2"
	al2023        family = "AL2023"
	bottlerocket  family = "Bottlerocket"
	windows2019   family = "Windows2019"
	windows2022   family = "Windows2022"
	windows2025   family = "Windows2025"
	custom        family = "Custom"
	unknownFamily family = ""
)

// alias returns the family and version that the class's images are named by, and whether they are.
func alias(spec cluster.NodeClassSpec) (f family, version string, given bool) {
	for _, term := range spec.AMISelectorTerms {
		if name, version, found := strings.Cut(term.Alias, "@"); found {
			return parseFamily(name), version, true
		}
	}
	return unknownFamily, "", false
}

// familyOf returns the family of a class: the one given, or else that of its alias (C-008).
func familyOf(spec cluster.NodeClassSpec) family {
	if spec.AMIFamily != "" {
		return parseFamily(spec.AMIFamily)
	}
	f, _, _ := alias(spec)
	return f
}

func parseFamily(name string) family {
	for _, f := range []family{al2, al2023, bottlerocket, windows2019, windows2022, windows2025, custom} {
		if strings.EqualFold(string(f), name) {
			return f
		}
	}
	return unknownFamily
}

func (f family) windows() bool { return strings.HasPrefix(string(f), "Windows") }

// blockDevices returns the volumes of a class that names none (C-096 to C-100).
func (f family) blockDevices() []cluster.BlockDevice {
	yes := true
	volume := func(device string, gibs int64) cluster.BlockDevice {
		return cluster.BlockDevice{DeviceName: device, VolumeSizeBytes: gibs * gib, VolumeType: "gp3", Encrypted: &yes}
	}
	switch {
	case f == bottlerocket:
		return []cluster.BlockDevice{volume("/dev/xvda", 4), volume("/dev/xvdb", 20)}
	case f == al2 || f == al2023:
		return []cluster.BlockDevice{volume("/dev/xvda", 20)}
	case f.windows():
		return []cluster.BlockDevice{volume("/dev/sda1", 50)}
	default:
		return nil
	}
}

// variant is one image of an alias: the parameter that holds its id, and the instance types that it is for.
type variant struct {
	parameter    string
	requirements []cluster.Expression
}

// variants lists the images of a family for a Kubernetes version (C-088 to C-092).
func (f family) variants(kubernetes, version string) []variant {
	switch f {
	case al2:
		return al2Variants(kubernetes, version)
	case al2023:
		return al2023Variants(kubernetes, version)
	case bottlerocket:
		return bottlerocketVariants(kubernetes, version)
	case windows2019:
		return windowsVariants("2019", "10.0.17763", kubernetes)
	case windows2022:
		return windowsVariants("2022", "10.0.20348", kubernetes)
	case windows2025:
		return windowsVariants("2025", "10.0.26100", kubernetes)
	case custom, unknownFamily:
	}
	return nil
}

func al2Variants(kubernetes, version string) []variant {
	parameter := func(kind string) string {
		image := "recommended"
		if version != "latest" {
			image = "amazon-eks" + kind + "-node-" + kubernetes + "-" + version
		}
		return "/aws/service/eks/optimized-ami/" + kubernetes + "/amazon-linux-2" + kind + "/" + image + "/image_id"
	}
	return []variant{
		{parameter(""), standard("amd64")},
		{parameter("-arm64"), standard("arm64")},
		{parameter("-gpu"), nvidia("amd64")},
		{parameter("-gpu"), neuron()},
	}
}

func al2023Variants(kubernetes, version string) []variant {
	parameter := func(arch, kind string) string {
		image := "recommended"
		if version != "latest" {
			image = "amazon-eks-node-al2023-" + arch + "-" + kind + "-" + kubernetes + "-" + version
		}
		return "/aws/service/eks/optimized-ami/" + kubernetes + "/amazon-linux-2023/" + arch + "/" + kind + "/" + image + "/image_id"
	}
	return []variant{
		{parameter("x86_64", "standard"), standard("amd64")},
		{parameter("arm64", "standard"), standard("arm64")},
		{parameter("x86_64", "nvidia"), nvidia("amd64")},
		{parameter("arm64", "nvidia"), nvidia("arm64")},
		{parameter("x86_64", "neuron"), neuron()},
	}
}

func bottlerocketVariants(kubernetes, version string) []variant {
	parameter := func(kind, arch string) string {
		return "/aws/service/bottlerocket/aws-k8s-" + kubernetes + kind + "/" + arch + "/" + strings.TrimPrefix(version, "v") + "/image_id"
	}
	return []variant{
		{parameter("", "x86_64"), standard("amd64")},
		{parameter("", "x86_64"), neuron()},
		{parameter("", "arm64"), standard("arm64")},
		{parameter("-nvidia", "x86_64"), nvidia("amd64")},
		{parameter("-nvidia", "arm64"), nvidia("arm64")},
	}
}

func windowsVariants(year, build, kubernetes string) []variant {
	return []variant{{
		"/aws/service/ami-windows-latest/Windows_Server-" + year + "-English-Core-EKS_Optimized-" + kubernetes + "/image_id",
		[]cluster.Expression{
			in(cluster.LabelArch, "amd64"), in(cluster.LabelOS, "windows"), in(cluster.LabelWindowsBuild, build),
		},
	}}
}

func standard(arch string) []cluster.Expression {
	return []cluster.Expression{in(cluster.LabelArch, arch), absent(labelGPUCount), absent(labelAcceleratorCount)}
}

func nvidia(arch string) []cluster.Expression {
	return []cluster.Expression{in(cluster.LabelArch, arch), in(labelGPUMaker, "nvidia")}
}

// neuron asks for the maker and not for names of devices, so that an image serves the chips of the next generation too.
func neuron() []cluster.Expression {
	return []cluster.Expression{in(cluster.LabelArch, "amd64"), in(labelAcceleratorMaker, "aws")}
}

func in(key string, values ...string) cluster.Expression {
	return cluster.Expression{Key: key, Operator: cluster.In, Values: values}
}

func absent(key string) cluster.Expression {
	return cluster.Expression{Key: key, Operator: cluster.DoesNotExist}
}
