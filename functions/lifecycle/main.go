// Command lifecycle is the Lambda function that sees nodes through their lives: it registers and initialises those that join, takes away
// those that nobody needs, drains and terminates those that leave, and ends instances that belong to nobody.
package main

import (
	"context"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"treadle/shared/boot"
	"treadle/shared/fleet"
	"treadle/shared/kube"
	"treadle/shared/metric"
	"treadle/shared/queue"
	"treadle/shared/schedule"
	"treadle/shared/site"
	"treadle/shared/store"
)

type config struct {
	Bucket             string `env:"BUCKET"`
	ProvisionQueueURL  string `env:"PROVISION_QUEUE_URL"`
	LifecycleQueueURL  string `env:"LIFECYCLE_QUEUE_URL"`
	QuarantineQueueURL string `env:"QUARANTINE_QUEUE_URL"`
	// Where no schedule is wanted these three are empty: claims then expire at the minute.
	ScheduleGroup     string `env:"SCHEDULE_GROUP" default:""`
	ScheduleTargetARN string `env:"SCHEDULE_TARGET_ARN" default:""`
	ScheduleRoleARN   string `env:"SCHEDULE_ROLE_ARN" default:""`
	// NodeRepair has sick nodes given up.
	NodeRepair bool `env:"NODE_REPAIR" default:"false"`
	// CapacityBuffer has room kept for pods that do not exist yet (Karpenter's feature gate of that name).
	CapacityBuffer bool `env:"CAPACITY_BUFFER" default:"false"`
}

const kinds = kube.Pods | kube.Nodes | kube.NodeClaims | kube.NodePools | kube.NodeClasses | kube.Daemons

func main() { boot.Start(build) }

func build() (func(context.Context, events.SQSEvent) (events.SQSEventResponse, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	aws := boot.AWS()
	log := boot.Logger("lifecycle")
	counter := metric.New(os.Stdout, time.Now)
	bucket := store.New(aws, cfg.Bucket, time.Now)
	client := ec2.NewFromConfig(aws, fleet.Retry)
	book := &site.Book{Configuration: bucket, AWS: aws, Function: "lifecycle", Kinds: kinds.With(kube.Buffers, cfg.CapacityBuffer), Now: time.Now}
	memories := map[string]*Memory{}
	h := &Handler{
		Again:      queue.New(aws, cfg.LifecycleQueueURL, time.Now),
		Provision:  queue.New(aws, cfg.ProvisionQueueURL, time.Now),
		NodeRepair: cfg.NodeRepair,
		Counter:    counter, Log: log, Now: time.Now, Sleep: boot.Sleep,
		Open: func(ctx context.Context, name string) (*Site, error) {
			opened, err := book.Open(ctx, name)
			if err != nil {
				return nil, err
			}
			if memories[name] == nil {
				memories[name] = &Memory{}
			}
			return &Site{
				Name: name, Mirror: opened.Mirror, Fleet: fleet.New(client, name), Memory: memories[name],
				Kube: site.Kube{Client: opened.Kube, Holder: "lifecycle", Now: time.Now},
			}, nil
		},
	}
	if cfg.ScheduleGroup != "" {
		h.Schedules = schedule.New(aws, schedule.Settings{
			Group: cfg.ScheduleGroup, TargetARN: cfg.ScheduleTargetARN, RoleARN: cfg.ScheduleRoleARN,
		}, time.Now)
	}
	batch := queue.Batch{
		Function: "lifecycle", Keeper: queue.NewQuarantine(aws, cfg.QuarantineQueueURL), Counter: counter, Log: log,
	}
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		defer book.Rest()
		return batch.Handle(ctx, event, h.Lifecycle), nil
	}, nil
}
