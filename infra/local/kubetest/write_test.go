package kubetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"treadle/shared/cluster"
	"treadle/shared/kube"
)

const quickStart = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: %[1]s
spec:
  template:
    spec:
      requirements:
        - key: kubernetes.io/arch
          operator: In
          values: ["amd64"]
        - key: karpenter.sh/capacity-type
          operator: In
          values: ["on-demand"]
        - key: karpenter.k8s.aws/instance-category
          operator: In
          values: ["c", "m", "r"]
          minValues: 2
      nodeClassRef:
        group: karpenter.k8s.aws
        kind: EC2NodeClass
        name: %[1]s
      expireAfter: 720h
  limits:
    cpu: 1000
    memory: 1000Gi
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 1m
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: %[1]s
spec:
  role: "KarpenterNodeRole-demo"
  amiSelectorTerms:
    - alias: "al2023@latest"
  subnetSelectorTerms:
    - tags:
        karpenter.sh/discovery: "demo"
  securityGroupSelectorTerms:
    - tags:
        karpenter.sh/discovery: "demo"
  blockDeviceMappings:
    - deviceName: /dev/xvda
      ebs: {volumeSize: 100Gi, volumeType: gp3, iops: 3000}
  kubelet:
    maxPods: 42
    systemReserved: {cpu: 100m}
    evictionHard: {memory.available: 5%%}
`

// snapshot reads everything anew.
func snapshot(tb testing.TB, c *kube.Client, kinds kube.Kind) cluster.Snapshot {
	tb.Helper()
	m := kube.NewMirror(c, kinds)
	require.NoError(tb, m.Sync(tb.Context()))
	return m.Snapshot(0)
}

func pool(tb testing.TB, c *kube.Client, name string) cluster.NodePool {
	tb.Helper()
	for _, p := range snapshot(tb, c, kube.NodePools).NodePools {
		if p.Name == name {
			return p
		}
	}
	require.Fail(tb, "no such pool", name)
	return cluster.NodePool{}
}

func class(tb testing.TB, c *kube.Client, name string) cluster.NodeClass {
	tb.Helper()
	for _, n := range snapshot(tb, c, kube.NodeClasses).NodeClasses {
		if n.Name == name {
			return n
		}
	}
	require.Fail(tb, "no such class", name)
	return cluster.NodeClass{}
}

func TestPoolAndClass_OfTheQuickStart(t *testing.T) {
	t.Parallel()
	c := client(t)
	file := fmt.Appendf(nil, quickStart, "quick")
	require.NoError(t, c.Apply(t.Context(), file))
	require.NoError(t, c.Apply(t.Context(), file), "applying it again changes nothing")
	p, n := pool(t, c, "quick"), class(t, c, "quick")
	require.Empty(t, p.Invalid)
	require.Equal(t, map[string]int64{"cpu": 1_000_000, "memory": 1000 << 30}, p.Limits)
	require.Equal(t, int64(720*3600), p.Template.ExpireAfterSeconds)
	require.Equal(t, []cluster.Budget{{Nodes: "10%"}}, p.Budgets)
	require.Equal(t, int64(60), *p.ConsolidateAfterSeconds)
	require.Equal(t, 2, p.Template.Requirements[2].MinValues)
	require.Empty(t, n.Invalid)
	require.Equal(t, "al2023@latest", n.Spec.AMISelectorTerms[0].Alias)
	require.Equal(t, int64(100<<30), n.Spec.BlockDevices[0].VolumeSizeBytes)
	require.Equal(t, int32(42), *n.Spec.Kubelet.MaxPods)
	require.Equal(t, "required", n.Spec.Metadata.HTTPTokens)

	// Status and metadata, as the functions write them.
	ready := p
	ready.Conditions = ready.Conditions.With(cluster.Condition{Type: "Ready", Status: "True", TransitionUnix: 1000, ObservedGeneration: p.Generation})
	ready.StatusNodes, ready.StatusResources = 2, cluster.Resources{MilliCPU: 4000, MemoryBytes: 8 << 30}
	require.NoError(t, c.PatchNodePoolStatus(t.Context(), p, ready))
	now := pool(t, c, "quick")
	require.Equal(t, ready.Conditions.Get("Ready").TransitionUnix, now.Conditions.Get("Ready").TransitionUnix)
	require.Equal(t, "Ready", now.Conditions.Get("Ready").Reason)
	require.Equal(t, int64(2), now.StatusNodes)
	require.Equal(t, int64(4000), now.StatusResources.MilliCPU)
	require.Equal(t, p.Hash, now.Hash)
	require.NoError(t, c.PatchNodePoolStatus(t.Context(), p, p), "no difference, no call, no conflict")
	stale := p
	stale.Conditions = stale.Conditions.With(cluster.Condition{Type: "Ready", Status: "False"})
	require.ErrorIs(t, c.PatchNodePoolStatus(t.Context(), p, stale), kube.ErrConflict)
	noted := now
	noted.Annotations = map[string]string{cluster.AnnotationNodePoolHash: p.Hash}
	require.NoError(t, c.PatchNodePool(t.Context(), now, noted))
	require.Equal(t, noted.Annotations, pool(t, c, "quick").Annotations)

	resolved := n
	resolved.Finalizers = []string{cluster.FinalizerNodeClass}
	require.NoError(t, c.PatchNodeClass(t.Context(), n, resolved))
	n = class(t, c, "quick")
	require.Equal(t, resolved.Finalizers, n.Finalizers)
	resolved = n
	resolved.Status = cluster.NodeClassStatus{
		Subnets:        []cluster.Subnet{{ID: "subnet-1", Zone: "us-east-1a", ZoneID: "use1-az1", FreeIPs: 5}},
		SecurityGroups: []cluster.SecurityGroup{{ID: "sg-1", Name: "nodes"}},
		AMIs:           []cluster.AMI{{ID: "ami-1", Name: "al2023", Requirements: []cluster.Expression{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"amd64"}}}}, {ID: "ami-2"}},
		Reservations: []cluster.Reservation{{
			ID: "cr-01234567890123456", InstanceType: "m5.large", Zone: "us-east-1a", MatchCriteria: "open", OwnerID: "123456789012", Kind: "default", State: "active", EndUnix: 5000,
		}},
		InstanceProfile: "demo_1",
		Conditions:      cluster.Conditions{{Type: "Ready", Status: "True", TransitionUnix: 1000, ObservedGeneration: 1}},
	}
	require.NoError(t, c.PatchNodeClassStatus(t.Context(), n, resolved))
	got := class(t, c, "quick").Status
	resolved.Status.Subnets[0].FreeIPs = -1
	resolved.Status.Conditions[0].Reason = "Ready"
	require.Equal(t, resolved.Status, got)

	changed, err := c.StripFinalizers(t.Context(), cluster.FinalizerNodeClass)
	require.NoError(t, err)
	require.Positive(t, changed)
	require.NoError(t, c.Delete(t.Context(), file))
	require.NoError(t, c.Delete(t.Context(), file), "what is gone counts as deleted")
}

func newClaim(name string, p cluster.NodePool) cluster.NodeClaim {
	return cluster.NodeClaim{
		Name:        name,
		Labels:      map[string]string{cluster.LabelNodePool: p.Name},
		Annotations: map[string]string{cluster.AnnotationLaunch: `{"group":"g"}`},
		Finalizers:  []string{cluster.FinalizerTermination},
		OwnerPool:   cluster.Owner{Kind: "NodePool", Name: p.Name, UID: p.UID},
		Requirements: []cluster.Expression{
			{Key: cluster.LabelInstanceType, Operator: cluster.In, Values: []string{"m5.large", "c5.large"}, MinValues: 2},
			{Key: "karpenter.k8s.aws/instance-cpu", Operator: cluster.Gt, Values: []string{"1"}},
		},
		Requests:                      cluster.Resources{MilliCPU: 1500, MemoryBytes: 1<<30 + 1, Pods: 3, Extended: map[string]int64{"nvidia.com/gpu": 1}},
		Taints:                        []cluster.Taint{{Key: "gpu", Value: "yes", Effect: cluster.NoSchedule}},
		StartupTaints:                 []cluster.Taint{{Key: "boot", Effect: cluster.NoExecute}},
		NodeClass:                     "default",
		ExpireAfterSeconds:            3661,
		TerminationGracePeriodSeconds: new(int64(90)),
	}
}

func TestNodeClaim_FromCreationToItsEnd(t *testing.T) {
	t.Parallel()
	c, ctx := client(t), t.Context()
	require.NoError(t, c.Apply(ctx, fmt.Appendf(nil, quickStart, "claims")))
	want := newClaim("claims-1", pool(t, c, "claims"))
	made, err := c.CreateNodeClaim(ctx, want)
	require.NoError(t, err)
	require.NotEmpty(t, made.UID)
	want.UID, want.ResourceVersion, want.Generation, want.CreatedUnix = made.UID, made.ResourceVersion, made.Generation, made.CreatedUnix
	require.Equal(t, want, made, "nothing is lost on the way")
	_, err = c.CreateNodeClaim(ctx, want)
	require.ErrorIs(t, err, kube.ErrExists)
	bad := want
	bad.Name, bad.NodeClass = "claims-2", ""
	_, err = c.CreateNodeClaim(ctx, bad)
	require.ErrorIs(t, err, kube.ErrInvalid)

	launched := made
	launched.ProviderID, launched.ImageID = "aws:///us-east-1a/i-0123", "ami-1"
	launched.Capacity = cluster.Resources{MilliCPU: 2000, MemoryBytes: 8 << 30, Pods: 29}
	launched.Allocatable = launched.Capacity.Minus(cluster.Resources{MilliCPU: 70})
	launched.Conditions = launched.Conditions.With(cluster.Condition{Type: cluster.ConditionLaunched, Status: "True", TransitionUnix: 1000, ObservedGeneration: 1})
	after, err := c.PatchNodeClaimStatus(ctx, made, launched)
	require.NoError(t, err)
	require.Equal(t, launched.Allocatable, after.Allocatable)
	require.True(t, after.Conditions.True(cluster.ConditionLaunched))
	require.Equal(t, launched.ProviderID, after.ProviderID)
	launched.Conditions = launched.Conditions.With(cluster.Condition{Type: cluster.ConditionRegistered, Status: "Unknown", TransitionUnix: 1000})
	_, err = c.PatchNodeClaimStatus(ctx, made, launched)
	require.ErrorIs(t, err, kube.ErrConflict, "the list of conditions was written by another since")

	labelled := after
	labelled.Labels = map[string]string{cluster.LabelNodePool: "claims", cluster.LabelInstanceType: "m5.large"}
	after, err = c.PatchNodeClaim(ctx, after, labelled)
	require.NoError(t, err)
	require.Equal(t, labelled.Labels, after.Labels)

	require.ErrorIs(t, c.DeleteNodeClaim(ctx, after.Name, "00000000-0000-0000-0000-000000000000"), kube.ErrConflict)
	require.NoError(t, c.DeleteNodeClaim(ctx, after.Name, after.UID))
	var deleting cluster.NodeClaim
	for _, n := range snapshot(t, c, kube.NodeClaims).NodeClaims {
		if n.UID == after.UID {
			deleting = n
		}
	}
	require.NotZero(t, deleting.DeletionUnix)
	done := deleting
	done.Finalizers = nil
	_, err = c.PatchNodeClaim(ctx, deleting, done)
	require.NoError(t, err)
	require.ErrorIs(t, c.DeleteNodeClaim(ctx, after.Name, after.UID), kube.ErrNotFound)
	_, err = c.PatchNodeClaim(ctx, done, deleting)
	require.ErrorIs(t, err, kube.ErrNotFound)
}

func TestPatchNode_LeavesWhatOthersWrote(t *testing.T) {
	t.Parallel()
	c, ctx, up := client(t), t.Context(), upstream(t)
	_, err := up.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "patched", Labels: map[string]string{"theirs": "1"}, Finalizers: []string{"example.com/theirs"}},
		Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-1", Taints: []corev1.Taint{
			{Key: cluster.TaintUnregistered, Effect: corev1.TaintEffectNoExecute}, {Key: "theirs", Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.Unix(500, 0))},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	find := func() cluster.Node {
		for _, n := range snapshot(t, c, kube.Nodes).Nodes {
			if n.Name == "patched" {
				return n
			}
		}
		return cluster.Node{}
	}
	old := find()
	// A kubelet writes in between: the version that was read is no longer the latest.
	_, err = up.CoreV1().Nodes().Patch(ctx, "patched", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"late":"1"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	next := old
	next.Taints = []cluster.Taint{old.Taints[1], {Key: "gpu", Value: "yes", Effect: cluster.NoSchedule}}
	next.Finalizers = append(next.Finalizers, cluster.FinalizerTermination)
	next.OwnedBy, next.OwnedByName = "11111111-1111-1111-1111-111111111111", "claim"
	next.Labels = map[string]string{"theirs": "1", cluster.LabelRegistered: "true"}
	next.Unschedulable = true
	require.NoError(t, c.PatchNode(ctx, old, next))
	got := find()
	require.Equal(t, map[string]string{"theirs": "1", "late": "1", cluster.LabelRegistered: "true"}, got.Labels)
	require.Equal(t, []string{"example.com/theirs", cluster.FinalizerTermination}, got.Finalizers)
	require.Equal(t, "claim", got.OwnedByName)
	require.True(t, got.Unschedulable)
	require.Contains(t, got.Taints, cluster.Taint{Key: "gpu", Value: "yes", Effect: cluster.NoSchedule})
	require.NotContains(t, got.Taints, cluster.Taint{Key: cluster.TaintUnregistered, Effect: cluster.NoExecute})
	live, err := up.CoreV1().Nodes().Get(ctx, "patched", metav1.GetOptions{})
	require.NoError(t, err)
	for _, taint := range live.Spec.Taints {
		if taint.Key == "theirs" {
			require.Equal(t, int64(500), taint.TimeAdded.Unix())
		}
	}

	require.NoError(t, c.DeleteNode(ctx, "patched", got.UID))
	released := got
	released.Finalizers = []string{"example.com/theirs"}
	require.NoError(t, c.PatchNode(ctx, got, released))
	changed, err := c.StripFinalizers(ctx, "example.com/theirs")
	require.NoError(t, err)
	require.Equal(t, 1, changed)
	require.ErrorIs(t, c.DeleteNode(ctx, "patched", got.UID), kube.ErrNotFound)
	require.ErrorIs(t, c.PatchNode(ctx, got, old), kube.ErrNotFound)
}

func webPod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:1"}}},
	}
}

func TestPods_AreEvictedUnlessABudgetForbidsIt(t *testing.T) {
	t.Parallel()
	c, ctx, up := client(t), t.Context(), upstream(t)
	labels := map[string]string{"app": "evict"}
	pod, err := up.CoreV1().Pods("default").Create(ctx, webPod("evict", labels), metav1.CreateOptions{})
	require.NoError(t, err)
	ref := cluster.PodRef{Namespace: "default", Name: "evict", UID: cluster.PodUID(pod.UID)}
	_, err = up.CoreV1().Pods("default").Patch(ctx, "evict", "application/merge-patch+json", []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	budget, err := up.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "evict"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromString("0%")), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	_, err = up.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, budget, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, c.Evict(ctx, ref), kube.ErrTooManyRequests)
	var blocked bool
	for _, b := range snapshot(t, c, kube.Budgets).Budgets {
		blocked = blocked || b.Name == "evict" && b.Blocked
	}
	require.True(t, blocked)

	other := ref
	other.UID = "22222222-2222-2222-2222-222222222222"
	require.ErrorIs(t, c.DeletePod(ctx, other, nil), kube.ErrConflict)
	require.NoError(t, up.PolicyV1().PodDisruptionBudgets("default").Delete(ctx, "evict", metav1.DeleteOptions{}))
	require.NoError(t, c.Evict(ctx, ref))
	require.ErrorIs(t, c.Evict(ctx, ref), kube.ErrNotFound)
	require.ErrorIs(t, c.DeletePod(ctx, ref, nil), kube.ErrNotFound)
}

func TestEvent_IsAcceptedAndCounted(t *testing.T) {
	t.Parallel()
	c, ctx, up := client(t), t.Context(), upstream(t)
	e := kube.Event{
		Regarding: kube.Regarding{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "told", UID: "33333333-3333-3333-3333-333333333333"},
		Warning:   true, Reason: "InsufficientCapacityError", Note: "none of 3 offerings was to be had", At: time.Now(),
	}
	require.NoError(t, c.Event(ctx, e))
	e.At = e.At.Add(3 * time.Minute)
	require.NoError(t, c.Event(ctx, e))
	list, err := up.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	found := 0
	for _, got := range list.Items {
		if got.Regarding.Name != "told" {
			continue
		}
		found++
		require.Equal(t, "treadle", got.ReportingController)
		require.Equal(t, e.Note, got.Note)
		require.Equal(t, int32(2), got.Series.Count)
	}
	require.Equal(t, 1, found)
}

func TestLease_HasOneHolder(t *testing.T) {
	t.Parallel()
	a, b, ctx, now := client(t), client(t), t.Context(), time.Now()
	release, err := a.AcquireLease(ctx, "kube-system", "treadle-plan", "a", 10*time.Second, now)
	require.NoError(t, err)
	_, err = b.AcquireLease(ctx, "kube-system", "treadle-plan", "b", 10*time.Second, now.Add(time.Second))
	require.ErrorIs(t, err, kube.ErrHeld)
	require.NoError(t, release(ctx))
	taken, err := b.AcquireLease(ctx, "kube-system", "treadle-plan", "b", 10*time.Second, now.Add(2*time.Second))
	require.NoError(t, err)
	require.NoError(t, release(ctx), "giving back what another has by now is no error")
	_, err = a.AcquireLease(ctx, "kube-system", "treadle-plan", "a", 10*time.Second, now.Add(3*time.Second))
	require.ErrorIs(t, err, kube.ErrHeld)
	again, err := a.AcquireLease(ctx, "kube-system", "treadle-plan", "a", 10*time.Second, now.Add(13*time.Second))
	require.NoError(t, err, "a lease that was not renewed is free")
	require.NoError(t, taken(ctx))
	require.NoError(t, again(ctx))
}
