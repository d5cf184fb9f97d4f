package disruption_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/disruption"
)

// drifting is a fleet of one node that is just what its pool and class ask for.
func drifting() (*fleet, cluster.Sights) {
	f := newFleet()
	f.NodePools[0].Hash, f.NodeClasses[0].Hash = "p1", "c1"
	f.NodeClasses[0].Status = cluster.NodeClassStatus{
		Subnets: []cluster.Subnet{{ID: "subnet-a"}}, SecurityGroups: []cluster.SecurityGroup{{ID: "sg-1"}, {ID: "sg-2"}},
		AMIs: []cluster.AMI{
			{ID: "ami-arm", Requirements: []cluster.Expression{{Key: cluster.LabelArch, Operator: cluster.In, Values: []string{"arm64"}}}},
			{ID: "ami-new", Requirements: []cluster.Expression{{Key: cluster.LabelArch, Operator: cluster.In, Values: []string{"amd64"}}}},
			{ID: "ami-old"},
		},
	}
	f.node("m5.large", cluster.OnDemand, 500)
	c := &f.NodeClaims[0]
	c.ImageID, c.CreatedUnix = "ami-new", now-7200
	c.Annotations = map[string]string{
		cluster.AnnotationNodePoolHash: "p1", cluster.AnnotationNodePoolHashVersion: cluster.HashVersionNodePool,
		cluster.AnnotationNodeClassHash: "c1", cluster.AnnotationNodeClassHashVersion: cluster.HashVersionNodeClass,
	}
	id := cluster.InstanceOf(c.ProviderID)
	return f, cluster.Sights{id: {Found: true, Instance: cluster.Instance{ID: id, SubnetID: "subnet-a", SecurityGroups: []string{"sg-2", "sg-1"}}}}
}

// observed returns the claim as it is after a look.
func observed(f *fleet, sights cluster.Sights) cluster.NodeClaim {
	d := disruption.Observe(&f.Snapshot, sights)
	if len(d.Moves) == 0 {
		return f.NodeClaims[0]
	}
	return *d.Moves[0].WantClaim
}

func TestObserve_NamesTheFirstReasonOfDrift(t *testing.T) {
	t.Parallel()
	instance := func(sights cluster.Sights, change func(*cluster.Instance)) {
		for id, s := range sights {
			change(&s.Instance)
			sights[id] = s
		}
	}
	for name, tt := range map[string]struct {
		change func(f *fleet, sights cluster.Sights)
		want   string
	}{
		"nothing has changed":             {func(*fleet, cluster.Sights) {}, ""},
		"the pool's template (D-059)":     {func(f *fleet, _ cluster.Sights) { f.NodePools[0].Hash = "p2" }, "NodePoolDrifted"},
		"the pool comes before the class": {func(f *fleet, _ cluster.Sights) { f.NodePools[0].Hash, f.NodeClasses[0].Hash = "p2", "c2" }, "NodePoolDrifted"},
		"the pool's requirements (D-060)": {func(f *fleet, _ cluster.Sights) {
			f.NodePools[0].Template.Requirements = []cluster.Expression{{Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"b"}}}
		}, "RequirementsDrifted"},
		"the type is gone (D-061)": {func(f *fleet, _ cluster.Sights) { f.Types["default"] = f.Types["default"][1:] }, "InstanceTypeNotFound"},
		"the type is gone, of a young node (D-061)": {func(f *fleet, _ cluster.Sights) {
			f.Types["default"] = f.Types["default"][1:]
			f.NodeClaims[0].CreatedUnix = now - 60
		}, ""},
		"no types are known":                {func(f *fleet, _ cluster.Sights) { f.Types = nil }, ""},
		"the class (D-062)":                 {func(f *fleet, _ cluster.Sights) { f.NodeClasses[0].Hash = "c2" }, "NodeClassDrift"},
		"the image (D-063)":                 {func(f *fleet, _ cluster.Sights) { f.NodeClaims[0].ImageID = "ami-old" }, "AMIDrift"},
		"no image is for the type any more": {func(f *fleet, _ cluster.Sights) { f.NodeClasses[0].Status.AMIs = f.NodeClasses[0].Status.AMIs[:1] }, ""},
		"the subnet (D-064)":                {func(_ *fleet, s cluster.Sights) { instance(s, func(i *cluster.Instance) { i.SubnetID = "subnet-b" }) }, "SubnetDrift"},
		"a group more (D-065)": {func(_ *fleet, s cluster.Sights) {
			instance(s, func(i *cluster.Instance) { i.SecurityGroups = []string{"sg-1", "sg-2", "sg-3"} })
		}, "SecurityGroupDrift"},
		"a group less (D-065)": {func(_ *fleet, s cluster.Sights) {
			instance(s, func(i *cluster.Instance) { i.SecurityGroups = []string{"sg-1"} })
		}, "SecurityGroupDrift"},
		"a class without subnets and groups (D-069)": {func(f *fleet, _ cluster.Sights) {
			f.NodeClasses[0].Status.Subnets, f.NodeClasses[0].Status.SecurityGroups = nil, nil
		}, ""},
		"an instance that EC2 says nothing about": {func(_ *fleet, s cluster.Sights) { clear(s) }, ""},
		"the class is gone (D-069)":               {func(f *fleet, _ cluster.Sights) { f.NodePools[0].Hash = "p2"; f.NodeClasses = nil }, ""},
		"the reservation (D-066)": {func(f *fleet, _ cluster.Sights) {
			f.NodePools[0].Template.Requirements = nil
			f.NodeClaims[0].Labels[cluster.LabelCapacityType] = "reserved"
			f.NodeClaims[0].Labels["karpenter.k8s.aws/capacity-reservation-id"] = "cr-1"
		}, "CapacityReservationDrift"},
		"limits, budgets and weight do not (D-072)": {func(f *fleet, _ cluster.Sights) {
			f.NodePools[0].Weight, f.NodePools[0].Limits, f.NodePools[0].Budgets = 5, map[string]int64{"cpu": 1}, []cluster.Budget{{Nodes: "0"}}
		}, ""},
		"a claim that is not launched (D-070)": {func(f *fleet, _ cluster.Sights) {
			f.NodePools[0].Hash, f.NodeClaims[0].Conditions = "p2", nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, sights := drifting()
			tt.change(f, sights)
			require.Equal(t, tt.want, observed(f, sights).Conditions.Get(cluster.ConditionDrifted).Reason)
		})
	}
}

func TestObserve_TakesTheConditionAwayWithTheDifference(t *testing.T) {
	t.Parallel()
	f, sights := drifting()
	f.NodePools[0].Hash = "p2"
	f.NodeClaims[0] = observed(f, sights)
	require.True(t, f.NodeClaims[0].Conditions.True(cluster.ConditionDrifted))
	require.Empty(t, disruption.Observe(&f.Snapshot, sights).Moves, "what is written is not written again")
	f.NodePools[0].Hash = "p1"
	require.Empty(t, observed(f, sights).Conditions.Get(cluster.ConditionDrifted).Type, "(D-070)")
}

func TestObserve_RenewsHashesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	f, sights := drifting()
	c := &f.NodeClaims[0]
	c.Annotations[cluster.AnnotationNodePoolHash], c.Annotations[cluster.AnnotationNodePoolHashVersion] = "other", "v2"
	got := observed(f, sights)
	require.Equal(t, "p1", got.Annotations[cluster.AnnotationNodePoolHash], "hashes of different versions say nothing (N-034, N-035)")
	require.Equal(t, cluster.HashVersionNodePool, got.Annotations[cluster.AnnotationNodePoolHashVersion])
	require.Empty(t, got.Conditions.Get(cluster.ConditionDrifted).Type)

	c.Conditions = c.Conditions.With(cluster.Condition{Type: cluster.ConditionDrifted, Status: "True", Reason: "NodePoolDrifted"})
	got = observed(f, sights)
	require.Equal(t, "other", got.Annotations[cluster.AnnotationNodePoolHash], "what has drifted stays so (N-034)")
	require.True(t, got.Conditions.True(cluster.ConditionDrifted))
}

func TestObserve_ANodeIsConsolidatableOnceItsPodsAreAtRest(t *testing.T) {
	t.Parallel()
	f, sights := drifting()
	after := int64(30)
	f.NodePools[0].ConsolidateAfterSeconds = &after
	step := func(seconds int64) bool {
		f.NowUnix += seconds
		f.NodeClaims[0] = observed(f, sights)
		return f.NodeClaims[0].Conditions.True(cluster.ConditionConsolidatable)
	}
	require.False(t, step(0), "nobody has seen its pods yet")
	require.Equal(t, now, f.NodeClaims[0].LastPodEventUnix)
	require.False(t, step(29))
	require.True(t, step(1), "(D-024)")
	f.pod("c001", 100)
	require.False(t, step(5), "a pod has come (D-026)")
	require.Equal(t, now+35, f.NodeClaims[0].LastPodEventUnix)
	require.True(t, step(30))
	f.Pods[1].Owner.Kind = "DaemonSet"
	f.Pods = append(f.Pods[:1], f.Pods[1])
	require.False(t, step(1), "a pod has gone")
	f.NodePools[0].ConsolidateAfterSeconds = nil
	require.False(t, step(100), "Never (D-025)")
}
