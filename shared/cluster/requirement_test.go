package cluster_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"treadle/shared/cluster"
)

func expression(key string, op cluster.Operator, values ...string) cluster.Expression {
	return cluster.Expression{Key: key, Operator: op, Values: values}
}

func TestRequirement_Has(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expressions []cluster.Expression
		yes, no     []string
		absent      bool
	}{
		"In allows what it lists":                     {[]cluster.Expression{expression("k", cluster.In, "a", "b")}, []string{"a", "b"}, []string{"c", ""}, false},
		"NotIn allows all else and a missing label":   {[]cluster.Expression{expression("k", cluster.NotIn, "a")}, []string{"b", "1"}, []string{"a"}, true},
		"Exists allows any value":                     {[]cluster.Expression{expression("k", cluster.Exists)}, []string{"a", ""}, nil, false},
		"DoesNotExist allows no value":                {[]cluster.Expression{expression("k", cluster.DoesNotExist)}, nil, []string{"a"}, true},
		"Gt is strict and takes integers only":        {[]cluster.Expression{expression("k", cluster.Gt, "4")}, []string{"5", "100"}, []string{"4", "5.5", "x", ""}, false},
		"Lte includes its bound":                      {[]cluster.Expression{expression("k", cluster.Lte, "4")}, []string{"4", "-3"}, []string{"5"}, false},
		"Gt of the largest integer allows nothing":    {[]cluster.Expression{expression("k", cluster.Gt, strconv.Itoa(math.MaxInt64))}, nil, []string{"1"}, false},
		"a bound that is no integer allows nothing":   {[]cluster.Expression{expression("k", cluster.Gt, "many")}, nil, []string{"1"}, false},
		"two bounds leave a range":                    {[]cluster.Expression{expression("k", cluster.Gt, "2"), expression("k", cluster.Lt, "5")}, []string{"3", "4"}, []string{"2", "5"}, false},
		"bounds drop values of In outside them":       {[]cluster.Expression{expression("k", cluster.In, "1", "3", "x"), expression("k", cluster.Gte, "2")}, []string{"3"}, []string{"1", "x"}, false},
		"NotIn takes values from In":                  {[]cluster.Expression{expression("k", cluster.In, "a", "b"), expression("k", cluster.NotIn, "a")}, []string{"b"}, []string{"a"}, false},
		"two exclusions may both be met by absence":   {[]cluster.Expression{expression("k", cluster.NotIn, "a"), expression("k", cluster.DoesNotExist)}, nil, []string{"a", "b"}, true},
		"Exists and DoesNotExist contradict":          {[]cluster.Expression{expression("k", cluster.Exists), expression("k", cluster.DoesNotExist)}, nil, []string{"a"}, false},
		"an unknown operator allows nothing":          {[]cluster.Expression{expression("k", "Like", "a")}, nil, []string{"a"}, false},
		"an older key is read as the current one":     {[]cluster.Expression{expression("beta.kubernetes.io/arch", cluster.In, "arm64")}, []string{"arm64"}, []string{"amd64"}, false},
		"an exclusion inside a range leaves the rest": {[]cluster.Expression{expression("k", cluster.Gte, "1"), expression("k", cluster.Lte, "2"), expression("k", cluster.NotIn, "1")}, []string{"2"}, []string{"1", "3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := cluster.NewRequirements(nil, c.expressions...)
			require.Len(t, rs, 1)
			for _, v := range c.yes {
				require.True(t, rs[0].Has(v), v)
			}
			for _, v := range c.no {
				require.False(t, rs[0].Has(v), v)
			}
			require.Equal(t, c.absent, rs[0].AllowsAbsent())
			require.Equal(t, len(c.yes) == 0 && !c.absent, rs[0].Impossible())
			value, ok := rs[0].Any()
			require.Equal(t, len(c.yes) > 0, ok)
			require.True(t, !ok || rs[0].Has(value))
			require.Equal(t, cluster.NewRequirements(nil, rs[0].Expressions()...).String(), rs.String(), "what is written reads back")
		})
	}
}

func anyRequirement(t *rapid.T) cluster.Requirement {
	value := rapid.SampledFrom([]string{"a", "b", "1", "2", "3", "7", "-1"})
	switch op := rapid.SampledFrom([]cluster.Operator{
		cluster.In, cluster.NotIn, cluster.Exists, cluster.DoesNotExist, cluster.Gt, cluster.Gte, cluster.Lt, cluster.Lte,
	}).Draw(t, "operator"); op {
	case cluster.In, cluster.NotIn:
		return expression("k", op, rapid.SliceOfN(value, 1, 4).Draw(t, "values")...).Requirement()
	case cluster.Exists, cluster.DoesNotExist:
		return expression("k", op).Requirement()
	default:
		return expression("k", op, strconv.Itoa(rapid.IntRange(-2, 8).Draw(t, "bound"))).Requirement()
	}
}

func TestRequirement_IntersectIsWhatBothAllow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyRequirement(t), anyRequirement(t), anyRequirement(t)
		both := a.Intersect(b)
		for _, v := range []string{"a", "b", "c", "", "-2", "-1", "0", "1", "2", "3", "4", "7", "9", "1000"} {
			require.Equal(t, a.Has(v) && b.Has(v), both.Has(v), "%s", v)
		}
		require.Equal(t, a.AllowsAbsent() && b.AllowsAbsent(), both.AllowsAbsent())
		require.True(t, both.Equal(b.Intersect(a)), "order does not matter")
		require.True(t, both.Intersect(c).Equal(a.Intersect(b.Intersect(c))), "nor does grouping")
		require.True(t, both.Intersect(a).Equal(both), "nor does saying it twice")
		value, ok := both.Any()
		require.Equal(t, both.Impossible(), !ok && !both.AllowsAbsent())
		require.True(t, !ok || both.Has(value))
		back := cluster.NewRequirements(nil, both.Expressions()...)[0]
		for _, v := range []string{"a", "-1", "0", "1", "3", "8"} {
			require.Equal(t, both.Has(v), back.Has(v), "written and read back: %s", v)
		}
	})
}

func TestRequirements_Conflict(t *testing.T) {
	t.Parallel()
	pool := cluster.NewRequirements(map[string]string{"team": "a"},
		expression(cluster.LabelZone, cluster.In, "us-east-1a", "us-east-1b"), expression("size", cluster.Exists))
	for name, c := range map[string]struct {
		wants cluster.Expression
		says  string
	}{
		"a well-known label that the pool leaves open is free":        {expression(cluster.LabelArch, cluster.In, "arm64"), ""},
		"a custom label that the pool lacks is missing":               {expression("tier", cluster.In, "gold"), "wants tier in [gold], a label that the pool does not define"},
		"NotIn on a label that the pool lacks is met":                 {expression("tier", cluster.NotIn, "gold"), ""},
		"DoesNotExist on a label that the pool lacks is met":          {expression("tier", cluster.DoesNotExist), ""},
		"Exists on a pinned label keeps its value":                    {expression("team", cluster.Exists), ""},
		"another value than the pool's is a conflict":                 {expression("team", cluster.In, "b"), "wants team in [b], the pool has team in [a]"},
		"one shared value is enough":                                  {expression(cluster.LabelZone, cluster.In, "us-east-1b", "us-east-1c"), ""},
		"a value of a label that the pool only says exists is chosen": {expression("size", cluster.In, "xl"), ""},
		"a typing error is pointed out":                               {expression("topology.kubernetes.io/zne", cluster.Exists), "wants topology.kubernetes.io/zne present, a label that the pool does not define (did you mean topology.kubernetes.io/zone?)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.says, pool.Conflict(cluster.NewRequirements(nil, c.wants)))
		})
	}
}

func TestRequirements_Labels(t *testing.T) {
	t.Parallel()
	rs := cluster.NewRequirements(map[string]string{"team": "a", cluster.LabelZone: "us-east-1a"},
		expression("size", cluster.Gt, "3"), expression("rack", cluster.Exists), expression("gone", cluster.DoesNotExist),
		expression("either", cluster.In, "y", "x"))
	require.Equal(t, map[string]string{"team": "a", "size": "4", "rack": "0", "either": "x"}, rs.Labels())
}

func TestRequirements_MinValuesTakesTheLarger(t *testing.T) {
	t.Parallel()
	rs := cluster.NewRequirements(nil,
		cluster.Expression{Key: "k", Operator: cluster.Gt, Values: []string{"1"}, MinValues: 2},
		cluster.Expression{Key: "k", Operator: cluster.Lt, Values: []string{"9"}, MinValues: 5})
	require.Equal(t, []cluster.Expression{
		{Key: "k", Operator: cluster.Gte, Values: []string{"2"}, MinValues: 5}, {Key: "k", Operator: cluster.Lte, Values: []string{"8"}},
	}, rs.Expressions())
}

func TestRestricted(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		cluster.LabelHostname: true, "karpenter.sh/registered": true, "x.karpenter.sh/y": true, "karpenter.k8s.aws/odd": true,
		cluster.LabelZone: false, cluster.LabelNodePool: false, "karpenter.k8s.aws/instance-cpu": false, "team": false,
		"node.kubernetes.io/anything": false, "notkarpenter.sh/x": false,
	} {
		require.Equal(t, want, cluster.Restricted(key), key)
	}
}

func TestToleration_Tolerates(t *testing.T) {
	t.Parallel()
	taint := cluster.Taint{Key: "sla", Value: "950", Effect: cluster.NoSchedule}
	for name, c := range map[string]struct {
		toleration cluster.Toleration
		want       bool
	}{
		"Exists without a key tolerates everything":    {cluster.Toleration{Operator: "Exists"}, true},
		"Exists asks for the key only":                 {cluster.Toleration{Key: "sla", Operator: "Exists"}, true},
		"no operator means Equal":                      {cluster.Toleration{Key: "sla", Value: "950"}, true},
		"Equal asks for the value":                     {cluster.Toleration{Key: "sla", Operator: "Equal", Value: "900"}, false},
		"another effect is not tolerated":              {cluster.Toleration{Key: "sla", Operator: "Exists", Effect: cluster.NoExecute}, false},
		"Gt tolerates larger values of the taint":      {cluster.Toleration{Key: "sla", Operator: "Gt", Value: "900"}, true},
		"Lt does not":                                  {cluster.Toleration{Key: "sla", Operator: "Lt", Value: "900"}, false},
		"a comparison with a word tolerates nothing":   {cluster.Toleration{Key: "sla", Operator: "Gt", Value: "low"}, false},
		"an unknown operator tolerates nothing":        {cluster.Toleration{Key: "sla", Operator: "Near", Value: "950"}, false},
		"Equal without a key tolerates nothing at all": {cluster.Toleration{Value: "950"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.toleration.Tolerates(taint))
			_, kept := cluster.Untolerated([]cluster.Taint{taint}, []cluster.Toleration{c.toleration})
			require.Equal(t, !c.want, kept)
		})
	}
}

func TestUntolerated_PreferNoScheduleKeepsNobodyAway(t *testing.T) {
	t.Parallel()
	soft := []cluster.Taint{{Key: "k", Effect: cluster.PreferNoSchedule}}
	_, kept := cluster.Untolerated(soft, nil)
	require.False(t, kept)
	_, kept = cluster.Unwelcome(soft, nil)
	require.True(t, kept)
}

func TestTaint_Ephemeral(t *testing.T) {
	t.Parallel()
	for taint, want := range map[cluster.Taint]bool{
		{Key: cluster.TaintNotReady, Effect: cluster.NoExecute}:                    true,
		{Key: cluster.TaintUnreachable, Effect: cluster.NoSchedule}:                true,
		{Key: cluster.TaintUnreachable, Effect: cluster.NoExecute}:                 false,
		{Key: cluster.TaintCloudUninit, Value: "true", Effect: cluster.NoSchedule}: true,
		{Key: cluster.TaintCloudUninit, Effect: cluster.NoSchedule}:                false,
		{Key: cluster.TaintUnregistered, Effect: cluster.NoExecute}:                true,
		{Key: "readiness.k8s.io/cni", Effect: cluster.NoSchedule}:                  true,
		{Key: "team", Effect: cluster.NoSchedule}:                                  false,
	} {
		require.Equal(t, want, taint.Ephemeral(), taint.String())
	}
}

func TestSelector_Matches(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"app": "web"}
	var nobody *cluster.Selector
	require.False(t, nobody.Matches(labels))
	require.Nil(t, nobody.And(expression("app", cluster.Exists)))
	require.True(t, (&cluster.Selector{}).Matches(labels))
	web := &cluster.Selector{Expressions: []cluster.Expression{expression("app", cluster.In, "web")}}
	require.True(t, web.Matches(labels))
	require.False(t, web.And(expression("tier", cluster.Exists)).Matches(labels))
	require.True(t, web.And(expression("tier", cluster.NotIn, "db")).And(expression("tier", cluster.DoesNotExist)).Matches(labels))
}

func TestPlannedPods(t *testing.T) {
	t.Parallel()
	text := cluster.FormatPlanned([]cluster.PodRef{{UID: "a"}, {UID: "b"}})
	claim := cluster.NodeClaim{Annotations: map[string]string{cluster.AnnotationPlanned: text}}
	require.Equal(t, []cluster.PodUID{"a", "b"}, cluster.PlannedPods(&claim))
	require.Empty(t, cluster.PlannedPods(&cluster.NodeClaim{}))
}
