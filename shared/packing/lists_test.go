package packing_test

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
	"treadle/shared/plan"
)

// lists is a folder with real pod lists and the EC2 catalogue; what needs them is skipped without it.
var lists = flag.String("lists", "", "folder with ec2-us-east-1.csv and pod lists")

type row map[string]string

func (r row) int(name string) int64 {
	n, _ := strconv.ParseFloat(r[name], 64)
	return int64(n)
}

func readList(t testing.TB, name string) []row {
	t.Helper()
	if *lists == "" {
		t.Skip("needs -lists")
	}
	f, err := os.Open(filepath.Join(*lists, name))
	require.NoError(t, err)
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	var out []row
	for _, line := range lines[1:] {
		r := row{}
		for i, value := range line {
			r[lines[0][i]] = value
		}
		out = append(out, r)
	}
	return out
}

// realTypes reads the EC2 catalogue with allocatable as the spec's rows S-180 to S-197 estimate it.
func realTypes(t testing.TB) []cluster.InstanceType {
	t.Helper()
	var out []cluster.InstanceType
	for _, r := range readList(t, "ec2-us-east-1.csv") {
		out = append(out, realType(r))
	}
	return out
}

func realType(r row) cluster.InstanceType {
	const mi = 1 << 20
	cores, size := r.int("vcpu"), r.int("memory_mib")
	if r["arch"] == "arm64" {
		size -= 64
	}
	size -= int64(math.Ceil(float64(r.int("memory_mib")) * 0.075))
	family, suffix, _ := strings.Cut(r["type"], ".")
	capacity := cluster.Resources{MilliCPU: cores * 1000, MemoryBytes: size * mi, EphemeralBytes: 20 << 30, Pods: r.int("max_pods")}
	if r.int("gpu_count") > 0 {
		capacity.Set("nvidia.com/gpu", r.int("gpu_count"))
	}
	reserve := int64(60)
	for i := int64(1); i < cores; i++ {
		switch {
		case i == 1:
			reserve += 10
		case i < 4:
			reserve += 5
		}
	}
	if cores > 4 {
		reserve += (cores - 4) * 10 / 4
	}
	overhead := cluster.Resources{MilliCPU: reserve, MemoryBytes: (255 + 11*r.int("max_pods") + 100) * mi, EphemeralBytes: 3 << 30}
	out := cluster.InstanceType{
		Name: r["type"], Capacity: capacity, Overhead: overhead, Allocatable: capacity.Minus(overhead),
		Labels: map[string]string{
			cluster.LabelInstanceType: r["type"], cluster.LabelArch: r["arch"], cluster.LabelOS: "linux",
			"karpenter.k8s.aws/instance-category": r["category"], "karpenter.k8s.aws/instance-generation": r["generation"],
			"karpenter.k8s.aws/instance-family": family, "karpenter.k8s.aws/instance-size": suffix,
			"karpenter.k8s.aws/instance-cpu": r["vcpu"], "karpenter.k8s.aws/instance-memory": r["memory_mib"],
		},
	}
	usd, _ := strconv.ParseFloat(r["od_usd_h"], 64)
	saving := r.int("spot_savings_pct")
	for _, zone := range r["zones"] {
		if zone > 'c' {
			continue
		}
		name := "us-east-1" + string(zone)
		price := int64(math.Round(usd * 1e6))
		out.Offerings = append(out.Offerings, cluster.Offering{Zone: name, CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: price, Available: true})
		if saving > 0 {
			out.Offerings = append(out.Offerings, cluster.Offering{Zone: name, CapacityType: cluster.Spot, PriceMicroUSDPerHour: price * (100 - saving) / 100, Available: true})
		}
	}
	return out
}

// realPods reads n pods of an openb list, spread evenly over it; gpu says whether GPUs are asked for.
func realPods(t testing.TB, file string, n int, gpu bool) []cluster.Pod {
	t.Helper()
	rows := readList(t, file)
	specs := map[string]*cluster.PodSpec{}
	var out []cluster.Pod
	for i := range n {
		r := rows[i%len(rows)]
		requests := cluster.Resources{MilliCPU: r.int("cpu_milli"), MemoryBytes: r.int("memory_mib") << 20, Pods: 1}
		if gpu && r.int("gpu_milli") > 0 {
			requests.Set("nvidia.com/gpu", max(1, r.int("gpu")))
		}
		key := fmt.Sprint(requests)
		if specs[key] == nil {
			specs[key] = &cluster.PodSpec{Requests: requests}
		}
		out = append(out, cluster.Pod{
			PodRef: cluster.PodRef{Namespace: "default", Name: fmt.Sprintf("pod-%05d", i), UID: cluster.PodUID(fmt.Sprintf("uid-%05d", i))},
			Spec:   specs[key], Unschedulable: true, Phase: cluster.PodPending,
		})
	}
	return out
}

// quickStart is the pool of Karpenter's quick start, on demand, optionally with at most maxCPU cores a node.
func quickStart(maxCPU int) cluster.NodePool {
	p := cluster.NodePool{
		Name: "default", Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}},
		Template: cluster.NodeTemplate{NodeClass: "default", Requirements: []cluster.Expression{
			{Key: cluster.LabelArch, Operator: cluster.In, Values: []string{"amd64"}},
			{Key: cluster.LabelOS, Operator: cluster.In, Values: []string{"linux"}},
			{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: []string{"on-demand"}},
			{Key: "karpenter.k8s.aws/instance-category", Operator: cluster.In, Values: []string{"c", "m", "r"}},
			{Key: "karpenter.k8s.aws/instance-generation", Operator: cluster.Gt, Values: []string{"2"}},
		}},
	}
	if maxCPU > 0 {
		p.Template.Requirements = append(p.Template.Requirements, cluster.Expression{
			Key: "karpenter.k8s.aws/instance-cpu", Operator: cluster.Lte, Values: []string{strconv.Itoa(maxCPU)},
		})
	}
	return p
}

// usdPerHour is what the claims of a plan cost at the price of their cheapest options.
func usdPerHour(p plan.Plan) float64 {
	sum := int64(0)
	for _, c := range p.Claims {
		sum += c.Options[0].PriceMicroUSDPerHour
	}
	return float64(sum) / 1e6
}

func BenchmarkPack_RealLists(b *testing.B) {
	for _, c := range []struct {
		file   string
		n      int
		gpu    bool
		cpu    int
		jitter int64 // percent
		spot   bool
	}{
		{"openb-default.csv", 100, false, 0, 0, false},
		{"openb-default.csv", 1000, false, 0, 0, false},
		{"openb-default.csv", 5000, false, 0, 0, false},
		{"openb-default.csv", 8152, false, 0, 0, false},
		{"openb-default.csv", 97824, false, 0, 0, false},
		{"openb-default.csv", 1000, false, 96, 0, false},
		{"openb-default.csv", 5000, false, 96, 0, false},
		{"openb-default.csv", 8152, false, 96, 0, false},
		{"openb-default.csv", 8152, false, 0, 0, true},
		{"openb-default.csv", 8152, false, 0, 10, false},
		{"openb-default.csv", 97824, false, 0, 10, false},
		{"openb-default.csv", 8152, true, -1, 0, false},
		{"azure-v1-50k.csv", 10000, false, 0, 0, false},
		{"azure-v1-50k.csv", 50000, false, 64, 0, false},
	} {
		b.Run(fmt.Sprintf("%s/%d pods/gpu %v/max %d CPU/jitter %d/spot %v", c.file, c.n, c.gpu, c.cpu, c.jitter, c.spot), func(b *testing.B) {
			pool := quickStart(max(c.cpu, 0))
			if c.cpu < 0 {
				pool.Template.Requirements = []cluster.Expression{{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: []string{"on-demand"}},
					{Key: "karpenter.k8s.aws/instance-category", Operator: cluster.NotIn, Values: []string{"t"}}}
			}
			if c.spot {
				pool.Template.Requirements[2].Values = []string{"spot"}
			}
			snap := cluster.Snapshot{
				Cluster: "bench", Pods: realPods(b, c.file, c.n, c.gpu), NodePools: []cluster.NodePool{pool},
				Types: map[string][]cluster.InstanceType{"default": realTypes(b)},
			}
			jitter(snap.Pods, c.jitter)
			var p plan.Plan
			b.ReportAllocs()
			for b.Loop() {
				p = packing.Pack(snap, packing.Options{})
			}
			b.ReportMetric(usdPerHour(p), "USD/h")
			b.ReportMetric(float64(len(p.Claims)), "nodes")
			b.ReportMetric(float64(len(p.Unplaced)), "unplaced")
		})
	}
}

// jitter makes every pod a shape of its own by changing its requests by at most the given percentage.
func jitter(pods []cluster.Pod, percent int64) {
	if percent == 0 {
		return
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range pods {
		spec := *pods[i].Spec
		spec.Requests.MilliCPU += spec.Requests.MilliCPU * (r.Int64N(2*percent*10+1) - percent*10) / 1000
		spec.Requests.MemoryBytes += spec.Requests.MemoryBytes / 1000 * (r.Int64N(2*percent*10+1) - percent*10)
		pods[i].Spec = &spec
	}
}

// BenchmarkPack_KarpenterMix is the mix of Karpenter's own benchmark: five equal parts of plain pods, spread over zones, spread
// over hosts, with affinity to their kind in a zone, and apart from their kind on hosts.
func BenchmarkPack_KarpenterMix(b *testing.B) {
	types := realTypes(b)
	for _, n := range []int{500, 1000, 5000, 20000} {
		b.Run(fmt.Sprintf("%d pods", n), func(b *testing.B) {
			snap := cluster.Snapshot{
				Cluster: "bench", Pods: mix(n), NodePools: []cluster.NodePool{quickStart(0)}, Types: map[string][]cluster.InstanceType{"default": types},
			}
			var p plan.Plan
			b.ReportAllocs()
			for b.Loop() {
				p = packing.Pack(snap, packing.Options{})
			}
			b.ReportMetric(usdPerHour(p), "USD/h")
			b.ReportMetric(float64(len(p.Claims)), "nodes")
			b.ReportMetric(float64(len(p.Unplaced)), "unplaced")
		})
	}
}

func TestPack_KarpenterMixIsValid(t *testing.T) {
	t.Parallel()
	snap := snapshot(onDemand(), mix(400)...)
	got := packing.Pack(snap, packing.Options{})
	require.Empty(t, check(snap, got))
	require.Empty(t, got.Unplaced)
}

func mix(n int) []cluster.Pod {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(values ...int64) int64 { return values[r.IntN(len(values))] }
	letter := func() string { return string(rune('a' + r.IntN(7))) }
	selector := func(key, value string) *cluster.Selector {
		return &cluster.Selector{Expressions: []cluster.Expression{{Key: key, Operator: cluster.In, Values: []string{value}}}}
	}
	var out []cluster.Pod
	for i := range n {
		spec := &cluster.PodSpec{Requests: cluster.Resources{
			MilliCPU: pick(100, 250, 500, 1000, 1500), MemoryBytes: pick(100, 256, 512, 1024, 2048, 4096) << 20, Pods: 1,
		}}
		labels := map[string]string{"my-label": letter()}
		switch i % 5 {
		case 1:
			spec.Spread = []cluster.Spread{{TopologyKey: cluster.LabelZone, MaxSkew: 1, Hard: true, Selector: selector("my-label", letter())}}
		case 2:
			spec.Spread = []cluster.Spread{{TopologyKey: cluster.LabelHostname, MaxSkew: 1, Hard: true, Selector: selector("my-label", letter())}}
		case 3:
			labels = map[string]string{"my-affinity": letter()}
			spec.Affinity = []cluster.PodTerm{{TopologyKey: cluster.LabelZone, Selector: selector("my-affinity", labels["my-affinity"])}}
		case 4:
			labels = map[string]string{"app": "nginx"}
			spec.AntiAffinity = []cluster.PodTerm{{TopologyKey: cluster.LabelHostname, Selector: selector("app", "nginx")}}
		}
		out = append(out, cluster.Pod{
			PodRef: cluster.PodRef{Namespace: "default", Name: fmt.Sprintf("pod-%05d", i), UID: cluster.PodUID(fmt.Sprintf("uid-%05d", i))},
			Spec:   spec, Labels: labels, Unschedulable: true, Phase: cluster.PodPending,
		})
	}
	return out
}

// BenchmarkPack_FullCluster packs a few pods onto a large cluster that has no room for them: what a wake-up costs.
func BenchmarkPack_FullCluster(b *testing.B) {
	const nodes, podsPerNode = 5000, 10
	snap := cluster.Snapshot{
		Cluster: "bench", NodePools: []cluster.NodePool{quickStart(0)}, Types: map[string][]cluster.InstanceType{"default": smallCatalog()},
	}
	full := &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 390, MemoryBytes: 1 << 30, Pods: 1}}
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		snap.Nodes = append(snap.Nodes, cluster.Node{
			Name: cluster.NodeName(name), Labels: map[string]string{cluster.LabelHostname: name, cluster.LabelZone: "us-east-1a", cluster.LabelArch: "amd64"},
			Allocatable: cluster.Resources{MilliCPU: 4000, MemoryBytes: 16 << 30, Pods: 58},
		})
		for j := range podsPerNode {
			snap.Pods = append(snap.Pods, cluster.Pod{
				PodRef: cluster.PodRef{Namespace: "default", Name: fmt.Sprintf("bound-%d-%d", i, j), UID: cluster.PodUID(fmt.Sprintf("bound-%d-%d", i, j))},
				Spec:   full, NodeName: cluster.NodeName(name), Phase: cluster.PodRunning,
			})
		}
	}
	snap.Pods = append(snap.Pods, mix(100)...)
	b.ReportAllocs()
	for b.Loop() {
		packing.Pack(snap, packing.Options{})
	}
}
