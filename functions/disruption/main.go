// Command disruption is the Lambda function that renews and consolidates nodes: it notes which have drifted and which are at rest, decides
// which are to leave and for which others, and carries such commands through until the nodes may be drained.
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
	"treadle/shared/ledger"
	"treadle/shared/market"
	"treadle/shared/metric"
	"treadle/shared/queue"
	"treadle/shared/site"
	"treadle/shared/store"
)

type config struct {
	Bucket             string `env:"BUCKET"`
	ProvisionQueueURL  string `env:"PROVISION_QUEUE_URL"`
	LifecycleQueueURL  string `env:"LIFECYCLE_QUEUE_URL"`
	DisruptionQueueURL string `env:"DISRUPTION_QUEUE_URL"`
	QuarantineQueueURL string `env:"QUARANTINE_QUEUE_URL"`
	// Table is shared by all clusters; without one each warm function goes by what it knows itself.
	Table string `env:"TABLE" default:""`
	// SpotToSpot lets Spot nodes be replaced by cheaper Spot nodes.
	SpotToSpot bool `env:"SPOT_TO_SPOT_CONSOLIDATION" default:"false"`
	// CapacityBuffer has room kept for pods that do not exist yet (Karpenter's feature gate of that name).
	CapacityBuffer bool `env:"CAPACITY_BUFFER" default:"false"`
	// NodeOverlay has prices and resources of instance types corrected (Karpenter's feature gate of that name).
	NodeOverlay bool `env:"NODE_OVERLAY" default:"false"`
}

func main() { boot.Start(build) }

func build() (func(context.Context, events.SQSEvent) (events.SQSEventResponse, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	aws := boot.AWS()
	log := boot.Logger("disruption")
	counter := metric.New(os.Stdout, time.Now)
	bucket := store.New(aws, cfg.Bucket, time.Now)
	table := ledger.NewTable(aws, cfg.Table, time.Now, log)
	metered := aws.Copy()
	metered.APIOptions = append(metered.APIOptions, ledger.NewBudget(table, ledger.Rates(), time.Now).Guard)
	client := ec2.NewFromConfig(metered, fleet.Retry)
	known := ledger.New(table)
	kinds := kube.AllKinds.With(kube.Buffers, cfg.CapacityBuffer).With(kube.Overlays, cfg.NodeOverlay)
	book := &site.Book{Configuration: bucket, AWS: aws, Function: "disruption", Kinds: kinds, Now: time.Now}
	memories := map[string]*Memory{}
	h := &Handler{
		Ledger:     known,
		Market:     &market.Market{Objects: bucket, Key: store.CatalogueKey, Known: known, Log: log, Now: time.Now},
		SpotToSpot: cfg.SpotToSpot,
		Again:      queue.New(aws, cfg.DisruptionQueueURL, time.Now),
		Provision:  queue.New(aws, cfg.ProvisionQueueURL, time.Now),
		Lifecycle:  queue.New(aws, cfg.LifecycleQueueURL, time.Now),
		Counter:    counter, Log: log, Now: time.Now, Sleep: boot.Sleep,
	}
	h.Open = func(ctx context.Context, name string) (*Site, error) {
		opened, err := book.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		if memories[name] == nil {
			memories[name] = &Memory{}
		}
		return &Site{
			Name: name, Mirror: opened.Mirror, Instances: fleet.New(client, name), Memory: memories[name],
			Kube: site.Kube{Client: opened.Kube, Holder: "disruption", Now: time.Now},
		}, nil
	}
	batch := queue.Batch{
		Function: "disruption", Keeper: queue.NewQuarantine(aws, cfg.QuarantineQueueURL), Counter: counter, Log: log,
	}
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		defer book.Rest()
		return batch.Handle(ctx, event, h.Disrupt), nil
	}, nil
}
