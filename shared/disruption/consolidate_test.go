package disruption_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/plan"
)

const gib = int64(1) << 30

// sizes are instance types of 2 to 16 vCPU, at 0.05 USD per vCPU, and half of that on Spot.
func sizes() []cluster.InstanceType {
	var out []cluster.InstanceType
	for _, family := range []string{"m5", "m6i"} {
		for i, size := range []string{"large", "xlarge", "2xlarge", "4xlarge"} {
			cpu := int64(2) << i
			price := cpu * 50_000
			if family == "m6i" {
				price = price * 101 / 100
			}
			name := family + "." + size
			r := cluster.Resources{MilliCPU: cpu * 1000, MemoryBytes: cpu * 4 * gib, Pods: 60}
			t := cluster.InstanceType{Name: name, Capacity: r, Allocatable: r, Labels: map[string]string{
				cluster.LabelInstanceType: name, cluster.LabelArch: "amd64", cluster.LabelOS: "linux",
			}}
			for _, zone := range []string{"a", "b"} {
				t.Offerings = append(t.Offerings,
					cluster.Offering{Zone: zone, CapacityType: cluster.OnDemand, PriceMicroUSDPerHour: price, Available: true},
					cluster.Offering{Zone: zone, CapacityType: cluster.Spot, PriceMicroUSDPerHour: price / 2, Available: true})
			}
			out = append(out, t)
		}
	}
	return out
}

// fleet is a snapshot under construction.
type fleet struct {
	cluster.Snapshot
	n int
}

func newFleet(capacityTypes ...string) *fleet {
	zero := int64(0)
	if len(capacityTypes) == 0 {
		capacityTypes = []string{"on-demand"}
	}
	return &fleet{Snapshot: cluster.Snapshot{
		NowUnix: now, Types: map[string][]cluster.InstanceType{"default": sizes()},
		NodeClasses: []cluster.NodeClass{{Name: "default"}},
		NodePools: []cluster.NodePool{{
			Name: "general", ConsolidateAfterSeconds: &zero, ConsolidationPolicy: "WhenEmptyOrUnderutilized",
			Conditions: cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}},
			Template: cluster.NodeTemplate{NodeClass: "default", Requirements: []cluster.Expression{
				{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: capacityTypes},
			}},
		}},
	}}
}

// node adds a node of a type with pods of the given CPU requests (millicores, and twice as many MiB) and returns its claim's name.
func (f *fleet) node(kind string, capacity cluster.CapacityType, pods ...int64) string {
	f.n++
	name := fmt.Sprintf("c%03d", f.n)
	at := slices.IndexFunc(f.Types["default"], func(t cluster.InstanceType) bool { return t.Name == kind })
	t := f.Types["default"][at]
	id := cluster.ProviderID("a", cluster.InstanceID(fmt.Sprintf("i-%04d", f.n)))
	labels := map[string]string{
		cluster.LabelNodePool: "general", cluster.LabelInstanceType: kind, cluster.LabelZone: "a", cluster.LabelCapacityType: string(capacity),
		cluster.LabelArch: "amd64", cluster.LabelOS: "linux", cluster.LabelHostname: name, cluster.LabelInitialized: "true", cluster.LabelRegistered: "true",
	}
	conditions := cluster.Conditions{}
	for _, kind := range []string{cluster.ConditionLaunched, cluster.ConditionRegistered, cluster.ConditionInitialized, cluster.ConditionConsolidatable} {
		conditions = conditions.With(cluster.Condition{Type: kind, Status: "True", Reason: kind, TransitionUnix: now - 3600})
	}
	f.NodeClaims = append(f.NodeClaims, cluster.NodeClaim{
		Name: name, UID: "uid-" + name, ProviderID: id, NodeName: cluster.NodeName(name), Labels: labels, NodeClass: "default",
		Conditions: conditions, Capacity: t.Capacity, Allocatable: t.Allocatable, CreatedUnix: now - 3600,
	})
	f.Nodes = append(f.Nodes, cluster.Node{
		Name: cluster.NodeName(name), ProviderID: id, Labels: labels, Capacity: t.Capacity, Allocatable: t.Allocatable,
		Conditions: cluster.Conditions{{Type: "Ready", Status: "True"}},
	})
	for _, cpu := range pods {
		f.pod(cluster.NodeName(name), cpu)
	}
	return name
}

func (f *fleet) pod(on cluster.NodeName, cpu int64) *cluster.Pod {
	name := fmt.Sprintf("pod-%04d", len(f.Pods))
	f.Pods = append(f.Pods, cluster.Pod{
		PodRef: cluster.PodRef{Namespace: "default", Name: name, UID: cluster.PodUID(name)}, Owner: cluster.Owner{Kind: "ReplicaSet", Name: "web"},
		Labels: map[string]string{"app": "web"}, Spec: &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: cpu, MemoryBytes: cpu << 21, Pods: 1}},
		NodeName: on, Phase: cluster.PodRunning, CreatedUnix: now - 3600, StartedUnix: now - 3600,
	})
	return &f.Pods[len(f.Pods)-1]
}

func TestConsolidate_TakesAwayANodeWhosePodsFitOnOthers(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.node("m5.xlarge", cluster.OnDemand, 1000, 1000)
	small := f.node("m5.large", cluster.OnDemand, 500)
	commands := disruption.Consolidate(&f.Snapshot, disruption.Options{})
	require.Len(t, commands, 1)
	c := commands[0]
	require.Equal(t, []string{small}, c.Leaving, "the rest stays busy (D-037)")
	require.Empty(t, c.Replacements)
	require.Equal(t, []plan.Placement{{Pod: f.Pods[2].PodRef, Node: "c001"}}, c.Placed)
	require.EqualValues(t, 100_000, c.SavesMicroUSDPerHour)
	require.Equal(t, "1 node for 0 new ones saves 73.00 USD a month and moves 1 pod", c.Note)
}

func TestConsolidate_ReplacesANodeThatIsTooLarge(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.node("m5.4xlarge", cluster.OnDemand, 1000, 500)
	commands := disruption.Consolidate(&f.Snapshot, disruption.Options{})
	require.Len(t, commands, 1)
	require.Len(t, commands[0].Replacements, 1)
	require.Equal(t, "m5.large", commands[0].Replacements[0].Options[0].InstanceType)
	require.EqualValues(t, 700_000, commands[0].SavesMicroUSDPerHour)
	for _, o := range commands[0].Replacements[0].Options {
		require.Less(t, o.PriceMicroUSDPerHour, int64(800_000), "whichever EC2 gives, it is cheaper (D-038)")
	}
}

func TestConsolidate_MergesNodesIntoOne(t *testing.T) {
	t.Parallel()
	f := newFleet()
	for range 4 {
		f.node("m5.xlarge", cluster.OnDemand, 900, 900)
	}
	commands := disruption.Consolidate(&f.Snapshot, disruption.Options{})
	require.NotEmpty(t, commands)
	left := f.after(commands)
	require.Empty(t, disruption.Consolidate(&left.Snapshot, disruption.Options{}))
	require.LessOrEqual(t, left.cost(), int64(400_000), "7.2 vCPU need 8: half of the 16 that there are")
}

func TestConsolidate_LeavesNodesAlone(t *testing.T) {
	t.Parallel()
	cases := map[string]func(f *fleet){
		"whose pool is consolidated when empty only (D-034)": func(f *fleet) { f.NodePools[0].ConsolidationPolicy = "WhenEmpty" },
		"whose pool has consolidateAfter Never (D-025)":      func(f *fleet) { f.NodePools[0].ConsolidateAfterSeconds = nil },
		"whose pool is static (D-007)":                       func(f *fleet) { f.NodePools[0].Replicas = new(int64(2)) },
		"whose pool's budget allows none (D-046)":            func(f *fleet) { f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "0"}} },
		"whose pool's budget has a schedule that says nothing": func(f *fleet) {
			f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "5", Schedule: "x", DurationSeconds: 1}}
		},
		"whose pod is annotated do-not-disrupt (D-011)":      func(f *fleet) { f.annotate("true") },
		"whose pod is annotated with a time to come (D-012)": func(f *fleet) { f.annotate("2h") },
		"which are annotated do-not-disrupt (D-010)": func(f *fleet) {
			f.onNodes(func(n *cluster.Node) { n.Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: "true"} })
		},
		"whose pods a disruption budget holds (D-013)":   func(f *fleet) { f.budget(0) },
		"whose pods have two disruption budgets (D-013)": func(f *fleet) { f.budget(3); f.budget(3) },
		"which are not consolidatable yet (D-024)": func(f *fleet) {
			f.onClaims(func(c *cluster.NodeClaim) { c.Conditions = c.Conditions.Without(cluster.ConditionConsolidatable) })
		},
		"which are not initialized (D-009)": func(f *fleet) {
			f.onClaims(func(c *cluster.NodeClaim) { c.Conditions = c.Conditions.Without(cluster.ConditionInitialized) })
		},
		"whose price is not known (D-017)":                        func(f *fleet) { f.onNodes(func(n *cluster.Node) { n.Labels[cluster.LabelZone] = "elsewhere" }) },
		"while pods wait for capacity to be launched":             func(f *fleet) { f.pod("", 15_900).Unschedulable = true },
		"which expire in a moment are worth no less, but budgets": func(f *fleet) { f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "0%"}} },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet()
			f.node("m5.4xlarge", cluster.OnDemand, 500)
			f.node("m5.4xlarge", cluster.OnDemand, 500)
			require.NotEmpty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{}), "as it is they can go")
			change(f)
			require.Empty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{}))
		})
	}
}

func TestConsolidate_ADurationThatIsOverNoLongerProtects(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.node("m5.4xlarge", cluster.OnDemand, 500)
	f.annotate("30m")
	require.NotEmpty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{}))
}

func TestConsolidate_SpotForSpotNeedsTheGateAndAChoiceOfTypes(t *testing.T) {
	t.Parallel()
	f := newFleet("spot")
	f.node("m5.4xlarge", cluster.Spot, 500)
	require.Empty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{}), "off by default (D-040)")
	require.Empty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{SpotToSpot: true}), "fewer than 15 types to choose from (D-040)")
	f.node("m5.4xlarge", cluster.Spot, 500)
	f.node("m5.4xlarge", cluster.Spot, 12_000)
	commands := disruption.Consolidate(&f.Snapshot, disruption.Options{})
	require.NotEmpty(t, commands, "taking away is no replacement")
	require.Empty(t, commands[0].Replacements)
}

func TestConsolidate_KeepsToBudgetsOfEachPool(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "2"}}
	for range 9 {
		f.node("m5.4xlarge", cluster.OnDemand, 500)
	}
	leaving := 0
	for _, c := range disruption.Consolidate(&f.Snapshot, disruption.Options{}) {
		leaving += len(c.Leaving)
	}
	require.Equal(t, 2, leaving)
}

func TestConsolidate_ANodeThatCannotGoUsesUpNoBudget(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.NodePools[0].Budgets = []cluster.Budget{{Nodes: "1"}}
	f.node("m5.xlarge", cluster.OnDemand, 2050)
	f.Pods[0].Spec.HostPorts = []cluster.HostPort{{Port: 80, Protocol: "TCP"}}
	f.node("m5.large", cluster.OnDemand, 200) // first in rank, and there is room for it, but its port is taken
	f.Pods[1].Spec.HostPorts = f.Pods[0].Spec.HostPorts
	second := f.node("m5.large", cluster.OnDemand, 950, 950)
	commands := disruption.Consolidate(&f.Snapshot, disruption.Options{})
	require.Len(t, commands, 1)
	require.Equal(t, []string{second}, commands[0].Leaving)
}

func TestConsolidate_DoesNotMoveWhatIsNotWorthIt(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.node("m6i.large", cluster.OnDemand, 300, 300, 300, 300)
	require.Empty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{}), "0.1 cents an hour for four pods: not earned back soon enough")
}

func TestConsolidate_BalancedWantsEnoughForItsDisruption(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.NodePools[0].ConsolidationPolicy = "Balanced"
	f.node("m5.4xlarge", cluster.OnDemand, 4000, 4000, 4000, 2900)
	f.node("m5.large", cluster.OnDemand, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
	require.Empty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{}), "a ninth of the price for most of the pods (D-051)")
	f.NodePools[0].ConsolidationPolicy = "WhenEmptyOrUnderutilized"
	require.NotEmpty(t, disruption.Consolidate(&f.Snapshot, disruption.Options{}))
}

func TestConsolidate_SettlesCheaperWithoutMovingAPodTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet("on-demand", "spot")
		for range rapid.IntRange(1, 12).Draw(t, "nodes") {
			kind := rapid.SampledFrom(f.Types["default"]).Draw(t, "type")
			capacity := rapid.SampledFrom([]cluster.CapacityType{cluster.OnDemand, cluster.Spot}).Draw(t, "capacity")
			var pods []int64
			for left := kind.Allocatable.MilliCPU; rapid.IntRange(0, 3).Draw(t, "more") > 0 && left > 0; {
				cpu := min(left, rapid.Int64Range(1, 30).Draw(t, "cpu")*100)
				left -= cpu
				pods = append(pods, cpu)
			}
			f.node(kind.Name, capacity, pods...)
			if len(pods) > 0 && rapid.Bool().Draw(t, "port") {
				f.Pods[len(f.Pods)-1].Spec.HostPorts = []cluster.HostPort{{Port: 80, Protocol: "TCP"}}
			}
		}
		budget := rapid.IntRange(1, 12).Draw(t, "budget")
		f.NodePools[0].Budgets = []cluster.Budget{{Nodes: fmt.Sprint(budget)}}
		for round := 0; ; round++ {
			require.Less(t, round, 40, "it comes to rest")
			commands := disruption.Consolidate(&f.Snapshot, disruption.Options{SpotToSpot: true})
			shuffled := f.Snapshot
			shuffled.Nodes, shuffled.Pods, shuffled.NodeClaims = reversed(f.Nodes), reversed(f.Pods), reversed(f.NodeClaims)
			require.Equal(t, commands, disruption.Consolidate(&shuffled, disruption.Options{SpotToSpot: true}), "order does not matter")
			if len(commands) == 0 {
				return
			}
			leaving := map[string]bool{}
			for _, c := range commands {
				require.Positive(t, c.SavesMicroUSDPerHour)
				for _, name := range c.Leaving {
					require.False(t, leaving[name], "a node leaves once")
					leaving[name] = true
				}
			}
			for _, c := range commands {
				for _, p := range c.Placed {
					require.False(t, leaving[string(p.Node)], "no pod goes to a node that leaves")
				}
			}
			require.LessOrEqual(t, len(leaving), budget, "budgets hold (D-046)")
			before := f.cost()
			f = f.after(commands)
			require.Less(t, f.cost(), before)
			f.requireRoom(t)
		}
	})
}

// requireRoom wants every node to hold its pods, and no two of them to take the same port.
func (f *fleet) requireRoom(t require.TestingT) {
	free, ports := map[cluster.NodeName]cluster.Resources{}, map[cluster.NodeName]int{}
	for i := range f.Nodes {
		free[f.Nodes[i].Name] = f.Nodes[i].Allocatable
	}
	for i := range f.Pods {
		pod := &f.Pods[i]
		require.True(t, pod.Spec.Requests.Fits(free[pod.NodeName]), "node %s is too small for its pods", pod.NodeName)
		free[pod.NodeName] = free[pod.NodeName].Minus(pod.Spec.Requests)
		ports[pod.NodeName] += len(pod.Spec.HostPorts)
		require.LessOrEqual(t, ports[pod.NodeName], 1, "two pods on node %s want the same port", pod.NodeName)
	}
}

func reversed[T any](list []T) []T {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}

func (f *fleet) annotate(value string) {
	for i := range f.Pods {
		f.Pods[i].Annotations = map[string]string{cluster.AnnotationDoNotDisrupt: value}
	}
}

func (f *fleet) onNodes(do func(*cluster.Node)) {
	for i := range f.Nodes {
		do(&f.Nodes[i])
	}
}

func (f *fleet) onClaims(do func(*cluster.NodeClaim)) {
	for i := range f.NodeClaims {
		do(&f.NodeClaims[i])
	}
}

func (f *fleet) budget(allowed int32) {
	f.Budgets = append(f.Budgets, cluster.PodDisruptionBudget{
		Namespace: "default", Name: fmt.Sprint("pdb", len(f.Budgets)), Allowed: allowed,
		Selector: &cluster.Selector{Expressions: []cluster.Expression{{Key: "app", Operator: cluster.In, Values: []string{"web"}}}},
	})
}

// cost returns what the nodes cost, in micro-USD per hour.
func (f *fleet) cost() (sum int64) {
	for _, n := range f.Nodes {
		for _, t := range f.Types["default"] {
			for _, o := range t.Offerings {
				if t.Name == n.Labels[cluster.LabelInstanceType] && o.Zone == "a" && string(o.CapacityType) == n.Labels[cluster.LabelCapacityType] {
					sum += o.PriceMicroUSDPerHour
				}
			}
		}
	}
	return sum
}

// after returns the fleet once the commands have been carried out as planned, with the cheapest option of each replacement.
func (f *fleet) after(commands []plan.Command) *fleet {
	out := &fleet{Snapshot: f.Snapshot, n: f.n}
	out.Nodes, out.NodeClaims, out.Pods = nil, nil, slices.Clone(f.Pods)
	leaving := map[string]bool{}
	to := map[cluster.PodUID]cluster.NodeName{}
	for _, c := range commands {
		for _, name := range c.Leaving {
			leaving[name] = true
		}
		for _, p := range c.Placed {
			to[p.Pod.UID] = p.Node
		}
		for _, r := range c.Replacements {
			name := out.node(r.Options[0].InstanceType, r.Options[0].CapacityType)
			for _, pod := range r.Pods {
				to[pod.UID] = cluster.NodeName(name)
			}
		}
	}
	for i := range f.NodeClaims {
		if !leaving[f.NodeClaims[i].Name] {
			out.NodeClaims = append(out.NodeClaims, f.NodeClaims[i])
			out.Nodes = append(out.Nodes, f.Nodes[i])
		}
	}
	for i := range out.Pods {
		if node, moves := to[out.Pods[i].UID]; moves {
			out.Pods[i].NodeName = node
		} else if leaving[string(out.Pods[i].NodeName)] {
			panic("a pod of a leaving node has no place")
		}
	}
	return out
}

// BenchmarkConsolidate decides about clusters whose nodes are half used, and reports what is saved and how many pods that moves.
func BenchmarkConsolidate(b *testing.B) {
	for _, nodes := range []int{50, 500, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			f := newFleet()
			r := rand.New(rand.NewPCG(1, uint64(nodes)))
			for range nodes {
				kind := f.Types["default"][r.IntN(8)]
				var pods []int64
				for left := kind.Allocatable.MilliCPU * int64(30+r.IntN(40)) / 100; left >= 100; {
					cpu := min(left, int64(1+r.IntN(10))*100)
					left -= cpu
					pods = append(pods, cpu)
				}
				f.node(kind.Name, cluster.OnDemand, pods...)
			}
			var saved, moved int64
			for b.Loop() {
				saved, moved = 0, 0
				for _, c := range disruption.Consolidate(&f.Snapshot, disruption.Options{}) {
					saved += c.SavesMicroUSDPerHour
					moved += int64(len(c.Placed))
					for _, r := range c.Replacements {
						moved += int64(len(r.Pods))
					}
				}
			}
			b.ReportMetric(float64(saved)/float64(f.cost())*100, "%saved")
			b.ReportMetric(float64(moved)/float64(len(f.Pods))*100, "%moved")
		})
	}
}
