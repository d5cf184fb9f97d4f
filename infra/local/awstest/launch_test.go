package awstest

import (
	"encoding/base64"
	"fmt"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
	"treadle/shared/catalog"
	"treadle/shared/cluster"
	"treadle/shared/nodeclass"
	"treadle/shared/plan"
)

var (
	once   sync.Once
	shared catalog.Catalog
)

// instanceTypes returns the types as class sees them. The catalogue is the same in every world, so it is read once.
func instanceTypes(t testing.TB, w *world, class cluster.NodeClass) []cluster.InstanceType {
	t.Helper()
	once.Do(func() { shared = w.catalogue(t) })
	return catalog.InstanceTypes(shared, class, catalog.Options{})
}

func idsOf(all []cluster.Instance) []cluster.InstanceID {
	out := make([]cluster.InstanceID, len(all))
	for i := range all {
		out[i] = all[i].ID
	}
	return out
}

func TestClassToInstanceAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	require.True(t, class.Status.Conditions.True(cluster.ConditionReady), "%+v", class.Status.Conditions)
	require.Len(t, class.Status.Subnets, 3)
	o := w.order(class, instanceTypes(t, w, class), 3, cluster.Spot, "m5.large", "m6i.large", "c5.xlarge", "m7g.large")
	w.ec2.Calls().Reset()

	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 3, ready.Count)
	res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
	require.NoError(t, err)
	require.Len(t, res.Instances, 3)
	require.Empty(t, res.Refusals)

	found, err := w.fleet.Describe(t.Context(), idsOf(res.Instances)...)
	require.NoError(t, err)
	require.Len(t, found, 3)
	for i, one := range found {
		from := res.Instances[i]
		require.Equal(t, []any{from.ID, from.Type, from.Zone, from.SubnetID, from.ImageID, cluster.Spot}, []any{one.ID, one.Type, one.Zone, one.SubnetID, one.ImageID, one.CapacityType})
		require.Equal(t, "owned", one.Tags["kubernetes.io/cluster/demo"])
		require.Equal(t, "web", one.Tags[cluster.LabelNodePool])
		require.Equal(t, "token-1", one.Tags[cluster.TagLaunch])
	}
	require.Equal(t, map[string]int{"CreateLaunchTemplate": 3, "CreateFleet": 1, "DescribeInstances": 1}, w.ec2.Calls().Counts(),
		"two architectures and another pod limit make three templates; the describe is this test's")

	listed, err := w.fleet.List(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, idsOf(res.Instances), idsOf(listed))
	require.NoError(t, w.fleet.Tag(t.Context(), res.Instances[0].ID, map[string]string{"karpenter.sh/nodeclaim": "web-1"}))
	require.NoError(t, w.fleet.Terminate(t.Context(), append(idsOf(res.Instances), "i-0123456789abcdef0")...))
	gone, err := w.fleet.Describe(t.Context(), idsOf(res.Instances)...)
	require.NoError(t, err)
	for _, one := range gone {
		require.NotEqual(t, cluster.InstanceRunning, one.State)
		require.NotEmpty(t, one.StateReason)
	}
	require.NoError(t, w.templates.Delete(t.Context(), "demo", "default"))
	left, err := w.client.DescribeLaunchTemplates(t.Context(), &awsec2.DescribeLaunchTemplatesInput{})
	require.NoError(t, err)
	require.Empty(t, left.LaunchTemplates)
}

func TestLaunch_RepeatedTokenStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 2, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	req := request(o, ready, "token-1")

	w.breaks(t, fault.Rule{Kind: fault.LostReply, Actions: []string{"CreateFleet"}, Times: 1})
	first, err := w.fleet.Launch(t.Context(), req)
	require.NoError(t, err, "a lost answer is asked for again, under the same token")
	again, err := w.fleet.Launch(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Len(t, w.ec2.Instances(), 2)
	require.Empty(t, w.ec2.Calls().TokensOfSeveralLaunches())

	req.Count = 3
	_, err = w.fleet.Launch(t.Context(), req)
	require.ErrorIs(t, err, plan.ErrMismatch, "another request needs another token (D18)")
	require.Len(t, w.ec2.Instances(), 2)
}

func TestLaunch_Trouble(t *testing.T) {
	t.Parallel()
	none := 0
	for name, tt := range map[string]struct {
		rule  fault.Rule
		want  error
		kind  plan.RefusalKind
		names bool // each refusal names its offering
	}{
		"no capacity":             {fault.Rule{Kind: fault.NoCapacity, Stock: &none}, plan.ErrNoCapacity, plan.RefusedCapacity, true},
		"no capacity, unnamed":    {fault.Rule{Kind: fault.NoCapacity, Stock: &none, Code: "UnfulfillableCapacity", Unnamed: true}, plan.ErrNoCapacity, plan.RefusedCapacity, false},
		"a used up quota":         {fault.Rule{Kind: fault.NoCapacity, Stock: &none, Code: "MaxSpotInstanceCountExceeded"}, plan.ErrQuota, plan.RefusedQuota, true},
		"throttled":               {fault.Rule{Kind: fault.Throttle, Actions: []string{"CreateFleet"}, Times: 1}, plan.ErrThrottled, "", false},
		"denied":                  {fault.Rule{Kind: fault.Deny, Actions: []string{"CreateFleet"}}, plan.ErrDenied, "", false},
		"a template that is gone": {fault.Rule{Kind: fault.TemplateNotFound}, plan.ErrNotFound, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			class := w.class(t)
			o := w.order(class, instanceTypes(t, w, class), 1, cluster.Spot, "m5.large")
			ready, err := w.templates.Prepare(t.Context(), o)
			require.NoError(t, err)
			w.breaks(t, tt.rule)
			res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
			require.ErrorIs(t, err, tt.want)
			require.NotEmpty(t, w.ec2.Faults().Fired(), "the fault has to have happened")
			require.Empty(t, res.Instances)
			for _, r := range res.Refusals {
				if tt.kind != "" {
					require.Equal(t, tt.kind, r.Kind)
				}
				require.Equal(t, tt.names, r.InstanceType != "" && r.Zone != "" && r.SubnetID != "")
			}
			if tt.kind != "" {
				require.NotEmpty(t, res.Refusals)
			}
		})
	}
}

// TestLaunch_CallsForAThousandNodes holds how many calls a thousand launches cost: warm, ten plans of a hundred equal claims.
func TestLaunch_CallsForAThousandNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 100, cluster.Spot, "m5.large", "m6i.large", "c5.xlarge", "m7g.large", "r5.2xlarge")
	w.ec2.Calls().Reset()
	launched := 0
	for n := range 10 {
		ready, err := w.templates.Prepare(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, 100, ready.Count)
		res, err := w.fleet.Launch(t.Context(), request(o, ready, fmt.Sprintf("token-%d", n)))
		require.NoError(t, err)
		ready.Settle(o.Addresses, res.Instances)
		launched += len(res.Instances)
	}
	require.Equal(t, 1000, launched)
	require.Equal(t, map[string]int{"CreateLaunchTemplate": 3, "CreateFleet": 10}, w.ec2.Calls().Counts(), "two of the five types share a template, and so do two more")
}

func TestLaunch_TakesWhatThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 5, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	one, none := 1, 0
	w.breaks(t,
		fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Zone: "us-east-1a"}, Stock: &one},
		fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Zone: "us-east-1b"}, Stock: &one},
		fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Zone: "us-east-1c"}, Stock: &none})
	res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
	require.NoError(t, err)
	require.Len(t, res.Instances, 2)
	require.NotEmpty(t, res.Refusals)
}

func TestTerminate_DeniedForWhatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 1, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
	require.NoError(t, err)
	w.breaks(t, fault.Rule{Kind: fault.Deny, Actions: []string{"TerminateInstances"}, UnlessTag: cluster.LabelNodePool})
	require.NoError(t, w.fleet.Terminate(t.Context(), "i-0123456789abcdef0"), "D19")
	require.NoError(t, w.fleet.Terminate(t.Context(), "i-0123456789abcdef0", res.Instances[0].ID))
	found, err := w.fleet.Describe(t.Context(), res.Instances[0].ID)
	require.NoError(t, err)
	require.NotEqual(t, cluster.InstanceRunning, found[0].State)
}

func TestDescribe_InstancesThatAreSeenLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 2, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	w.breaks(t, fault.Rule{Kind: fault.Late, Delay: fault.Duration(1 << 40), Actions: []string{"DescribeInstances"}})
	res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
	require.NoError(t, err)
	found, err := w.fleet.Describe(t.Context(), idsOf(res.Instances)...)
	require.NoError(t, err)
	require.Empty(t, found, "not there yet is no error")
}

func TestUserData_ReachesTheInstanceOfEachFamily(t *testing.T) {
	t.Parallel()
	for alias, part := range map[string]string{
		"al2023@latest": "kind: NodeConfig", "bottlerocket@latest": "[settings.kubernetes]", "windows2022@latest": "Start-EKSBootstrap",
	} {
		t.Run(alias, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			class := w.class(t, func(s *cluster.NodeClassSpec) { s.AMISelectorTerms[0].Alias = alias })
			require.True(t, class.Status.Conditions.True(cluster.ConditionReady), "%+v", class.Status.Conditions)
			o := w.order(class, instanceTypes(t, w, class), 1, cluster.OnDemand, "m5.large")
			ready, err := w.templates.Prepare(t.Context(), o)
			require.NoError(t, err)
			res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
			require.NoError(t, err)
			var born ec2.Instance
			for _, i := range w.ec2.Instances() {
				if i.ID == string(res.Instances[0].ID) {
					born = i
				}
			}
			require.Contains(t, string(born.UserData), part)
		})
	}
}

func TestReservations_AreUsedByThoseThatAreMeant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.ec2.AddCapacityReservation(ec2.CapacityReservation{Type: "m5.large", Zone: "us-east-1a", Count: 2, Tags: map[string]string{"mine": "yes"}, Targeted: true})
	require.NoError(t, err)
	class := w.class(t, func(s *cluster.NodeClassSpec) {
		s.ReservationSelectorTerms = []cluster.SelectorTerm{{Tags: map[string]string{"mine": "*"}}}
	})
	require.Len(t, class.Status.Reservations, 1)
	require.Equal(t, 2, class.Status.Reservations[0].Available)
	types := instanceTypes(t, w, class)
	o := w.order(class, types, 1, cluster.Reserved, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
	require.NoError(t, err)
	found, err := w.fleet.Describe(t.Context(), idsOf(res.Instances)...)
	require.NoError(t, err)
	require.Equal(t, cluster.Reserved, found[0].CapacityType)
	require.Equal(t, 1, w.class(t, func(s *cluster.NodeClassSpec) {
		s.ReservationSelectorTerms = class.Spec.ReservationSelectorTerms
	}).Status.Reservations[0].Available)
}

func TestProfile_IsMadeForARoleAndGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	byRole := func(s *cluster.NodeClassSpec) { s.InstanceProfile, s.Role = "", "KarpenterNodeRole-demo" }
	class := w.class(t, byRole)
	require.True(t, class.Status.Conditions.True(cluster.ConditionInstanceProfileReady), "%+v", class.Status.Conditions)
	names, err := w.signed.ListProfiles(t.Context(), "/karpenter/us-east-1/demo/")
	require.NoError(t, err)
	require.Equal(t, []string{class.Status.InstanceProfile}, names)
	cold := nodeclass.NewResolver(w.client, w.signed, w.signed)
	again, err := cold.Resolve(t.Context(), class, w.facts)
	require.NoError(t, err)
	require.Equal(t, class.Status.InstanceProfile, again.InstanceProfile, "a cold function finds what another made")
	require.NoError(t, cold.Release(t.Context(), class, w.facts))
	names, err = w.signed.ListProfiles(t.Context(), "/karpenter/us-east-1/demo/")
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestTemplate_IsWhatEC2Reads holds that a template comes out of the wire as it went in.
func TestTemplate_IsWhatEC2Reads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 1, cluster.Spot, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	out, err := w.client.DescribeLaunchTemplateVersions(t.Context(), &awsec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateName: sdk.String(ready.Configs[0].Template), Versions: []string{"$Latest"},
	})
	require.NoError(t, err)
	data := out.LaunchTemplateVersions[0].LaunchTemplateData
	text, err := base64.StdEncoding.DecodeString(*data.UserData)
	require.NoError(t, err)
	require.Contains(t, string(text), "maxPods: 29")
	require.Equal(t, types.LaunchTemplateHttpTokensStateRequired, data.MetadataOptions.HttpTokens)
	require.Equal(t, "nodes", *data.IamInstanceProfile.Name)
}

func TestResolve_LearnsFromADryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks(t, fault.Rule{ID: "deny", Kind: fault.Deny, Actions: []string{"RunInstances"}})
	valid := w.class(t).Status.Conditions.Get(cluster.ConditionValidationSucceeded)
	require.Equal(t, []string{"False", "RunInstancesAuthCheckFailed"}, []string{valid.Status, valid.Reason}, valid.Message)
	w.ec2.Faults().Remove("deny")
	class := w.class(t)
	require.True(t, class.Status.Conditions.True(cluster.ConditionReady), "%+v", class.Status.Conditions)
	require.Empty(t, w.ec2.Instances(), "nothing was launched")
}

func TestProfile_OfAFormerRoleIsCollected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.iam.AddRole("another", "", "")
	byRole := func(role string) string {
		return w.class(t, func(s *cluster.NodeClassSpec) { s.InstanceProfile, s.Role = "", role }).Status.InstanceProfile
	}
	former, latter := byRole("KarpenterNodeRole-demo"), byRole("another")
	require.NotEqual(t, former, latter)
	require.NoError(t, w.resolver.Collect(t.Context(), w.facts, func(name string) bool { return name == former }))
	names, err := w.signed.ListProfiles(t.Context(), "/karpenter/us-east-1/demo/")
	require.NoError(t, err)
	require.Equal(t, []string{latter}, names)
	require.Equal(t, former, byRole("KarpenterNodeRole-demo"))
	names, err = w.signed.ListProfiles(t.Context(), "/karpenter/us-east-1/demo/")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{former, latter}, names, "a role that comes back gets its profile back")
}
