package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	bridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	sdkscheduler "github.com/aws/aws-sdk-go-v2/service/scheduler"
	sdksqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"treadle/events"
	"treadle/infra/local/lambda"
)

const (
	interruptionQueue = "treadle-interruption"
	scheduleGroup     = "treadle"
	// interruptionVisibility is a little over the function's time limit.
	interruptionVisibility = "35"
	// retries is how often an event is tried before it goes to the dead-letter queue.
	retries = 10
)

// interruptions makes the queue that the events of EC2 and Health go to, the rules that let them through, and the mapping that feeds the
// function with them.
func (s *Stack) interruptions(ctx context.Context) error {
	dead, err := s.AWS.SQS.CreateQueue(ctx, &sdksqs.CreateQueueInput{QueueName: sdkaws.String(interruptionQueue + "-dlq")})
	if err != nil {
		return err
	}
	redrive, err := json.Marshal(map[string]any{"deadLetterTargetArn": queueARN(*dead.QueueUrl), "maxReceiveCount": retries})
	if err != nil {
		return err
	}
	queue, err := s.AWS.SQS.CreateQueue(ctx, &sdksqs.CreateQueueInput{
		QueueName:  sdkaws.String(interruptionQueue),
		Attributes: map[string]string{"RedrivePolicy": string(redrive), "VisibilityTimeout": interruptionVisibility},
	})
	if err != nil {
		return err
	}
	patterns, err := fs.Glob(events.Patterns, "patterns/*.json")
	if err != nil {
		return err
	}
	for _, file := range patterns {
		if err := s.rule(ctx, file, queueARN(*queue.QueueUrl)); err != nil {
			return fmt.Errorf("rule %s: %w", file, err)
		}
	}
	mapping, err := s.Lambda.Map(lambda.EventSource{
		Queue: s.AWS.SQS, QueueURL: *queue.QueueUrl, QueueARN: queueARN(*queue.QueueUrl), Function: "interruption",
		BatchSize: 10, MaximumConcurrency: 5, ReportBatchItemFailures: true,
	})
	s.mappings = append(s.mappings, mapping)
	return err
}

// rule lets the events that match a pattern through to a queue.
func (s *Stack) rule(ctx context.Context, file, target string) error {
	pattern, err := events.Patterns.ReadFile(file)
	if err != nil {
		return err
	}
	name := sdkaws.String("treadle-" + strings.TrimSuffix(path.Base(file), ".json"))
	if _, err := s.AWS.Events.PutRule(ctx, &eventbridge.PutRuleInput{Name: name, EventPattern: sdkaws.String(string(pattern))}); err != nil {
		return err
	}
	_, err = s.AWS.Events.PutTargets(ctx, &eventbridge.PutTargetsInput{
		Rule: name, Targets: []bridgetypes.Target{{Id: sdkaws.String("queue"), Arn: sdkaws.String(target)}},
	})
	return err
}

// expiries makes the group of the schedules that end nodes by their age, and adds the settings of whoever makes such schedules.
func (s *Stack) expiries(ctx context.Context, env map[string]string) error {
	_, err := s.AWS.Scheduler.CreateScheduleGroup(ctx, &sdkscheduler.CreateScheduleGroupInput{Name: sdkaws.String(scheduleGroup)})
	env["SCHEDULE_GROUP"] = scheduleGroup
	env["SCHEDULE_TARGET_ARN"] = "arn:aws:lambda:" + region + ":" + account + ":function:expiry"
	env["SCHEDULE_ROLE_ARN"] = role("scheduler")
	return err
}

func queueARN(url string) string {
	return "arn:aws:sqs:" + region + ":" + account + ":" + path.Base(url)
}
