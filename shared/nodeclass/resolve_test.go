package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
)

// region is an EC2 with two subnets, two groups, images and reservations; each call hands out one item a page.
type region struct {
	subnets      []types.Subnet
	groups       []types.SecurityGroup
	images       []types.Image
	reservations []types.CapacityReservation
	placement    []types.PlacementGroup
	asked        []string // filters of each call, in order
	dryRuns      []*ec2.RunInstancesInput
	fail         map[string]error // by call
}

func (f *region) note(call string, filters []types.Filter, more ...string) error {
	for _, one := range filters {
		more = append(more, aws.ToString(one.Name)+"="+strings.Join(one.Values, ","))
	}
	f.asked = append(f.asked, strings.TrimSpace(call+" "+strings.Join(more, " ")))
	return f.fail[call]
}

// page returns the item that token stands for and the token of the next.
func page[T any](all []T, token *string) ([]T, *string) {
	n := 0
	if token != nil {
		_, _ = fmt.Sscan(*token, &n)
	}
	if n >= len(all) {
		return nil, nil
	}
	if n+1 == len(all) {
		return all[n:], nil
	}
	return all[n : n+1], aws.String(fmt.Sprint(n + 1))
}

func tagged(filters []types.Filter, tags []types.Tag, ids ...string) bool {
	for _, f := range filters {
		name := aws.ToString(f.Name)
		key, byTag := strings.CutPrefix(name, "tag:")
		hit := false
		switch {
		case byTag:
			hit = slices.ContainsFunc(tags, func(t types.Tag) bool { return *t.Key == key && slices.Contains(f.Values, *t.Value) })
		case name == "tag-key":
			hit = slices.ContainsFunc(tags, func(t types.Tag) bool { return slices.Contains(f.Values, *t.Key) })
		case strings.HasSuffix(name, "-id") || strings.HasSuffix(name, "name"):
			hit = slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(f.Values, id) })
		default:
			hit = true
		}
		if !hit {
			return false
		}
	}
	return true
}

func keep[T any](all []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !wanted(one) })
}

func (f *region) DescribeSubnets(_ context.Context, in *ec2.DescribeSubnetsInput, _ ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error) {
	found := keep(f.subnets, func(s types.Subnet) bool { return tagged(in.Filters, s.Tags, *s.SubnetId) })
	out := &ec2.DescribeSubnetsOutput{}
	out.Subnets, out.NextToken = page(found, in.NextToken)
	return out, f.note("subnets", in.Filters)
}

func (f *region) DescribeSecurityGroups(_ context.Context, in *ec2.DescribeSecurityGroupsInput, _ ...func(*ec2.Options)) (*ec2.DescribeSecurityGroupsOutput, error) {
	found := keep(f.groups, func(g types.SecurityGroup) bool { return tagged(in.Filters, g.Tags, *g.GroupId, *g.GroupName) })
	out := &ec2.DescribeSecurityGroupsOutput{}
	out.SecurityGroups, out.NextToken = page(found, in.NextToken)
	return out, f.note("groups", in.Filters)
}

func (f *region) DescribeImages(_ context.Context, in *ec2.DescribeImagesInput, _ ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error) {
	found := keep(f.images, func(i types.Image) bool { return tagged(in.Filters, i.Tags, *i.ImageId, *i.Name) })
	out := &ec2.DescribeImagesOutput{}
	out.Images, out.NextToken = page(found, in.NextToken)
	return out, f.note("images", in.Filters, in.Owners...)
}

func (f *region) DescribeCapacityReservations(_ context.Context, in *ec2.DescribeCapacityReservationsInput, _ ...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error) {
	found := keep(f.reservations, func(r types.CapacityReservation) bool {
		return len(in.CapacityReservationIds) == 0 || slices.Contains(in.CapacityReservationIds, *r.CapacityReservationId)
	})
	if len(in.CapacityReservationIds) > 0 && len(found) == 0 {
		_ = f.note("reservations", in.Filters, in.CapacityReservationIds...)
		return nil, &smithy.GenericAPIError{Code: "InvalidCapacityReservationId.NotFound"}
	}
	out := &ec2.DescribeCapacityReservationsOutput{}
	out.CapacityReservations, out.NextToken = page(found, in.NextToken)
	return out, f.note("reservations", in.Filters, in.CapacityReservationIds...)
}

func (f *region) DescribePlacementGroups(_ context.Context, in *ec2.DescribePlacementGroupsInput, _ ...func(*ec2.Options)) (*ec2.DescribePlacementGroupsOutput, error) {
	if err := f.note("placement", nil, slices.Concat(in.GroupIds, in.GroupNames)...); err != nil {
		return nil, err
	}
	return &ec2.DescribePlacementGroupsOutput{PlacementGroups: f.placement}, nil
}

// parameters is SSM.
type parameters struct {
	values map[string]string
	reads  int
	fail   error
}

func (p *parameters) Parameter(_ context.Context, name string) (string, error) {
	p.reads++
	if p.fail != nil {
		return "", p.fail
	}
	value, ok := p.values[name]
	if !ok {
		return "", fmt.Errorf("get parameter %s: %w", name, ErrNotFound)
	}
	return value, nil
}

// profiles is IAM.
type profiles struct {
	made    map[string]Profile
	ensures int
	fail    error
}

func (p *profiles) EnsureProfile(_ context.Context, one Profile) error {
	p.ensures++
	if p.fail != nil {
		return p.fail
	}
	if p.made == nil {
		p.made = map[string]Profile{}
	}
	p.made[one.Name] = one
	return nil
}

func (p *profiles) DeleteProfile(_ context.Context, name string) error {
	delete(p.made, name)
	return nil
}

func (p *profiles) ListProfiles(_ context.Context, prefix string) ([]string, error) {
	var out []string
	for name, one := range p.made {
		if strings.HasPrefix(one.Path, prefix) {
			out = append(out, name)
		}
	}
	return out, p.fail
}

func (f *region) RunInstances(_ context.Context, in *ec2.RunInstancesInput, _ ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error) {
	f.dryRuns = append(f.dryRuns, in)
	if err := f.fail["run"]; err != nil {
		return nil, err
	}
	return nil, &smithy.GenericAPIError{Code: "DryRunOperation"}
}

func tag(key, value string) []types.Tag {
	return []types.Tag{{Key: aws.String(key), Value: aws.String(value)}}
}

func ami(id, name, arch, created string, change ...func(*types.Image)) types.Image {
	i := types.Image{
		ImageId: aws.String(id), Name: aws.String(name), Architecture: types.ArchitectureValues(arch), CreationDate: aws.String(created),
		State: types.ImageStateAvailable,
	}
	for _, f := range change {
		f(&i)
	}
	return i
}

const (
	ssmPrefix = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/"
	now       = 1_800_000_000
)

type world struct {
	ec2        *region
	parameters *parameters
	profiles   *profiles
	class      cluster.NodeClass
	facts      Facts
}

// found is a world in which a quick-start class resolves wholly.
func found() world {
	discovery := tag("karpenter.sh/discovery", "demo")
	term := []cluster.SelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "demo"}}}
	return world{
		ec2: &region{
			subnets: []types.Subnet{
				{SubnetId: aws.String("subnet-a"), AvailabilityZone: aws.String("us-east-1a"), AvailabilityZoneId: aws.String("use1-az1"), AvailableIpAddressCount: aws.Int32(40), Tags: discovery},
				{SubnetId: aws.String("subnet-b"), AvailabilityZone: aws.String("us-east-1b"), AvailabilityZoneId: aws.String("use1-az2"), AvailableIpAddressCount: aws.Int32(90), Tags: discovery},
			},
			groups: []types.SecurityGroup{
				{GroupId: aws.String("sg-2"), GroupName: aws.String("nodes"), Tags: discovery},
				{GroupId: aws.String("sg-1"), GroupName: aws.String("extra"), Tags: discovery},
			},
			images: []types.Image{
				ami("ami-x86", "al2023-x86", "x86_64", "2026-11-01T00:00:00.000Z"), ami("ami-arm", "al2023-arm", "arm64", "2026-11-02T00:00:00.000Z"),
				ami("ami-gpu", "al2023-gpu", "x86_64", "2026-10-01T00:00:00.000Z"),
			},
		},
		parameters: &parameters{values: map[string]string{
			ssmPrefix + "x86_64/standard/recommended/image_id": "ami-x86", ssmPrefix + "arm64/standard/recommended/image_id": "ami-arm",
			ssmPrefix + "x86_64/nvidia/recommended/image_id": "ami-gpu",
		}},
		profiles: &profiles{},
		class: cluster.NodeClass{
			Name: "default", UID: "uid-1", Generation: 3,
			Spec: cluster.NodeClassSpec{
				SubnetSelectorTerms: term, SecurityGroupSelectorTerms: term,
				AMISelectorTerms: []cluster.SelectorTerm{{Alias: "al2023@latest"}}, Role: "path/NodeRole",
			},
		},
		facts: Facts{
			Cluster: "demo", Region: "us-east-1", KubernetesVersion: "v1.36.2-eks-1", Endpoint: "https://demo.example",
			CA: "Y2VydA==", ServiceCIDR: "10.100.0.0/16", DNSIP: "10.100.0.10", NowUnix: now,
		},
	}
}

func (w world) resolve(t *testing.T) cluster.NodeClassStatus {
	t.Helper()
	status, err := NewResolver(w.ec2, w.parameters, w.profiles).Resolve(t.Context(), w.class, w.facts)
	require.NoError(t, err)
	return status
}

var allConditions = []string{
	cluster.ConditionSubnetsReady, cluster.ConditionSecurityGroupsReady, cluster.ConditionAMIsReady, cluster.ConditionReservationsReady,
	cluster.ConditionPlacementGroupReady, cluster.ConditionInstanceProfileReady, cluster.ConditionValidationSucceeded, cluster.ConditionReady,
}

func TestResolve_QuickStartClass(t *testing.T) {
	t.Parallel()
	w := found()
	got := w.resolve(t)
	require.Equal(t, []cluster.Subnet{
		{ID: "subnet-b", Zone: "us-east-1b", ZoneID: "use1-az2", FreeIPs: 90}, {ID: "subnet-a", Zone: "us-east-1a", ZoneID: "use1-az1", FreeIPs: 40},
	}, got.Subnets, "the emptiest first")
	require.Equal(t, []cluster.SecurityGroup{{ID: "sg-1", Name: "extra"}, {ID: "sg-2", Name: "nodes"}}, got.SecurityGroups)
	require.Equal(t, []cluster.AMI{
		{ID: "ami-arm", Name: "al2023-arm", Requirements: standard("arm64")},
		{ID: "ami-x86", Name: "al2023-x86", Requirements: standard("amd64")},
		{ID: "ami-gpu", Name: "al2023-gpu", Requirements: nvidia("amd64")},
	}, got.AMIs, "the newest first; variants that the region lacks are left out")
	require.Len(t, w.profiles.made, 1)
	profile := w.profiles.made[got.InstanceProfile]
	require.Equal(t, "NodeRole", profile.Role)
	require.Equal(t, "/karpenter/us-east-1/demo/uid-1/", profile.Path)
	require.Equal(t, map[string]string{
		"kubernetes.io/cluster/demo": "owned", "eks:eks-cluster-name": "demo", "karpenter.k8s.aws/ec2nodeclass": "default",
		"topology.kubernetes.io/region": "us-east-1",
	}, profile.Tags)
	for _, kind := range allConditions {
		one := got.Conditions.Get(kind)
		require.Equal(t, "True", one.Status, "%s: %s", kind, one.Message)
		require.NotEmpty(t, one.Reason, kind)
		require.EqualValues(t, now, one.TransitionUnix, kind)
		require.EqualValues(t, 3, one.ObservedGeneration, kind)
	}
}

func TestResolve_RepeatedCallsAskForLessAndKeepTransitions(t *testing.T) {
	t.Parallel()
	w := found()
	r := NewResolver(w.ec2, w.parameters, w.profiles)
	first, err := r.Resolve(t.Context(), w.class, w.facts)
	require.NoError(t, err)
	w.class.Status = first
	w.facts.NowUnix += 60
	second, err := r.Resolve(t.Context(), w.class, w.facts)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, 1, w.profiles.ensures)
	require.Equal(t, 5, w.parameters.reads, "those that there are not are remembered too")
	w.facts.NowUnix += parameterSeconds
	_, err = r.Resolve(t.Context(), w.class, w.facts)
	require.NoError(t, err)
	require.Equal(t, 10, w.parameters.reads)

	other := w.class
	other.Spec.Role = "OtherRole"
	changed, err := r.Resolve(t.Context(), other, w.facts)
	require.NoError(t, err)
	require.NotEqual(t, first.InstanceProfile, changed.InstanceProfile, "old nodes keep the old profile")
	require.Len(t, w.profiles.made, 2)
	require.NoError(t, r.Release(t.Context(), other, w.facts))
	require.Empty(t, w.profiles.made)
}

func TestResolve_NamesTheRuleThatFailed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change    func(*world)
		condition string
		reason    string
		says      string
	}{
		"no subnet has the tag": {
			func(w *world) { w.ec2.subnets = nil }, cluster.ConditionSubnetsReady, "SubnetsNotFound",
			"no subnet matches tags karpenter.sh/discovery=demo",
		},
		"no group has the name or the tag": {
			func(w *world) {
				w.class.Spec.SecurityGroupSelectorTerms = []cluster.SelectorTerm{{Name: "lost"}, {Tags: map[string]string{"a": "*", "b": "c"}}}
			},
			cluster.ConditionSecurityGroupsReady, "SecurityGroupsNotFound", "no security group matches name lost, or tags a with any value and b=c",
		},
		"no parameter for the family": {
			func(w *world) { w.parameters.values = nil }, cluster.ConditionAMIsReady, "AMINotFound",
			"no parameter gives an image of AL2023@latest for Kubernetes 1.36",
		},
		"a parameter that holds no image id": {
			func(w *world) { w.parameters.values[ssmPrefix+"arm64/standard/recommended/image_id"] = "what" },
			cluster.ConditionAMIsReady, "AMINotFound", `holds "what", which is no image id`,
		},
		"images that parameters name but EC2 lacks": {
			func(w *world) { w.ec2.images = nil }, cluster.ConditionAMIsReady, "AMINotFound", "no image matches alias al2023@latest",
		},
		"AL2 on a Kubernetes without it": {
			func(w *world) { w.class.Spec.AMISelectorTerms[0].Alias = "al2@latest" }, cluster.ConditionAMIsReady, "UnsupportedAlias", "AL2 has no images for Kubernetes 1.36",
		},
		"Windows 2025 on an old Kubernetes": {
			func(w *world) {
				w.class.Spec.AMISelectorTerms[0].Alias, w.facts.KubernetesVersion = "windows2025@latest", "1.34"
			},
			cluster.ConditionAMIsReady, "UnsupportedAlias", "Windows2025 has no images for Kubernetes 1.34",
		},
		"an alias of nothing": {
			func(w *world) { w.class.Spec.AMISelectorTerms[0].Alias = "beos@latest" }, cluster.ConditionAMIsReady, "AMINotFound", "no family that is known",
		},
		"a version of Kubernetes that nobody knows": {
			func(w *world) { w.facts.KubernetesVersion = "" }, cluster.ConditionAMIsReady, "AMINotFound", "version of Kubernetes is not known",
		},
		"a role that does not exist": {
			func(w *world) { w.profiles.fail = fmt.Errorf("add role: %w", ErrNotFound) }, cluster.ConditionInstanceProfileReady,
			"InstanceProfileNotReady", "role NodeRole does not exist",
		},
		"neither role nor profile": {
			func(w *world) { w.class.Spec.Role = "" }, cluster.ConditionInstanceProfileReady, "InstanceProfileNotReady", "neither role nor instanceProfile",
		},
		"a right that is missing": {
			func(w *world) {
				w.ec2.fail = map[string]error{"groups": &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "not for you"}}
			},
			cluster.ConditionSecurityGroupsReady, "Unauthorized", "not for you",
		},
		"a selector that EC2 cannot read": {
			func(w *world) {
				w.ec2.fail = map[string]error{"subnets": &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "no such filter"}}
			},
			cluster.ConditionSubnetsReady, "InvalidClass", "no such filter",
		},
		"a placement group that is gone": {
			func(w *world) {
				w.class.Spec.PlacementGroup = &cluster.SelectorTerm{Name: "close"}
				w.ec2.fail = map[string]error{"placement": &smithy.GenericAPIError{Code: "InvalidPlacementGroup.Unknown"}}
			},
			cluster.ConditionPlacementGroupReady, "PlacementGroupNotFound", "no placement group matches name close",
		},
		"a placement group that is going": {
			func(w *world) {
				w.class.Spec.PlacementGroup = &cluster.SelectorTerm{ID: "pg-1"}
				w.ec2.placement = []types.PlacementGroup{{GroupName: aws.String("close"), State: "deleting"}}
			},
			cluster.ConditionPlacementGroupReady, "PlacementGroupNotFound", "placement group close is deleting",
		},
		"a service CIDR that nobody knows": {
			func(w *world) { w.facts.ServiceCIDR = "" }, cluster.ConditionValidationSucceeded, "ClusterCIDRResolutionFailed", "service CIDR",
		},
		"a reserved tag": {
			func(w *world) { w.class.Spec.Tags = map[string]string{"kubernetes.io/cluster/demo": "owned"} },
			cluster.ConditionValidationSucceeded, "TagValidationFailed", `tag "kubernetes.io/cluster/demo" is reserved`,
		},
		"user data that cannot be merged": {
			func(w *world) { w.class.Spec.UserData = "MIME-Version: 1.0\n\nx" }, cluster.ConditionValidationSucceeded, "InvalidUserData", "content type",
		},
		"user data that is too long": {
			func(w *world) { w.class.Spec.UserData = strings.Repeat("x", 17000) }, cluster.ConditionValidationSucceeded,
			"UserDataSizeLimitExceeded", "EC2 takes 16384",
		},
		"a launch that is not allowed": {
			func(w *world) {
				w.ec2.fail = map[string]error{"run": &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "by policy. Encoded authorization failure message: x"}}
			},
			cluster.ConditionValidationSucceeded, "RunInstancesAuthCheckFailed", "denied: UnauthorizedOperation: by policy.",
		},
		"a launch that EC2 would refuse": {
			func(w *world) {
				w.ec2.fail = map[string]error{"run": &smithy.GenericAPIError{Code: "InvalidParameter", Message: "different networks"}}
			},
			cluster.ConditionValidationSucceeded, "RunInstancesCheckFailed", "different networks",
		},
		"a given profile that EC2 does not know": {
			func(w *world) {
				w.class.Spec.Role, w.class.Spec.InstanceProfile = "", "mine"
				w.ec2.fail = map[string]error{"run": &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "Invalid IAM Instance Profile name"}}
			},
			cluster.ConditionValidationSucceeded, "InstanceProfileNotFound", "instance profile mine does not exist",
		},
		"an object that cannot be understood": {
			func(w *world) { w.class.Invalid = "volumeSize: 3 elephants" }, cluster.ConditionValidationSucceeded, "InvalidClass", "3 elephants",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := found()
			tt.change(&w)
			got := w.resolve(t).Conditions
			one := got.Get(tt.condition)
			require.Equal(t, "False", one.Status)
			require.Equal(t, tt.reason, one.Reason)
			require.Contains(t, one.Message, tt.says)
			require.Equal(t, "False", got.Get(cluster.ConditionReady).Status)
			require.Contains(t, got.Get(cluster.ConditionReady).Message, tt.says)
			for _, kind := range allConditions {
				switch kind {
				case tt.condition, cluster.ConditionReady, cluster.ConditionValidationSucceeded:
				default:
					require.True(t, got.True(kind), "%s has nothing to do with it", kind)
				}
			}
		})
	}
}

func TestResolve_TellsTroubleOfAWSFromAnswers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world, error){
		"subnets":    func(w *world, err error) { w.ec2.fail = map[string]error{"subnets": err} },
		"dry run":    func(w *world, err error) { w.ec2.fail = map[string]error{"run": err} },
		"images":     func(w *world, err error) { w.ec2.fail = map[string]error{"images": err} },
		"parameters": func(w *world, err error) { w.parameters.fail = Classify(err) },
		"profiles":   func(w *world, err error) { w.profiles.fail = Classify(err) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{&smithy.GenericAPIError{Code: "RequestLimitExceeded"}, &smithy.GenericAPIError{Code: "InternalError"}, errors.New("connection refused")} {
				w := found()
				w.class.Status = cluster.NodeClassStatus{InstanceProfile: "as before"}
				change(&w, err)
				status, got := NewResolver(w.ec2, w.parameters, w.profiles).Resolve(t.Context(), w.class, w.facts)
				require.ErrorIs(t, got, err)
				require.Equal(t, w.class.Status, status, "what was known stays")
				require.Equal(t, err.Error() == "api error RequestLimitExceeded: ", errors.Is(got, ErrThrottled))
			}
		})
	}
}

func TestResolve_AsksEC2WhetherItWouldLaunch(t *testing.T) {
	t.Parallel()
	w := found()
	r := NewResolver(w.ec2, w.parameters, w.profiles)
	resolve := func() cluster.NodeClassStatus {
		status, err := r.Resolve(t.Context(), w.class, w.facts)
		require.NoError(t, err)
		w.class.Status = status
		return status
	}
	w.ec2.fail = map[string]error{"run": &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "Value (x) is invalid. Invalid IAM Instance Profile name"}}
	status := resolve()
	require.Equal(t, "Unknown", status.Conditions.Get(cluster.ConditionReady).Status, "a new profile takes EC2 some seconds to see")
	require.Contains(t, status.Conditions.Get(cluster.ConditionReady).Message, "does not see instance profile")
	w.ec2.fail = map[string]error{"run": &smithy.GenericAPIError{Code: "InsufficientInstanceCapacity"}}
	require.True(t, resolve().Conditions.True(cluster.ConditionReady), "that there is none of this type says nothing about the class")
	require.Len(t, w.ec2.dryRuns, 2)

	in := w.ec2.dryRuns[1]
	require.True(t, *in.DryRun)
	require.Equal(t, []string{"ami-arm", "m6g.large", "subnet-b", w.class.Status.InstanceProfile},
		[]string{*in.ImageId, string(in.InstanceType), *in.SubnetId, *in.IamInstanceProfile.Name})
	require.Equal(t, []string{"sg-1", "sg-2"}, in.SecurityGroupIds)
	require.Len(t, in.TagSpecifications, 3, "rights depend on tags")

	resolve()
	require.Len(t, w.ec2.dryRuns, 2, "what passed and did not change is not asked about again")
	w.class.Generation++
	resolve()
	require.Len(t, w.ec2.dryRuns, 3)
	w.class.Spec.Role = "OtherRole"
	resolve()
	require.Len(t, w.ec2.dryRuns, 4)
}

func TestResolve_Selectors(t *testing.T) {
	t.Parallel()
	w := found()
	w.class.Spec.SubnetSelectorTerms = []cluster.SelectorTerm{
		{ID: "subnet-1"}, {Tags: map[string]string{"b": "2", "a": "*"}}, {ID: "subnet-2"}, {Tags: map[string]string{"c": "3"}},
	}
	w.class.Spec.SecurityGroupSelectorTerms = []cluster.SelectorTerm{{Name: "nodes"}, {ID: "sg-1"}, {Name: "extra"}}
	w.class.Spec.AMISelectorTerms = []cluster.SelectorTerm{
		{ID: "ami-x86"}, {Name: "al2023-*"}, {Tags: map[string]string{"t": "v"}, Owner: "123456789012"}, {SSMParameter: "/my/image"}, {SSMParameter: "/lost"},
	}
	w.class.Spec.AMIFamily = "AL2023"
	w.class.Spec.ReservationSelectorTerms = []cluster.SelectorTerm{{ID: "cr-1"}, {Owner: "123456789012", InstanceMatchCriteria: "open"}, {ID: "cr-2"}}
	w.parameters.values["/my/image"] = "ami-arm"
	w.resolve(t)
	require.Equal(t, []string{
		"subnets tag-key=a tag:b=2", "subnets tag:c=3", "subnets subnet-id=subnet-1,subnet-2",
		"groups group-id=sg-1", "groups group-name=nodes,extra", "groups group-name=nodes,extra",
		"images self amazon name=al2023-*", "images 123456789012 tag:t=v", "images image-id=ami-x86,ami-arm", "images image-id=ami-x86,ami-arm",
		"reservations cr-1 state=active", "reservations state=active owner-id=123456789012 instance-match-criteria=open", "reservations cr-2 state=active",
	}, w.ec2.asked)
}

func TestResolve_ChoosesImages(t *testing.T) {
	t.Parallel()
	old := func(i *types.Image) { i.DeprecationTime = aws.String("2026-01-01T00:00:00Z") }
	later := func(i *types.Image) { i.DeprecationTime = aws.String("2036-01-01T00:00:00Z") }
	w := found()
	w.class.Spec.AMIFamily = "Custom"
	w.class.Spec.AMISelectorTerms = []cluster.SelectorTerm{{Tags: map[string]string{"mine": "*"}}}
	w.ec2.images = []types.Image{
		ami("ami-1", "b", "x86_64", "2026-03-01T00:00:00.000Z", later),
		ami("ami-2", "a", "x86_64", "2026-03-01T00:00:00.000Z"),
		ami("ami-3", "c", "x86_64", "2026-09-01T00:00:00.000Z", old),
		ami("ami-4", "d", "arm64", "2026-04-01T00:00:00.000Z", old),
		ami("ami-5", "e", "i386", "2026-10-01T00:00:00.000Z"),
		ami("ami-6", "f", "x86_64", "2026-11-01T00:00:00.000Z", func(i *types.Image) { i.State = types.ImageStatePending }),
	}
	for i := range w.ec2.images {
		w.ec2.images[i].Tags = tag("mine", "yes")
	}
	require.Equal(t, []cluster.AMI{
		{ID: "ami-4", Name: "d", Deprecated: true, Requirements: []cluster.Expression{in(cluster.LabelArch, "arm64")}},
		{ID: "ami-2", Name: "a", Requirements: []cluster.Expression{in(cluster.LabelArch, "amd64")}},
	}, w.resolve(t).AMIs)
}

func TestResolve_OneImageForTwoKindsOfTypes(t *testing.T) {
	t.Parallel()
	w := found()
	w.class.Spec.AMISelectorTerms[0].Alias = "bottlerocket@v1.50.0"
	w.parameters.values = map[string]string{"/aws/service/bottlerocket/aws-k8s-1.36/x86_64/1.50.0/image_id": "ami-x86"}
	require.Equal(t, []cluster.AMI{
		{ID: "ami-x86", Name: "al2023-x86", Requirements: standard("amd64")},
		{ID: "ami-x86", Name: "al2023-x86", Requirements: neuron()},
	}, w.resolve(t).AMIs)
}

func TestResolve_Reservations(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) *time.Time { return aws.Time(time.Unix(now+seconds, 0)) }
	w := found()
	w.class.Spec.ReservationSelectorTerms = []cluster.SelectorTerm{{Tags: map[string]string{"mine": "*"}}}
	w.ec2.reservations = []types.CapacityReservation{
		{CapacityReservationId: aws.String("cr-3"), EndDate: at(-1)},
		{
			CapacityReservationId: aws.String("cr-2"), InstanceType: aws.String("p5.48xlarge"), AvailabilityZone: aws.String("us-east-1a"),
			ReservationType: "capacity-block", EndDate: at(39 * 60), AvailableInstanceCount: aws.Int32(2), InstanceMatchCriteria: "targeted", OwnerId: aws.String("123456789012"),
		},
		{CapacityReservationId: aws.String("cr-1"), EndDate: at(60), Interruptible: aws.Bool(true)},
	}
	got := w.resolve(t)
	require.Equal(t, []cluster.Reservation{
		{ID: "cr-1", Kind: "default", State: "active", EndUnix: now + 60, Interruptible: true},
		{
			ID: "cr-2", InstanceType: "p5.48xlarge", Zone: "us-east-1a", MatchCriteria: "targeted", OwnerID: "123456789012", Kind: "capacity-block",
			State: "expiring", EndUnix: now + 39*60, Available: 2,
		},
	}, got.Reservations)
	require.True(t, got.Conditions.True(cluster.ConditionReady))
}

func TestResolve_GivenProfileMakesNoCall(t *testing.T) {
	t.Parallel()
	w := found()
	w.class.Spec.Role, w.class.Spec.InstanceProfile = "", "mine"
	require.Equal(t, "mine", w.resolve(t).InstanceProfile)
	require.Zero(t, w.profiles.ensures)
}

func TestVariants_ParametersOfEachFamily(t *testing.T) {
	t.Parallel()
	for alias, want := range map[string]string{
		"AL2 latest":           "/aws/service/eks/optimized-ami/1.30/amazon-linux-2-gpu/recommended/image_id",
		"AL2 v20260601":        "/aws/service/eks/optimized-ami/1.30/amazon-linux-2-arm64/amazon-eks-arm64-node-1.30-v20260601/image_id",
		"AL2023 latest":        ssm("arm64/nvidia/recommended"),
		"AL2023 v20260601":     ssm("x86_64/neuron/amazon-eks-node-al2023-x86_64-neuron-1.30-v20260601"),
		"Bottlerocket latest":  "/aws/service/bottlerocket/aws-k8s-1.30-nvidia/arm64/latest/image_id",
		"Bottlerocket v1.50.0": "/aws/service/bottlerocket/aws-k8s-1.30/x86_64/1.50.0/image_id",
		"Windows2019 latest":   "/aws/service/ami-windows-latest/Windows_Server-2019-English-Core-EKS_Optimized-1.30/image_id",
		"Windows2022 latest":   "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.30/image_id",
		"Windows2025 latest":   "/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-1.30/image_id",
	} {
		name, version, _ := strings.Cut(alias, " ")
		var got []string
		for _, v := range parseFamily(name).variants("1.30", version) {
			got = append(got, v.parameter)
		}
		require.Contains(t, got, want, alias)
	}
	require.Empty(t, custom.variants("1.30", "latest"))
}

func ssm(tail string) string {
	return "/aws/service/eks/optimized-ami/1.30/amazon-linux-2023/" + tail + "/image_id"
}
