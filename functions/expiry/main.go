// Command expiry is the Lambda function that EventBridge Scheduler calls when a NodeClaim has lived for as long as it may.
package main

import (
	"context"
	"os"
	"time"

	"treadle/shared/boot"
	"treadle/shared/kube"
	"treadle/shared/metric"
	"treadle/shared/queue"
	"treadle/shared/site"
	"treadle/shared/store"
)

type config struct {
	Bucket            string `env:"BUCKET"`
	ProvisionQueueURL string `env:"PROVISION_QUEUE_URL"`
	LifecycleQueueURL string `env:"LIFECYCLE_QUEUE_URL"`
}

func main() { boot.Start(build) }

func build() (func(context.Context, Event) (Summary, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	aws := boot.AWS()
	book := &site.Book{
		Configuration: store.New(aws, cfg.Bucket, time.Now), AWS: aws, Function: "expiry",
		Kinds: kube.NodeClaims | kube.Nodes, Now: time.Now,
	}
	h := &Handler{
		Provision: queue.New(aws, cfg.ProvisionQueueURL, time.Now),
		Lifecycle: queue.New(aws, cfg.LifecycleQueueURL, time.Now),
		Counter:   metric.New(os.Stdout, time.Now),
		Log:       boot.Logger("expiry"),
		NowUnix:   func() int64 { return time.Now().Unix() },
		Open: func(ctx context.Context, name string) (*Site, error) {
			opened, err := book.Open(ctx, name)
			if err != nil {
				return nil, err
			}
			return &Site{Mirror: opened.Mirror, Kube: site.Kube{Client: opened.Kube, Now: time.Now}}, nil
		},
	}
	return func(ctx context.Context, e Event) (Summary, error) {
		defer book.Rest()
		return h.Expire(ctx, e)
	}, nil
}
