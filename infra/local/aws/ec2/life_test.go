package ec2_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
)

// slow is a stack in a bubble whose instances take ten seconds to run and five to end.
func slow(t *testing.T) (stack, *record) {
	t.Helper()
	s := stack{Service: ec2.New(ec2.Config{Cluster: "demo", PendingFor: 10 * time.Second, ShutdownFor: 5 * time.Second})}
	seen := &record{}
	s.Observe(seen.add)
	return s, seen
}

// describe shows an instance as DescribeInstances does; nil if it does not exist.
func describe(t *testing.T, s stack, id string) *types.Instance {
	t.Helper()
	out, err := s.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		require.Equal(t, "InvalidInstanceID.NotFound", code(t, err))
		return nil
	}
	return &out.Reservations[0].Instances[0]
}

// after lets time pass and everything that is due happen.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestInstance_LivesFromPendingToForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, seen := slow(t)
		id := run(t, s, nil)
		require.Equal(t, types.InstanceStateNamePending, describe(t, s, id).State.Name)
		after(9 * time.Second)
		require.Equal(t, types.InstanceStateNamePending, describe(t, s, id).State.Name)
		after(time.Second)
		require.Equal(t, types.InstanceStateNameRunning, describe(t, s, id).State.Name)
		address := *describe(t, s, id).PrivateIpAddress

		out, err := s.TerminateInstances(t.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{id}})
		require.NoError(t, err)
		require.Equal(t, types.InstanceStateNameRunning, out.TerminatingInstances[0].PreviousState.Name)
		require.Equal(t, types.InstanceStateNameShuttingDown, out.TerminatingInstances[0].CurrentState.Name)
		require.Equal(t, "Client.UserInitiatedShutdown", *describe(t, s, id).StateReason.Code)
		after(5 * time.Second)
		dead := describe(t, s, id)
		require.Equal(t, types.InstanceStateNameTerminated, dead.State.Name)
		require.EqualValues(t, 48, *dead.State.Code)
		require.Nil(t, dead.PrivateIpAddress)
		terminate(t, s, id)
		require.Equal(t, []ec2.ChangeKind{ec2.Pending, ec2.Running, ec2.ShuttingDown, ec2.Terminated}, seen.kinds(),
			"ending it again changes nothing")
		require.NotEqual(t, address, *describe(t, s, run(t, s, nil)).PrivateIpAddress, "its address is used again as late as can be")

		after(time.Hour - time.Second)
		require.NotNil(t, describe(t, s, id))
		after(time.Second)
		require.Nil(t, describe(t, s, id))
		require.Len(t, s.Instances(), 1)
	})
}

func TestInstance_EndedWhilePendingNeverRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, seen := slow(t)
		terminate(t, s, run(t, s, nil))
		after(time.Minute)
		require.Equal(t, []ec2.ChangeKind{ec2.Pending, ec2.ShuttingDown, ec2.Terminated}, seen.kinds())
	})
}

func TestInstance_FaresAsItsFaultsSay(t *testing.T) {
	t.Parallel()
	const kms = "Client.InvalidKMSKey.InvalidState"
	for name, c := range map[string]struct {
		rule   fault.Rule
		want   []ec2.ChangeKind
		reason string
		took   time.Duration // from launch to shutting down
	}{
		"dies at launch, as for a key that cannot be used": {
			fault.Rule{Kind: fault.Dies, Code: kms, Message: kms + ": The KMS key provided is in an incorrect state"},
			[]ec2.ChangeKind{ec2.Pending, ec2.ShuttingDown, ec2.Terminated}, kms + ": The KMS key provided is in an incorrect state", 0,
		},
		"dies later": {
			fault.Rule{Kind: fault.Dies, Delay: fault.Duration(time.Minute)},
			[]ec2.ChangeKind{ec2.Pending, ec2.Running, ec2.ShuttingDown, ec2.Terminated}, "Server.InternalError: Internal error on launch", time.Minute,
		},
		"is interrupted with two minutes' warning": {
			fault.Rule{Kind: fault.Interrupt, Delay: fault.Duration(time.Minute)},
			[]ec2.ChangeKind{ec2.Pending, ec2.Running, ec2.SpotInterruption, ec2.ShuttingDown, ec2.Terminated},
			"Server.SpotInstanceTermination: Spot instance termination", 3 * time.Minute,
		},
		"is taken without a warning": {
			fault.Rule{Kind: fault.Interrupt, Delay: fault.Duration(time.Minute), Notice: fault.Duration(-1)},
			[]ec2.ChangeKind{ec2.Pending, ec2.Running, ec2.ShuttingDown, ec2.Terminated},
			"Server.SpotInstanceTermination: Spot instance termination", time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, seen := slow(t)
				s.add(t, c.rule)
				id := run(t, s, asSpot)
				after(10 * time.Minute)
				require.Equal(t, c.want, seen.kinds())
				last := describe(t, s, id)
				require.Equal(t, types.InstanceStateNameTerminated, last.State.Name)
				require.Equal(t, c.reason, *last.StateReason.Message)
				down := seen.all[len(seen.all)-2]
				require.Equal(t, c.took, down.Time.Sub(down.Instance.LaunchTime))
				require.Equal(t, c.reason, down.Instance.StateReason)
				require.Equal(t, 1, s.Faults().Counts()[c.rule.Kind])
				require.Equal(t, id, s.Faults().Fired()[0].Instance)
			})
		})
	}
}

func TestInstance_TellsItsKubeletHowToFare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, seen := slow(t)
		s.add(t, fault.Rule{Kind: fault.SlowBoot, Delay: fault.Duration(time.Minute), Pool: fault.Pool{Type: "m5.*"}},
			fault.Rule{Kind: fault.NeverRegisters, Times: 1}, fault.Rule{Kind: fault.NotReady, Pool: fault.Pool{Capacity: "spot"}})
		run(t, s, nil)
		run(t, s, asSpot)
		require.Equal(t, time.Minute, seen.all[0].Instance.Boot.Delay)
		require.True(t, seen.all[0].Instance.Boot.NeverRegisters)
		require.False(t, seen.all[0].Instance.Boot.NotReady)
		require.False(t, seen.all[1].Instance.Boot.NeverRegisters, "once means once")
		require.True(t, seen.all[1].Instance.Boot.NotReady)
	})
}

func TestAct_ChangesTheWorld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, seen := slow(t)
		spot, plain := run(t, s, asSpot), run(t, s, nil)
		after(10 * time.Second)
		do := func(a fault.Act) error { return s.Do(t.Context(), a) }
		require.ErrorContains(t, do(fault.Act{Act: fault.ActInterrupt, Instance: plain}), "not a Spot instance")
		require.ErrorContains(t, do(fault.Act{Act: fault.ActTerminate, Instance: "i-0"}), "no instance")

		require.NoError(t, do(fault.Act{Act: fault.ActRebalance, Instance: spot}))
		require.NoError(t, do(fault.Act{Act: fault.ActInterrupt, Instance: spot, Copies: 2}))
		require.NoError(t, do(fault.Act{Act: fault.ActScheduleEvent, Instance: plain, Code: "instance-retirement", Notice: fault.Duration(time.Hour)}))
		require.Equal(t, []ec2.ChangeKind{ec2.Rebalance, ec2.SpotInterruption, ec2.SpotInterruption, ec2.ScheduledEvent}, seen.kinds()[4:])
		warning := seen.all[5]
		require.Equal(t, 2*time.Minute, warning.At.Sub(warning.Time))

		require.NoError(t, do(fault.Act{Act: fault.ActImpair, Instance: plain, Check: "system"}))
		status := func() types.InstanceStatus {
			out, err := s.DescribeInstanceStatus(t.Context(), &sdk.DescribeInstanceStatusInput{InstanceIds: []string{plain}})
			require.NoError(t, err)
			return out.InstanceStatuses[0]
		}
		require.Equal(t, types.SummaryStatusImpaired, status().SystemStatus.Status)
		require.Equal(t, types.SummaryStatusOk, status().InstanceStatus.Status)
		require.Equal(t, types.EventCodeInstanceRetirement, status().Events[0].Code)
		impaired, err := s.DescribeInstanceStatus(t.Context(), &sdk.DescribeInstanceStatusInput{
			Filters: []types.Filter{{Name: new("system-status.status"), Values: []string{"impaired"}}},
		})
		require.NoError(t, err)
		require.Len(t, impaired.InstanceStatuses, 1)
		require.NoError(t, do(fault.Act{Act: fault.ActImpair, Instance: plain, Check: "system", Healthy: true}))
		require.Equal(t, types.SummaryStatusOk, status().SystemStatus.Status)

		require.NoError(t, do(fault.Act{Act: fault.ActTerminate, Instance: plain, Code: "Server.Odd", Message: "gone"}))
		after(2*time.Minute + 5*time.Second)
		require.Equal(t, "Server.Odd: gone", *describe(t, s, plain).StateReason.Message)
		require.Equal(t, types.InstanceStateNameTerminated, describe(t, s, spot).State.Name)
	})
}

func TestAct_RollsImages(t *testing.T) {
	t.Parallel()
	var told map[string]string
	s := start(t, func(c *ec2.Config) { c.ImagesRolled = func(p map[string]string) { told = p } })
	const path = "/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/standard/recommended/image_id"
	before := s.SSMParameters()
	require.NoError(t, s.Do(t.Context(), fault.Act{Act: fault.ActRollImages}))
	after := s.SSMParameters()
	require.Equal(t, after, told)
	require.NotEqual(t, before[path], after[path])
	out, err := s.client.DescribeImages(t.Context(), &sdk.DescribeImagesInput{ImageIds: []string{before[path], after[path]}})
	require.NoError(t, err)
	require.Len(t, out.Images, 2)
	require.Less(t, *out.Images[0].CreationDate, *out.Images[1].CreationDate)
	for name, id := range before {
		pinned := !strings.Contains(name, "/recommended/") && !strings.Contains(name, "/latest/") && !strings.Contains(name, "-latest/")
		require.Equal(t, pinned, after[name] == id, "%s: a pinned version stays, the newest moves on", name)
	}
}

// An observer may use the Service, and what it sets off comes after what it was told of.
func TestObserve_KeepsOrderWhenObserversAct(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, seen := slow(t)
		stop := s.Observe(func(c ec2.Change) {
			if c.Kind == ec2.Running {
				terminate(t, s, c.Instance.ID)
			}
		})
		run(t, s, nil)
		after(time.Minute)
		require.Equal(t, []ec2.ChangeKind{ec2.Pending, ec2.Running, ec2.ShuttingDown, ec2.Terminated}, seen.kinds())
		stop()
		run(t, s, nil)
		after(time.Minute)
		require.Equal(t, ec2.Running, seen.kinds()[5], "an observer that stopped is not told")
		require.Len(t, seen.kinds(), 6)
	})
}
