// Command wake is the Lambda function behind the admission webhook: it turns an admission review into a wake-up of the cluster and
// answers "allowed".
package main

import (
	"context"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"treadle/shared/boot"
	"treadle/shared/queue"
	"treadle/shared/store"
)

type config struct {
	Bucket             string `env:"BUCKET"`
	ProvisionQueueURL  string `env:"PROVISION_QUEUE_URL"`
	LifecycleQueueURL  string `env:"LIFECYCLE_QUEUE_URL"`
	DisruptionQueueURL string `env:"DISRUPTION_QUEUE_URL"`
}

func main() { boot.Start(build) }

func build() (func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	aws := boot.AWS()
	h := &Handler{
		Configuration: store.New(aws, cfg.Bucket, time.Now),
		Provision:     queue.New(aws, cfg.ProvisionQueueURL, time.Now),
		Lifecycle:     queue.New(aws, cfg.LifecycleQueueURL, time.Now),
		Disruption:    queue.New(aws, cfg.DisruptionQueueURL, time.Now),
		Log:           boot.Logger("wake"),
		Now:           time.Now,
	}
	return h.Handle, nil
}
