package packing_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/cluster"
	"treadle/shared/packing"
)

func TestPack_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := anyCluster(t)
		opts := packing.Options{}
		got := packing.Pack(snap, opts)
		require.Empty(t, check(snap, got))
		require.Equal(t, got, packing.Pack(snap, opts), "equal snapshots give equal plans")
		require.Equal(t, got, packing.Pack(shuffled(snap, rapid.Int64().Draw(t, "seed")), opts), "input order must not matter")
		for _, launched := range []bool{false, true} {
			again := packing.Pack(applied(snap, got, launched), opts)
			if settled(snap) {
				require.Empty(t, again.Claims, "an applied plan asks for nothing more (launched: %v)", launched)
				require.LessOrEqual(t, len(again.Unplaced), len(got.Unplaced), "%v", got.Unplaced)
			}
		}
	})
}

func shuffled(snap cluster.Snapshot, seed int64) cluster.Snapshot {
	r := rand.New(rand.NewSource(seed))
	snap.Pods = mixed(r, snap.Pods)
	snap.Nodes = mixed(r, snap.Nodes)
	snap.NodePools = mixed(r, snap.NodePools)
	snap.Daemons = mixed(r, snap.Daemons)
	types := map[string][]cluster.InstanceType{}
	for class, list := range snap.Types {
		types[class] = mixed(r, list)
	}
	snap.Types = types
	return snap
}

func mixed[T any](r *rand.Rand, list []T) []T {
	out := append([]T(nil), list...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// anyCluster draws a small cluster with a little of everything.
func anyCluster(t *rapid.T) cluster.Snapshot {
	snap := cluster.Snapshot{Cluster: "any", NowUnix: 1_000_000, Types: map[string][]cluster.InstanceType{"default": smallCatalog()}}
	for i := range rapid.IntRange(1, 3).Draw(t, "pools") {
		snap.NodePools = append(snap.NodePools, anyPool(t, i))
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "daemons") {
		snap.Daemons = append(snap.Daemons, cluster.Daemon{Namespace: "kube-system", Name: fmt.Sprintf("daemon-%d", i), Spec: &cluster.PodSpec{
			Requests:     cluster.Resources{MilliCPU: rapid.Int64Range(0, 200).Draw(t, "cpu"), MemoryBytes: rapid.Int64Range(0, 200).Draw(t, "mem") << 20, Pods: 1},
			NodeSelector: rapid.SampledFrom([]map[string]string{nil, {cluster.LabelZone: "us-east-1a"}, {cluster.LabelArch: "arm64"}}).Draw(t, "selector"),
			Tolerations:  rapid.SampledFrom([][]cluster.Toleration{nil, {{Operator: "Exists"}}}).Draw(t, "tolerations"),
		}})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "nodes") {
		snap.Nodes = append(snap.Nodes, anyNode(t, i))
	}
	shapes := rapid.IntRange(1, 8).Draw(t, "shapes")
	n := 0
	for shape := range shapes {
		spec := anySpec(t)
		labels := map[string]string{"app": fmt.Sprintf("app-%d", shape)}
		anyTopology(t, spec, shape, shapes)
		if rapid.IntRange(0, 3).Draw(t, "bound") == 0 && len(snap.Nodes) > 0 && len(spec.Affinity)+len(spec.Spread)+len(spec.AntiAffinity) == 0 {
			snap.Pods = append(snap.Pods, cluster.Pod{
				PodRef: cluster.PodRef{Namespace: "default", Name: fmt.Sprintf("bound-%d", shape), UID: cluster.PodUID(fmt.Sprintf("bound-%d", shape))},
				Spec:   &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 100, Pods: 1}}, Labels: labels, Phase: cluster.PodRunning,
				NodeName: snap.Nodes[rapid.IntRange(0, len(snap.Nodes)-1).Draw(t, "on")].Name,
			})
		}
		for range rapid.IntRange(1, 12).Draw(t, "replicas") {
			pod := cluster.Pod{
				PodRef: cluster.PodRef{Namespace: "default", Name: fmt.Sprintf("pod-%03d", n), UID: cluster.PodUID(fmt.Sprintf("uid-%03d", n))},
				Spec:   spec, Labels: labels, Unschedulable: true, Phase: cluster.PodPending,
			}
			snap.Pods = append(snap.Pods, pod)
			n++
		}
	}
	return snap
}

func anyPool(t *rapid.T, i int) cluster.NodePool {
	p := cluster.NodePool{
		Name: fmt.Sprintf("pool-%d", i), Weight: rapid.Int32Range(0, 2).Draw(t, "weight"),
		Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}},
		Template:   cluster.NodeTemplate{NodeClass: "default", Labels: map[string]string{"team": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "team")}},
		Limits:     rapid.SampledFrom([]map[string]int64{nil, nil, {"cpu": 20_000}, {"nodes": 2}, {"memory": 64 << 30, "nodes": 5}}).Draw(t, "limits"),
	}
	p.Template.Requirements = append(p.Template.Requirements, rapid.SampledFrom([][]cluster.Expression{
		nil,
		{{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: []string{"on-demand"}}},
		{{Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"us-east-1a", "us-east-1b"}}},
		{{Key: "karpenter.k8s.aws/instance-cpu", Operator: cluster.Lt, Values: []string{"9"}}},
	}).Draw(t, "requirements")...)
	p.Template.Taints = rapid.SampledFrom([][]cluster.Taint{nil, nil, {{Key: "dedicated", Value: "x", Effect: cluster.NoSchedule}}}).Draw(t, "taints")
	return p
}

func anyNode(t *rapid.T, i int) cluster.Node {
	name := fmt.Sprintf("node-%d", i)
	return cluster.Node{
		Name: cluster.NodeName(name),
		Labels: map[string]string{
			cluster.LabelHostname: name, cluster.LabelZone: rapid.SampledFrom([]string{"us-east-1a", "us-east-1b"}).Draw(t, "zone"),
			cluster.LabelArch: "amd64", cluster.LabelOS: "linux", "team": "a",
		},
		Taints:      rapid.SampledFrom([][]cluster.Taint{nil, {{Key: "dedicated", Value: "x", Effect: cluster.NoSchedule}}}).Draw(t, "taints"),
		Allocatable: cluster.Resources{MilliCPU: 4000, MemoryBytes: 8 << 30, Pods: 20},
		Conditions:  cluster.Conditions{{Type: "Ready", Status: "True"}},
	}
}

func anySpec(t *rapid.T) *cluster.PodSpec {
	spec := &cluster.PodSpec{
		Requests: cluster.Resources{
			MilliCPU:    rapid.SampledFrom([]int64{0, 100, 250, 1000, 3000, 7000, 60_000}).Draw(t, "cpu"),
			MemoryBytes: rapid.SampledFrom([]int64{0, 128 << 20, 1 << 30, 6 << 30, 20 << 30}).Draw(t, "mem"), Pods: 1,
		},
		NodeSelector: rapid.SampledFrom([]map[string]string{
			nil, nil, {"team": "a"}, {"team": "c"}, {cluster.LabelZone: "us-east-1b"}, {cluster.LabelArch: "arm64"},
			{cluster.LabelCapacityType: "spot"},
		}).Draw(t, "selector"),
		Tolerations: rapid.SampledFrom([][]cluster.Toleration{nil, {{Key: "dedicated", Operator: "Exists"}}}).Draw(t, "tolerations"),
		NodeAffinity: rapid.SampledFrom([][]cluster.NodeTerm{
			nil, nil,
			{{Expressions: []cluster.Expression{{Key: "team", Operator: cluster.NotIn, Values: []string{"a"}}}}},
			{{Expressions: []cluster.Expression{{Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"nowhere"}}}},
				{Expressions: []cluster.Expression{{Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"us-east-1c"}}}}},
			{{Expressions: []cluster.Expression{{Key: "karpenter.k8s.aws/instance-family", Operator: cluster.In, Values: []string{"m6g", "m5"}}}}},
			{{Expressions: []cluster.Expression{{Key: "unheard-of", Operator: cluster.DoesNotExist}}}},
		}).Draw(t, "affinity"),
	}
	if rapid.IntRange(0, 9).Draw(t, "gpu") == 0 {
		spec.Requests.Set("nvidia.com/gpu", 1)
	}
	return spec
}

// settled reports whether nothing in snap may come out differently once a plan is applied. A claim counts as its largest
// type until it is launched, so a limit may open later; and a wish for neighbours may only then find them.
func settled(snap cluster.Snapshot) bool {
	return !slices.ContainsFunc(snap.NodePools, func(p cluster.NodePool) bool { return len(p.Limits) > 0 }) &&
		!slices.ContainsFunc(snap.Pods, func(p cluster.Pod) bool { return len(p.Spec.Prefers) > 0 })
}

// anyTopology gives the spec of a shape a constraint on its own pods or on those of another shape, or none.
func anyTopology(t *rapid.T, spec *cluster.PodSpec, shape, shapes int) {
	app := func(n int) *cluster.Selector {
		return &cluster.Selector{Expressions: []cluster.Expression{{Key: "app", Operator: cluster.In, Values: []string{fmt.Sprintf("app-%d", n)}}}}
	}
	key := rapid.SampledFrom([]string{cluster.LabelHostname, cluster.LabelZone}).Draw(t, "key")
	other := rapid.IntRange(0, shapes-1).Draw(t, "other")
	switch rapid.IntRange(0, 9).Draw(t, "topology") {
	case 0:
		spec.Spread = []cluster.Spread{{TopologyKey: key, MaxSkew: rapid.Int32Range(1, 3).Draw(t, "skew"), Hard: true, Selector: app(shape)}}
	case 1:
		spec.Spread = []cluster.Spread{{TopologyKey: key, MaxSkew: 1, Selector: app(shape)}}
	case 2:
		spec.Affinity = []cluster.PodTerm{{TopologyKey: key, Selector: app(shape)}}
	case 3:
		spec.AntiAffinity = []cluster.PodTerm{{TopologyKey: key, Selector: app(shape)}}
	case 4:
		spec.AntiAffinity = []cluster.PodTerm{{TopologyKey: key, Selector: app(other)}}
	case 5:
		spec.Affinity = []cluster.PodTerm{{TopologyKey: key, Selector: app(other)}}
	case 6:
		spec.Prefers = []cluster.PreferredPodTerm{{Weight: 5, Term: cluster.PodTerm{TopologyKey: key, Selector: app(other)}}}
		spec.HostPorts = []cluster.HostPort{{Port: 80, Protocol: "TCP"}}
	}
}
