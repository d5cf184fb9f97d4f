package buffer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

const now = int64(1_796_000_000)

func pod(milliCPU int64) *cluster.PodSpec {
	return &cluster.PodSpec{Requests: cluster.Resources{MilliCPU: milliCPU, MemoryBytes: 512 << 20, Pods: 1}}
}

func of(b cluster.CapacityBuffer, t cluster.PodTemplate) *cluster.Snapshot {
	b.Namespace, b.Name, b.UID, b.Generation = "default", "spare", "u1", 3
	t.TemplateRef = cluster.TemplateRef{Kind: t.Kind, Namespace: "default", Name: "shape"}
	b.Template = t.TemplateRef
	return &cluster.Snapshot{NowUnix: now, Buffers: []cluster.CapacityBuffer{b}, Templates: []cluster.PodTemplate{t}}
}

func kind(name string, replicas int64) cluster.PodTemplate {
	return cluster.PodTemplate{TemplateRef: cluster.TemplateRef{Kind: name}, Generation: 7, Replicas: replicas, Spec: pod(1000)}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		buffer   cluster.CapacityBuffer
		template cluster.PodTemplate
		want     int64
	}{
		"a number":                                  {cluster.CapacityBuffer{Replicas: new(int64(3))}, kind("PodTemplate", 0), 3},
		"a share of a workload":                     {cluster.CapacityBuffer{Percentage: new(int64(20))}, kind("Deployment", 10), 2},
		"a share is rounded up":                     {cluster.CapacityBuffer{Percentage: new(int64(1))}, kind("Deployment", 5), 1},
		"a share of nothing is nothing":             {cluster.CapacityBuffer{Percentage: new(int64(20))}, kind("Deployment", 0), 0},
		"a share of a template is nothing":          {cluster.CapacityBuffer{Percentage: new(int64(20))}, kind("PodTemplate", 0), 0},
		"the larger of both":                        {cluster.CapacityBuffer{Replicas: new(int64(3)), Percentage: new(int64(50))}, kind("Deployment", 10), 5},
		"limits cut the number":                     {cluster.CapacityBuffer{Replicas: new(int64(9)), Limits: map[string]int64{"cpu": 2500}}, kind("PodTemplate", 0), 2},
		"limits alone are filled":                   {cluster.CapacityBuffer{Limits: map[string]int64{"cpu": 5000}}, kind("PodTemplate", 0), 5},
		"limits of what no pod asks for limit none": {cluster.CapacityBuffer{Replicas: new(int64(2)), Limits: map[string]int64{"nvidia.com/gpu": 1}}, kind("PodTemplate", 0), 2},
		"the tightest limit counts":                 {cluster.CapacityBuffer{Limits: map[string]int64{"cpu": 5000, "memory": 1 << 30}}, kind("PodTemplate", 0), 2},
		"nothing asked for":                         {cluster.CapacityBuffer{}, kind("PodTemplate", 0), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, replicas(&c.buffer, &c.template))
		})
	}
}

func TestFill_AddsPodsThatAskForWhatTheTemplateDoesLessItsVolumes(t *testing.T) {
	t.Parallel()
	shape := kind("PodTemplate", 0)
	shape.Labels = map[string]string{"app": "spare"}
	shape.Spec.Claims = []cluster.VolumeClaimRef{{Name: "data"}}
	shape.Spec.Gated = true
	snap := of(cluster.CapacityBuffer{Replicas: new(int64(2))}, shape)
	Fill(snap)
	require.Len(t, snap.Pods, 2)
	for _, p := range snap.Pods {
		require.True(t, cluster.Virtual(p.UID))
		require.True(t, p.Unschedulable)
		require.Equal(t, map[string]string{"app": "spare"}, p.Labels)
		require.Empty(t, p.Spec.Claims)
		require.False(t, p.Spec.Gated)
		uid, ok := cluster.BufferOf(p.UID)
		require.True(t, ok)
		require.Equal(t, "u1", uid)
	}
	require.NotEqual(t, snap.Pods[0].UID, snap.Pods[1].UID)
	require.Len(t, shape.Spec.Claims, 1, "the template stays as it is")
}

func TestFill_IsBounded(t *testing.T) {
	t.Parallel()
	snap := of(cluster.CapacityBuffer{Replicas: new(int64(1 << 40))}, kind("PodTemplate", 0))
	Fill(snap)
	require.Len(t, snap.Pods, most)
}

func TestFill_LeavesOutBuffersThatAreNotToBeFilled(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]cluster.CapacityBuffer{
		"deleted":          {Replicas: new(int64(1)), DeletionUnix: now},
		"another strategy": {Replicas: new(int64(1)), Strategy: "example.com/suspended"},
		"not understood":   {Replicas: new(int64(1)), Invalid: "spec.limits.cpu: …"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := of(b, kind("PodTemplate", 0))
			Fill(snap)
			require.Empty(t, snap.Pods)
		})
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	ref := func(n string) cluster.PodRef { return cluster.PodRef{UID: cluster.VirtualUID("u1", n)} }
	held := plan.Plan{Placed: []plan.Placement{{Pod: ref("0"), Node: "a"}, {Pod: ref("1"), NodeClaim: "b"}}}
	for name, c := range map[string]struct {
		snap                *cluster.Snapshot
		plan                plan.Plan
		ready, provisioning string // reasons
		isReady, isHeld     bool
	}{
		"all have room": {
			of(cluster.CapacityBuffer{Replicas: new(int64(2))}, kind("PodTemplate", 0)), held, "Resolved", "FitsExistingCapacity", true, true,
		},
		"one needs a node": {
			of(cluster.CapacityBuffer{Replicas: new(int64(3))}, kind("PodTemplate", 0)),
			plan.Plan{Placed: held.Placed, Claims: []plan.Claim{{Pods: []cluster.PodRef{ref("2")}}}}, "Resolved", "RequiresNewCapacity", true, false,
		},
		"one can have none": {
			of(cluster.CapacityBuffer{Replicas: new(int64(3))}, kind("PodTemplate", 0)),
			plan.Plan{Placed: held.Placed, Unplaced: []plan.Unplaced{{Pod: ref("2")}}}, "Resolved", "RequiresNewCapacity", true, false,
		},
		"nothing is asked for": {
			of(cluster.CapacityBuffer{Replicas: new(int64(0))}, kind("PodTemplate", 0)), plan.Plan{}, "Resolved", "BufferEmpty", true, false,
		},
		"no such template": {
			of(cluster.CapacityBuffer{Replicas: new(int64(1))}, cluster.PodTemplate{TemplateRef: cluster.TemplateRef{Kind: "PodTemplate"}, Absent: true}),
			plan.Plan{}, "PodTemplateNotFound", "NotReadyForProvisioning", false, false,
		},
		"no such workload": {
			of(cluster.CapacityBuffer{Replicas: new(int64(1))}, cluster.PodTemplate{TemplateRef: cluster.TemplateRef{Kind: "Deployment"}, Absent: true}),
			plan.Plan{}, "ScalableRefNotFound", "NotReadyForProvisioning", false, false,
		},
		"the template cannot be read": {
			of(cluster.CapacityBuffer{Replicas: new(int64(1))}, cluster.PodTemplate{TemplateRef: cluster.TemplateRef{Kind: "Deployment"}, Fault: "forbidden"}),
			plan.Plan{}, "ResolutionFailed", "NotReadyForProvisioning", false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Statuses(c.snap, c.plan)
			require.Len(t, got, 1)
			s := got[0].Status
			ready, provisioning := s.Conditions.Get(cluster.ConditionReadyForProvisioning), s.Conditions.Get(cluster.ConditionProvisioning)
			require.Equal(t, c.ready, ready.Reason)
			require.Equal(t, c.isReady, ready.Status == "True")
			require.Equal(t, c.provisioning, provisioning.Reason)
			require.Equal(t, c.isHeld, provisioning.Status == "True")
			require.Equal(t, int64(3), ready.ObservedGeneration)
			if c.isReady {
				require.Equal(t, "shape", s.PodTemplate)
				require.Equal(t, int64(7), *s.PodTemplateGeneration)
			}
			require.Empty(t, c.snap.Buffers[0].Status.Conditions, "the snapshot stays as it is")
		})
	}
}
