package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

func launch(group string) plan.Launch {
	return plan.Launch{Group: group, CapacityType: cluster.Spot, Configs: []plan.LaunchConfig{{
		Template: "lt", Overrides: []plan.Override{{InstanceType: "m5.large", SubnetID: "subnet-1", Zone: "us-east-1a", PriceMicroUSDPerHour: 5}},
	}}}
}

func claim(name, uid, group string) cluster.NodeClaim {
	return cluster.NodeClaim{Name: name, UID: uid, Annotations: map[string]string{cluster.AnnotationLaunch: launch(group).Annotation()}}
}

func TestLaunchOf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		annotation string
		ok         bool
	}{
		"what Annotation wrote is read back":               {launch("g").Annotation(), true},
		"a claim without a launch has none":                {"", false},
		"an annotation that somebody broke counts as none": {`{"group":`, false},
		"a launch without a group counts as none":          {`{"capacityType":"spot"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := plan.LaunchOf(&cluster.NodeClaim{Annotations: map[string]string{cluster.AnnotationLaunch: tt.annotation}})
			require.Equal(t, tt.ok, ok)
			if ok {
				require.Equal(t, launch("g"), got)
			}
		})
	}
}

func TestToken_ChangesWithTheRequestAndItsClaimsOnly(t *testing.T) {
	t.Parallel()
	token := launch("g").Token([]string{"a", "b"})
	require.Regexp(t, `^[0-9a-f]{64}$`, token, "EC2 takes 64 characters at most")
	require.Equal(t, token, launch("g").Token([]string{"b", "a"}))
	require.NotEqual(t, token, launch("g").Token([]string{"a"}))
	require.NotEqual(t, token, launch("h").Token([]string{"a", "b"}))
	dearer := launch("g")
	dearer.Configs[0].Overrides[0].PriceMicroUSDPerHour++
	require.NotEqual(t, token, dearer.Token([]string{"a", "b"}), "new parameters, new token (R18)")
}

func TestGroups_GathersClaimsOfOneLaunch(t *testing.T) {
	t.Parallel()
	claims := []cluster.NodeClaim{claim("a", "1", "g"), claim("b", "2", "h"), {Name: "by a user", UID: "3"}, claim("c", "4", "g")}
	claims[0].ProviderID = "aws:///us-east-1a/i-1"
	claims[1].Conditions = cluster.Conditions{{Type: cluster.ConditionLaunched, Status: "False"}}
	claims[3].DeletionUnix = 7

	groups := plan.Groups(claims)
	require.Len(t, groups, 2)
	require.Equal(t, "g", groups[0].Launch.Group)
	require.Equal(t, []*cluster.NodeClaim{&claims[0], &claims[3]}, groups[0].Claims)
	require.Equal(t, launch("g").Token([]string{"1", "4"}), groups[0].Token, "launched or not, a claim is part of the token")
	require.Equal(t, []*cluster.NodeClaim{&claims[3]}, groups[0].Open(), "a deleted claim's instance may exist")
	require.Empty(t, groups[1].Open(), "what was refused is at its end")
}

func TestGroups_TokenDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		uids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-f0-9]{4}`), 1, 6, rapid.ID).Draw(t, "uids")
		var claims []cluster.NodeClaim
		for _, uid := range uids {
			claims = append(claims, claim("c-"+uid, uid, "g"))
		}
		want := plan.Groups(claims)[0].Token
		require.Equal(t, want, plan.Groups(rapid.Permutation(claims).Draw(t, "order"))[0].Token)
		if len(claims) > 1 {
			require.NotEqual(t, want, plan.Groups(claims[1:])[0].Token)
		}
	})
}

func TestDecision_MergeKeepsTheEarliestLook(t *testing.T) {
	t.Parallel()
	d := plan.Decision{NextUnix: 50, Moves: []plan.Move{{Reason: "a"}}}
	d.Merge(plan.Decision{NextUnix: 40, Waiting: true, Moves: []plan.Move{{Reason: "b"}}})
	d.Merge(plan.Decision{})
	require.Equal(t, plan.Decision{NextUnix: 40, Waiting: true, Moves: []plan.Move{{Reason: "a"}, {Reason: "b"}}}, d)
	d.Again(60)
	require.Equal(t, int64(40), d.NextUnix)
	d.Again(0)
	require.Equal(t, int64(40), d.NextUnix)
	d.Again(30)
	require.Equal(t, int64(30), d.NextUnix)
}

func TestEvents_NameWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	require.Equal(t, plan.Event{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "c", UID: "u", Reason: "R", Warning: true, Note: "n"},
		plan.ClaimEvent(&cluster.NodeClaim{Name: "c", UID: "u"}, "R", true, "n"))
	require.Equal(t, plan.Event{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n", Reason: "R", Note: "x"},
		plan.NodeEvent(&cluster.Node{Name: "n", UID: "u"}, "R", false, "x"), "kubectl describe looks for the name as the uid")
	require.Equal(t, plan.Event{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "p", UID: "u", Reason: "R", Note: "x"},
		plan.PodEvent(cluster.PodRef{Namespace: "ns", Name: "p", UID: "u"}, "R", false, "x"))
	require.Equal(t, plan.Event{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: "p", UID: "u", Reason: "R", Note: "x"},
		plan.PoolEvent(&cluster.NodePool{Name: "p", UID: "u"}, "R", false, "x"))
}
