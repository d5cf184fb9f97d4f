// Command interruption is the Lambda function that acts on what EC2 and Health announce about instances: it takes away the nodes that
// are about to be lost and has them replaced while they drain.
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
	"treadle/shared/site"
	"treadle/shared/store"
)

type config struct {
	Bucket             string `env:"BUCKET"`
	ProvisionQueueURL  string `env:"PROVISION_QUEUE_URL"`
	LifecycleQueueURL  string `env:"LIFECYCLE_QUEUE_URL"`
	QuarantineQueueURL string `env:"QUARANTINE_QUEUE_URL"`
}

func main() { boot.Start(build) }

func build() (func(context.Context, events.SQSEvent) (events.SQSEventResponse, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	aws := boot.AWS()
	client := ec2.NewFromConfig(aws, fleet.Retry)
	book := &site.Book{
		Configuration: store.New(aws, cfg.Bucket, time.Now), AWS: aws, Function: "interruption",
		Kinds: kube.NodeClaims | kube.Nodes | kube.NodePools, Now: time.Now,
	}
	h := &Handler{
		Instances: account{fleet.New(client, ""), client},
		Provision: queue.New(aws, cfg.ProvisionQueueURL, time.Now),
		Lifecycle: queue.New(aws, cfg.LifecycleQueueURL, time.Now),
		Keeper:    queue.NewQuarantine(aws, cfg.QuarantineQueueURL),
		Counter:   metric.New(os.Stdout, time.Now),
		Log:       boot.Logger("interruption"),
		NowUnix:   func() int64 { return time.Now().Unix() },
		Open: func(ctx context.Context, name string) (*Site, error) {
			opened, err := book.Open(ctx, name)
			if err != nil {
				return nil, err
			}
			return &Site{Name: name, Mirror: opened.Mirror, Kube: site.Kube{Client: opened.Kube, Now: time.Now}}, nil
		},
	}
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		defer book.Rest()
		return h.Handle(ctx, event), nil
	}, nil
}
