// Command provision is the Lambda function that makes nodes: woken for a cluster, it packs the pods that no node takes and launches
// what they need.
package main

import (
	"context"
	"encoding/base64"
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
	"treadle/shared/nodeclass"
	"treadle/shared/nodeclass/signed"
	"treadle/shared/queue"
	"treadle/shared/site"
	"treadle/shared/store"
)

type config struct {
	Bucket             string `env:"BUCKET"`
	ProvisionQueueURL  string `env:"PROVISION_QUEUE_URL"`
	LifecycleQueueURL  string `env:"LIFECYCLE_QUEUE_URL"`
	QuarantineQueueURL string `env:"QUARANTINE_QUEUE_URL"`
	// Table is shared by all clusters; without one each warm function goes by what it knows itself.
	Table string `env:"TABLE" default:""`
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
	log := boot.Logger("provision")
	counter := metric.New(os.Stdout, time.Now)
	bucket := store.New(aws, cfg.Bucket, time.Now)
	table := ledger.NewTable(aws, cfg.Table, time.Now, log)
	metered := aws.Copy()
	metered.APIOptions = append(metered.APIOptions, ledger.NewBudget(table, ledger.Rates(), time.Now).Guard)
	client := ec2.NewFromConfig(metered, fleet.Retry)
	known := ledger.New(table)
	parameters := signed.New(aws, time.Now)
	kinds := kube.AllKinds.With(kube.Buffers, cfg.CapacityBuffer).With(kube.Overlays, cfg.NodeOverlay)
	book := &site.Book{Configuration: bucket, AWS: aws, Function: "provision", Kinds: kinds, Now: time.Now}
	memories := map[string]*Memory{}
	classes, templates := nodeclass.NewResolver(client, parameters, parameters), nodeclass.NewTemplates(client)
	h := &Handler{
		Classes: classes, Templates: templates, Tidier: tidier{classes, templates},
		Ledger:    known,
		Market:    &market.Market{Objects: bucket, Key: store.CatalogueKey, Known: known, Log: log, Now: time.Now},
		Again:     queue.New(aws, cfg.ProvisionQueueURL, time.Now),
		Lifecycle: queue.New(aws, cfg.LifecycleQueueURL, time.Now),
		Counter:   counter, Log: log, Now: time.Now, Sleep: boot.Sleep,
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
			Name: name, Facts: facts(opened, aws.Region), Mirror: opened.Mirror, Fleet: fleet.New(client, name), Memory: memories[name],
			Kube: site.Kube{Client: opened.Kube, Holder: "provision", Now: time.Now},
		}, nil
	}
	batch := queue.Batch{
		Function: "provision", Keeper: queue.NewQuarantine(aws, cfg.QuarantineQueueURL), Counter: counter, Log: log,
	}
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		defer book.Rest()
		return batch.Handle(ctx, event, h.Provision), nil
	}, nil
}

// tidier is the two that know how to delete what they make.
type tidier struct {
	*nodeclass.Resolver
	*nodeclass.Templates
}

func facts(s *site.Site, region string) nodeclass.Facts {
	return nodeclass.Facts{
		Cluster: s.Name, Region: region, KubernetesVersion: s.Version, Endpoint: s.Endpoint,
		CA: base64.StdEncoding.EncodeToString([]byte(s.CA)), ServiceCIDR: s.ServiceCIDR, DNSIP: s.DNSIP,
	}
}
