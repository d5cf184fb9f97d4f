package packing_test

import (
	"fmt"
	"strconv"

	"treadle/shared/cluster"
)

// smallCatalog is a few families of instance types with prices in proportion to their size, in three zones, on demand and,
// but for metal, as spot.
func smallCatalog() []cluster.InstanceType {
	families := []struct {
		name, arch, category string
		memory               int64 // GiB a core
		gpus                 int64 // a core
		price                int64 // micro USD a core and hour
	}{
		{"c5", "amd64", "c", 2, 0, 42_500},
		{"m5", "amd64", "m", 4, 0, 48_000},
		{"r5", "amd64", "r", 8, 0, 63_000},
		{"m6g", "arm64", "m", 4, 0, 38_500},
		{"g5", "amd64", "g", 4, 1, 250_000},
	}
	sizes := []struct {
		name  string
		cores int64
		pods  int64
	}{{"large", 2, 29}, {"xlarge", 4, 58}, {"2xlarge", 8, 58}, {"4xlarge", 16, 234}, {"metal", 32, 250}}
	var out []cluster.InstanceType
	for _, f := range families {
		for _, s := range sizes {
			if f.gpus > 0 && s.cores < 4 {
				continue
			}
			capacity := cluster.Resources{MilliCPU: s.cores * 1000, MemoryBytes: s.cores * f.memory << 30, EphemeralBytes: 20 << 30, Pods: s.pods}
			if f.gpus > 0 {
				capacity.Set("nvidia.com/gpu", s.cores/4)
			}
			overhead := cluster.Resources{MilliCPU: 70 + s.cores*3, MemoryBytes: (355 + 11*s.pods) << 20, EphemeralBytes: 3 << 30}
			t := cluster.InstanceType{
				Name: f.name + "." + s.name, Capacity: capacity, Overhead: overhead, Allocatable: capacity.Minus(overhead),
				Labels: map[string]string{
					cluster.LabelInstanceType: f.name + "." + s.name, cluster.LabelArch: f.arch, cluster.LabelOS: "linux", cluster.LabelRegion: "us-east-1",
					"karpenter.k8s.aws/instance-family": f.name, "karpenter.k8s.aws/instance-category": f.category,
					"karpenter.k8s.aws/instance-generation": f.name[1:2], "karpenter.k8s.aws/instance-size": s.name,
					"karpenter.k8s.aws/instance-cpu":    strconv.FormatInt(s.cores, 10),
					"karpenter.k8s.aws/instance-memory": fmt.Sprint(s.cores * f.memory * 1024),
				},
			}
			for z, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
				price := f.price * s.cores
				t.Offerings = append(t.Offerings, cluster.Offering{Zone: zone, CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: price, Available: true})
				if s.name != "metal" {
					t.Offerings = append(t.Offerings, cluster.Offering{Zone: zone, CapacityType: cluster.Spot, PriceMicroUSDPerHour: price * int64(30+z) / 100, Available: true})
				}
			}
			out = append(out, t)
		}
	}
	return out
}
