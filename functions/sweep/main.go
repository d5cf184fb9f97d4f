// Command sweep is the Lambda function that the clock starts every minute: it wakes each cluster that has anything to do, and so finds
// whatever a hint missed.
package main

import (
	"context"
	"time"

	"treadle/shared/boot"
	"treadle/shared/queue"
	"treadle/shared/site"
	"treadle/shared/store"
)

type config struct {
	Bucket             string `env:"BUCKET"`
	ProvisionQueueURL  string `env:"PROVISION_QUEUE_URL"`
	LifecycleQueueURL  string `env:"LIFECYCLE_QUEUE_URL"`
	DisruptionQueueURL string `env:"DISRUPTION_QUEUE_URL"`
	// CapacityBuffer has clusters with CapacityBuffers looked at every minute: pods that take kept room call nobody.
	CapacityBuffer bool `env:"CAPACITY_BUFFER" default:"false"`
}

func main() { boot.Start(build) }

// clusters opens clusters through a book of sites.
type clusters struct {
	*store.Bucket
	book *site.Book
}

func (c clusters) Open(ctx context.Context, name string) (Cluster, error) {
	s, err := c.book.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.Kube, nil
}

func build() (func(context.Context, Event) (Summary, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	aws := boot.AWS()
	bucket := store.New(aws, cfg.Bucket, time.Now)
	book := &site.Book{Configuration: bucket, AWS: aws, Function: "sweep", Now: time.Now}
	h := &Handler{
		Clusters:   clusters{bucket, book},
		Provision:  queue.New(aws, cfg.ProvisionQueueURL, time.Now),
		Lifecycle:  queue.New(aws, cfg.LifecycleQueueURL, time.Now),
		Disruption: queue.New(aws, cfg.DisruptionQueueURL, time.Now),
		Buffers:    cfg.CapacityBuffer,
		Log:        boot.Logger("sweep"),
		Now:        time.Now,
	}
	return func(ctx context.Context, e Event) (Summary, error) {
		defer book.Rest()
		return h.Sweep(ctx, e)
	}, nil
}
