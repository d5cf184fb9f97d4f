package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

const (
	describeBatch  = 200 // EC2 takes no more values in one filter
	terminateBatch = 500
	listPage       = 1000
)

// Describe returns the instances with the given ids, in no order that means anything. Ids that EC2 does not know, or does not
// know yet, are absent; that is no error.
func (f *Fleet) Describe(ctx context.Context, ids ...cluster.InstanceID) ([]cluster.Instance, error) {
	var out []cluster.Instance
	for batch := range slices.Chunk(ids, describeBatch) {
		in := &ec2.DescribeInstancesInput{InstanceIds: texts(batch)}
		found, err := f.pages(ctx, in)
		if errors.Is(err, plan.ErrNotFound) {
			// One unknown id fails a call by id; a filter just leaves it out.
			found, err = f.pages(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{filter("instance-id", texts(batch)...)}})
		}
		if err != nil {
			return nil, fmt.Errorf("describe %d instances: %w", len(batch), err)
		}
		out = append(out, found...)
	}
	return out, nil
}

// List returns all instances of the cluster that exist, that is in any state but terminated.
func (f *Fleet) List(ctx context.Context) ([]cluster.Instance, error) {
	found, err := f.pages(ctx, &ec2.DescribeInstancesInput{
		MaxResults: aws.Int32(listPage),
		Filters: []types.Filter{
			filter("tag:"+ownedBy(f.cluster), owned),
			filter("tag-key", cluster.LabelNodePool),
			filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down"),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("list instances of cluster %s: %w", f.cluster, err)
	}
	return found, nil
}

func (f *Fleet) pages(ctx context.Context, in *ec2.DescribeInstancesInput) ([]cluster.Instance, error) {
	var out []cluster.Instance
	for {
		page, err := f.ec2.DescribeInstances(ctx, in)
		if err != nil {
			return nil, translate(err)
		}
		for _, r := range page.Reservations {
			for i := range r.Instances {
				out = append(out, instance(&r.Instances[i]))
			}
		}
		if aws.ToString(page.NextToken) == "" {
			return out, nil
		}
		in.NextToken = page.NextToken
	}
}

// Terminate ends instances. Those that are gone already are no error; so repeating it is safe. plan.ErrDenied is returned only for
// instances that exist: a rule on tags denies what is gone as well, since that has none (R26).
func (f *Fleet) Terminate(ctx context.Context, ids ...cluster.InstanceID) error {
	var errs []error
	for batch := range slices.Chunk(ids, terminateBatch) {
		err := f.terminate(ctx, batch)
		if errors.Is(err, plan.ErrNotFound) || errors.Is(err, plan.ErrDenied) {
			err = f.terminateLeft(ctx, batch)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// terminateLeft ends those of ids that exist, one by one: one bad id fails a whole call, and nobody says which it was.
func (f *Fleet) terminateLeft(ctx context.Context, ids []cluster.InstanceID) error {
	found, err := f.Describe(ctx, ids...)
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range found {
		if i.State == cluster.InstanceTerminated || i.State == cluster.InstanceShuttingDown {
			continue
		}
		if err := f.terminate(ctx, []cluster.InstanceID{i.ID}); err != nil && !errors.Is(err, plan.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (f *Fleet) terminate(ctx context.Context, ids []cluster.InstanceID) error {
	_, err := f.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: texts(ids)})
	if err != nil {
		return fmt.Errorf("terminate %d instances, %s first: %w", len(ids), ids[0], translate(err))
	}
	return nil
}

// Tag adds tags to an instance, or changes them. plan.ErrNotFound: there is no such instance, or EC2 does not see it yet.
func (f *Fleet) Tag(ctx context.Context, id cluster.InstanceID, tags map[string]string) error {
	_, err := f.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{string(id)}, Tags: tagList(tags)})
	if err != nil {
		return fmt.Errorf("tag instance %s: %w", id, translate(err))
	}
	return nil
}

func instance(i *types.Instance) cluster.Instance {
	out := cluster.Instance{
		ID:             cluster.InstanceID(aws.ToString(i.InstanceId)),
		Type:           string(i.InstanceType),
		CapacityType:   capacityType(i),
		ImageID:        aws.ToString(i.ImageId),
		SubnetID:       aws.ToString(i.SubnetId),
		PrivateDNSName: aws.ToString(i.PrivateDnsName),
		ClientToken:    aws.ToString(i.ClientToken),
		Tags:           make(map[string]string, len(i.Tags)),
	}
	if i.Placement != nil {
		out.Zone = aws.ToString(i.Placement.AvailabilityZone)
		out.ZoneID = aws.ToString(i.Placement.AvailabilityZoneId)
	}
	if i.State != nil {
		out.State = cluster.InstanceState(i.State.Name)
	}
	if i.LaunchTime != nil {
		out.LaunchUnix = i.LaunchTime.Unix()
	}
	if r := i.StateReason; r != nil && out.State != cluster.InstancePending && out.State != cluster.InstanceRunning {
		out.StateReason = stateReason(aws.ToString(r.Code), aws.ToString(r.Message))
	}
	for _, g := range i.SecurityGroups {
		out.SecurityGroups = append(out.SecurityGroups, aws.ToString(g.GroupId))
	}
	for _, t := range i.Tags {
		out.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}

// stateReason joins a code and a message, which may start with the code itself.
func stateReason(code, message string) string {
	if code == "" || strings.HasPrefix(message, code+":") {
		return message
	}
	return strings.TrimSuffix(code+": "+message, ": ")
}

// capacityType says how EC2 sells i (L-067).
func capacityType(i *types.Instance) cluster.CapacityType {
	spec := i.CapacityReservationSpecification
	switch {
	case aws.ToString(i.SpotInstanceRequestId) != "" || i.InstanceLifecycle == types.InstanceLifecycleTypeSpot:
		return cluster.Spot
	case aws.ToString(i.CapacityReservationId) != "" && spec != nil &&
		spec.CapacityReservationPreference == types.CapacityReservationPreferenceCapacityReservationsOnly:
		return cluster.Reserved
	default:
		return cluster.OnDemand
	}
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}

func texts(ids []cluster.InstanceID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}
