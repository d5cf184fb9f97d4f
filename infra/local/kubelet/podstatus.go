package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusAt is what all statuses of a started pod share.
func (p *pod) statusAt(n *node, phase corev1.PodPhase, now time.Time) *corev1.PodStatus {
	started := metav1.NewTime(p.createdAt)
	s := &corev1.PodStatus{
		ObservedGeneration: p.generation,
		Phase:              phase,
		HostIP:             n.PrivateIP,
		HostIPs:            []corev1.HostIP{{IP: n.PrivateIP}},
		StartTime:          &started,
	}
	if p.ip != "" {
		s.PodIP, s.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	return s
}

func condition(t corev1.PodConditionType, ok bool, reason string, now time.Time) corev1.PodCondition {
	status := corev1.ConditionFalse
	if ok {
		status, reason = corev1.ConditionTrue, ""
	}
	return corev1.PodCondition{Type: t, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now)}
}

// describe fills in conditions and the state of every container.
func (p *pod) describe(s *corev1.PodStatus, ready bool, reason string, now time.Time, state corev1.ContainerState) {
	alive := state.Running != nil
	s.Conditions = []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, alive || state.Waiting != nil, "", now),
		condition(corev1.PodInitialized, true, "", now),
		condition(corev1.PodReady, ready, reason, now),
		condition(corev1.ContainersReady, ready, reason, now),
	}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: metav1.NewTime(p.createdAt), FinishedAt: metav1.NewTime(p.startedAt),
	}}
	for _, c := range p.inits {
		if c.sidecar {
			s.InitContainerStatuses = append(s.InitContainerStatuses, p.containerStatus(c, ready, state))
		} else {
			s.InitContainerStatuses = append(s.InitContainerStatuses, p.containerStatus(c, true, done))
		}
	}
	for _, c := range p.containers {
		s.ContainerStatuses = append(s.ContainerStatuses, p.containerStatus(c, ready, state))
	}
}

func (p *pod) containerStatus(c container, ready bool, state corev1.ContainerState) corev1.ContainerStatus {
	alive := state.Running != nil
	return corev1.ContainerStatus{
		Name:         c.name,
		Image:        c.image,
		ImageID:      c.image,
		ContainerID:  "containerd://" + string(p.uid) + "-" + c.name,
		Ready:        ready,
		Started:      &alive,
		RestartCount: p.restarts,
		State:        state,
	}
}

func (p *pod) runningStatus(n *node, ready bool, now time.Time) *corev1.PodStatus {
	s := p.statusAt(n, corev1.PodRunning, now)
	p.describe(s, ready, "ContainersNotReady", now, corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.startedAt)},
	})
	return s
}

// waitingStatus is that of a pod between two starts of its containers.
func (p *pod) waitingStatus(n *node, now time.Time) *corev1.PodStatus {
	s := p.statusAt(n, corev1.PodRunning, now)
	p.describe(s, false, "ContainersNotReady", now, corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"},
	})
	return s
}

func (p *pod) exitedStatus(n *node, code int32, reason string, now time.Time) *corev1.PodStatus {
	phase, why := corev1.PodSucceeded, "PodCompleted"
	if code != 0 {
		phase, why = corev1.PodFailed, "PodFailed"
	}
	s := p.statusAt(n, phase, now)
	p.describe(s, false, why, now, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: metav1.NewTime(p.startedAt), FinishedAt: metav1.NewTime(now),
	}})
	return s
}

// rejectedStatus is that of a pod that was never started.
func (p *pod) rejectedStatus(n *node, why *refusal, now time.Time) *corev1.PodStatus {
	started := metav1.NewTime(now)
	return &corev1.PodStatus{
		ObservedGeneration: p.generation,
		Phase:              corev1.PodFailed,
		Reason:             why.reason,
		Message:            "rejected by " + n.name + ": " + why.message,
		StartTime:          &started,
	}
}
