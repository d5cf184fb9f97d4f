package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/plan"
)

// fakeEC2 knows instances by id and answers CreateFleet with what it is given.
type fakeEC2 struct {
	fleet      *ec2.CreateFleetOutput
	fleetErr   error
	asked      *ec2.CreateFleetInput
	instances  map[string]types.Instance
	describes  []*ec2.DescribeInstancesInput
	terminated []string
	calls      int // of TerminateInstances
	denied     bool
	tagged     *ec2.CreateTagsInput
}

func (f *fakeEC2) CreateFleet(_ context.Context, in *ec2.CreateFleetInput, _ ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error) {
	f.asked = in
	return f.fleet, f.fleetErr
}

// DescribeInstances hands out two instances a page.
func (f *fakeEC2) DescribeInstances(_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	f.describes = append(f.describes, in)
	ids := in.InstanceIds
	for _, id := range ids {
		if _, known := f.instances[id]; !known {
			return nil, &smithy.GenericAPIError{Code: "InvalidInstanceID.NotFound", Message: "The instance ID '" + id + "' does not exist"}
		}
	}
	for _, filter := range in.Filters {
		if *filter.Name == "instance-id" {
			ids = filter.Values
		}
	}
	if ids == nil {
		ids = slices.Sorted(maps.Keys(f.instances))
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, known := f.instances[id]; return !known })
	from := 0
	if in.NextToken != nil {
		_, _ = fmt.Sscan(*in.NextToken, &from)
	}
	out := &ec2.DescribeInstancesOutput{}
	for _, id := range ids[from:min(from+2, len(ids))] {
		out.Reservations = append(out.Reservations, types.Reservation{Instances: []types.Instance{f.instances[id]}})
	}
	if from+2 < len(ids) {
		out.NextToken = aws.String(fmt.Sprint(from + 2))
	}
	return out, nil
}

func (f *fakeEC2) TerminateInstances(_ context.Context, in *ec2.TerminateInstancesInput, _ ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error) {
	f.calls++
	for _, id := range in.InstanceIds {
		if _, known := f.instances[id]; !known {
			if f.denied {
				return nil, apiError("terminateVanishedWithTagCondition")
			}
			return nil, apiError("notFound")
		}
	}
	if f.denied {
		return nil, &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "not yours"}
	}
	f.terminated = append(f.terminated, in.InstanceIds...)
	return &ec2.TerminateInstancesOutput{}, nil
}

func (f *fakeEC2) CreateTags(_ context.Context, in *ec2.CreateTagsInput, _ ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error) {
	f.tagged = in
	if _, known := f.instances[in.Resources[0]]; !known {
		return nil, apiError("notFound")
	}
	return &ec2.CreateTagsOutput{}, nil
}

func sample[T any](t *testing.T, name string) *T {
	t.Helper()
	body, err := os.ReadFile("testdata/" + name + ".json")
	require.NoError(t, err)
	out := new(T)
	require.NoError(t, json.Unmarshal(body, out))
	return out
}

// apiError returns an error from the samples of failed calls.
func apiError(name string) error {
	body, err := os.ReadFile("testdata/ec2-api-errors.json")
	if err != nil {
		return err
	}
	var all map[string]struct{ Code, Message string }
	if err := json.Unmarshal(body, &all); err != nil {
		return err
	}
	return &smithy.GenericAPIError{Code: all[name].Code, Message: all[name].Message}
}

func request(kind cluster.CapacityType) plan.Request {
	return plan.Request{
		Token: "token-1", Count: 3, Context: "context-1",
		Tags: fleet.Tags("demo", "web", cluster.NodeClass{Name: "default", Spec: cluster.NodeClassSpec{Tags: map[string]string{"cost": "42"}}}),
		Launch: plan.Launch{Group: "g1", CapacityType: kind, Configs: []plan.LaunchConfig{
			{Template: "karpenter.k8s.aws/one", Overrides: []plan.Override{
				{InstanceType: "m5.large", SubnetID: "subnet-0aaa", Zone: "us-east-1a", ImageID: "ami-1", PriceMicroUSDPerHour: 40000},
				{InstanceType: "m5.large", SubnetID: "subnet-0bbb", Zone: "us-east-1b", ImageID: "ami-1", PriceMicroUSDPerHour: 41000},
			}},
			{Template: "karpenter.k8s.aws/two", Overrides: []plan.Override{
				{InstanceType: "m6i.large", SubnetID: "subnet-0aaa", Zone: "us-east-1a", ImageID: "ami-2", PriceMicroUSDPerHour: 45000},
				{InstanceType: "m6i.large", SubnetID: "subnet-0bbb", Zone: "us-east-1b", ImageID: "ami-2", PriceMicroUSDPerHour: 45000},
			}},
		}},
	}
}

func TestLaunch_AsksForAnInstantFleet(t *testing.T) {
	t.Parallel()
	fake := &fakeEC2{fleet: sample[ec2.CreateFleetOutput](t, "createfleet-success")}
	_, err := fleet.New(fake, "demo").Launch(t.Context(), request(cluster.Spot))
	require.NoError(t, err)
	in := fake.asked
	require.Equal(t, types.FleetTypeInstant, in.Type)
	require.Equal(t, "token-1", *in.ClientToken)
	require.Equal(t, "context-1", *in.Context)
	require.Equal(t, &types.TargetCapacitySpecificationRequest{TotalTargetCapacity: aws.Int32(3), DefaultTargetCapacityType: "spot"}, in.TargetCapacitySpecification)
	require.Equal(t, &types.SpotOptionsRequest{AllocationStrategy: "price-capacity-optimized"}, in.SpotOptions)
	require.Nil(t, in.OnDemandOptions)
	require.Len(t, in.LaunchTemplateConfigs, 2)
	require.Equal(t, types.FleetLaunchTemplateConfigRequest{
		LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: aws.String("karpenter.k8s.aws/one"), Version: aws.String("$Latest")},
		Overrides: []types.FleetLaunchTemplateOverridesRequest{
			{InstanceType: "m5.large", SubnetId: aws.String("subnet-0aaa"), AvailabilityZone: aws.String("us-east-1a"), ImageId: aws.String("ami-1"), Priority: aws.Float64(0.04)},
			{InstanceType: "m5.large", SubnetId: aws.String("subnet-0bbb"), AvailabilityZone: aws.String("us-east-1b"), ImageId: aws.String("ami-1"), Priority: aws.Float64(0.041)},
		},
	}, in.LaunchTemplateConfigs[0])
	var kinds []string
	for _, spec := range in.TagSpecifications {
		kinds = append(kinds, string(spec.ResourceType))
		got := map[string]string{}
		for _, tag := range spec.Tags {
			got[*tag.Key] = *tag.Value
		}
		require.Equal(t, map[string]string{
			"cost": "42", "kubernetes.io/cluster/demo": "owned", "eks:eks-cluster-name": "demo", "karpenter.sh/nodepool": "web",
			"karpenter.k8s.aws/ec2nodeclass": "default", "treadle.sh/launch": "token-1",
		}, got)
	}
	require.Equal(t, []string{"fleet", "instance", "volume"}, kinds)

	for _, kind := range []cluster.CapacityType{cluster.OnDemand, cluster.Reserved} {
		_, err = fleet.New(fake, "demo").Launch(t.Context(), request(kind))
		require.NoError(t, err)
		require.EqualValues(t, "on-demand", fake.asked.TargetCapacitySpecification.DefaultTargetCapacityType)
		require.Equal(t, &types.OnDemandOptionsRequest{AllocationStrategy: "lowest-price"}, fake.asked.OnDemandOptions)
		require.Nil(t, fake.asked.SpotOptions)
	}
}

func TestLaunch_ReadsAnswers(t *testing.T) {
	t.Parallel()
	refusal := func(instanceType, zone, subnet, code string, kind plan.RefusalKind) plan.Refusal {
		return plan.Refusal{InstanceType: instanceType, Zone: zone, SubnetID: subnet, CapacityType: cluster.Spot, Code: code, Kind: kind}
	}
	for name, tt := range map[string]struct {
		sample    string
		instances []cluster.Instance
		refusals  []plan.Refusal
		err       error
	}{
		"an instance": {
			sample: "createfleet-success",
			instances: []cluster.Instance{{
				ID: "i-0a1b2c3d4e5f60718", Type: "m6i.large", Zone: "us-east-1a", SubnetID: "subnet-0aaa", ImageID: "ami-2", CapacityType: cluster.Spot, State: "pending",
			}},
		},
		"an instance and errors are a success (D11)": {
			sample: "createfleet-instance-and-errors",
			instances: []cluster.Instance{{
				ID: "i-0a1b2c3d4e5f60718", Type: "m6i.large", Zone: "us-east-1b", SubnetID: "subnet-0bbb", ImageID: "ami-2", CapacityType: cluster.Spot, State: "pending",
			}},
			refusals: []plan.Refusal{
				refusal("m5.large", "us-east-1a", "subnet-0aaa", "InsufficientInstanceCapacity", plan.RefusedCapacity),
				refusal("m5.large", "us-east-1b", "subnet-0bbb", "InsufficientInstanceCapacity", plan.RefusedCapacity),
			},
		},
		"nothing to be had (D10)": {
			sample: "createfleet-all-ice",
			refusals: []plan.Refusal{
				refusal("g4dn.xlarge", "eu-west-3a", "subnet-0aaa", "InsufficientInstanceCapacity", plan.RefusedCapacity),
				refusal("g4dn.xlarge", "eu-west-3b", "subnet-0bbb", "InsufficientInstanceCapacity", plan.RefusedCapacity),
				refusal("g4dn.xlarge", "eu-west-3c", "subnet-0ccc", "InsufficientInstanceCapacity", plan.RefusedCapacity),
			},
			err: plan.ErrNoCapacity,
		},
		"nothing to be had, and nobody says of what (D09)": {
			sample:   "createfleet-unfulfillable-no-type",
			refusals: []plan.Refusal{refusal("", "", "", "UnfulfillableCapacity", plan.RefusedCapacity)},
			err:      plan.ErrNoCapacity,
		},
		"a used up quota (D08)": {
			sample:   "createfleet-spot-quota",
			refusals: []plan.Refusal{refusal("m5.xlarge", "us-east-1a", "subnet-0aaa", "MaxSpotInstanceCountExceeded", plan.RefusedQuota)},
			err:      plan.ErrQuota,
		},
		"a full subnet (D12)": {
			sample:   "createfleet-subnet-full",
			refusals: []plan.Refusal{refusal("m5.xlarge", "us-east-1a", "subnet-0aaa", "InsufficientFreeAddressesInSubnet", plan.RefusedAddresses)},
			err:      plan.ErrNoCapacity,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeEC2{fleet: sample[ec2.CreateFleetOutput](t, tt.sample)}
			got, err := fleet.New(fake, "demo").Launch(t.Context(), request(cluster.Spot))
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.instances, got.Instances)
			require.Len(t, got.Refusals, len(tt.refusals))
			for i := range got.Refusals {
				require.NotEmpty(t, got.Refusals[i].Message)
				got.Refusals[i].Message = ""
			}
			require.Equal(t, tt.refusals, got.Refusals)
			require.NotEmpty(t, got.FleetID)
		})
	}
}

func TestLaunch_ErrorOfAFleetThatGaveNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		codes []string
		want  error
	}{
		"capacity alone":                       {[]string{"UnfulfillableCapacity", "InsufficientFreeAddressesInSubnet"}, plan.ErrNoCapacity},
		"quota weighs more than capacity":      {[]string{"InsufficientInstanceCapacity", "VcpuLimitExceeded", "Unsupported"}, plan.ErrQuota},
		"no role for Spot is a quota of zero":  {[]string{"AuthFailure.ServiceLinkedRoleCreationNotPermitted"}, plan.ErrQuota},
		"a missing right weighs most":          {[]string{"InsufficientInstanceCapacity", "UnauthorizedOperation", "InvalidParameterValue"}, plan.ErrDenied},
		"a bad request needs a person":         {[]string{"InsufficientInstanceCapacity", "InvalidParameterValue"}, plan.ErrInvalid},
		"a lost template is made again":        {[]string{"InvalidLaunchTemplateName.NotFoundException"}, plan.ErrNotFound},
		"a throttle inside would be repeated":  {[]string{"RequestLimitExceeded"}, plan.ErrNoCapacity},
		"a code that nobody knows is no crash": {[]string{"InsufficientInstanceCapacity", "SomethingNew"}, plan.ErrInvalid},
		"nothing at all":                       {nil, plan.ErrNoCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &ec2.CreateFleetOutput{FleetId: aws.String("fleet-1")}
			for _, code := range tt.codes {
				out.Errors = append(out.Errors, types.CreateFleetError{ErrorCode: aws.String(code), ErrorMessage: aws.String("because")})
			}
			res, err := fleet.New(&fakeEC2{fleet: out}, "demo").Launch(t.Context(), request(cluster.Spot))
			require.ErrorIs(t, err, tt.want)
			require.Len(t, res.Refusals, len(tt.codes))
		})
	}
}

func TestLaunch_ErrorsOfTheCall(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	for name, tt := range map[string]struct {
		given, want error
		news        int // refusals that come with it
	}{
		"a throttle (D17)":                        {given: apiError("throttle"), want: plan.ErrThrottled},
		"a token that stands for another request": {given: apiError("idempotentMismatch"), want: plan.ErrMismatch},
		"a service control policy":                {given: apiError("scpDeny"), want: plan.ErrDenied},
		"no role for Spot":                        {given: apiError("serviceLinkedRole"), want: plan.ErrQuota, news: 1},
		"too many fleets":                         {given: &smithy.GenericAPIError{Code: "MaxFleetCountExceeded"}, want: plan.ErrQuota, news: 1},
		"an outcome that nobody knows":            {given: refused, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := fleet.New(&fakeEC2{fleetErr: tt.given}, "demo").Launch(t.Context(), request(cluster.Spot))
			require.ErrorIs(t, err, tt.want)
			require.ErrorIs(t, err, tt.given)
			require.NotContains(t, err.Error(), "Encoded authorization failure message")
			require.Len(t, res.Refusals, tt.news)
			require.Empty(t, res.Instances)
		})
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]plan.RefusalKind{
		"InsufficientInstanceCapacity": plan.RefusedCapacity, "Unsupported": plan.RefusedCapacity, "ReservationCapacityExceeded": plan.RefusedCapacity,
		"InsufficientFreeAddressesInSubnet": plan.RefusedAddresses, "MaxFleetCountExceeded": plan.RefusedQuota,
		"EC2ThrottledException": plan.RefusedThrottled, "ThrottlingException": plan.RefusedThrottled, "Throttling": plan.RefusedThrottled,
		"AccessDenied": plan.RefusedDenied, "InvalidAMIID.NotFound": plan.RefusedConfiguration, "InvalidAMIID.Malformed": plan.RefusedConfiguration,
		"MissingParameter": plan.RefusedConfiguration, "UnsupportedOperation": plan.RefusedConfiguration, "InvalidInstanceID.NotFound": plan.RefusedGone,
		"InternalError": "", "": "", "BrandNew": "",
	} {
		require.Equal(t, want, fleet.KindOf(code), code)
	}
}

func running(id string, change ...func(*types.Instance)) types.Instance {
	i := types.Instance{InstanceId: aws.String(id), State: &types.InstanceState{Name: types.InstanceStateNameRunning}}
	for _, f := range change {
		f(&i)
	}
	return i
}

func fleetOf(ids ...string) *fakeEC2 {
	f := &fakeEC2{instances: map[string]types.Instance{}}
	for _, id := range ids {
		f.instances[id] = running(id)
	}
	return f
}

func idsOf(all []cluster.Instance) []string {
	var out []string
	for _, i := range all {
		out = append(out, string(i.ID))
	}
	return out
}

func TestDescribe_LeavesOutWhatIsNotThere(t *testing.T) {
	t.Parallel()
	fake := fleetOf("i-1", "i-2", "i-3")
	f := fleet.New(fake, "demo")
	got, err := f.Describe(t.Context(), "i-1", "i-2", "i-3")
	require.NoError(t, err)
	require.Equal(t, []string{"i-1", "i-2", "i-3"}, idsOf(got), "pages are read to the end")
	got, err = f.Describe(t.Context(), "i-1", "i-gone", "i-3")
	require.NoError(t, err)
	require.Equal(t, []string{"i-1", "i-3"}, idsOf(got))
	got, err = f.Describe(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)

	var many []cluster.InstanceID
	for n := range 450 {
		many = append(many, cluster.InstanceID(fmt.Sprintf("i-%d", n)))
		fake.instances[string(many[n])] = running(string(many[n]))
	}
	got, err = f.Describe(t.Context(), many...)
	require.NoError(t, err)
	require.Len(t, got, 450)
}

func TestList_AsksForTheClustersOwn(t *testing.T) {
	t.Parallel()
	fake := fleetOf("i-1", "i-2", "i-3")
	got, err := fleet.New(fake, "demo").List(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 3)
	asked := map[string][]string{}
	for _, filter := range fake.describes[0].Filters {
		asked[*filter.Name] = filter.Values
	}
	require.Equal(t, map[string][]string{
		"tag:kubernetes.io/cluster/demo": {"owned"}, "tag-key": {"karpenter.sh/nodepool"},
		"instance-state-name": {"pending", "running", "stopping", "stopped", "shutting-down"},
	}, asked)
}

func TestDescribe_ReadsInstances(t *testing.T) {
	t.Parallel()
	killed := sample[ec2.DescribeInstancesOutput](t, "describe-instance-kms-terminated").Reservations[0].Instances[0]
	fake := &fakeEC2{instances: map[string]types.Instance{*killed.InstanceId: killed}}
	got, err := fleet.New(fake, "demo").Describe(t.Context(), cluster.InstanceID(*killed.InstanceId))
	require.NoError(t, err)
	require.Equal(t, []cluster.Instance{{
		ID: "i-0a1b2c3d4e5f60718", CapacityType: cluster.OnDemand, State: cluster.InstanceTerminated,
		StateReason: "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state",
		Tags:        map[string]string{"karpenter.sh/nodeclaim": "default-x7k2p"},
	}}, got, "why EC2 ended it is told once (D20)")

	for name, tt := range map[string]struct {
		change func(*types.Instance)
		kind   cluster.CapacityType
		reason string
	}{
		"a Spot request makes it Spot": {change: func(i *types.Instance) { i.SpotInstanceRequestId = aws.String("sir-1") }, kind: cluster.Spot},
		"so does the lifecycle":        {change: func(i *types.Instance) { i.InstanceLifecycle = "spot" }, kind: cluster.Spot},
		"an open reservation leaves it on demand": {
			change: func(i *types.Instance) { i.CapacityReservationId = aws.String("cr-1") }, kind: cluster.OnDemand,
		},
		"a reservation that is the only source makes it reserved": {
			change: func(i *types.Instance) {
				i.CapacityReservationId = aws.String("cr-1")
				i.CapacityReservationSpecification = &types.CapacityReservationSpecificationResponse{CapacityReservationPreference: "capacity-reservations-only"}
			},
			kind: cluster.Reserved,
		},
		"a reason without message": {
			change: func(i *types.Instance) {
				i.State.Name = types.InstanceStateNameShuttingDown
				i.StateReason = &types.StateReason{Code: aws.String("Server.SpotInstanceTermination")}
			},
			kind: cluster.OnDemand, reason: "Server.SpotInstanceTermination",
		},
		"a running instance has no reason to go": {
			change: func(i *types.Instance) { i.StateReason = &types.StateReason{Code: aws.String("pending")} }, kind: cluster.OnDemand,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeEC2{instances: map[string]types.Instance{"i-1": running("i-1", tt.change)}}
			got, err := fleet.New(fake, "demo").Describe(t.Context(), "i-1")
			require.NoError(t, err)
			require.Equal(t, tt.kind, got[0].CapacityType)
			require.Equal(t, tt.reason, got[0].StateReason)
		})
	}
}

func TestTerminate_IsDoneWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	t.Run("all exist: one call", func(t *testing.T) {
		t.Parallel()
		fake := fleetOf("i-1", "i-2")
		require.NoError(t, fleet.New(fake, "demo").Terminate(t.Context(), "i-1", "i-2"))
		require.Equal(t, []string{"i-1", "i-2"}, fake.terminated)
		require.Equal(t, 1, fake.calls)
	})
	t.Run("one is gone: the others end all the same", func(t *testing.T) {
		t.Parallel()
		fake := fleetOf("i-1", "i-3")
		require.NoError(t, fleet.New(fake, "demo").Terminate(t.Context(), "i-1", "i-2", "i-3"))
		require.Equal(t, []string{"i-1", "i-3"}, fake.terminated)
	})
	t.Run("denied because it is gone is done (D19)", func(t *testing.T) {
		t.Parallel()
		fake := fleetOf()
		fake.denied = true
		require.NoError(t, fleet.New(fake, "demo").Terminate(t.Context(), "i-1"))
	})
	t.Run("denied although it is there is an error", func(t *testing.T) {
		t.Parallel()
		fake := fleetOf("i-2")
		fake.denied = true
		err := fleet.New(fake, "demo").Terminate(t.Context(), "i-1", "i-2")
		require.ErrorIs(t, err, plan.ErrDenied)
		require.ErrorContains(t, err, "i-2")
	})
	t.Run("what is going already is left to go", func(t *testing.T) {
		t.Parallel()
		fake := fleetOf()
		fake.instances["i-2"] = running("i-2", func(i *types.Instance) { i.State.Name = types.InstanceStateNameTerminated })
		require.NoError(t, fleet.New(fake, "demo").Terminate(t.Context(), "i-1", "i-2"))
		require.Empty(t, fake.terminated)
	})
}

func TestTag(t *testing.T) {
	t.Parallel()
	fake := fleetOf("i-1")
	f := fleet.New(fake, "demo")
	named := cluster.NodeClass{Spec: cluster.NodeClassSpec{Tags: map[string]string{"Name": "mine"}}}
	require.NoError(t, f.Tag(t.Context(), "i-1", fleet.LaterTags("demo", "web-x1", "ip-10-0-0-1", named)))
	require.Equal(t, []types.Tag{
		{Key: aws.String("eks:eks-cluster-name"), Value: aws.String("demo")}, {Key: aws.String("karpenter.sh/nodeclaim"), Value: aws.String("web-x1")},
	}, fake.tagged.Tags, "the user's name stays")
	require.Contains(t, fleet.LaterTags("demo", "web-x1", "ip-10-0-0-1", cluster.NodeClass{}), "Name")
	require.ErrorIs(t, f.Tag(t.Context(), "i-2", nil), plan.ErrNotFound)
}

func TestRetry_RepeatsTroubleButNoThrottle(t *testing.T) {
	t.Parallel()
	for code, tt := range map[string]struct {
		status, calls int
		want          error
	}{
		"RequestLimitExceeded":  {http.StatusServiceUnavailable, 1, plan.ErrThrottled},
		"UnauthorizedOperation": {http.StatusForbidden, 1, plan.ErrDenied},
		"InternalError":         {http.StatusInternalServerError, 3, nil},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			calls := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.WriteHeader(tt.status)
				fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>m</Message></Error></Errors></Response>", code)
			}))
			defer server.Close()
			client := ec2.NewFromConfig(aws.Config{
				Region: "us-east-1", BaseEndpoint: aws.String(server.URL),
				Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
				}),
			}, fleet.Retry)
			_, err := fleet.New(client, "demo").Launch(t.Context(), request(cluster.Spot))
			require.Error(t, err)
			require.Equal(t, tt.calls, calls)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
		})
	}
}
