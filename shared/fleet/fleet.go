package fleet

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// api is the part of EC2 that a Fleet uses; *ec2.Client is one.
type api interface {
	CreateFleet(context.Context, *ec2.CreateFleetInput, ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
	DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
	TerminateInstances(context.Context, *ec2.TerminateInstancesInput, ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error)
	CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error)
}

// Fleet is the instances of one cluster. It holds no state and is safe for concurrent use.
type Fleet struct {
	ec2     api
	cluster string
}

// New returns the fleet of the cluster with the given name, reached through client, which is an *ec2.Client.
func New(client api, clusterName string) *Fleet {
	return &Fleet{ec2: client, cluster: clusterName}
}

// Retry makes clients of EC2 try a call again only where that is safe and of use: twice, within two seconds, after trouble of
// the network or inside of EC2; never after a throttle. Give it to ec2.NewFromConfig.
func Retry(o *ec2.Options) {
	o.Retryer = untilThrottled{retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 3
		o.MaxBackoff = time.Second
	})}
}

type untilThrottled struct{ aws.RetryerV2 }

func (r untilThrottled) IsErrorRetryable(err error) bool {
	throttle := retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err)
	return throttle != aws.TrueTernary && r.RetryerV2.IsErrorRetryable(err)
}
