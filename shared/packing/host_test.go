package packing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
	"treadle/shared/plan"
)

// onDemand is a ready pool that takes any type on demand.
func onDemand(more ...cluster.Expression) cluster.NodePool {
	return cluster.NodePool{
		Name: "default", Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}},
		Template: cluster.NodeTemplate{NodeClass: "default", Requirements: append([]cluster.Expression{
			{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: []string{"on-demand"}},
		}, more...)},
	}
}

func pending(name string, spec cluster.PodSpec) cluster.Pod {
	spec.Requests.Pods = 1
	return cluster.Pod{
		PodRef: cluster.PodRef{Namespace: "default", Name: name, UID: cluster.PodUID(name)}, Spec: &spec,
		Phase: cluster.PodPending, Unschedulable: true,
	}
}

func snapshot(pool cluster.NodePool, pods ...cluster.Pod) cluster.Snapshot {
	return cluster.Snapshot{
		Cluster: "test", NowUnix: 1000, NodePools: []cluster.NodePool{pool}, Pods: pods,
		Types: map[string][]cluster.InstanceType{"default": smallCatalog()},
	}
}

func milliCPU(n int64) cluster.PodSpec {
	return cluster.PodSpec{Requests: cluster.Resources{MilliCPU: n, MemoryBytes: 1 << 30}}
}

func TestPack_WhichNodesAreTargets(t *testing.T) {
	t.Parallel()
	const provider = "aws:///us-east-1a/i-1"
	startup := cluster.Taint{Key: "starting", Effect: cluster.NoSchedule}
	notReady := cluster.Taint{Key: cluster.TaintNotReady, Effect: cluster.NoSchedule}
	big := cluster.Resources{MilliCPU: 4000, MemoryBytes: 8 << 30, Pods: 20}
	claim := cluster.NodeClaim{
		Name: "claim", ProviderID: provider, NodeClass: "default", StartupTaints: []cluster.Taint{startup},
		Labels: map[string]string{cluster.LabelNodePool: "default"}, Capacity: big, Allocatable: big,
	}
	node := cluster.Node{Name: "node", ProviderID: provider, Labels: map[string]string{cluster.LabelNodePool: "default"}, Allocatable: big, Capacity: big}
	with := func(change func(*cluster.Node)) cluster.Node {
		n := node
		n.Labels = map[string]string{cluster.LabelNodePool: "default"}
		change(&n)
		return n
	}
	initialized := func(n *cluster.Node) { n.Labels[cluster.LabelInitialized] = "true" }
	for name, c := range map[string]struct {
		node   cluster.Node
		claims []cluster.NodeClaim
		spec   cluster.PodSpec
		want   plan.Placement
	}{
		"a starting node is one, its startup and ephemeral taints aside": {
			with(func(n *cluster.Node) { n.Taints = []cluster.Taint{startup, notReady} }), []cluster.NodeClaim{claim}, milliCPU(500), plan.Placement{Node: "node"}},
		"an initialized node with a startup taint is none": {
			with(func(n *cluster.Node) { initialized(n); n.Taints = []cluster.Taint{startup} }), []cluster.NodeClaim{claim}, milliCPU(500), plan.Placement{}},
		"an initialized node that is not ready is none": {
			with(func(n *cluster.Node) { initialized(n); n.Taints = []cluster.Taint{notReady} }), []cluster.NodeClaim{claim}, milliCPU(500), plan.Placement{}},
		"a node that nobody manages keeps all its taints": {
			with(func(n *cluster.Node) { n.Labels, n.Taints = nil, []cluster.Taint{notReady} }), nil, milliCPU(500), plan.Placement{}},
		"a node that nobody manages is one": {
			with(func(n *cluster.Node) { n.Labels = nil }), nil, milliCPU(500), plan.Placement{Node: "node"}},
		"a cordoned node is none": {
			with(func(n *cluster.Node) { initialized(n); n.Unschedulable = true }), []cluster.NodeClaim{claim}, milliCPU(500), plan.Placement{}},
		"a node being deleted is none": {
			with(func(n *cluster.Node) { initialized(n); n.DeletionUnix = 900 }), []cluster.NodeClaim{claim}, milliCPU(500), plan.Placement{}},
		"a node tainted for disruption is none": {
			with(func(n *cluster.Node) {
				initialized(n)
				n.Taints = []cluster.Taint{{Key: cluster.TaintDisrupted, Effect: cluster.NoSchedule}}
			}), []cluster.NodeClaim{claim}, milliCPU(500), plan.Placement{}},
		"a starting node that reports no GPUs yet has those of its claim": {
			with(func(n *cluster.Node) {}), []cluster.NodeClaim{func() cluster.NodeClaim {
				c := claim
				c.Allocatable.Extended = map[string]int64{"nvidia.com/gpu": 1}
				return c
			}()}, cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 500, Extended: map[string]int64{"nvidia.com/gpu": 1}}}, plan.Placement{Node: "node"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := snapshot(onDemand(), pending("pod", c.spec))
			snap.Nodes, snap.NodeClaims = []cluster.Node{c.node}, c.claims
			got := packing.Pack(snap, packing.Options{})
			if c.want.Node == "" {
				require.Empty(t, got.Placed)
				require.Len(t, got.Claims, 1)
				return
			}
			c.want.Pod = snap.Pods[0].PodRef
			require.Equal(t, []plan.Placement{c.want}, got.Placed)
		})
	}
}

func TestPack_WhichPodsAreLookedAt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster.Pod)
		want   bool
	}{
		"a pod that the scheduler found no node for":   {func(*cluster.Pod) {}, true},
		"a pod that it has not tried, once old enough": {func(p *cluster.Pod) { p.Unschedulable, p.CreatedUnix = false, 990 }, true},
		"not one that is younger":                      {func(p *cluster.Pod) { p.Unschedulable, p.CreatedUnix = false, 998 }, false},
		"not one that is gated":                        {func(p *cluster.Pod) { p.Spec.Gated, p.Unschedulable = true, false }, false},
		"not one that ends":                            {func(p *cluster.Pod) { p.DeletionUnix = 990 }, false},
		"not one that has ended":                       {func(p *cluster.Pod) { p.Phase = cluster.PodFailed }, false},
		"not one of a DaemonSet":                       {func(p *cluster.Pod) { p.Owner.Kind = "DaemonSet" }, false},
		"not a static one":                             {func(p *cluster.Pod) { p.Owner.Kind = "Node" }, false},
		"not one that wants no pool's node": {func(p *cluster.Pod) {
			p.Spec.NodeAffinity = []cluster.NodeTerm{{Expressions: []cluster.Expression{{Key: cluster.LabelNodePool, Operator: cluster.DoesNotExist}}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := pending("pod", milliCPU(500))
			c.change(&pod)
			got := packing.Pack(snapshot(onDemand(), pod), packing.Options{MinAgeSeconds: 5})
			require.Equal(t, c.want, len(got.Claims) == 1)
			require.Empty(t, got.Unplaced)
		})
	}
}

func TestPack_PodsOfLeavingNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster.Pod, *cluster.Snapshot)
		want   bool
	}{
		"are placed anew": {func(*cluster.Pod, *cluster.Snapshot) {}, true},
		"not if they may not be disrupted": {func(p *cluster.Pod, _ *cluster.Snapshot) {
			p.Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "true"}
		}, false},
		"not if a budget never lets them go": {func(p *cluster.Pod, s *cluster.Snapshot) {
			s.Budgets = []cluster.PodDisruptionBudget{{Namespace: "default", Selector: &cluster.Selector{}, Blocked: true}}
		}, false},
		"not if they end, their ReplicaSet has made others": {func(p *cluster.Pod, _ *cluster.Snapshot) { p.DeletionUnix, p.Owner.Kind = 990, "ReplicaSet" }, false},
		"even if they end, where a StatefulSet waits":       {func(p *cluster.Pod, _ *cluster.Snapshot) { p.DeletionUnix, p.Owner.Kind = 990, "StatefulSet" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := pending("pod", milliCPU(500))
			pod.NodeName, pod.Phase, pod.Unschedulable = "node", cluster.PodRunning, false
			snap := snapshot(onDemand())
			snap.Nodes = []cluster.Node{{Name: "node", Allocatable: cluster.Resources{MilliCPU: 4000, MemoryBytes: 8 << 30, Pods: 20}}}
			c.change(&pod, &snap)
			snap.Pods = []cluster.Pod{pod}
			got := packing.Pack(snap, packing.Options{LeavingNodes: []cluster.NodeName{"node"}})
			require.Equal(t, c.want, len(got.Claims) == 1)
			require.Empty(t, packing.Pack(snap, packing.Options{}).Claims, "a node that stays keeps its pods")
		})
	}
}

func TestPack_MinValuesSurviveTruncation(t *testing.T) {
	t.Parallel()
	types := smallCatalog()
	for i := range types {
		for j := range types[i].Offerings { // the last family is far dearer than sixty offerings of others
			if types[i].Labels["karpenter.k8s.aws/instance-family"] == "r5" {
				types[i].Offerings[j].PriceMicroUSDPerHour *= 1000
			}
		}
	}
	pool := onDemand(cluster.Expression{Key: "karpenter.k8s.aws/instance-family", Operator: cluster.Exists, MinValues: 5})
	snap := snapshot(pool, pending("pod", milliCPU(500)))
	snap.Types["default"] = types
	got := packing.Pack(snap, packing.Options{})
	require.Len(t, got.Claims, 1)
	families := map[string]bool{}
	for _, o := range got.Claims[0].Options {
		families[o.InstanceType[:2]] = true
	}
	require.Len(t, families, 5)
	require.LessOrEqual(t, len(got.Claims[0].Options), plan.MaxOptions)
}

func TestPack_ReservedGoesFirstAndOnlyWhileSomeIsLeft(t *testing.T) {
	t.Parallel()
	types := smallCatalog()
	for i := range types {
		if types[i].Name == "m5.xlarge" {
			types[i].Offerings = append(types[i].Offerings, cluster.Offering{
				Zone: "us-east-1b", CapacityType: cluster.Reserved, ReservationID: "cr-1", ReservationLeft: 1, Available: true,
			})
		}
	}
	pool := onDemand()
	pool.Template.Requirements[0].Values = []string{"on-demand", "reserved"}
	snap := snapshot(pool, pending("a", milliCPU(3000)), pending("b", milliCPU(3000)))
	snap.Types["default"] = types
	got := packing.Pack(snap, packing.Options{})
	require.Len(t, got.Claims, 2)
	require.Equal(t, cluster.OnDemand, got.Claims[1].Options[0].CapacityType, "the reservation has one left, not two")
	require.Equal(t, []plan.Option{{InstanceType: "m5.xlarge", Zone: "us-east-1b", CapacityType: cluster.Reserved, ReservationID: "cr-1"}}, got.Claims[0].Options)
}

func TestPack_SoftTaintsAreAvoidedThenTolerated(t *testing.T) {
	t.Parallel()
	soft, hard := onDemand(), onDemand(cluster.Expression{Key: cluster.LabelArch, Operator: cluster.In, Values: []string{"arm64"}})
	soft.Name, soft.Weight, soft.Template.Taints = "soft", 10, []cluster.Taint{{Key: "k", Effect: cluster.PreferNoSchedule}}
	hard.Name = "clean"
	snap := snapshot(soft, pending("any", milliCPU(500)), pending("amd", func() cluster.PodSpec {
		s := milliCPU(500)
		s.NodeSelector = map[string]string{cluster.LabelArch: "amd64"}
		return s
	}()))
	snap.NodePools = append(snap.NodePools, hard)
	got := packing.Pack(snap, packing.Options{})
	require.Empty(t, got.Unplaced)
	where := map[string]string{}
	for _, c := range got.Claims {
		for _, p := range c.Pods {
			where[p.Name] = c.NodePool
		}
	}
	require.Equal(t, map[string]string{"any": "clean", "amd": "soft"}, where)
}

func TestPack_ReservationsAreNotPromisedTwice(t *testing.T) {
	t.Parallel()
	types := smallCatalog()
	for i := range types {
		for j := range types[i].Offerings {
			o := &types[i].Offerings[j]
			o.Available = types[i].Name == "m5.xlarge" && o.CapacityType == cluster.OnDemand && o.Zone == "us-east-1b"
			o.CapacityType, o.ReservationID, o.ReservationLeft = cluster.Reserved, "cr-1", 2
		}
	}
	pool := onDemand()
	pool.Template.Requirements = nil
	snap := snapshot(pool, pending("a", milliCPU(3000)), pending("b", milliCPU(3000)), pending("c", milliCPU(3000)))
	snap.Types["default"] = types
	got := packing.Pack(snap, packing.Options{})
	require.Len(t, got.Claims, 2)
	require.Equal(t, "offerings", got.Unplaced[0].Reasons[0].Rule)
}
