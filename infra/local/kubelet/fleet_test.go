package kubelet

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rig is a fleet at work against a fake API server, in a synctest bubble.
type rig struct {
	*fakeAPI
	fleet *Fleet
}

// inBubble runs body with a fleet whose API server is in memory and whose clock is the bubble's.
func inBubble(t *testing.T, edit func(*Options), body func(t *testing.T, r rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t)
		o := Options{
			Config:  api.config(),
			Cluster: Cluster{Name: "demo", CA: []byte(testCA)},
			Lookup:  hardware,
			Log:     slog.New(slog.DiscardHandler),
		}
		if edit != nil {
			edit(&o)
		}
		f := New(o)
		done := make(chan error, 1)
		go func() { done <- f.Run(t.Context()) }()
		t.Cleanup(func() { require.NoError(t, <-done) })
		body(t, rig{api, f})
	})
}

func machine(i int, instanceType string) Machine {
	return Machine{
		InstanceID: fmt.Sprintf("i-%017d", i), Type: instanceType, Zone: "us-east-1a", ZoneID: "use1-az1", Region: "us-east-1",
		PrivateDNSName: fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/256, i%256), PrivateIP: fmt.Sprintf("10.0.%d.%d", i/256, i%256),
		Family: AL2023, UserData: []byte(nodeConfigYAML()),
	}
}

const first = "ip-10-0-0-1.ec2.internal"

// after lets d of the bubble's time pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ready(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func annotate(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func request(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse(amount)}
	}
}

func ofJob(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: &yes}}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
}

func TestNode_RegistersAsItsUserDataSays(t *testing.T) {
	delays := func(o *Options) {
		o.BootDelay = func(Machine) time.Duration { return 20 * time.Second }
		o.ReadyDelay, o.DeviceDelay = 5*time.Second, 7*time.Second
	}
	inBubble(t, delays, func(t *testing.T, r rig) {
		m := machine(1, "g4dn.xlarge")
		m.Fault.SlowBoot = 10 * time.Second
		r.fleet.Boot(m)
		r.fleet.Boot(m) // a repeated event
		after(29 * time.Second)
		require.Nil(t, r.node(first))
		require.Equal(t, Booting, r.fleet.Nodes()[0].State)

		after(time.Second)
		n := r.node(first)
		require.NotNil(t, n)
		require.Equal(t, "aws:///us-east-1a/"+m.InstanceID, n.Spec.ProviderID)
		require.Equal(t, "default", n.Labels["karpenter.sh/nodepool"])
		require.Equal(t, "us-east-1a", n.Labels[corev1.LabelTopologyZone])
		require.Equal(t, "use1-az1", n.Labels["topology.k8s.aws/zone-id"])
		require.Equal(t, "g4dn.xlarge", n.Labels[corev1.LabelInstanceTypeStable])
		require.Contains(t, n.Spec.Taints, corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute})
		require.Equal(t, corev1.ConditionFalse, ready(n))
		require.Equal(t, int64(29), n.Status.Allocatable.Pods().Value())
		require.NotContains(t, n.Status.Capacity, corev1.ResourceName("nvidia.com/gpu"))
		require.Equal(t, 1, r.sent("POST /api/v1/nodes as system:node:"+first), "one Node, under the node's own name")
		require.NotNil(t, r.lease(first))
		csi := r.csiNode(first)
		require.NotNil(t, csi)
		require.Equal(t, int32(25), *csi.Spec.Drivers[0].Allocatable.Count)
		require.Equal(t, n.UID, csi.OwnerReferences[0].UID)

		after(5 * time.Second)
		require.Equal(t, corev1.ConditionTrue, ready(r.node(first)))
		require.Equal(t, Ready, r.fleet.Nodes()[0].State)
		require.NotContains(t, r.node(first).Status.Capacity, corev1.ResourceName("nvidia.com/gpu"))

		after(7 * time.Second)
		gpus := r.node(first).Status.Allocatable["nvidia.com/gpu"]
		require.Equal(t, int64(1), gpus.Value())
		require.Equal(t, version, r.node(first).Status.NodeInfo.KubeletVersion, "a report leaves the rest of the status alone")
	})
}

func TestNode_NeverRegistersAndSaysWhy(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		spoil := []struct {
			why  string
			edit func(*Machine)
		}{
			{"no bootstrap", func(m *Machine) { m.UserData = []byte("#!/bin/sh") }},
			{"unauthorized", func(m *Machine) { m.Family, m.UserData = "", []byte("/etc/eks/bootstrap.sh other") }},
			{"told never", func(m *Machine) { m.Fault.NeverRegister = true }},
			{"not known", func(m *Machine) { m.Type = "z9.large" }},
			{"not for a kubelet", func(m *Machine) {
				m.UserData = append(m.UserData, "    - --node-labels=node-role.kubernetes.io/worker=\n"...)
			}},
			{"invalid node allocatable", func(m *Machine) {
				m.UserData = append(m.UserData, "    - --kube-reserved=cpu=99\n"...)
			}},
		}
		for i, s := range spoil {
			m := machine(i+1, "m5.large")
			s.edit(&m)
			r.fleet.Boot(m)
		}
		after(time.Hour)
		for i, s := range r.fleet.Nodes() {
			require.Equal(t, Refused, s.State)
			require.Contains(t, s.Reason, spoil[i].why)
		}
		require.Zero(t, r.sent("POST"))
	})
}

func TestNode_RetriesUntilTheAPIServerTakesIt(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		var closed = true
		r.refuse = func(method, _ string) *apierrors.StatusError {
			if closed && method == http.MethodPost {
				return apierrors.NewServiceUnavailable("not yet")
			}
			return nil
		}
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Minute)
		require.Equal(t, Registering, r.fleet.Nodes()[0].State)
		require.Contains(t, r.fleet.Nodes()[0].Reason, "not yet")
		require.InDelta(t, 15, r.sent("POST /api/v1/nodes"), 5, "it retries, ever slower")

		r.mu.Lock()
		closed = false
		r.mu.Unlock()
		after(longestRetry)
		require.Equal(t, Ready, r.fleet.Nodes()[0].State)
		require.Empty(t, r.fleet.Nodes()[0].Reason)
	})
}

func TestNode_KeepsItsLeaseAndReportsSeldom(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Second)
		leases, reports := r.sent("PUT /apis/coordination"), r.sent("PATCH /api/v1/nodes")
		after(time.Hour)
		require.InDelta(t, 360, r.sent("PUT /apis/coordination")-leases, 1)
		require.InDelta(t, 12, r.sent("PATCH /api/v1/nodes")-reports, 1)
		require.WithinDuration(t, time.Now(), r.lease(first).Spec.RenewTime.Time, 10*time.Second)
		require.Equal(t, r.node(first).UID, r.lease(first).OwnerReferences[0].UID)
		for _, c := range r.node(first).Status.Conditions {
			require.Less(t, c.LastTransitionTime.Time, c.LastHeartbeatTime.Time, "a report without news moves no transition")
		}
	})
}

func TestNode_RenewsItsLeaseLessOftenInABigFleet(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]time.Duration{
		0: 10 * time.Second, 3_000: 10 * time.Second, 6_000: 20 * time.Second, 10_000: 25 * time.Second, 100_000: 25 * time.Second,
	} {
		f := New(Options{Config: newFakeAPI(t).config()})
		for i := range nodes {
			f.nodes[fmt.Sprint(i)] = nil
		}
		require.Equal(t, want, f.leasePause(), "%d nodes", nodes)
	}
}

func TestNode_TakesBackALeaseThatAnotherChanged(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Second)
		r.mu.Lock()
		path := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + first
		r.store(path, r.objects[path])
		r.mu.Unlock()
		after(10 * time.Second)
		require.WithinDuration(t, time.Now(), r.lease(first).Spec.RenewTime.Time, time.Second)

		r.drop(path)
		after(11 * time.Second)
		require.NotNil(t, r.lease(first), "a deleted lease of a live node is made again")
	})
}

func TestNode_StopsAtOnceWhenHalted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		r.bind("p", first)
		after(time.Second)
		require.Equal(t, corev1.PodRunning, r.pod("p").Status.Phase)

		r.fleet.Halt(machine(1, "").InstanceID)
		before := r.sent("")
		r.askDelete("p", 0)
		after(time.Hour)
		require.Equal(t, before, r.sent(""), "a dead kubelet sends nothing")
		require.NotNil(t, r.node(first), "its Node stays")
		require.Equal(t, corev1.PodRunning, r.pod("p").Status.Phase, "and so do its pods")
		require.Empty(t, r.fleet.Nodes())
		r.fleet.Halt("i-unknown")
	})
}

func TestNode_IsNotMadeAgainWhenDeleted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Second)
		r.drop("/api/v1/nodes/" + first)
		r.drop("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + first)
		after(time.Minute)
		before := r.sent("")
		after(time.Hour)
		require.Nil(t, r.node(first))
		require.Nil(t, r.lease(first))
		require.Equal(t, Removed, r.fleet.Nodes()[0].State)
		require.Equal(t, before, r.sent(""))
	})
}

func TestNode_TakesOverTheNodeOfItsName(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Second)
		r.fleet.Halt(machine(1, "").InstanceID)
		again := machine(1, "t3.medium")
		again.InstanceID = "i-another"
		r.fleet.Boot(again)
		after(time.Second)
		require.Equal(t, Ready, r.fleet.Nodes()[0].State)
		require.Equal(t, "aws:///us-east-1a/"+machine(1, "").InstanceID, r.node(first).Spec.ProviderID, "a provider id never changes")
	})
}

func TestNode_Faults(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		m := machine(1, "g4dn.xlarge")
		m.Fault = Fault{NotReady: true, MissingMemory: 0.2}
		r.fleet.Boot(m)
		r.bind("p", first)
		after(time.Minute)
		require.Equal(t, corev1.ConditionFalse, ready(r.node(first)))
		require.Less(t, r.node(first).Status.Capacity.Memory().Value(), 13*gib)
		require.Equal(t, corev1.PodPending, r.pod("p").Status.Phase, "without a network no pod starts")

		require.True(t, r.fleet.SetFault(m.InstanceID, Fault{NoDevices: true, Conditions: map[string]bool{"AcceleratedHardwareReady": false}}))
		after(time.Minute)
		require.Equal(t, corev1.ConditionTrue, ready(r.node(first)))
		require.Equal(t, corev1.PodRunning, r.pod("p").Status.Phase)
		require.NotContains(t, r.node(first).Status.Capacity, corev1.ResourceName("nvidia.com/gpu"))
		require.Equal(t, corev1.NodeConditionType("AcceleratedHardwareReady"), r.node(first).Status.Conditions[4].Type)

		require.True(t, r.fleet.SetFault(m.InstanceID, Fault{Silent: true}))
		after(time.Second)
		before := r.sent("")
		r.askDelete("p", time.Second)
		after(time.Hour)
		require.Equal(t, before, r.sent(""))

		require.True(t, r.fleet.SetFault(m.InstanceID, Fault{}))
		after(time.Second)
		require.WithinDuration(t, time.Now(), r.lease(first).Spec.RenewTime.Time, time.Second)
		require.Nil(t, r.pod("p"), "what was asked meanwhile is done")
		gpus := r.node(first).Status.Allocatable["nvidia.com/gpu"]
		require.Equal(t, int64(1), gpus.Value())
		require.False(t, r.fleet.SetFault("i-unknown", Fault{}))
	})
}

func TestPod_LivesAndDies(t *testing.T) {
	inBubble(t, func(o *Options) { o.PodStartDelay = 2 * time.Second }, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Second)
		r.bind("p", first, annotate(ReadyAfterAnnotation, "5s", TerminateAfterAnnotation, "3s"), request(corev1.ResourceCPU, "500m"))
		r.bind("elsewhere", "ip-10-9-9-9.ec2.internal")
		after(time.Second)
		require.Equal(t, corev1.PodPending, r.pod("p").Status.Phase)
		require.Equal(t, int64(500), r.fleet.Nodes()[0].RequestedMilliCPU)

		after(time.Second)
		p := r.pod("p")
		require.Equal(t, corev1.PodRunning, p.Status.Phase)
		require.False(t, podReady(p))
		require.NotEmpty(t, p.Status.PodIP)
		require.Equal(t, "10.0.0.1", p.Status.HostIP)
		require.NotNil(t, p.Status.ContainerStatuses[0].State.Running)
		require.Equal(t, corev1.PodScheduled, p.Status.Conditions[len(p.Status.Conditions)-1].Type, "the scheduler's condition stays")

		after(5 * time.Second)
		require.True(t, podReady(r.pod("p")))

		r.askDelete("p", 30*time.Second)
		after(2 * time.Second)
		require.Equal(t, corev1.PodRunning, r.pod("p").Status.Phase, "it uses its grace period")
		after(time.Second)
		require.Nil(t, r.pod("p"))
		require.Zero(t, r.fleet.Nodes()[0].RequestedMilliCPU)
		require.Equal(t, 1, r.sent("DELETE "+podPath("p")+" as system:node:"+first))
		require.Equal(t, corev1.PodPending, r.pod("elsewhere").Status.Phase, "other kubelets' pods are left alone")
	})
}

func TestPod_GraceIsALimit(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		for _, name := range []string{"plain", "slow", "forced"} {
			r.bind(name, first, annotate(TerminateAfterAnnotation, map[string]string{"plain": "0s"}[name]))
		}
		slow := annotate(TerminateAfterAnnotation, "1h")
		r.bind("slow", first, slow)
		r.bind("stubborn", first, slow)
		r.bind("forced2", first, slow)
		after(time.Second)

		r.askDelete("plain", 30*time.Second)
		r.askDelete("stubborn", 10*time.Second)
		r.askDelete("forced2", time.Hour)
		after(0)
		require.Nil(t, r.pod("plain"), "without the annotation a pod stops at once")
		after(9 * time.Second)
		require.NotNil(t, r.pod("stubborn"))
		r.askDelete("forced2", 0)
		after(time.Second)
		require.Nil(t, r.pod("stubborn"), "no pod outlives its grace period")
		require.Nil(t, r.pod("forced2"), "a second deletion may shorten the period")
	})
}

func TestPod_OfAJobCompletes(t *testing.T) {
	onFailure := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Second)
		r.bind("plain", first, ofJob, request(corev1.ResourceCPU, "1"))
		r.bind("long", first, ofJob, annotate(RunForAnnotation, "5s"))
		r.bind("failing", first, ofJob, annotate(ExitCodeAnnotation, "3"))
		r.bind("retrying", first, ofJob, onFailure, annotate(ExitCodeAnnotation, "1"))
		r.bind("killed", first, ofJob, annotate(RunForAnnotation, "1h", TerminateAfterAnnotation, "1s"))
		after(500 * time.Millisecond)
		require.Equal(t, corev1.PodRunning, r.pod("plain").Status.Phase)

		after(500 * time.Millisecond)
		p := r.pod("plain")
		require.Equal(t, corev1.PodSucceeded, p.Status.Phase)
		require.Zero(t, p.Status.ContainerStatuses[0].State.Terminated.ExitCode)
		require.False(t, podReady(p))
		require.Zero(t, r.fleet.Nodes()[0].RequestedMilliCPU, "a finished pod takes no room")
		require.Equal(t, corev1.PodFailed, r.pod("failing").Status.Phase)
		require.Equal(t, int32(3), r.pod("failing").Status.ContainerStatuses[0].State.Terminated.ExitCode)
		require.Equal(t, corev1.PodRunning, r.pod("long").Status.Phase)

		after(4 * time.Second)
		require.Equal(t, corev1.PodSucceeded, r.pod("long").Status.Phase)
		require.Equal(t, corev1.PodRunning, r.pod("retrying").Status.Phase)
		require.Equal(t, int32(2), r.pod("retrying").Status.ContainerStatuses[0].RestartCount)
		require.NotNil(t, r.pod("retrying").Status.ContainerStatuses[0].State.Waiting)

		r.askDelete("plain", 30*time.Second)
		r.askDelete("killed", 30*time.Second)
		after(time.Second)
		require.Nil(t, r.pod("plain"))
		require.Nil(t, r.pod("killed"))
	})
}

func TestPod_ThatDoesNotFitIsRejected(t *testing.T) {
	hostPort := func(port int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, Protocol: corev1.ProtocolTCP}}
		}
	}
	for name, c := range map[string]struct {
		first, second func(*corev1.Pod)
		reason        string
	}{
		"too much CPU together":             {request(corev1.ResourceCPU, "1"), request(corev1.ResourceCPU, "1"), "OutOfcpu"},
		"too much memory":                   {request(corev1.ResourceMemory, "1Gi"), request(corev1.ResourceMemory, "8Gi"), "OutOfmemory"},
		"too much storage":                  {request(corev1.ResourceEphemeralStorage, "1Gi"), request(corev1.ResourceEphemeralStorage, "20Gi"), "OutOfephemeral-storage"},
		"a device that the node lacks":      {request(corev1.ResourceCPU, "1"), request("nvidia.com/gpu", "1"), "UnexpectedAdmissionError"},
		"a host port that is taken":         {hostPort(8080), hostPort(8080), "NodePorts"},
		"another host port is no obstacle":  {hostPort(8080), hostPort(8081), ""},
		"what is left is enough to the bit": {request(corev1.ResourceCPU, "1"), request(corev1.ResourceCPU, "930m"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r rig) {
				r.fleet.Boot(machine(1, "m5.large"))
				r.bind("p1", first, c.first)
				after(time.Second)
				r.bind("p2", first, c.second)
				after(time.Second)
				require.Equal(t, corev1.PodRunning, r.pod("p1").Status.Phase)
				require.Equal(t, c.reason, r.pod("p2").Status.Reason)
				if c.reason == "" {
					require.Equal(t, corev1.PodRunning, r.pod("p2").Status.Phase)
				} else {
					require.Equal(t, corev1.PodFailed, r.pod("p2").Status.Phase)
				}
			})
		})
	}
}

func TestPod_ManyAreRejectedBeyondMaxPods(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		for i := range 35 {
			r.bind(fmt.Sprintf("p%d", i), first)
		}
		after(time.Second)
		phases := map[corev1.PodPhase]int{}
		for i := range 35 {
			phases[r.pod(fmt.Sprintf("p%d", i)).Status.Phase]++
		}
		require.Equal(t, map[corev1.PodPhase]int{corev1.PodRunning: 29, corev1.PodFailed: 6}, phases)
	})
}

func TestPod_IsTakenUpAgainByANewFleet(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		started := metav1.NewTime(time.Now().Add(-time.Minute))
		r.bind("p", first, request(corev1.ResourceCPU, "1"), func(p *corev1.Pod) {
			p.Status.Phase, p.Status.StartTime, p.Status.PodIP = corev1.PodRunning, &started, "100.64.7.7"
		})
		r.bind("done", first, request(corev1.ResourceCPU, "1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		r.fleet.Boot(machine(1, "m5.large"))
		after(time.Second)
		require.True(t, podReady(r.pod("p")))
		require.Equal(t, "100.64.7.7", r.pod("p").Status.PodIP)
		require.Equal(t, int64(1000), r.fleet.Nodes()[0].RequestedMilliCPU)
	})
}

func TestPod_WithKWOKsUnhealthyStageNeverGetsReady(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		r.bind("p", first, func(p *corev1.Pod) { p.Labels = map[string]string{stageLabel: unhealthy} })
		after(time.Hour)
		require.Equal(t, corev1.PodRunning, r.pod("p").Status.Phase)
		require.False(t, podReady(r.pod("p")))
	})
}

func TestPod_APreStopHookHoldsItUp(t *testing.T) {
	hook := func(h corev1.LifecycleHandler) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &h} }
	}
	inBubble(t, nil, func(t *testing.T, r rig) {
		r.fleet.Boot(machine(1, "m5.large"))
		r.bind("command", first, hook(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "3600"}}}))
		r.bind("sleep", first, hook(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}))
		after(time.Second)
		r.askDelete("command", 30*time.Second)
		r.askDelete("sleep", 30*time.Second)
		after(4 * time.Second)
		require.NotNil(t, r.pod("sleep"))
		after(2 * time.Second)
		require.Nil(t, r.pod("sleep"))
		after(20 * time.Second)
		require.NotNil(t, r.pod("command"), "a command is taken to last for the whole grace period")
		after(5 * time.Second)
		require.Nil(t, r.pod("command"))
	})
}
