package nodeclass

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// templates is an EC2 that keeps launch templates.
type templates struct {
	made    map[string]*ec2.CreateLaunchTemplateInput
	creates int
	fail    error
}

func (f *templates) CreateLaunchTemplate(_ context.Context, in *ec2.CreateLaunchTemplateInput, _ ...func(*ec2.Options)) (*ec2.CreateLaunchTemplateOutput, error) {
	f.creates++
	if f.fail != nil {
		return nil, f.fail
	}
	if f.made == nil {
		f.made = map[string]*ec2.CreateLaunchTemplateInput{}
	}
	if f.made[*in.LaunchTemplateName] != nil {
		return nil, &smithy.GenericAPIError{Code: "InvalidLaunchTemplateName.AlreadyExistsException"}
	}
	f.made[*in.LaunchTemplateName] = in
	return &ec2.CreateLaunchTemplateOutput{}, nil
}

func (f *templates) DescribeLaunchTemplates(context.Context, *ec2.DescribeLaunchTemplatesInput, ...func(*ec2.Options)) (*ec2.DescribeLaunchTemplatesOutput, error) {
	out := &ec2.DescribeLaunchTemplatesOutput{}
	for name := range f.made {
		out.LaunchTemplates = append(out.LaunchTemplates, types.LaunchTemplate{
			LaunchTemplateName: aws.String(name), LaunchTemplateId: aws.String(name), CreateTime: aws.Time(time.Unix(now, 0)),
		})
	}
	return out, nil
}

func (f *templates) DeleteLaunchTemplate(_ context.Context, in *ec2.DeleteLaunchTemplateInput, _ ...func(*ec2.Options)) (*ec2.DeleteLaunchTemplateOutput, error) {
	delete(f.made, *in.LaunchTemplateId)
	return &ec2.DeleteLaunchTemplateOutput{}, nil
}

// only returns the one template that was made.
func (f *templates) only(t *testing.T) *types.RequestLaunchTemplateData {
	t.Helper()
	require.Len(t, f.made, 1)
	for _, in := range f.made {
		return in.LaunchTemplateData
	}
	return nil
}

func instanceType(name, arch string, pods int64) cluster.InstanceType {
	return cluster.InstanceType{
		Name: name, Labels: map[string]string{cluster.LabelArch: arch, cluster.LabelInstanceType: name},
		Capacity: cluster.Resources{Pods: pods},
	}
}

func option(name, zone string, price int64) plan.Option {
	return plan.Option{InstanceType: name, Zone: zone, CapacityType: cluster.Spot, PriceMicroUSDPerHour: price}
}

// order asks for one Spot node of three types in two zones; two of the types share image and pod limit.
func order(change ...func(*Order)) Order {
	o := Order{
		Facts: Facts{
			Cluster: "demo", Region: "us-east-1", KubernetesVersion: "1.36", Endpoint: "https://demo.example",
			CA: "Y2VydA==", ServiceCIDR: "10.100.0.0/16", DNSIP: "10.100.0.10", NowUnix: 1_800_000_000,
		},
		Class: cluster.NodeClass{
			Name: "default", UID: "uid-1",
			Spec: cluster.NodeClassSpec{AMISelectorTerms: []cluster.SelectorTerm{{Alias: "al2023@latest"}}, Role: "NodeRole"},
			Status: cluster.NodeClassStatus{
				Subnets: []cluster.Subnet{
					{ID: "subnet-a1", Zone: "us-east-1a", FreeIPs: 60}, {ID: "subnet-a2", Zone: "us-east-1a", FreeIPs: 50},
					{ID: "subnet-b", Zone: "us-east-1b", FreeIPs: 250},
				},
				SecurityGroups: []cluster.SecurityGroup{{ID: "sg-1"}, {ID: "sg-2"}},
				AMIs: []cluster.AMI{
					{ID: "ami-amd", Name: "al2023-amd", Requirements: []cluster.Expression{in(cluster.LabelArch, "amd64")}},
					{ID: "ami-arm", Name: "al2023-arm", Requirements: []cluster.Expression{in(cluster.LabelArch, "arm64")}},
				},
				InstanceProfile: "profile-1",
			},
		},
		Pool: cluster.NodePool{Name: "web"},
		Claim: plan.Claim{
			NodePool: "web", Requests: cluster.Resources{Pods: 9},
			Options: []plan.Option{
				option("m7g.large", "us-east-1a", 30000), option("c5.large", "us-east-1a", 34000), option("m5.large", "us-east-1a", 38000),
				option("m5.large", "us-east-1b", 36000),
			},
		},
		Count: 1,
		Types: []cluster.InstanceType{instanceType("m5.large", "amd64", 29), instanceType("c5.large", "amd64", 29), instanceType("m7g.large", "arm64", 29)},
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

func oneType(o *Order) { o.Claim.Options = o.Claim.Options[1:2] }

func TestPrepare_SplitsOptionsByImageAndPodLimit(t *testing.T) {
	t.Parallel()
	fake := &templates{}
	o := order()
	o.Types = append(o.Types, instanceType("m5.4xlarge", "amd64", 234), instanceType("unpriced", "amd64", 29))
	o.Claim.Options = append(o.Claim.Options, option("m5.4xlarge", "us-east-1b", 300000), option("not.known", "us-east-1b", 1))
	got, err := NewTemplates(fake).Prepare(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 1, got.Count)
	require.Len(t, fake.made, 3)
	var overrides [][]plan.Override
	for _, c := range got.Configs {
		require.Contains(t, fake.made, c.Template)
		require.True(t, strings.HasPrefix(c.Template, "karpenter.k8s.aws/"))
		overrides = append(overrides, c.Overrides)
	}
	require.Equal(t, [][]plan.Override{
		{{InstanceType: "m7g.large", SubnetID: "subnet-a1", Zone: "us-east-1a", ImageID: "ami-arm", PriceMicroUSDPerHour: 30000}},
		{
			{InstanceType: "c5.large", SubnetID: "subnet-a1", Zone: "us-east-1a", ImageID: "ami-amd", PriceMicroUSDPerHour: 34000},
			{InstanceType: "m5.large", SubnetID: "subnet-b", Zone: "us-east-1b", ImageID: "ami-amd", PriceMicroUSDPerHour: 36000},
			{InstanceType: "m5.large", SubnetID: "subnet-a1", Zone: "us-east-1a", ImageID: "ami-amd", PriceMicroUSDPerHour: 38000},
		},
		{{InstanceType: "m5.4xlarge", SubnetID: "subnet-b", Zone: "us-east-1b", ImageID: "ami-amd", PriceMicroUSDPerHour: 300000}},
	}, overrides)
}

func TestPrepare_MakesATemplateOnce(t *testing.T) {
	t.Parallel()
	fake := &templates{}
	warm := NewTemplates(fake)
	first, err := warm.Prepare(t.Context(), order())
	require.NoError(t, err)
	again, err := warm.Prepare(t.Context(), order())
	require.NoError(t, err)
	require.Equal(t, first.Configs, again.Configs)
	require.Equal(t, 2, fake.creates, "a warm function knows which templates exist")

	cold, err := NewTemplates(fake).Prepare(t.Context(), order())
	require.NoError(t, err)
	require.Equal(t, first.Configs, cold.Configs)
	require.Equal(t, 4, fake.creates, "a cold one asks, and is told that they exist")
	require.Len(t, fake.made, 2)

	delete(fake.made, first.Configs[0].Template)
	warm.Forget(first.Configs[0].Template)
	_, err = warm.Prepare(t.Context(), order())
	require.NoError(t, err)
	require.Contains(t, fake.made, first.Configs[0].Template, "what EC2 has lost is made again")

	require.NoError(t, warm.Delete(t.Context(), "demo", "default"))
	require.Empty(t, fake.made)
	_, err = warm.Prepare(t.Context(), order())
	require.NoError(t, err)
	require.Len(t, fake.made, 2)
}

func TestPrune_LeavesWhatIsYoungOrUsed(t *testing.T) {
	t.Parallel()
	fake := &templates{}
	ts := NewTemplates(fake)
	got, err := ts.Prepare(t.Context(), order())
	require.NoError(t, err)
	inUse := got.Configs[0].Template
	used := func(name string) bool { return name == inUse }
	require.NoError(t, ts.Prune(t.Context(), "demo", time.Unix(now, 0), used))
	require.Len(t, fake.made, 2, "too young")
	require.NoError(t, ts.Prune(t.Context(), "demo", time.Unix(now+1, 0), used))
	require.Len(t, fake.made, 1)
	require.Contains(t, fake.made, inUse)
	again, err := ts.Prepare(t.Context(), order())
	require.NoError(t, err)
	require.Equal(t, got.Configs, again.Configs)
	require.Len(t, fake.made, 2, "what was deleted is made again")
}

func TestPrepare_NamesTemplatesAfterTheirContent(t *testing.T) {
	t.Parallel()
	name := func(change ...func(*Order)) string {
		got, err := NewTemplates(&templates{}).Prepare(t.Context(), order(append([]func(*Order){oneType}, change...)...))
		require.NoError(t, err)
		return got.Configs[0].Template
	}
	plain := name()
	require.Equal(t, plain, name(func(o *Order) { o.Count = 7 }), "how many are launched is not part of a template")
	require.Equal(t, plain, name(func(o *Order) { o.Claim.Requests.MilliCPU = 5 }))
	seen := map[string]string{"nothing": plain}
	for what, change := range map[string]func(*Order){
		"user data":       func(o *Order) { o.Class.Spec.UserData = "#!/bin/bash\ntrue" },
		"security groups": func(o *Order) { o.Class.Status.SecurityGroups = nil },
		"profile":         func(o *Order) { o.Class.Status.InstanceProfile = "profile-2" },
		"tags":            func(o *Order) { o.Class.Spec.Tags = map[string]string{"a": "b"} },
		"cluster":         func(o *Order) { o.Facts.Cluster = "other" },
		"pool":            func(o *Order) { o.Pool.Name = "batch" },
		"image":           func(o *Order) { o.Class.Status.AMIs[0].ID = "ami-2" },
		"monitoring":      func(o *Order) { o.Class.Spec.DetailedMonitoring = true },
		"pod limit":       func(o *Order) { o.Types[1].Capacity.Pods = 58 },
		"capacity type":   func(o *Order) { o.Claim.Options[0].CapacityType = cluster.OnDemand },
	} {
		changed := name(change)
		for other, taken := range seen {
			require.NotEqual(t, taken, changed, "%s and %s", what, other)
		}
		seen[what] = changed
	}
}

func TestPrepare_BooksAddresses(t *testing.T) {
	t.Parallel()
	ready := NewTemplates(&templates{})
	inZoneA := func(o *Order) {
		o.Claim.Options = o.Claim.Options[:1]
		o.Claim.Requests.Pods = 15 // sixteen addresses a node
	}
	t.Run("launches in flight are spread until no subnet has room (D12)", func(t *testing.T) {
		t.Parallel()
		o := order(inZoneA)
		o.Addresses = NewAddresses(o.Class.Status.Subnets)
		taken := map[string]int{}
		for range 6 {
			got, err := ready.Prepare(t.Context(), o)
			require.NoError(t, err)
			taken[got.Configs[0].Overrides[0].SubnetID]++
		}
		require.Equal(t, map[string]int{"subnet-a1": 3, "subnet-a2": 3}, taken)
		_, err := ready.Prepare(t.Context(), o)
		require.ErrorIs(t, err, ErrNoAddresses)
	})
	t.Run("a group is cut to what the best subnet has room for", func(t *testing.T) {
		t.Parallel()
		o := order(inZoneA)
		o.Count, o.Addresses = 40, NewAddresses(o.Class.Status.Subnets)
		got, err := ready.Prepare(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, 3, got.Count)
		require.Equal(t, "subnet-a1", got.Configs[0].Overrides[0].SubnetID)
	})
	t.Run("a zone with room for all is preferred to one with room for some", func(t *testing.T) {
		t.Parallel()
		o := order(func(o *Order) { o.Claim.Requests.Pods = 15 })
		o.Count, o.Addresses = 10, NewAddresses(o.Class.Status.Subnets)
		got, err := ready.Prepare(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, 10, got.Count)
		require.Len(t, got.Configs, 1)
		require.Equal(t, "subnet-b", got.Configs[0].Overrides[0].SubnetID)
	})
	t.Run("a full or refused subnet is never chosen", func(t *testing.T) {
		t.Parallel()
		o := order(inZoneA)
		o.Class.Status.Subnets[0].FreeIPs = 0
		o.Addresses = NewAddresses(o.Class.Status.Subnets)
		got, err := ready.Prepare(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, "subnet-a2", got.Configs[0].Overrides[0].SubnetID)
		o.Addresses.Refuse("subnet-a2")
		_, err = ready.Prepare(t.Context(), o)
		require.ErrorIs(t, err, ErrNoAddresses)
	})
	t.Run("what was not launched is given back", func(t *testing.T) {
		t.Parallel()
		o := order(func(o *Order) { o.Claim.Requests.Pods = 15 })
		o.Addresses = NewAddresses(o.Class.Status.Subnets)
		got, err := ready.Prepare(t.Context(), o)
		require.NoError(t, err)
		got.Settle(o.Addresses, []cluster.Instance{{SubnetID: "subnet-b"}})
		_, roomA := o.Addresses.best(o.Class.Status.Subnets, "us-east-1a", 1)
		_, roomB := o.Addresses.best(o.Class.Status.Subnets, "us-east-1b", 1)
		require.Equal(t, []int{60, 234}, []int{roomA, roomB})
	})
	t.Run("addresses that nobody counted do not limit", func(t *testing.T) {
		t.Parallel()
		o := order(inZoneA)
		for i := range o.Class.Status.Subnets {
			o.Class.Status.Subnets[i].FreeIPs = -1
		}
		o.Count, o.Addresses = 900, NewAddresses(o.Class.Status.Subnets)
		got, err := ready.Prepare(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, 900, got.Count)
	})
	t.Run("small types need no more addresses than they hold pods", func(t *testing.T) {
		t.Parallel()
		o := order(inZoneA)
		o.Claim.Requests.Pods, o.Types[2].Capacity.Pods = 90, 20
		require.Equal(t, 20, need(o))
	})
}

func TestPrepare_RefusesWhatCannotBeLaunched(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		o    Order
		fail error
		want error
		says string
	}{
		"no image for any option": {o: order(func(o *Order) { o.Class.Status.AMIs = nil }), want: ErrInvalid, says: "no option has an image"},
		"user data that is too long": {
			o:    order(func(o *Order) { o.Class.Spec.UserData = "#!/bin/bash\n" + strings.Repeat("#", 17000) }),
			want: ErrInvalid, says: "EC2 takes 16384",
		},
		"user data that cannot be merged": {o: order(func(o *Order) { o.Class.Spec.UserData = "MIME-Version: 1.0\n\nx" }), want: ErrInvalid},
		"a throttle":                      {o: order(), fail: &smithy.GenericAPIError{Code: "RequestLimitExceeded"}, want: ErrThrottled},
		"a missing right":                 {o: order(), fail: &smithy.GenericAPIError{Code: "UnauthorizedOperation"}, want: ErrDenied},
		"a template that EC2 refuses":     {o: order(), fail: &smithy.GenericAPIError{Code: "InvalidUserData.Malformed"}, want: ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewTemplates(&templates{fail: tt.fail}).Prepare(t.Context(), tt.o)
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func data(t *testing.T, change ...func(*Order)) *types.RequestLaunchTemplateData {
	t.Helper()
	fake := &templates{}
	_, err := NewTemplates(fake).Prepare(t.Context(), order(append([]func(*Order){oneType}, change...)...))
	require.NoError(t, err)
	return fake.only(t)
}

func TestTemplate_PlainClass(t *testing.T) {
	t.Parallel()
	got := data(t)
	text, err := base64.StdEncoding.DecodeString(*got.UserData)
	require.NoError(t, err)
	require.Contains(t, string(text), "maxPods: 29")
	got.UserData = nil
	all := []types.Tag{
		{Key: aws.String("eks:eks-cluster-name"), Value: aws.String("demo")},
		{Key: aws.String("karpenter.k8s.aws/ec2nodeclass"), Value: aws.String("default")},
		{Key: aws.String("karpenter.sh/nodepool"), Value: aws.String("web")},
		{Key: aws.String("kubernetes.io/cluster/demo"), Value: aws.String("owned")},
	}
	require.Equal(t, &types.RequestLaunchTemplateData{
		ImageId:            aws.String("ami-amd"),
		IamInstanceProfile: &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("profile-1")},
		SecurityGroupIds:   []string{"sg-1", "sg-2"},
		Monitoring:         &types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(false)},
		BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMappingRequest{{
			DeviceName: aws.String("/dev/xvda"),
			Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{
				Encrypted: aws.Bool(true), VolumeType: "gp3", VolumeSize: aws.Int32(20),
			},
		}},
		MetadataOptions: &types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint: "enabled", HttpProtocolIpv6: "disabled", HttpPutResponseHopLimit: aws.Int32(1), HttpTokens: "required",
			InstanceMetadataTags: "disabled",
		},
		CapacityReservationSpecification: &types.LaunchTemplateCapacityReservationSpecificationRequest{CapacityReservationPreference: "none"},
		TagSpecifications: []types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: "network-interface", Tags: all}, {ResourceType: "spot-instances-request", Tags: all},
		},
	}, got)
}

func TestTemplate_WhatAClassCanAskFor(t *testing.T) {
	t.Parallel()
	yes := true
	n32 := func(n int32) *int32 { return &n }
	n64 := func(n int64) *int64 { return &n }

	t.Run("disks as given, sizes rounded up to GiB", func(t *testing.T) {
		t.Parallel()
		got := data(t, func(o *Order) {
			o.Class.Spec.BlockDevices = []cluster.BlockDevice{{
				DeviceName: "/dev/sdb", VolumeSizeBytes: 100e9, VolumeType: "io2", IOPS: n64(5000), Throughput: n64(200), Encrypted: &yes,
				KMSKeyID: "key-1", DeleteOnTermination: &yes, SnapshotID: "snap-1", InitializationRate: n32(150),
			}}
		}).BlockDeviceMappings
		require.Equal(t, []types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: aws.String("/dev/sdb"), Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{
			VolumeSize: aws.Int32(94), VolumeType: "io2", Iops: aws.Int32(5000), Throughput: aws.Int32(200), Encrypted: &yes,
			KmsKeyId: aws.String("key-1"), DeleteOnTermination: &yes, SnapshotId: aws.String("snap-1"), VolumeInitializationRate: n32(150),
		}}}, got)
	})
	t.Run("a public address moves the groups into an interface", func(t *testing.T) {
		t.Parallel()
		got := data(t, func(o *Order) { o.Class.Spec.AssociatePublicIP = &yes })
		require.Nil(t, got.SecurityGroupIds)
		require.Equal(t, []networkInterface{{
			NetworkCardIndex: n32(0), DeviceIndex: n32(0), InterfaceType: aws.String("interface"), AssociatePublicIpAddress: &yes,
			Groups: []string{"sg-1", "sg-2"},
		}}, got.NetworkInterfaces)
	})
	t.Run("an IPv6 cluster gets a primary IPv6 address, and prefixes of that kind", func(t *testing.T) {
		t.Parallel()
		got := data(t, func(o *Order) { o.Facts.DNSIP, o.Class.Spec.IPPrefixCount = "fd00::a", n32(2) }).NetworkInterfaces
		require.Len(t, got, 1)
		require.Equal(t, []any{&yes, n32(1), n32(2), (*int32)(nil)},
			[]any{got[0].PrimaryIpv6, got[0].Ipv6AddressCount, got[0].Ipv6PrefixCount, got[0].Ipv4PrefixCount})
	})
	t.Run("EFA takes an interface a card if a pod asks for it, and only then", func(t *testing.T) {
		t.Parallel()
		efa := func(o *Order) { o.Types[1].Capacity.Extended = map[string]int64{resourceEFA: 3} }
		require.Nil(t, data(t, efa).NetworkInterfaces)
		got := data(t, efa, func(o *Order) { o.Claim.Requests.Extended = map[string]int64{resourceEFA: 1} }).NetworkInterfaces
		require.Len(t, got, 3)
		for i, one := range got {
			require.Equal(t, []int32{int32(i), int32(min(i, 1))}, []int32{*one.NetworkCardIndex, *one.DeviceIndex})
			require.Equal(t, "efa", *one.InterfaceType)
		}
	})
	t.Run("interfaces of the class are taken as they are", func(t *testing.T) {
		t.Parallel()
		got := data(t, func(o *Order) {
			o.Class.Spec.AssociatePublicIP = &yes
			o.Class.Spec.ConnectionTracking = &cluster.ConnectionTrackingConfig{TCPEstablishedSeconds: n32(600)}
			o.Class.Spec.NetworkInterfaces = []cluster.NetworkInterface{{Type: "interface"}, {NetworkCardIndex: 1, DeviceIndex: 1, Type: "efa-only"}}
		}).NetworkInterfaces
		require.Len(t, got, 2)
		require.Equal(t, n32(600), got[0].ConnectionTrackingSpecification.TcpEstablishedTimeout)
		require.Nil(t, got[1].ConnectionTrackingSpecification)
		require.Nil(t, got[1].AssociatePublicIpAddress, "an interface for EFA alone has no address")
	})
	t.Run("a reservation is the only source where it is meant", func(t *testing.T) {
		t.Parallel()
		reserve := func(r cluster.Reservation) func(*Order) {
			return func(o *Order) {
				o.Class.Status.Reservations = []cluster.Reservation{r}
				o.Claim.Options[0].CapacityType, o.Claim.Options[0].ReservationID = cluster.Reserved, r.ID
			}
		}
		got := data(t, reserve(cluster.Reservation{ID: "cr-1"}))
		require.EqualValues(t, "capacity-reservations-only", got.CapacityReservationSpecification.CapacityReservationPreference)
		require.Equal(t, "cr-1", *got.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId)
		require.Nil(t, got.InstanceMarketOptions)
		require.Len(t, got.TagSpecifications, 1, "only Spot fleets take tags for requests")
		got = data(t, reserve(cluster.Reservation{ID: "cr-1", Kind: "capacity-block"}))
		require.EqualValues(t, "capacity-block", got.InstanceMarketOptions.MarketType)
		got = data(t, reserve(cluster.Reservation{ID: "cr-1", Interruptible: true}))
		require.EqualValues(t, "interruptible-capacity-reservation", got.InstanceMarketOptions.MarketType)
	})
	t.Run("placement, CPU options, metadata and monitoring", func(t *testing.T) {
		t.Parallel()
		got := data(t, func(o *Order) {
			o.Class.Spec.PlacementGroup = &cluster.SelectorTerm{Name: "close"}
			o.Class.Spec.NestedVirtualization = "enabled"
			o.Class.Spec.DetailedMonitoring = true
			o.Class.Spec.Metadata = &cluster.MetadataOptions{HTTPEndpoint: "disabled", HTTPProtocolIPv6: "enabled", HTTPPutResponseHopLimit: n64(3), HTTPTokens: "optional"}
			o.Claim.Requirements = []cluster.Expression{in(labelTenancy, "dedicated")}
		})
		require.Equal(t, &types.LaunchTemplatePlacementRequest{GroupName: aws.String("close"), Tenancy: "dedicated"}, got.Placement)
		require.EqualValues(t, "enabled", got.CpuOptions.NestedVirtualization)
		require.True(t, *got.Monitoring.Enabled)
		require.Equal(t, &types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint: "disabled", HttpProtocolIpv6: "enabled", HttpPutResponseHopLimit: aws.Int32(3), HttpTokens: "optional", InstanceMetadataTags: "disabled",
		}, got.MetadataOptions)
		require.Nil(t, data(t, func(o *Order) { o.Claim.Requirements = []cluster.Expression{in(labelTenancy, "dedicated", "default")} }).Placement)
	})
	t.Run("isolated regions do not hear of IPv6 metadata", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, data(t, func(o *Order) { o.Facts.Region = "us-iso-east-1" }).MetadataOptions.HttpProtocolIpv6)
	})
	t.Run("tags of the class are there but do not replace whose it is", func(t *testing.T) {
		t.Parallel()
		got := data(t, func(o *Order) {
			o.Class.Spec.Tags = map[string]string{"cost": "42", "karpenter.sh/nodepool": "stolen", "eks:eks-cluster-name": "stolen"}
		}).TagSpecifications[0].Tags
		found := map[string]string{}
		for _, tag := range got {
			found[*tag.Key] = *tag.Value
		}
		require.Equal(t, map[string]string{
			"cost": "42", "eks:eks-cluster-name": "demo", "karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "web",
			"kubernetes.io/cluster/demo": "owned",
		}, found)
	})
}

// TestTemplate_Golden holds the whole template of each family and architecture, its user data in the clear.
func TestTemplate_Golden(t *testing.T) {
	t.Parallel()
	for _, f := range []family{al2, al2023, bottlerocket, windows2022, custom} {
		for _, arch := range []string{"amd64", "arm64"} {
			if f.windows() && arch == "arm64" {
				continue
			}
			t.Run(string(f)+" "+arch, func(t *testing.T) {
				t.Parallel()
				got := data(t, func(o *Order) {
					o.Class.Spec.AMISelectorTerms, o.Class.Spec.AMIFamily = nil, string(f)
					o.Class.Spec.UserData = map[family]string{bottlerocket: "[settings.motd]\nx = 1\n", custom: "mine\n"}[f]
					if arch == "arm64" {
						o.Claim.Options = order().Claim.Options[:1]
					}
				})
				text, err := base64.StdEncoding.DecodeString(*got.UserData)
				require.NoError(t, err)
				got.UserData = nil
				body, err := json.MarshalIndent(trimmed(t, got), "", "  ")
				require.NoError(t, err)
				golden(t, filepath.Join("..", "template", strings.ToLower(string(f))+"-"+arch+".txt"), string(body)+"\n\n"+string(text))
			})
		}
	}
}

// trimmed is data without what it leaves out.
func trimmed(t *testing.T, data any) any {
	t.Helper()
	body, err := json.Marshal(data)
	require.NoError(t, err)
	var out any
	require.NoError(t, json.Unmarshal(body, &out))
	return withoutEmpty(out)
}

func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if v[key] = withoutEmpty(value); v[key] == nil || v[key] == "" {
				delete(v, key)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
	}
	return v
}
