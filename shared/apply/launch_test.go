package apply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/plan"
)

func TestNodeClaim_CarriesWhatItsNodeAndItsLaunchNeed(t *testing.T) {
	t.Parallel()
	grace := int64(60)
	p := pool
	p.Template = cluster.NodeTemplate{
		Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"}, NodeClass: "default",
		Taints:        []cluster.Taint{{Key: "gpu", Effect: cluster.NoSchedule}},
		StartupTaints: []cluster.Taint{{Key: "cni", Effect: cluster.NoExecute}}, ExpireAfterSeconds: 720, TerminationGracePeriodSeconds: &grace,
	}
	launch := launchOf("g")
	c := plan.Claim{
		NodePool: "general", MinValuesRelaxed: true, Pods: []cluster.PodRef{{UID: "u1"}, {UID: "u2"}},
		Requirements: []cluster.Expression{
			{Key: cluster.LabelArch, Operator: cluster.In, Values: []string{"arm64"}},
			{Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"us-east-1a", "us-east-1b"}},
		},
	}
	got := apply.NodeClaim(&p, &class, c, launch)
	require.Equal(t, map[string]string{
		"team": "a", cluster.LabelArch: "arm64", cluster.LabelNodePool: "general", cluster.LabelNodeClass: "default",
	}, got.Labels, "only what is certain becomes a label")
	require.Equal(t, map[string]string{
		"note": "b", cluster.AnnotationNodePoolHash: "1", cluster.AnnotationNodePoolHashVersion: cluster.HashVersionNodePool,
		cluster.AnnotationNodeClassHash: "2", cluster.AnnotationNodeClassHashVersion: cluster.HashVersionNodeClass,
		cluster.AnnotationLaunch: launch.Annotation(), cluster.AnnotationPlanned: "u1,u2", cluster.AnnotationMinValuesRelaxed: "true",
	}, got.Annotations)
	require.Equal(t, []string{cluster.FinalizerTermination}, got.Finalizers, "before any call that costs money (L-001)")
	require.Equal(t, cluster.Owner{Kind: "NodePool", Name: "general", UID: "pool-uid"}, got.OwnerPool)
	require.Equal(t, p.Template.Taints, got.Taints)
	require.Equal(t, p.Template.StartupTaints, got.StartupTaints)
	require.Equal(t, int64(720), got.ExpireAfterSeconds)
	require.Equal(t, &grace, got.TerminationGracePeriodSeconds)
	require.Equal(t, map[string]string{"team": "a"}, p.Template.Labels, "the pool is not written to")
}

func TestClaimName_IsAKubernetesNameThatRepeats(t *testing.T) {
	t.Parallel()
	first := apply.ClaimName("general", "g", 1, 0)
	require.Equal(t, first, apply.ClaimName("general", "g", 1, 0))
	seen := map[string]bool{}
	for n := range 100 {
		for try := range 2 {
			name := apply.ClaimName("general", "g", n, try)
			require.Regexp(t, `^general-[a-z0-9]{5}$`, name)
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
}

// failing refuses to write the claims that it is told to.
type failing struct {
	*simtest.World
	create func(name string) error
}

func (f failing) CreateNodeClaim(ctx context.Context, c cluster.NodeClaim) (cluster.NodeClaim, error) {
	if err := f.create(c.Name); err != nil {
		return cluster.NodeClaim{}, err
	}
	return f.World.CreateNodeClaim(ctx, c)
}

func TestCreate(t *testing.T) {
	t.Parallel()
	taken := apply.ClaimName("general", "g", 1, 0)
	for name, tt := range map[string]struct {
		create func(string) error
		made   int
		err    error
	}{
		"every claim is written": {func(string) error { return nil }, 3, nil},
		"a name that is taken is left to its owner and another one chosen": {func(n string) error {
			if n == taken {
				return plan.ErrExists
			}
			return nil
		}, 3, nil},
		"a claim that cannot be written does not take the others with it": {func(n string) error {
			if n == taken {
				return plan.ErrDenied
			}
			return nil
		}, 2, plan.ErrDenied},
		"names that are all taken are an error and not a loop": {func(string) error { return plan.ErrExists }, 0, plan.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := simtest.New(start)
			made, err := apply.Create(t.Context(), failing{w, tt.create}, "g", wants(3, launchOf("g")))
			require.ErrorIs(t, err, tt.err)
			require.Len(t, made, tt.made)
			require.Len(t, w.Claims, tt.made)
			for _, c := range made {
				require.NotEmpty(t, c.UID)
			}
		})
	}
}

// fleet answers every launch with the next of its answers, the last for ever.
type fleet struct {
	answers []answer
	tokens  []string
}

type answer struct {
	res plan.Result
	err error
}

func (f *fleet) Launch(_ context.Context, r plan.Request) (plan.Result, error) {
	f.tokens = append(f.tokens, r.Token)
	one := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	return one.res, one.err
}

func instance(id string) cluster.Instance {
	return cluster.Instance{ID: cluster.InstanceID(id), Type: "m5.large", Zone: "us-east-1a", CapacityType: cluster.Spot, ImageID: "ami-1"}
}

func TestLaunch_EndsWhatIsDeniedAndWantedByNobody(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ deleted, stand int }{
		"all claims are being deleted: they go":          {2, 0},
		"one is still wanted: the token needs them both": {1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := simtest.New(start)
			made, err := apply.Create(t.Context(), w, "g", wants(2, launchOf("g")))
			require.NoError(t, err)
			for i := range tt.deleted {
				require.NoError(t, w.DeleteNodeClaim(t.Context(), made[i].Name, made[i].UID))
			}
			for i := range made {
				made[i] = *w.Claims[made[i].Name]
			}
			l := launcher(w)
			l.Fleet = &fleet{answers: []answer{{plan.Result{}, plan.ErrInvalid}}}
			_, err = l.Launch(t.Context(), order(plan.Groups(made)[0]))
			require.ErrorIs(t, err, plan.ErrInvalid)
			require.Len(t, w.Claims, tt.stand)
		})
	}
}

func TestLaunch(t *testing.T) {
	t.Parallel()
	soldOut := []plan.Refusal{{InstanceType: "m5.large", Zone: "us-east-1a", Code: "InsufficientInstanceCapacity", Message: "sold out", Kind: plan.RefusedCapacity}}
	lost := errors.New("connection reset")
	for name, tt := range map[string]struct {
		answers  []answer
		calls    int
		launched int    // claims with an instance
		gone     int    // claims that were given up
		reason   string // of Launched, in the claims that stand without an instance
		err      error
		events   int
	}{
		"as many instances as claims: each claim gets its own": {
			answers: []answer{{plan.Result{Instances: []cluster.Instance{instance("i-2"), instance("i-1")}}, nil}}, calls: 1, launched: 2,
		},
		"fewer instances than claims: the rest is given up, with an Event": {
			answers: []answer{{plan.Result{Instances: []cluster.Instance{instance("i-1")}, Refusals: soldOut}, nil}}, calls: 1, launched: 1, gone: 1, events: 1,
		},
		"more instances than claims: every claim is served": {
			answers: []answer{{plan.Result{Instances: []cluster.Instance{instance("i-1"), instance("i-2"), instance("i-3")}}, nil}}, calls: 1, launched: 2,
		},
		"no capacity is no error, and no claim stays": {
			answers: []answer{{plan.Result{Refusals: soldOut}, plan.ErrNoCapacity}}, calls: 1, gone: 2, events: 2,
		},
		"a throttle leaves the claims for the next look (R1)": {
			answers: []answer{{plan.Result{}, plan.ErrThrottled}}, calls: 1, err: plan.ErrThrottled,
		},
		"a lost answer is asked for again with the same token": {
			answers: []answer{{plan.Result{}, lost}, {plan.Result{Instances: []cluster.Instance{instance("i-1"), instance("i-2")}}, nil}}, calls: 2, launched: 2,
		},
		"an answer that stays lost leaves the claims for the next look": {
			answers: []answer{{plan.Result{}, lost}}, calls: 3, err: lost,
		},
		"a denial is explained in the claims, which stand (L-060)": {
			answers: []answer{{plan.Result{}, plan.ErrDenied}}, calls: 1, err: plan.ErrDenied, reason: "LaunchFailed", events: 2,
		},
		"a template that is gone ends the claims, so that the next plan makes another": {
			answers: []answer{{plan.Result{}, plan.ErrNotFound}}, calls: 1, err: plan.ErrNotFound, gone: 2, events: 2,
		},
		"a token used for another request ends the claims (R18)": {
			answers: []answer{{plan.Result{}, plan.ErrMismatch}}, calls: 1, err: plan.ErrMismatch, gone: 2, events: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := simtest.New(start)
			made, err := apply.Create(t.Context(), w, "g", wants(2, launchOf("g")))
			require.NoError(t, err)
			l, f := launcher(w), &fleet{answers: tt.answers}
			l.Fleet = f
			_, err = l.Launch(t.Context(), order(plan.Groups(made)[0]))
			require.ErrorIs(t, err, tt.err)
			require.Len(t, f.tokens, tt.calls)
			require.Len(t, w.Events, tt.events)
			require.Len(t, w.Claims, 2-tt.gone)
			launched := map[string]bool{}
			for _, c := range w.Claims {
				require.Equal(t, f.tokens[0], f.tokens[len(f.tokens)-1])
				if c.ProviderID == "" {
					require.Equal(t, tt.reason, c.Conditions.Get(cluster.ConditionLaunched).Reason)
					continue
				}
				launched[c.ProviderID] = true
				require.Equal(t, "m5.large", c.Labels[cluster.LabelInstanceType])
				require.Equal(t, "us-east-1a", c.Labels[cluster.LabelZone])
				require.Equal(t, "spot", c.Labels[cluster.LabelCapacityType])
				require.Equal(t, "profile", c.Annotations[cluster.AnnotationInstanceProfile])
				require.Equal(t, "ami-1", c.ImageID)
				require.True(t, c.Conditions.True(cluster.ConditionLaunched))
				require.Equal(t, "Unknown", c.Conditions.Get(cluster.ConditionReady).Status)
			}
			require.Len(t, launched, tt.launched)
		})
	}
}

func TestLaunch_WritesWhatTheCatalogueKnows(t *testing.T) {
	t.Parallel()
	w := simtest.New(start)
	made, err := apply.Create(t.Context(), w, "g", wants(1, launchOf("g")))
	require.NoError(t, err)
	o := order(plan.Groups(made)[0])
	o.Type = func(name string) *cluster.InstanceType {
		require.Equal(t, "m5.large", name)
		return &cluster.InstanceType{
			Labels: map[string]string{"karpenter.k8s.aws/instance-family": "m5"}, Capacity: cluster.Resources{MilliCPU: 2000},
			Allocatable: cluster.Resources{MilliCPU: 1930},
			Offerings:   []cluster.Offering{{Zone: "us-east-1b", ZoneID: "use1-az2"}, {Zone: "us-east-1a", ZoneID: "use1-az1"}},
		}
	}
	_, err = launcher(w).Launch(t.Context(), o)
	require.NoError(t, err)
	c := w.Claims[made[0].Name]
	require.Equal(t, "m5", c.Labels["karpenter.k8s.aws/instance-family"])
	require.Equal(t, "use1-az1", c.Labels[cluster.LabelZoneID])
	require.Equal(t, int64(2000), c.Capacity.MilliCPU)
	require.Equal(t, int64(1930), c.Allocatable.MilliCPU)
	require.Equal(t, []string{
		"create nodeclaim " + c.Name, "launch g", "patch nodeclaim " + c.Name, "patch status of nodeclaim " + c.Name,
	}, w.Writes, "intent, call, labels, and last the provider id")
}

func TestLaunch_NamesEachRefusalOnce(t *testing.T) {
	t.Parallel()
	w := simtest.New(start)
	made, err := apply.Create(t.Context(), w, "g", wants(1, launchOf("g")))
	require.NoError(t, err)
	var refusals []plan.Refusal
	for n := range 9 {
		refusals = append(refusals, plan.Refusal{Code: fmt.Sprintf("Code%d", n), Message: "m"}, plan.Refusal{Code: fmt.Sprintf("Code%d", n), Message: "m"})
	}
	l := launcher(w)
	l.Fleet = &fleet{answers: []answer{{plan.Result{Refusals: refusals}, plan.ErrNoCapacity}}}
	_, err = l.Launch(t.Context(), order(plan.Groups(made)[0]))
	require.NoError(t, err)
	require.Equal(t, "InsufficientCapacityError", w.Events[0].Reason)
	require.Equal(t, "Code0: m (2 offerings); Code1: m (2 offerings); Code2: m (2 offerings); Code3: m (2 offerings); Code4: m (2 offerings); and 4 more", w.Events[0].Note)
}
