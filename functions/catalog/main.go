// Command catalog is the Lambda function that keeps the catalogue of instance types and prices of a region up to date.
package main

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"

	"treadle/shared/boot"
	"treadle/shared/catalog/refresh"
	"treadle/shared/store"
)

type config struct {
	Bucket string `env:"BUCKET"`
}

func main() { boot.Start(build) }

func build() (func(context.Context, any) (Answer, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	aws := boot.AWS()
	prices := aws.Copy()
	prices.Region = refresh.PricingRegion(aws.Region)
	h := &Handler{
		Objects:   store.New(aws, cfg.Bucket, time.Now),
		Refresher: refresh.New(aws.Region, ec2.NewFromConfig(aws), pricing.NewFromConfig(prices)),
		Log:       boot.Logger("catalog"),
		Now:       time.Now,
	}
	return h.Refresh, nil
}
