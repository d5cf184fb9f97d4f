package readiness_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/readiness"
)

const now = int64(1_796_000_000)

func pool() cluster.NodePool {
	return cluster.NodePool{Name: "general", Generation: 3, Template: cluster.NodeTemplate{NodeClass: "default"}, Budgets: []cluster.Budget{{Nodes: "10%"}}}
}

func class(status string) *cluster.NodeClass {
	c := &cluster.NodeClass{Name: "default"}
	if status != "" {
		c.Status.Conditions = cluster.Conditions{{Type: cluster.ConditionReady, Status: status, Reason: "SubnetsNotFound", Message: "no subnet has the tag"}}
	}
	return c
}

func TestPool_NamesTheOneRuleThatFails(t *testing.T) {
	t.Parallel()
	going := class("True")
	going.DeletionUnix = now
	for name, tt := range map[string]struct {
		change  func(*cluster.NodePool)
		class   *cluster.NodeClass
		ready   string
		reason  string
		message string
	}{
		"a good pool of a ready class is ready (N-027)": {class: class("True"), ready: "True", reason: "Ready"},
		"a class that does not exist (N-026)": {
			ready: "False", reason: "NodeClassNotFound", message: `there is no EC2NodeClass "default"`,
		},
		"a class that is being deleted (N-026)": {
			class: going, ready: "False", reason: "NodeClassTerminating", message: `EC2NodeClass "default" is being deleted`,
		},
		"a class that is not ready, with its own reason (N-026)": {
			class: class("False"), ready: "False", reason: "SubnetsNotFound", message: `EC2NodeClass "default" is not ready: no subnet has the tag`,
		},
		"a class that nobody has looked at yet (N-026)": {
			class: class(""), ready: "Unknown", reason: "NodeClassReadinessUnknown", message: `EC2NodeClass "default" has not been looked at yet`,
		},
		"a pool that cannot be understood": {
			change: func(p *cluster.NodePool) { p.Invalid = "spec.limits: cpu: not a quantity" }, class: class("True"),
			ready: "False", reason: "NodePoolValidationFailed", message: "spec.limits: cpu: not a quantity",
		},
		"a template that asks for what no node can be (N-025)": {
			change: func(p *cluster.NodePool) { p.Template.Labels = map[string]string{cluster.LabelHostname: "x"} }, class: class("True"),
			ready: "False", reason: "NodePoolValidationFailed", message: "kubernetes.io/hostname",
		},
		"a budget whose schedule cannot be read (N-014)": {
			change: func(p *cluster.NodePool) {
				p.Budgets = append(p.Budgets, cluster.Budget{Nodes: "0", Schedule: "daily"})
			}, class: class("True"),
			ready: "False", reason: "NodePoolValidationFailed", message: `spec.disruption.budgets[1]: schedule "daily"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pool()
			if tt.change != nil {
				tt.change(&p)
			}
			want := readiness.Pool(&p, tt.class, nil, now)
			got := want.Conditions.Get(cluster.ConditionReady)
			require.Equal(t, tt.ready, got.Status)
			require.Equal(t, tt.reason, got.Reason)
			require.Contains(t, got.Message, tt.message)
			require.Equal(t, "Unknown", want.Conditions.Get(cluster.ConditionNodeRegistrationHealthy).Status)
			require.Equal(t, int64(3), want.Conditions.Get(cluster.ConditionNodeClassReady).ObservedGeneration)
			require.Empty(t, p.Conditions, "the pool is not written to")
			require.Equal(t, want, readiness.Pool(&want, tt.class, nil, now+60), "a second look changes nothing, not even instants")
		})
	}
}

func TestPool_ReadinessFollowsItsClass(t *testing.T) {
	t.Parallel()
	p := pool()
	one := readiness.Pool(&p, class("False"), nil, now)
	two := readiness.Pool(&one, class("True"), nil, now+60)
	ready := two.Conditions.Get(cluster.ConditionReady)
	require.Equal(t, "True", ready.Status)
	require.Equal(t, now+60, ready.TransitionUnix)
	require.Empty(t, ready.Message)
	require.Equal(t, now, two.Conditions.Get(cluster.ConditionValidationSucceeded).TransitionUnix)
}

func TestPools_AddUpWhatTheirNodesHave(t *testing.T) {
	t.Parallel()
	four, two := cluster.Resources{MilliCPU: 4000, MemoryBytes: 8 << 30}, cluster.Resources{MilliCPU: 2000, MemoryBytes: 4 << 30}
	of := func(name, instance, pool string, room cluster.Resources) cluster.NodeClaim {
		c := cluster.NodeClaim{Name: name, Labels: map[string]string{cluster.LabelNodePool: pool}, Capacity: room}
		if instance != "" {
			c.ProviderID = cluster.ProviderID("us-east-1a", cluster.InstanceID(instance))
		}
		return c
	}
	snap := cluster.Snapshot{
		NowUnix:   now,
		NodePools: []cluster.NodePool{pool(), {Name: "other"}},
		NodeClaims: []cluster.NodeClaim{
			of("joined", "i-1", "general", two), of("in flight", "i-2", "general", two), of("not launched", "", "general", cluster.Resources{}),
			of("elsewhere", "i-3", "other", two),
		},
		Nodes: []cluster.Node{{Name: "n", ProviderID: cluster.ProviderID("us-east-1a", "i-1"), Capacity: four}, {Name: "not ours", Capacity: four}},
	}
	got := readiness.Pools(&snap)
	require.Len(t, got, 2)
	require.Equal(t, cluster.Resources{MilliCPU: 6000, MemoryBytes: 12 << 30}, got[0].StatusResources, "the node's word counts before the claim's (N-022)")
	require.Equal(t, int64(2), got[0].StatusNodes, "what has no instance yet is no node (N-023)")
	require.Equal(t, two, got[1].StatusResources)
}
