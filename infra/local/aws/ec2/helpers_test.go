package ec2_test

import (
	"context"
	"encoding/base64"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
)

// stack is a Service and the real SDK's client for it, over HTTP.
type stack struct {
	*ec2.Service
	client *sdk.Client
}

// start makes a stack with the default world of cluster demo. Nothing is tried twice, so that each call is one call.
func start(t *testing.T, change ...func(*ec2.Config)) stack {
	t.Helper()
	cfg := ec2.Config{Cluster: "demo", Seed: 1}
	for _, c := range change {
		c(&cfg)
	}
	s := ec2.New(cfg)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client := sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL), Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(credentials),
	})
	return stack{s, client}
}

func (s stack) add(t *testing.T, rules ...fault.Rule) {
	t.Helper()
	_, err := s.Faults().Add(rules...)
	require.NoError(t, err)
}

// image returns the id of an image by the end of its parameter's path.
func image(t *testing.T, s *ec2.Service, parameter string) string {
	t.Helper()
	id := s.SSMParameters()["/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/"+parameter+"/recommended/image_id"]
	require.NotEmpty(t, id)
	return id
}

// network returns the ids of the subnets with the discovery tag by zone, and the security group's.
func network(t *testing.T, s *ec2.Service) (subnets map[string]string, group string) {
	t.Helper()
	discovery := []types.Filter{{Name: new("tag:karpenter.sh/discovery"), Values: []string{"demo"}}}
	nets, err := s.DescribeSubnets(t.Context(), &sdk.DescribeSubnetsInput{Filters: discovery})
	require.NoError(t, err)
	subnets = map[string]string{}
	for _, n := range nets.Subnets {
		subnets[*n.AvailabilityZone] = *n.SubnetId
	}
	groups, err := s.DescribeSecurityGroups(t.Context(), &sdk.DescribeSecurityGroupsInput{Filters: discovery})
	require.NoError(t, err)
	require.Len(t, groups.SecurityGroups, 1)
	return subnets, *groups.SecurityGroups[0].GroupId
}

const userData = "[settings]\nname = \"demo\"\n"

// template creates a launch template named demo for x86 and returns its id.
func (s stack) template(t *testing.T, change ...func(*types.RequestLaunchTemplateData)) string {
	t.Helper()
	_, group := network(t, s.Service)
	data := &types.RequestLaunchTemplateData{
		ImageId: new(image(t, s.Service, "x86_64/standard")), SecurityGroupIds: []string{group},
		UserData:           new(base64.StdEncoding.EncodeToString([]byte(userData))),
		IamInstanceProfile: &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: new("demo-node")},
		MetadataOptions: &types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpTokens: types.LaunchTemplateHttpTokensStateRequired, HttpPutResponseHopLimit: new(int32(2)),
		},
		BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMappingRequest{{
			DeviceName: new("/dev/xvda"), Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: new(int32(20)), VolumeType: types.VolumeTypeGp3},
		}},
		TagSpecifications: []types.LaunchTemplateTagSpecificationRequest{{
			ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: new("from"), Value: new("template")}},
		}},
	}
	for _, c := range change {
		c(data)
	}
	out, err := s.client.CreateLaunchTemplate(t.Context(), &sdk.CreateLaunchTemplateInput{
		LaunchTemplateName: new("demo"), LaunchTemplateData: data,
	})
	require.NoError(t, err)
	return *out.LaunchTemplate.LaunchTemplateId
}

// fleet is a request for instances of one capacity type; an override of a zone gets the subnet of that zone.
func (s stack) fleet(t *testing.T, template, capacity string, target int, overrides ...types.FleetLaunchTemplateOverridesRequest) *sdk.CreateFleetInput {
	t.Helper()
	subnets, _ := network(t, s.Service)
	for n := range overrides {
		o := &overrides[n]
		if o.AvailabilityZone != nil && o.SubnetId == nil {
			o.SubnetId = new(subnets[*o.AvailabilityZone])
		}
	}
	return &sdk.CreateFleetInput{
		Type: types.FleetTypeInstant,
		LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateId: new(template), Version: new("$Latest")},
			Overrides:                   overrides,
		}},
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: new(int32(target)), DefaultTargetCapacityType: types.DefaultTargetCapacityType(capacity),
		},
	}
}

func over(typeName, zone string) types.FleetLaunchTemplateOverridesRequest {
	return types.FleetLaunchTemplateOverridesRequest{InstanceType: types.InstanceType(typeName), AvailabilityZone: new("us-east-1" + zone)}
}

func prior(typeName, zone string, priority float64) types.FleetLaunchTemplateOverridesRequest {
	o := over(typeName, zone)
	o.Priority = new(priority)
	return o
}

func code(t *testing.T, err error) string {
	t.Helper()
	var api smithy.APIError
	require.ErrorAs(t, err, &api)
	return api.ErrorCode()
}

func errorCodes(out *sdk.CreateFleetOutput) []string {
	var codes []string
	for _, e := range out.Errors {
		codes = append(codes, *e.ErrorCode)
	}
	return codes
}

func ids(out *sdk.CreateFleetOutput) []string {
	var all []string
	for _, i := range out.Instances {
		all = append(all, i.InstanceIds...)
	}
	return all
}

// launched lists what a fleet launched as type@zone, once an instance, in the order of the answer.
func launched(out *sdk.CreateFleetOutput) []string {
	var all []string
	for _, i := range out.Instances {
		for range i.InstanceIds {
			all = append(all, string(i.InstanceType)+"@"+(*i.AvailabilityZone)[len("us-east-1"):])
		}
	}
	return all
}

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKIDPROVISION", SecretAccessKey: "secret", SessionToken: "session"}, nil
}
