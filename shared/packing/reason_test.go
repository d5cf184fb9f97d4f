package packing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
	"treadle/shared/plan"
)

func TestPack_SaysWhatIsWrongWithAPool(t *testing.T) {
	t.Parallel()
	class := func(conditions ...cluster.Condition) []cluster.NodeClass {
		return []cluster.NodeClass{{Name: "default", Status: cluster.NodeClassStatus{Conditions: conditions}}}
	}
	notReady := cluster.Conditions{{Type: cluster.ConditionReady, Status: "False"}}
	for name, c := range map[string]struct {
		change func(*cluster.Snapshot)
		want   plan.Reason
	}{
		"no pool at all": {func(s *cluster.Snapshot) { s.NodePools = nil },
			plan.Reason{Rule: "pool", Detail: "there is no NodePool that could serve it"}},
		"a static pool serves no pods": {func(s *cluster.Snapshot) { s.NodePools[0].Replicas = new(int64) },
			plan.Reason{Rule: "pool", Detail: "there is no NodePool that could serve it"}},
		"a pool being deleted": {func(s *cluster.Snapshot) { s.NodePools[0].DeletionUnix = 1 },
			plan.Reason{NodePool: "default", Rule: "pool", Detail: "the pool is being deleted"}},
		"a pool that cannot be read": {func(s *cluster.Snapshot) { s.NodePools[0].Invalid = "spec.limits.cpu: much" },
			plan.Reason{NodePool: "default", Rule: "pool", Detail: "the pool cannot be understood: spec.limits.cpu: much"}},
		"a class that does not exist": {func(s *cluster.Snapshot) { s.NodePools[0].Conditions = notReady },
			plan.Reason{NodePool: "default", Rule: "class", Detail: "EC2NodeClass default does not exist"}},
		"a class nobody has looked at": {func(s *cluster.Snapshot) { s.NodePools[0].Conditions, s.NodeClasses = notReady, class() },
			plan.Reason{NodePool: "default", Rule: "class", Detail: "EC2NodeClass default has not been checked yet"}},
		"a class whose image is missing": {func(s *cluster.Snapshot) {
			s.NodePools[0].Conditions = notReady
			s.NodeClasses = class(cluster.Condition{Type: cluster.ConditionAMIsReady, Status: "False", Reason: "AMINotFound"})
		}, plan.Reason{NodePool: "default", Rule: "class", Detail: "EC2NodeClass default is not ready: AMIsReady: AMINotFound"}},
		"a pool that failed its own checks": {func(s *cluster.Snapshot) {
			s.NodePools[0].Conditions = cluster.Conditions{{Type: cluster.ConditionValidationSucceeded, Status: "False", Message: "bad taint"}}
			s.NodeClasses = class(cluster.Condition{Type: cluster.ConditionReady, Status: "True"})
		}, plan.Reason{NodePool: "default", Rule: "pool", Detail: "the pool is not ready: ValidationSucceeded: bad taint"}},
		"a pool without instance types": {func(s *cluster.Snapshot) { s.Types = nil },
			plan.Reason{NodePool: "default", Rule: "pool", Detail: "EC2NodeClass default offers no instance types"}},
		"a pool that no type meets": {func(s *cluster.Snapshot) {
			s.NodePools[0] = onDemand(cluster.Expression{Key: "karpenter.k8s.aws/instance-family", Operator: cluster.In, Values: []string{"x9"}})
		}, plan.Reason{NodePool: "default", Rule: "requirements", Detail: "no instance type meets the pool's requirements: karpenter.k8s.aws/instance-family in [x9]"}},
		"a pool that contradicts itself": {func(s *cluster.Snapshot) {
			s.NodePools[0] = onDemand(cluster.Expression{Key: cluster.LabelCapacityType, Operator: cluster.In, Values: []string{"spot"}})
		}, plan.Reason{NodePool: "default", Rule: "pool", Detail: "its requirements and labels contradict each other on karpenter.sh/capacity-type"}},
		"a pod for another region": {func(s *cluster.Snapshot) {
			s.Pods[0].Spec.NodeSelector = map[string]string{cluster.LabelRegion: "eu-west-1"}
		},
			plan.Reason{NodePool: "default", Rule: "requirements", Detail: "no instance type of the pool has topology.kubernetes.io/region in [eu-west-1]"}},
		"a pod that uses node fields": {func(s *cluster.Snapshot) { s.Pods[0].Spec.NodeAffinity = []cluster.NodeTerm{{Fields: true}} },
			plan.Reason{Rule: "pod", Detail: "its node affinity matches on node fields, which no new node can be planned for"}},
		"a pod that uses resource claims": {func(s *cluster.Snapshot) { s.Pods[0].Spec.ResourceClaims = true },
			plan.Reason{Rule: "pod", Detail: "uses dynamic resource allocation, which is not planned for"}},
		"daemons that leave nothing": {func(s *cluster.Snapshot) {
			s.Daemons = []cluster.Daemon{{Name: "hog", Spec: &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 31_000, Pods: 1}}}}
		}, plan.Reason{NodePool: "default", Rule: "resources", Detail: "needs 1 CPU; the largest allowed type, c5.metal, has 0.834 CPU allocatable after 31 CPU for daemons"}},
		"affinity to a pod that does not exist": {func(s *cluster.Snapshot) {
			s.Pods[0].Spec.Affinity = []cluster.PodTerm{{TopologyKey: cluster.LabelZone, Selector: &cluster.Selector{
				Expressions: []cluster.Expression{{Key: "app", Operator: cluster.In, Values: []string{"ghost"}}}}}}
		}, plan.Reason{NodePool: "default", Rule: "affinity", Detail: "must be near pods that its affinity selects, by topology.kubernetes.io/zone, and no node for it is"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := snapshot(onDemand(), pending("pod", milliCPU(1000)))
			c.change(&snap)
			got := packing.Pack(snap, packing.Options{})
			require.Len(t, got.Unplaced, 1)
			require.Equal(t, []plan.Reason{c.want}, got.Unplaced[0].Reasons)
		})
	}
}

func TestPack_APausedPoolMakesNoNodes(t *testing.T) {
	t.Parallel()
	snap := kept("b")
	snap.Nodes = nil
	snap.NodePools = []cluster.NodePool{{Name: "p", Template: cluster.NodeTemplate{NodeClass: "default"}, Conditions: cluster.Conditions{
		{Type: cluster.ConditionReady, Status: "True"},
		{Type: cluster.ConditionPaused, Status: "True", Message: "3 nodes in a row did not join"},
	}}}
	got := packing.Pack(snap, packing.Options{})
	require.Empty(t, got.Claims)
	require.Equal(t, "the pool is paused: 3 nodes in a row did not join", got.Unplaced[0].Reasons[0].Detail)
}
