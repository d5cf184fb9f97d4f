package kubelet

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The annotations that script a simulated pod. Durations are Go's, such as 1.5s.
const (
	ReadyAfterAnnotation     = "treadle.local/ready-after"     // from running to ready; default at once
	RunForAnnotation         = "treadle.local/run-for"         // from running to exit; default for ever, 1s in a Job
	ExitCodeAnnotation       = "treadle.local/exit-code"       // of every container after run-for; default 0
	TerminateAfterAnnotation = "treadle.local/terminate-after" // from deletion to exit; default at once, at most the grace period
)

// A pod with this label and value never gets ready, as with KWOK, whose word it is.
const (
	stageLabel = "kwok.x-k8s.io/stage"
	unhealthy  = "unhealthy"
)

const (
	never          = 1 << 62 // nanoseconds: more than a century
	defaultJobRun  = time.Second
	killedExitCode = 143 // by SIGTERM
	firstBackOff   = 10 * time.Second
	longestBackOff = 5 * time.Minute
)

// podRef names one pod for good: a later pod of the same name has another uid.
type podRef struct {
	namespace, name string
	uid             types.UID
}

// stage is how far a pod has come.
type stage int

const (
	bound    stage = iota // not looked at yet
	admitted              // resources are set aside, containers not started
	running               // started, not ready
	serving               // started and ready
	finished              // phase Succeeded or Failed
	removed               // the object is deleted
)

// pod is what a kubelet remembers of a pod. Its fields are guarded by the Fleet's mutex.
type pod struct {
	podRef
	node        string
	generation  int64
	requests    amounts
	ports       []corev1.ContainerPort // those with a host port
	hostNetwork bool
	inits       []container
	containers  []container
	restart     corev1.RestartPolicy
	script      script

	stage     stage
	counted   bool // in the node's used amounts
	ip        string
	createdAt time.Time // status.startTime
	startAt   time.Time // when containers start
	startedAt time.Time
	restarts  int32
	leaving   bool
	stopAt    time.Time // when the last container has stopped
}

type container struct {
	name, image string
	sidecar     bool
}

// script is what the annotations say.
type script struct {
	readyAfter, terminateAfter time.Duration
	runFor                     time.Duration // negative: for ever
	exitCode                   int32
}

// newPod trims a pod to what a kubelet needs, so that a big fleet remembers little. An error is about
// an annotation that cannot be read; the pod is of use all the same.
func newPod(p *corev1.Pod) (*pod, error) {
	n := &pod{
		podRef:      podRef{p.Namespace, p.Name, p.UID},
		node:        p.Spec.NodeName,
		generation:  p.Generation,
		requests:    requests(&p.Spec),
		hostNetwork: p.Spec.HostNetwork,
		restart:     p.Spec.RestartPolicy,
	}
	for _, c := range p.Spec.InitContainers {
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		n.inits = append(n.inits, container{c.Name, c.Image, sidecar})
	}
	for _, c := range p.Spec.Containers {
		n.containers = append(n.containers, container{c.Name, c.Image, false})
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				n.ports = append(n.ports, port)
			}
		}
	}
	var err error
	n.script, err = readScript(p)
	n.resume(p)
	return n, err
}

// resume takes over a pod that was started before this process was.
func (p *pod) resume(from *corev1.Pod) {
	s := from.Status
	if s.StartTime != nil {
		p.createdAt, p.startedAt = s.StartTime.Time, s.StartTime.Time
	}
	p.ip = s.PodIP
	switch s.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		p.stage = finished
	case corev1.PodRunning:
		p.stage = running
		for _, c := range s.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				p.stage = serving
			}
		}
		for _, c := range s.ContainerStatuses {
			p.restarts = max(p.restarts, c.RestartCount)
		}
	}
}

func readScript(p *corev1.Pod) (script, error) {
	s := script{runFor: -1}
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "Job" {
		s.runFor = defaultJobRun
	}
	if p.Labels[stageLabel] == unhealthy {
		s.readyAfter = never
	}
	for i := range p.Spec.Containers {
		s.terminateAfter = max(s.terminateAfter, preStop(&p.Spec.Containers[i]))
	}
	for key, to := range map[string]*time.Duration{
		ReadyAfterAnnotation:     &s.readyAfter,
		RunForAnnotation:         &s.runFor,
		TerminateAfterAnnotation: &s.terminateAfter,
	} {
		text, ok := p.Annotations[key]
		if !ok {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return s, fmt.Errorf("read %s: %q is no duration", key, text)
		}
		*to = d
	}
	if text, ok := p.Annotations[ExitCodeAnnotation]; ok {
		code, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return s, fmt.Errorf("read %s: %q is no exit code", ExitCodeAnnotation, text)
		}
		s.exitCode = int32(code)
	}
	return s, nil
}

// preStop returns how long a container's pre-stop hook holds it up: a command, for as long as it may.
func preStop(c *corev1.Container) time.Duration {
	switch {
	case c.Lifecycle == nil || c.Lifecycle.PreStop == nil:
		return 0
	case c.Lifecycle.PreStop.Sleep != nil:
		return time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	default:
		return never
	}
}

// leave notes a deletion request. A later, shorter grace period shortens the stop.
func (p *pod) leave(grace time.Duration, now time.Time) {
	stop := now.Add(min(p.script.terminateAfter, grace))
	if !p.leaving || stop.Before(p.stopAt) {
		p.leaving, p.stopAt = true, stop
	}
}

// act is the next thing to write about a pod, if anything, and when to look again.
type act struct {
	status *corev1.PodStatus
	remove bool
	then   stage // once written
	again  time.Time
}

// next decides what to do about p on n at now. It sets resources aside and gives them back; all
// else changes only when the writes have been made.
func (p *pod) next(n *node, neighbours map[types.UID]*pod, startDelay time.Duration, now time.Time) act {
	if p.leaving {
		return p.nextStop(n, now)
	}
	switch p.stage {
	case bound:
		if refused := n.admit(p, neighbours); refused != nil {
			return act{status: p.rejectedStatus(n, refused, now), then: finished}
		}
		p.count(n)
		p.stage, p.createdAt, p.startAt = admitted, now, now.Add(startDelay)
		return p.nextStart(n, now)
	case admitted:
		p.count(n)
		return p.nextStart(n, now)
	case running, serving:
		p.count(n)
		return p.nextRun(n, now)
	case finished, removed:
	}
	return act{}
}

func (p *pod) nextStop(n *node, now time.Time) act {
	if p.stage == running || p.stage == serving {
		if now.Before(p.stopAt) {
			return act{again: p.stopAt}
		}
		p.release(n)
		return act{status: p.exitedStatus(n, killedExitCode, "Error", now), then: finished}
	}
	if p.stage == removed {
		return act{}
	}
	p.release(n)
	return act{remove: true, then: removed}
}

func (p *pod) nextStart(n *node, now time.Time) act {
	if n.state != Ready && !p.hostNetwork {
		return act{} // the node wakes its pods when the network is up
	}
	if now.Before(p.startAt) {
		return act{again: p.startAt}
	}
	p.startedAt = now
	if p.script.readyAfter == 0 {
		return act{status: p.runningStatus(n, true, now), then: serving}
	}
	return act{status: p.runningStatus(n, false, now), then: running}
}

func (p *pod) nextRun(n *node, now time.Time) act {
	var again time.Time
	if p.script.runFor >= 0 {
		exit := p.startedAt.Add(p.script.runFor)
		if !now.Before(exit) {
			return p.exit(n, now)
		}
		again = exit
	}
	if p.stage == running {
		ready := p.startedAt.Add(p.script.readyAfter)
		if !now.Before(ready) {
			return act{status: p.runningStatus(n, true, now), then: serving}
		}
		if again.IsZero() || ready.Before(again) {
			again = ready
		}
	}
	return act{again: again}
}

// exit ends the containers, for good or until their next start as the restart policy wants.
func (p *pod) exit(n *node, now time.Time) act {
	code := p.script.exitCode
	again := p.restart == corev1.RestartPolicyAlways || p.restart == corev1.RestartPolicyOnFailure && code != 0
	if !again {
		p.release(n)
		reason := "Completed"
		if code != 0 {
			reason = "Error"
		}
		return act{status: p.exitedStatus(n, code, reason, now), then: finished}
	}
	var pause time.Duration
	if p.restarts > 0 {
		pause = min(firstBackOff<<min(p.restarts-1, 10), longestBackOff)
	}
	p.restarts++
	p.startAt = now.Add(pause)
	return act{status: p.waitingStatus(n, now), then: admitted}
}

// count sets the pod's requests aside, once.
func (p *pod) count(n *node) {
	if !p.counted {
		p.counted = true
		n.used.add(p.requests)
	}
}

// release gives the pod's requests back, once.
func (p *pod) release(n *node) {
	if p.counted {
		p.counted = false
		n.used.subtract(p.requests)
	}
}

// admit says why n cannot take p, nil if it can.
func (n *node) admit(p *pod, neighbours map[types.UID]*pod) *refusal {
	if short := shortage(p.requests, n.used, n.allocatable); short != nil {
		return short
	}
	if len(p.ports) == 0 {
		return nil
	}
	for _, other := range neighbours {
		if !other.counted || other == p {
			continue
		}
		for _, theirs := range other.ports {
			for _, ours := range p.ports {
				if samePort(ours, theirs) {
					return &refusal{"NodePorts", fmt.Sprintf("host port %d/%s is taken", ours.HostPort, ours.Protocol)}
				}
			}
		}
	}
	return nil
}

func samePort(a, b corev1.ContainerPort) bool {
	anyIP := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a.HostPort == b.HostPort && a.Protocol == b.Protocol &&
		(a.HostIP == b.HostIP || anyIP(a.HostIP) || anyIP(b.HostIP))
}
