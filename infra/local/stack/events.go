package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	sdkscheduler "github.com/aws/aws-sdk-go-v2/service/scheduler"
	schedulertypes "github.com/aws/aws-sdk-go-v2/service/scheduler/types"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/events"
)

// announce sends the events that EC2 sends to EventBridge of a change in an instance's life.
func (s *Stack) announce(c ec2.Change) {
	kind, detail := "", map[string]string{"instance-id": c.Instance.ID}
	switch c.Kind {
	case ec2.Pending, ec2.Running, ec2.ShuttingDown, ec2.Terminated:
		kind, detail["state"] = "EC2 Instance State-change Notification", string(c.Kind)
	case ec2.SpotInterruption:
		kind, detail["instance-action"] = "EC2 Spot Instance Interruption Warning", "terminate"
	case ec2.Rebalance:
		kind = "EC2 Instance Rebalance Recommendation"
	default:
		return
	}
	body, err := json.Marshal(detail)
	if err != nil {
		return // strings always marshal
	}
	arn := fmt.Sprintf("arn:aws:ec2:%s:%s:instance/%s", region, account, c.Instance.ID)
	// Not in the observer's own goroutine: it holds up the call that made the change.
	s.waiting.Go(func() {
		s.AWS.Events.Emit(events.Event{Source: "aws.ec2", DetailType: kind, Time: c.Time, Resources: []string{arn}, Detail: body})
	})
}

// schedule has the clock start the sweep: by a schedule as in an account, or oftener than schedules can.
func (s *Stack) schedule(ctx, running context.Context) error {
	if s.options.SweepEvery < time.Minute {
		s.waiting.Go(func() { s.sweep(running) })
		return nil
	}
	_, err := s.AWS.Scheduler.CreateSchedule(ctx, &sdkscheduler.CreateScheduleInput{
		Name:               sdkaws.String("treadle-sweep"),
		ScheduleExpression: sdkaws.String("rate(1 minute)"),
		FlexibleTimeWindow: &schedulertypes.FlexibleTimeWindow{Mode: schedulertypes.FlexibleTimeWindowModeOff},
		Target: &schedulertypes.Target{
			Arn:     sdkaws.String("arn:aws:lambda:" + region + ":" + account + ":function:sweep"),
			RoleArn: sdkaws.String(role("scheduler")), Input: sdkaws.String(sweepEvent),
		},
	})
	return err
}

const sweepEvent = `{"source":"treadle.sweep"}`

// sweep starts the sweep every few seconds.
func (s *Stack) sweep(ctx context.Context) {
	tick := time.NewTicker(s.options.SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := s.Lambda.InvokeAsync("sweep", []byte(sweepEvent)); err != nil {
				s.options.Log.WarnContext(ctx, "sweep not started", "error", err)
			}
		}
	}
}
