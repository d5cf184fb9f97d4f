package main

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/shared/cluster"
	"treadle/shared/fleet"
)

// account is the instances of the account, whoever owns them.
type account struct {
	*fleet.Fleet
	ec2 ec2.DescribeInstancesAPIClient
}

// In returns the instances that run in a capacity reservation.
func (a account) In(ctx context.Context, reservation string) ([]cluster.Instance, error) {
	var ids []cluster.InstanceID
	pages := ec2.NewDescribeInstancesPaginator(a.ec2, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: aws.String("capacity-reservation-id"), Values: []string{reservation}},
		{Name: aws.String("instance-state-name"), Values: []string{"pending", "running", "stopping", "stopped"}},
	}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instances in reservation %s: %w", reservation, err)
		}
		for _, r := range page.Reservations {
			for i := range r.Instances {
				ids = append(ids, cluster.InstanceID(aws.ToString(r.Instances[i].InstanceId)))
			}
		}
	}
	return a.Describe(ctx, ids...)
}
