package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	sdkec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
)

// An instance with the cluster's tags and no NodeClaim is ended once it was seen twice; another cluster's is none of our business.
func TestOrphan(t *testing.T) {
	s := turn(t)
	s.Lambda.Kill("lifecycle") // a warm one has just listed the instances, and would not for a minute
	ours, theirs := s.instance(t, "demo"), s.instance(t, "another")
	t.Cleanup(func() {
		_, err := s.EC2.TerminateInstances(context.Background(), &sdkec2.TerminateInstancesInput{InstanceIds: []string{theirs}})
		require.NoError(t, err)
	})
	began := time.Now()
	took := s.eventually(t, 2*later, "the orphan is ended", func() error {
		if state := s.state(ours); state != "shutting-down" && state != "terminated" {
			if s.queued(t, "treadle-lifecycle.fifo") == 0 {
				s.wake(t, "lifecycle") // instances are listed once a minute, by whoever is woken then
			}
			return errors.New("it is " + state)
		}
		return nil
	})
	t.Logf("ended %v after the first look", took)
	require.Greater(t, time.Since(began), 15*time.Second, "one sighting is no proof")
	require.Equal(t, "running", s.state(theirs))
	s.eventually(t, later, "lifecycle is done", s.quiet)
	require.Equal(t, "running", s.state(theirs))
	require.Positive(t, s.count(t, "lifecycle", "terminating instances that belong to no nodeclaim"), "the log says so before it is done")
}

// instance starts an instance behind Treadle's back, with the tags that mark it as a cluster's.
func (s *scene) instance(t *testing.T, cluster string) string {
	t.Helper()
	out, err := s.EC2.RunInstances(t.Context(), &sdkec2.RunInstancesInput{
		InstanceType: "m5.large", MinCount: sdkaws.Int32(1), MaxCount: sdkaws.Int32(1), ImageId: sdkaws.String(s.image(t)), SubnetId: sdkaws.String(s.subnet(t)),
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: "instance", Tags: []ec2types.Tag{
			{Key: sdkaws.String("kubernetes.io/cluster/" + cluster), Value: sdkaws.String("owned")},
			{Key: sdkaws.String("eks:eks-cluster-name"), Value: sdkaws.String(cluster)},
			{Key: sdkaws.String("karpenter.sh/nodepool"), Value: sdkaws.String("default")},
			{Key: sdkaws.String("karpenter.k8s.aws/ec2nodeclass"), Value: sdkaws.String("default")},
		}}},
	})
	require.NoError(t, err)
	return *out.Instances[0].InstanceId
}

func (s *scene) image(t *testing.T) string {
	t.Helper()
	for _, id := range s.EC2.SSMParameters() {
		out, err := s.EC2.DescribeImages(t.Context(), &sdkec2.DescribeImagesInput{ImageIds: []string{id}})
		require.NoError(t, err)
		if out.Images[0].Architecture == "x86_64" && out.Images[0].Platform == "" {
			return id
		}
	}
	require.FailNow(t, "there is no image")
	return ""
}

func (s *scene) subnet(t *testing.T) string {
	t.Helper()
	out, err := s.EC2.DescribeSubnets(t.Context(), &sdkec2.DescribeSubnetsInput{Filters: []ec2types.Filter{
		{Name: sdkaws.String("tag:karpenter.sh/discovery"), Values: []string{"demo"}},
	}})
	require.NoError(t, err)
	require.NotEmpty(t, out.Subnets)
	return *out.Subnets[0].SubnetId
}

// state returns the state of an instance.
func (s *scene) state(id string) string {
	for _, i := range s.EC2.Instances() {
		if i.ID == id {
			return i.State
		}
	}
	return fmt.Sprintf("unknown (%d instances)", len(s.EC2.Instances()))
}
