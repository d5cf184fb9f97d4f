package ec2_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

func TestActions_AreThoseThatTheWireKnows(t *testing.T) {
	t.Parallel()
	require.Equal(t, wire.Operations(), ec2.Actions())
}

func TestServeHTTP_RefusesWhatItDoesNotServe(t *testing.T) {
	t.Parallel()
	s := start(t)
	for form, says := range map[string]string{
		"Action=DescribeVolumes&Version=2016-11-15": "InvalidAction",
		"Action=DescribeSubnets&Colour=blue":        "UnknownParameter",
		"":                                          "InvalidAction",
		"Action=DescribeSubnets&Filter.1.Name=%zz":         "MalformedQueryString",
		"Action=DescribeInstances&MaxResults=not-a-number": "InvalidParameterValue",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		s.ServeHTTP(w, r)
		require.Equal(t, http.StatusBadRequest, w.Code, form)
		require.Contains(t, w.Body.String(), "<Code>"+says+"</Code>", form)
		require.Contains(t, w.Body.String(), "<RequestID>")
	}
	w := httptest.NewRecorder()
	huge := url.Values{"Action": {"DescribeSubnets"}, "NextToken": {strings.Repeat("x", 5<<20)}}.Encode()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(huge))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
}

func TestAuthorize_SeesWhoWantsWhat(t *testing.T) {
	t.Parallel()
	var asked []ec2.Access
	s := start(t, func(c *ec2.Config) {
		c.Authorize = func(_ context.Context, a ec2.Access) error {
			asked = append(asked, a)
			if a.Action == "TerminateInstances" {
				return errors.New("No identity-based policy allows it.")
			}
			return nil
		}
	})
	id := run(t, s, nil)
	_, err := s.client.TerminateInstances(t.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{id, "i-0123"}})
	require.Equal(t, "UnauthorizedOperation", code(t, err))
	last := asked[len(asked)-1]
	require.Equal(t, "AKIDPROVISION", last.AccessKeyID)
	require.Equal(t, "arn:aws:ec2:us-east-1:123456789012:instance/"+id, last.Resources[0].ARN)
	require.NotNil(t, last.Resources[0].Tags)
	require.Nil(t, last.Resources[1].Tags, "there is no such instance")
	_, err = s.client.CreateTags(t.Context(), &sdk.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: new("a"), Value: new("b")}}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b"}, asked[len(asked)-1].RequestTags)
}

func TestDescribeInstances_FiltersAndPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	in := s.fleet(t, s.template(t), "spot", 12, over("m5.large", "a"))
	in.TagSpecifications = []types.TagSpecification{{
		ResourceType: types.ResourceTypeInstance,
		Tags:         []types.Tag{{Key: new("kubernetes.io/cluster/demo"), Value: new("owned")}, {Key: new("karpenter.sh/nodepool"), Value: new("default")}},
	}}
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	other := run(t, s, func(in *sdk.RunInstancesInput) { in.ClientToken = new("token-1") })

	count := func(name string, values ...string) int {
		got, err := s.client.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{Filters: []types.Filter{{Name: new(name), Values: values}}})
		require.NoError(t, err)
		n := 0
		for _, r := range got.Reservations {
			n += len(r.Instances)
		}
		return n
	}
	require.Equal(t, 12, count("tag:kubernetes.io/cluster/demo", "owned"))
	require.Equal(t, 0, count("tag:kubernetes.io/cluster/demo", "shared"))
	require.Equal(t, 12, count("tag-key", "karpenter.sh/nodepool"))
	require.Equal(t, 12, count("tag-key", "karpenter.sh/*"))
	require.Equal(t, 12, count("instance-lifecycle", "spot"))
	require.Equal(t, 13, count("instance-state-name", "pending", "running"))
	require.Equal(t, 1, count("client-token", "token-1"))
	require.Equal(t, 1, count("instance-id", other, "i-0000"), "an id that does not exist is no error in a filter")
	_, err = s.client.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{Filters: []types.Filter{{Name: new("colour"), Values: []string{"blue"}}}})
	require.Equal(t, "InvalidParameterValue", code(t, err))

	pages := sdk.NewDescribeInstancesPaginator(s.client, &sdk.DescribeInstancesInput{MaxResults: new(int32(5))})
	var seen []string
	sizes := []int{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		n := 0
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				seen = append(seen, *i.InstanceId)
				n++
			}
		}
		sizes = append(sizes, n)
	}
	require.Equal(t, []int{5, 5, 3}, sizes)
	require.Equal(t, append(ids(out), other), seen, "in the order of their launch")

	for name, c := range map[string]struct {
		in   *sdk.DescribeInstancesInput
		code string
	}{
		"an id that does not exist": {&sdk.DescribeInstancesInput{InstanceIds: []string{other, "i-0123456789abcdef0"}}, "InvalidInstanceID.NotFound"},
		"an id that is none":        {&sdk.DescribeInstancesInput{InstanceIds: []string{"node-1"}}, "InvalidInstanceID.Malformed"},
		"a page that is too small":  {&sdk.DescribeInstancesInput{MaxResults: new(int32(1))}, "InvalidParameterValue"},
		"ids and pages together":    {&sdk.DescribeInstancesInput{InstanceIds: []string{other}, MaxResults: new(int32(5))}, "InvalidParameterCombination"},
		"a token that is none":      {&sdk.DescribeInstancesInput{NextToken: new("?")}, "InvalidNextToken"},
		"a dry run":                 {&sdk.DescribeInstancesInput{DryRun: new(true)}, "DryRunOperation"},
	} {
		_, err := s.client.DescribeInstances(t.Context(), c.in)
		require.Equal(t, c.code, code(t, err), name)
	}
}

func TestTerminateInstances_IsAllOrNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := run(t, s, nil)
	_, err := s.client.TerminateInstances(t.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{id, "i-0123456789abcdef0"}})
	require.Equal(t, "InvalidInstanceID.NotFound", code(t, err))
	_, err = s.client.TerminateInstances(t.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{id}, DryRun: new(true)})
	require.Equal(t, "DryRunOperation", code(t, err))
	require.Empty(t, s.Instances()[0].StateReason)
}

func TestRunInstances_LaysTheRequestOverTheTemplate(t *testing.T) {
	t.Parallel()
	s := start(t)
	subnets, _ := network(t, s.Service)
	in := &sdk.RunInstancesInput{
		MinCount: new(int32(1)), MaxCount: new(int32(2)), InstanceType: types.InstanceTypeM5Large, SubnetId: new(subnets["us-east-1c"]),
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: new(s.template(t)), Version: new("$Latest")},
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: new("from"), Value: new("request")}},
		}},
	}
	in.DryRun = new(true)
	_, err := s.client.RunInstances(t.Context(), in)
	require.Equal(t, "DryRunOperation", code(t, err))
	in.DryRun = nil
	out, err := s.client.RunInstances(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, out.Instances, 2)
	require.Equal(t, "us-east-1c", *out.Instances[0].Placement.AvailabilityZone)
	require.Equal(t, "request", s.Instances()[0].Tags["from"])
	require.Equal(t, userData, string(s.Instances()[0].UserData))

	s.add(t, fault.Rule{ID: "few", Kind: fault.NoCapacity, Stock: new(3)})
	in.ClientToken, in.MinCount, in.MaxCount = nil, new(int32(4)), new(int32(9))
	_, err = s.client.RunInstances(t.Context(), in)
	require.Equal(t, "InsufficientInstanceCapacity", code(t, err))
	in.ClientToken, in.MinCount = nil, new(int32(2))
	out, err = s.client.RunInstances(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, out.Instances, 3, "as many as there are, from the minimum on")
	require.True(t, s.Faults().Remove("few"))

	in.ClientToken, in.ImageId = nil, new("ami-0000")
	_, err = s.client.RunInstances(t.Context(), in)
	require.Equal(t, "InvalidAMIID.NotFound", code(t, err))
	in.ClientToken, in.ImageId = nil, new("resolve:ssm:/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.37/image_id")
	windows, err := s.client.RunInstances(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, types.PlatformValuesWindows, windows.Instances[0].Platform)
}

func TestLaunchTemplates_AreMadeShownAndDeleted(t *testing.T) {
	t.Parallel()
	s := start(t)
	data := &types.RequestLaunchTemplateData{
		ImageId: new("ami-0"), UserData: new("aGk="),
		CapacityReservationSpecification: &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: new("cr-1")},
		},
	}
	in := &sdk.CreateLaunchTemplateInput{
		LaunchTemplateName: new("karpenter.k8s.aws/123"), LaunchTemplateData: data,
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeLaunchTemplate, Tags: []types.Tag{{Key: new("karpenter.k8s.aws/cluster"), Value: new("demo")}},
		}},
	}
	made, err := s.client.CreateLaunchTemplate(t.Context(), in)
	require.NoError(t, err)
	in.ClientToken = nil
	_, err = s.client.CreateLaunchTemplate(t.Context(), &sdk.CreateLaunchTemplateInput{
		LaunchTemplateName: new("karpenter.k8s.aws/123"), LaunchTemplateData: data, ClientToken: new("other"),
	})
	require.Equal(t, "InvalidLaunchTemplateName.AlreadyExistsException", code(t, err))

	list, err := s.client.DescribeLaunchTemplates(t.Context(), &sdk.DescribeLaunchTemplatesInput{
		Filters: []types.Filter{{Name: new("tag:karpenter.k8s.aws/cluster"), Values: []string{"demo"}}},
	})
	require.NoError(t, err)
	require.Equal(t, *made.LaunchTemplate.LaunchTemplateId, *list.LaunchTemplates[0].LaunchTemplateId)
	versions, err := s.client.DescribeLaunchTemplateVersions(t.Context(), &sdk.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateName: in.LaunchTemplateName, Versions: []string{"$Latest"},
	})
	require.NoError(t, err)
	shown := versions.LaunchTemplateVersions[0].LaunchTemplateData
	require.Equal(t, "aGk=", *shown.UserData)
	require.Equal(t, "cr-1", *shown.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId)

	named, err := s.client.DescribeLaunchTemplates(t.Context(), &sdk.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{*in.LaunchTemplateName}})
	require.NoError(t, err)
	require.Len(t, named.LaunchTemplates, 1)
	_, err = s.client.DescribeLaunchTemplates(t.Context(), &sdk.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"none"}})
	require.Equal(t, "InvalidLaunchTemplateName.NotFoundException", code(t, err))
	_, err = s.client.DescribeLaunchTemplateVersions(t.Context(), &sdk.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateName: in.LaunchTemplateName, Versions: []string{"2"},
	})
	require.Equal(t, "InvalidLaunchTemplateId.VersionNotFound", code(t, err))
	_, err = s.client.DeleteLaunchTemplate(t.Context(), &sdk.DeleteLaunchTemplateInput{LaunchTemplateName: in.LaunchTemplateName})
	require.NoError(t, err)
	_, err = s.client.DeleteLaunchTemplate(t.Context(), &sdk.DeleteLaunchTemplateInput{LaunchTemplateName: in.LaunchTemplateName})
	require.Equal(t, "InvalidLaunchTemplateName.NotFoundException", code(t, err))

	for name, c := range map[string]struct {
		data *types.RequestLaunchTemplateData
		code string
	}{
		"user data that is not base64": {&types.RequestLaunchTemplateData{UserData: new("#!/bin/sh")}, "InvalidUserData.Malformed"},
		"user data that is too long":   {&types.RequestLaunchTemplateData{UserData: new(strings.Repeat("aaaa", 6000))}, "InvalidParameterValue"},
		"tags on what a launch does not make": {
			&types.RequestLaunchTemplateData{TagSpecifications: []types.LaunchTemplateTagSpecificationRequest{{ResourceType: types.ResourceTypeVpc}}},
			"InvalidParameterValue",
		},
		"groups beside interfaces": {
			&types.RequestLaunchTemplateData{
				SecurityGroupIds:  []string{"sg-1"},
				NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: new(int32(0))}},
			}, "InvalidParameterCombination",
		},
	} {
		_, err := s.client.CreateLaunchTemplate(t.Context(), &sdk.CreateLaunchTemplateInput{LaunchTemplateName: new("bad"), LaunchTemplateData: c.data})
		require.Equal(t, c.code, code(t, err), name)
	}
}

func TestDescribeInstanceTypes_PagesTheWholeCatalogue(t *testing.T) {
	t.Parallel()
	s := start(t)
	pages := sdk.NewDescribeInstanceTypesPaginator(s.client, &sdk.DescribeInstanceTypesInput{})
	byName := map[string]types.InstanceTypeInfo{}
	calls := 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		calls++
		for _, i := range page.InstanceTypes {
			byName[string(i.InstanceType)] = i
			require.NotZero(t, *i.VCpuInfo.DefaultVCpus, i.InstanceType)
			require.NotZero(t, *i.MemoryInfo.SizeInMiB, i.InstanceType)
			require.NotEmpty(t, i.NetworkInfo.NetworkCards, i.InstanceType)
		}
	}
	require.Len(t, byName, 1339)
	require.Equal(t, 14, calls)

	gpu := byName["g4dn.xlarge"]
	require.Equal(t, "NVIDIA", *gpu.GpuInfo.Gpus[0].Manufacturer)
	require.Equal(t, "T4", *gpu.GpuInfo.Gpus[0].Name)
	require.EqualValues(t, 16384, *gpu.GpuInfo.TotalGpuMemoryInMiB)
	require.EqualValues(t, 125, *gpu.InstanceStorageInfo.TotalSizeInGB)
	require.Equal(t, types.EphemeralNvmeSupportRequired, gpu.InstanceStorageInfo.NvmeSupport)
	trainium := byName["trn1.32xlarge"]
	require.EqualValues(t, 16, *trainium.NeuronInfo.NeuronDevices[0].Count)
	require.EqualValues(t, 2, *trainium.NeuronInfo.NeuronDevices[0].CoreInfo.Count)
	require.Nil(t, trainium.InferenceAcceleratorInfo)
	require.EqualValues(t, 8, *trainium.NetworkInfo.EfaInfo.MaximumEfaInterfaces)
	require.Len(t, trainium.NetworkInfo.NetworkCards, 8)
	require.EqualValues(t, 12, *byName["inf2.48xlarge"].InferenceAcceleratorInfo.Accelerators[0].Count)
	plain := byName["m5.large"]
	require.EqualValues(t, 3, *plain.NetworkInfo.MaximumNetworkInterfaces)
	require.EqualValues(t, 10, *plain.NetworkInfo.Ipv4AddressesPerInterface)
	require.Equal(t, types.InstanceTypeHypervisorNitro, plain.Hypervisor)
	require.Equal(t, "Intel", *plain.ProcessorInfo.Manufacturer)
	require.EqualValues(t, 2, *plain.VCpuInfo.DefaultThreadsPerCore)
	require.Nil(t, plain.GpuInfo)
	for name, maker := range map[string]string{"m6a.large": "AMD", "m7g.large": "AWS", "c5ad.large": "AMD", "r7i.large": "Intel", "p5.48xlarge": "AMD", "inf1.xlarge": "Intel"} {
		require.Equal(t, maker, *byName[name].ProcessorInfo.Manufacturer, name)
	}
	for name, encrypts := range map[string]bool{"m5.large": false, "m5n.large": true, "m6i.large": true, "g4dn.xlarge": true, "t3.large": false, "m4.large": false} {
		require.Equal(t, encrypts, *byName[name].NetworkInfo.EncryptionInTransitSupported, name)
	}
	require.Empty(t, byName["m5.metal"].Hypervisor)
	require.True(t, *byName["m5.metal"].BareMetal)

	quick, err := s.client.DescribeInstanceTypes(t.Context(), &sdk.DescribeInstanceTypesInput{
		MaxResults: new(int32(5)),
		Filters: []types.Filter{
			{Name: new("supported-virtualization-type"), Values: []string{"hvm"}},
			{Name: new("processor-info.supported-architecture"), Values: []string{"arm64"}}, {Name: new("instance-type"), Values: []string{"m7g.*"}},
		},
	})
	require.NoError(t, err)
	require.Len(t, quick.InstanceTypes, 5)
	require.NotNil(t, quick.NextToken)
	_, err = s.client.DescribeInstanceTypes(t.Context(), &sdk.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m5.large", "zz9.plural"}})
	require.Equal(t, "InvalidInstanceType", code(t, err))
}

func TestDescribeInstanceTypeOfferings_ByPlace(t *testing.T) {
	t.Parallel()
	s := start(t)
	for kind, want := range map[types.LocationType]string{
		types.LocationTypeRegion: "us-east-1", types.LocationTypeAvailabilityZone: "us-east-1b", types.LocationTypeAvailabilityZoneId: "use1-az4",
	} {
		pages := sdk.NewDescribeInstanceTypeOfferingsPaginator(s.client, &sdk.DescribeInstanceTypeOfferingsInput{LocationType: kind})
		seen := map[string]bool{}
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			require.NoError(t, err)
			for _, o := range page.InstanceTypeOfferings {
				key := string(o.InstanceType) + "@" + *o.Location
				require.False(t, seen[key], "%s comes twice", key)
				seen[key] = true
			}
		}
		require.True(t, seen["m5.large@"+want])
		require.Equal(t, kind == types.LocationTypeRegion, len(seen) == 1339)
	}
}

func TestPrices_ComeFromTheCatalogue(t *testing.T) {
	t.Parallel()
	prices := ec2.OnDemandPrices()
	require.Len(t, prices, 1339)
	require.InDelta(t, 0.096, prices["m5.large"], 1e-9)
	m5, ok := ec2.LookupType("m5.large")
	require.True(t, ok)
	require.Equal(t, 29, m5.MaxPods)
	require.Equal(t, "m5", m5.Family())

	s := start(t)
	out, err := s.client.DescribeSpotPriceHistory(t.Context(), &sdk.DescribeSpotPriceHistoryInput{
		InstanceTypes: []types.InstanceType{"m5.large"}, ProductDescriptions: []string{"Linux/UNIX"},
	})
	require.NoError(t, err)
	require.Len(t, out.SpotPriceHistory, len(m5.Zones))
	distinct := map[string]bool{}
	for _, p := range out.SpotPriceHistory {
		distinct[*p.SpotPrice] = true
		require.Less(t, *p.SpotPrice, "0.096")
	}
	require.Greater(t, len(distinct), 1, "zones differ")
	none, err := s.client.DescribeSpotPriceHistory(t.Context(), &sdk.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{"Windows"}})
	require.NoError(t, err)
	require.Empty(t, none.SpotPriceHistory)
}

func TestDescribeImages_BehindTheParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	parameters := s.SSMParameters()
	for _, path := range []string{
		"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id",
		"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
		"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/neuron/amazon-eks-node-al2023-x86_64-neuron-1.37-v20261116/image_id",
		"/aws/service/bottlerocket/aws-k8s-1.37/arm64/latest/image_id",
		"/aws/service/bottlerocket/aws-k8s-1.37-nvidia/x86_64/1.61.0/image_id",
		"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.37/image_id",
	} {
		require.Contains(t, parameters, path)
	}
	for path, id := range parameters {
		out, err := s.client.DescribeImages(t.Context(), &sdk.DescribeImagesInput{ImageIds: []string{id}})
		require.NoError(t, err, path)
		require.Len(t, out.Images, 1)
		wantArm := strings.Contains(path, "arm64")
		require.Equal(t, wantArm, out.Images[0].Architecture == types.ArchitectureValuesArm64, path)
	}

	named := func(deprecated bool) []types.Image {
		out, err := s.client.DescribeImages(t.Context(), &sdk.DescribeImagesInput{
			Owners: []string{"amazon"}, IncludeDeprecated: new(deprecated),
			Filters: []types.Filter{{Name: new("name"), Values: []string{"amazon-eks-node-al2023-x86_64-standard-1.37-*"}}},
		})
		require.NoError(t, err)
		return out.Images
	}
	require.Len(t, named(true), 3)
	old := s.AddImage(ec2.Image{
		Name: "amazon-eks-node-al2023-x86_64-standard-1.37-v20200101", Arch: "amd64", Owner: "602401143452", Alias: "amazon",
		Created: time.Now().AddDate(-3, 0, 0), Deprecated: time.Now().AddDate(-1, 0, 0),
	})
	require.Len(t, named(true), 4)
	require.False(t, slices.ContainsFunc(named(false), func(i types.Image) bool { return *i.ImageId == old }), "deprecated ones are not listed")
	own := s.AddImage(ec2.Image{Name: "golden", Arch: "amd64", Tags: map[string]string{"team": "a"}})
	out, err := s.client.DescribeImages(t.Context(), &sdk.DescribeImagesInput{
		Owners: []string{"self"}, Filters: []types.Filter{{Name: new("tag:team"), Values: []string{"a"}}},
	})
	require.NoError(t, err)
	require.Equal(t, own, *out.Images[0].ImageId)
	require.True(t, s.RemoveImage(own))
	_, err = s.client.DescribeImages(t.Context(), &sdk.DescribeImagesInput{ImageIds: []string{own}})
	require.Equal(t, "InvalidAMIID.NotFound", code(t, err))
}

func TestDescribeNetwork_ByTagAndID(t *testing.T) {
	t.Parallel()
	s := start(t)
	subnets, group := network(t, s.Service)
	require.Len(t, subnets, 3)
	all, err := s.client.DescribeSubnets(t.Context(), &sdk.DescribeSubnetsInput{})
	require.NoError(t, err)
	require.Len(t, all.Subnets, 6)
	one, err := s.client.DescribeSubnets(t.Context(), &sdk.DescribeSubnetsInput{SubnetIds: []string{subnets["us-east-1a"]}})
	require.NoError(t, err)
	require.EqualValues(t, 16379, *one.Subnets[0].AvailableIpAddressCount)
	_, err = s.client.DescribeSubnets(t.Context(), &sdk.DescribeSubnetsInput{SubnetIds: []string{"subnet-0000"}})
	require.Equal(t, "InvalidSubnetID.NotFound", code(t, err))
	named, err := s.client.DescribeSecurityGroups(t.Context(), &sdk.DescribeSecurityGroupsInput{
		Filters: []types.Filter{{Name: new("group-name"), Values: []string{"eks-cluster-sg-*"}}},
	})
	require.NoError(t, err)
	require.Equal(t, group, *named.SecurityGroups[0].GroupId)
	_, err = s.client.DescribeSecurityGroups(t.Context(), &sdk.DescribeSecurityGroupsInput{GroupIds: []string{"sg-0000"}})
	require.Equal(t, "InvalidGroup.NotFound", code(t, err))
	zones, err := s.client.DescribeAvailabilityZones(t.Context(), &sdk.DescribeAvailabilityZonesInput{ZoneNames: []string{"us-east-1d"}})
	require.NoError(t, err)
	require.Equal(t, "use1-az1", *zones.AvailabilityZones[0].ZoneId)
	zones, err = s.client.DescribeAvailabilityZones(t.Context(), &sdk.DescribeAvailabilityZonesInput{ZoneIds: []string{"use1-az6"}})
	require.NoError(t, err)
	require.Equal(t, "us-east-1c", *zones.AvailabilityZones[0].ZoneName)
	zones, err = s.client.DescribeAvailabilityZones(t.Context(), &sdk.DescribeAvailabilityZonesInput{})
	require.NoError(t, err)
	require.Len(t, zones.AvailabilityZones, 6)
	_, err = s.client.DescribeAvailabilityZones(t.Context(), &sdk.DescribeAvailabilityZonesInput{ZoneNames: []string{"mars-1a"}})
	require.Equal(t, "InvalidParameterValue", code(t, err))

	for _, bad := range []ec2.Subnet{{Zone: "us-east-1a", CIDR: "10.0"}, {Zone: "us-east-1a", CIDR: "10.0.0.0/8"}, {Zone: "mars-1a", CIDR: "10.9.0.0/24"}} {
		_, err := s.AddSubnet(bad)
		require.Error(t, err)
	}
}

func TestCapacityReservations_AreUsedAsTheLaunchSays(t *testing.T) {
	t.Parallel()
	s := start(t)
	targeted, err := s.AddCapacityReservation(ec2.CapacityReservation{Type: "m5.large", Zone: "us-east-1a", Count: 1, Targeted: true})
	require.NoError(t, err)
	open, err := s.AddCapacityReservation(ec2.CapacityReservation{Type: "m5.large", Zone: "us-east-1b", Count: 1})
	require.NoError(t, err)
	left := func(id string) int32 {
		out, err := s.client.DescribeCapacityReservations(t.Context(), &sdk.DescribeCapacityReservationsInput{CapacityReservationIds: []string{id}})
		require.NoError(t, err)
		return *out.CapacityReservations[0].AvailableInstanceCount
	}
	withSpec := func(spec *types.CapacityReservationSpecification, zone string) (string, error) {
		subnets, _ := network(t, s.Service)
		out, err := s.client.RunInstances(t.Context(), &sdk.RunInstancesInput{
			MinCount: new(int32(1)), MaxCount: new(int32(1)), InstanceType: types.InstanceTypeM5Large, SubnetId: new(subnets[zone]),
			ImageId: new(image(t, s.Service, "x86_64/standard")), CapacityReservationSpecification: spec,
		})
		if err != nil {
			return "", err
		}
		return *out.Instances[0].InstanceId, nil
	}
	none := &types.CapacityReservationSpecification{CapacityReservationPreference: types.CapacityReservationPreferenceNone}
	_, err = withSpec(none, "us-east-1b")
	require.NoError(t, err)
	require.EqualValues(t, 1, left(open), "a launch that says none leaves an open reservation alone")
	_, err = withSpec(nil, "us-east-1b")
	require.NoError(t, err)
	require.Zero(t, left(open), "a launch that says nothing falls into it")
	_, err = withSpec(nil, "us-east-1a")
	require.NoError(t, err)
	require.EqualValues(t, 1, left(targeted))

	only := &types.CapacityReservationSpecification{CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: new(targeted)}}
	id, err := withSpec(only, "us-east-1a")
	require.NoError(t, err)
	require.Zero(t, left(targeted))
	i := s.Instances()[len(s.Instances())-1]
	require.Equal(t, targeted, i.ReservationID)
	require.Equal(t, "reserved", i.CapacityType)
	_, err = withSpec(only, "us-east-1a")
	require.Equal(t, "ReservationCapacityExceeded", code(t, err))
	_, err = withSpec(only, "us-east-1b")
	require.Equal(t, "InvalidParameterValue", code(t, err))
	gone := watch(t, s, ec2.Terminated)
	terminate(t, s, id)
	<-gone
	require.EqualValues(t, 1, left(targeted))
	_, err = s.client.DescribeCapacityReservations(t.Context(), &sdk.DescribeCapacityReservationsInput{CapacityReservationIds: []string{"cr-0000"}})
	require.Equal(t, "InvalidCapacityReservationId.NotFound", code(t, err))
}

func TestPlacementGroups_AreShown(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.AddPlacementGroup(ec2.PlacementGroup{Name: "ring", Strategy: types.PlacementStrategyPartition, Partitions: 7})
	out, err := s.client.DescribePlacementGroups(t.Context(), &sdk.DescribePlacementGroupsInput{GroupNames: []string{"ring"}})
	require.NoError(t, err)
	require.Equal(t, id, *out.PlacementGroups[0].GroupId)
	require.EqualValues(t, 7, *out.PlacementGroups[0].PartitionCount)
	_, err = s.client.DescribePlacementGroups(t.Context(), &sdk.DescribePlacementGroupsInput{GroupIds: []string{"pg-0000"}})
	require.Equal(t, "InvalidPlacementGroup.Unknown", code(t, err))
}

func TestTags_AreAddedShownAndTakenOff(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := run(t, s, nil)
	tag := func(pairs ...string) error {
		var tags []types.Tag
		for n := 0; n < len(pairs); n += 2 {
			tags = append(tags, types.Tag{Key: new(pairs[n]), Value: new(pairs[n+1])})
		}
		_, err := s.client.CreateTags(t.Context(), &sdk.CreateTagsInput{Resources: []string{id}, Tags: tags})
		return err
	}
	require.NoError(t, tag("Name", "node-1", "karpenter.sh/nodeclaim", "default-x"))
	require.NoError(t, tag("Name", "node-2"))
	shown, err := s.client.DescribeTags(t.Context(), &sdk.DescribeTagsInput{Filters: []types.Filter{{Name: new("resource-id"), Values: []string{id}}}})
	require.NoError(t, err)
	require.Len(t, shown.Tags, 2)
	require.Equal(t, "node-2", *shown.Tags[0].Value)
	require.Equal(t, types.ResourceTypeInstance, shown.Tags[0].ResourceType)
	_, err = s.client.DeleteTags(t.Context(), &sdk.DeleteTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: new("Name"), Value: new("node-1")}}})
	require.NoError(t, err)
	require.Contains(t, s.Instances()[0].Tags, "Name", "a value that is not the tag's leaves it")
	_, err = s.client.DeleteTags(t.Context(), &sdk.DeleteTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: new("Name")}}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"karpenter.sh/nodeclaim": "default-x"}, s.Instances()[0].Tags)

	require.Equal(t, "InvalidParameterValue", code(t, tag("aws:mine", "no")))
	var many []string
	for n := range 50 {
		many = append(many, fmt.Sprintf("k%d", n), "v")
	}
	require.Equal(t, "TagLimitExceeded", code(t, tag(many...)))
	for id, want := range map[string]string{
		"i-0123": "InvalidInstanceID.NotFound", "subnet-0123": "InvalidSubnetID.NotFound", "sg-0123": "InvalidGroup.NotFound",
		"ami-0123": "InvalidAMIID.NotFound", "lt-0123": "InvalidLaunchTemplateId.NotFound", "pg-0123": "InvalidPlacementGroup.Unknown",
		"cr-0123": "InvalidCapacityReservationId.NotFound", "thing": "InvalidID",
	} {
		_, err = s.client.CreateTags(t.Context(), &sdk.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: new("a"), Value: new("b")}}})
		require.Equal(t, want, code(t, err), id)
	}
	subnets, group := network(t, s.Service)
	everything := []string{subnets["us-east-1a"], group, image(t, s.Service, "arm64/standard"), s.template(t)}
	_, err = s.client.CreateTags(t.Context(), &sdk.CreateTagsInput{Resources: everything, Tags: []types.Tag{{Key: new("team"), Value: new("a")}}})
	require.NoError(t, err)
	shown, err = s.client.DescribeTags(t.Context(), &sdk.DescribeTagsInput{Filters: []types.Filter{{Name: new("key"), Values: []string{"team"}}}})
	require.NoError(t, err)
	require.Len(t, shown.Tags, len(everything))
}

// A service stands in for the SDK's client wherever an interface of its methods is asked for.
func TestService_FitsWhereTheClientDoes(t *testing.T) {
	t.Parallel()
	var api sdk.DescribeInstancesAPIClient = start(t).Service
	out, err := sdk.NewDescribeInstancesPaginator(api, &sdk.DescribeInstancesInput{}).NextPage(t.Context())
	require.NoError(t, err)
	require.Empty(t, out.Reservations)
}

func TestService_HoldsTenThousandInstances(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.template(t)
	for n := range 100 {
		in := s.fleet(t, id, "spot", 100, over("m5.large", string("abc"[n%3])))
		in.TagSpecifications = []types.TagSpecification{{
			ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: new("kubernetes.io/cluster/demo"), Value: new("owned")}},
		}}
		in.ClientToken = new(fmt.Sprint(n))
		_, err := s.CreateFleet(t.Context(), in)
		require.NoError(t, err)
	}
	pages := sdk.NewDescribeInstancesPaginator(s.client, &sdk.DescribeInstancesInput{
		MaxResults: aws.Int32(1000), Filters: []types.Filter{{Name: new("tag:kubernetes.io/cluster/demo"), Values: []string{"owned"}}},
	})
	addresses := map[string]bool{}
	var all []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				addresses[*i.PrivateIpAddress] = true
				all = append(all, *i.InstanceId)
			}
		}
	}
	require.Len(t, addresses, 10_000, "no address twice")
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(all))), 10_000)
	terminate(t, s, all...)
}
