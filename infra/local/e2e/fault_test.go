package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
)

// Each test asks for families of its own: what EC2 refused is remembered for minutes.

func TestFault_NoCapacityForTheFirstChoiceTakesAnother(t *testing.T) {
	s := turn(t)
	s.apply(t, class("ice", "demo"), pool("ice", "karpenter.sh/capacity-type=spot, on-demand", family+"c5"))
	s.fault(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Capacity: "spot"}})
	s.EC2.Faults().ForgetFired()
	passes := s.count(t, "provision", "launching instances")
	s.pod(t, "ice", podSpec("1"))
	took := s.eventually(t, later, "the pod runs", s.run("ice", 1))
	t.Logf("running after %v and %d refusals", took, s.fired(fault.NoCapacity))
	require.Positive(t, s.fired(fault.NoCapacity))
	require.Equal(t, "on-demand", s.nodes()[0].Labels[capacityIs])
	s.eventually(t, soon, "no claim of the first try is left", s.settled)
	var requests []string
	for _, l := range s.log(t, "provision") {
		if l.Message == "launching instances" {
			requests = append(requests, l.RequestID)
		}
	}
	require.Greater(t, len(requests), passes+1, "a launch was refused, and another one not")
	for _, request := range requests[passes:] {
		require.Equal(t, requests[passes], request, "all in the same pass")
	}
}

func TestFault_NoCapacityAnywhereIsSaidAndMended(t *testing.T) {
	s := turn(t)
	s.apply(t, class("dry", "demo"), pool("dry", onDemand, family+"r5"))
	lift := s.fault(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "r5.*"}})
	s.pod(t, "dry", podSpec("1"))
	s.eventually(t, soon, "the claim's end is told", s.told("NodeClaim", "", "InsufficientCapacityError", "InsufficientInstanceCapacity"))
	s.eventually(t, soon, "the pod is told", s.told("Pod", "dry", "FailedScheduling", "can be had now"))
	s.eventually(t, soon, "no claim is left", func() error { return s.none(nodeClaims) })
	require.Empty(t, s.running("dry"))
	require.Empty(t, s.instances())
	lift()
	s.apply(t, pool("dry", onDemand, family+"r6i"))
	s.eventually(t, later, "another family serves the pod", s.run("dry", 1))
	require.Equal(t, "r6i", s.nodes()[0].Labels["karpenter.k8s.aws/instance-family"])
}

func TestFault_PartOfAFleet(t *testing.T) {
	s := turn(t)
	s.apply(t, class("part", "demo"), pool("part", onDemand, typeIs+"m6a.large"))
	s.fault(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "m6a.large", Zone: "us-east-1[ab]"}})
	s.fault(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "m6a.large", Zone: "us-east-1c"}, Stock: new(2)})
	spec := podSpec("1")
	spec.Affinity = apart("part")
	s.deploy(t, "part", 5, spec)
	s.eventually(t, later, "two pods run", s.run("part", 2))
	s.eventually(t, soon, "the others are told", s.told("Pod", "", "FailedScheduling", "can be had now"))
	s.eventually(t, soon, "and nothing stands for them", s.settled)
	require.Len(t, s.nodes(), 2)
	s.apply(t, pool("part", onDemand, typeIs+"m6a.large, m6a.xlarge"))
	s.eventually(t, later, "all run", s.run("part", 5))
	s.eventually(t, soon, "on a node each", s.settled)
	require.Len(t, s.nodes(), 5)
}

func TestFault_ThrottledLaunchesAllComeThrough(t *testing.T) {
	s := turn(t)
	const shapes = 40
	s.apply(t, class("throttle", "demo"), pool("throttle", onDemand))
	s.fault(t, fault.Rule{Kind: fault.Throttle, Actions: []string{"CreateFleet"}, Burst: 5, PerSecond: 2})
	s.EC2.Faults().ForgetFired()
	var kinds []string
	for _, name := range ec2.TypeNames() {
		kind, _ := ec2.LookupType(name)
		if kind.Arch == "amd64" && slices.Contains([]string{"c", "m", "r"}, kind.Category) && kind.VCPU >= 2 && kind.VCPU <= 8 && !kind.BareMetal &&
			kind.Generation >= 5 && slices.Contains(kind.Zones, "us-east-1a") && len(kinds) < shapes {
			kinds = append(kinds, name)
		}
	}
	require.Len(t, kinds, shapes)
	for i, kind := range kinds {
		spec := podSpec("1")
		spec.NodeSelector = map[string]string{typeLabel: kind}
		s.pod(t, fmt.Sprintf("shape-%d", i), spec)
	}
	took := s.eventually(t, 2*later, "all pods run", func() error {
		return s.run("", shapes)()
	})
	s.eventually(t, later, "all is settled", s.settled)
	t.Logf("%d launches after %v, %d calls throttled", shapes, took.Round(time.Millisecond), s.fired(fault.Throttle))
	require.Len(t, s.nodes(), shapes)
	require.Empty(t, s.EC2.Calls().TokensOfSeveralLaunches(), "nothing is launched twice")
}

func TestFault_DeniedLaunchIsSaidAndMended(t *testing.T) {
	s := turn(t)
	s.apply(t, class("denied", "demo"), pool("denied", onDemand, family+"c6i"))
	lift := s.fault(t, fault.Rule{Kind: fault.Deny, Actions: []string{"CreateFleet"}})
	s.pod(t, "denied", podSpec("1"))
	s.eventually(t, soon, "somebody is told", func() error {
		return errors.Join(s.toldAnywhere("not authorized"), s.conditionAnywhere("not authorized"))
	})
	require.Empty(t, s.instances())
	lift()
	s.eventually(t, 2*later, "the pod runs once it is allowed", s.run("denied", 1))
	s.eventually(t, later, "on one node", s.settled)
}

// toldAnywhere objects until an Event on a Pod, NodePool, NodeClaim or EC2NodeClass has the text in it.
func (s *scene) toldAnywhere(text string) error {
	for _, e := range s.events() {
		if strings.Contains(strings.ToLower(e.Note), text) {
			return nil
		}
	}
	return fmt.Errorf("no Event says %q", text)
}

// conditionAnywhere objects until a condition of a claim or class has the text in it.
func (s *scene) conditionAnywhere(text string) error {
	for _, o := range slices.Concat(s.list(nodeClaims), s.list(nodeClasses)) {
		if strings.Contains(strings.ToLower(fmt.Sprint(o.Object["status"])), text) {
			return nil
		}
	}
	return fmt.Errorf("no condition says %q", text)
}

func TestFault_LostRepliesLaunchNothingTwice(t *testing.T) {
	s := turn(t)
	s.apply(t, class("lost", "demo"), pool("lost", onDemand, family+"m5a"))
	s.fault(t, fault.Rule{Kind: fault.LostReply, Actions: []string{"CreateFleet"}, Times: 3})
	s.EC2.Faults().ForgetFired()
	spec := podSpec("1")
	spec.Affinity = apart("lost")
	s.deploy(t, "lost", 3, spec)
	s.eventually(t, 2*later, "all pods run", s.run("lost", 3))
	s.eventually(t, later, "on an instance each", s.settled)
	require.Equal(t, 3, s.fired(fault.LostReply))
	require.Len(t, s.instances(), 3)
	require.Empty(t, s.EC2.Calls().TokensOfSeveralLaunches())
}

func TestFault_AnInstanceThatDiesAtLaunchIsReplaced(t *testing.T) {
	s := turn(t)
	s.apply(t, class("dies", "demo"), pool("dies", onDemand, family+"c5a"))
	s.fault(t, fault.Rule{Kind: fault.Dies, Times: 1, Code: "Client.InternalError", Message: "Client error on launch"})
	s.pod(t, "dies", podSpec("1"))
	s.eventually(t, 2*later, "the death is told", s.told("NodeClaim", "", "", "Client.InternalError"))
	s.eventually(t, 2*later, "the pod runs on another", s.run("dies", 1))
	s.eventually(t, later, "the dead one's claim is gone", s.settled)
	require.Equal(t, 1, s.fired(fault.Dies))
	require.Len(t, s.nodes(), 1)
}

func TestFault_ANodeThatNeverRegistersIsWatched(t *testing.T) {
	s := turn(t)
	s.apply(t, class("never", "demo"), pool("never", onDemand, family+"m6id"))
	s.fault(t, fault.Rule{Kind: fault.NeverRegisters, Times: 1})
	s.pod(t, "never", podSpec("1"))
	s.eventually(t, soon, "a claim waits", func() error {
		claims := s.list(nodeClaims)
		if len(claims) != 1 {
			return fmt.Errorf("%d claims", len(claims))
		}
		return s.condition(nodeClaims, claims[0].GetName(), "Registered", "Unknown", "joined")()
	})
	// The second look must not launch again for a pod whose node is on its way.
	looks := s.count(t, "provision", "plan applied")
	s.wake(t, "provision")
	s.eventually(t, soon, "there is another look", func() error {
		if s.count(t, "provision", "plan applied") == looks {
			return errors.New("no look yet")
		}
		return nil
	})
	require.Len(t, s.instances(), 1)
	s.eventually(t, later, "somebody watches it", func() error {
		if s.queued(t, "treadle-lifecycle.fifo") == 0 {
			return errors.New("no message of lifecycle is in flight")
		}
		return nil
	})
}

func TestFault_LateVisibilityLaunchesNothingTwice(t *testing.T) {
	s := turn(t)
	s.apply(t, class("late", "demo"), pool("late", onDemand, family+"m7i"))
	s.fault(t, fault.Rule{Kind: fault.Late, Actions: []string{"DescribeInstances"}, Delay: fault.Duration(8 * time.Second)})
	s.pod(t, "late", podSpec("1"))
	s.eventually(t, later, "the pod runs", s.run("late", 1))
	s.eventually(t, later, "on one instance", s.settled)
	before := s.instances()
	require.Len(t, before, 1)
	s.wake(t, "lifecycle")
	s.eventually(t, 2*soon, "lifecycle is done", s.quiet)
	require.Equal(t, before[0].ID, s.instances()[0].ID, "and has not ended what it could not see")
}

// What EC2 refused account-wide must not hold up what it has not.
func TestFault_ThrottledReadsAreNoFailure(t *testing.T) {
	s := turn(t)
	s.apply(t, class("reads", "demo"), pool("reads", onDemand, family+"c6a"))
	s.fault(t, fault.Rule{Kind: fault.Throttle, Actions: []string{"Describe*"}, Burst: 5, PerSecond: 2})
	s.pod(t, "reads", podSpec("1"))
	s.eventually(t, 2*later, "the pod runs", s.run("reads", 1))
	s.eventually(t, later, "all is settled", s.settled)
}
