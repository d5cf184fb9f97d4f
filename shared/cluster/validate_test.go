package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
)

func TestValidateTemplate(t *testing.T) {
	t.Parallel()
	asks := func(key string, op cluster.Operator, values ...string) cluster.NodeTemplate {
		return cluster.NodeTemplate{Requirements: []cluster.Expression{{Key: key, Operator: op, Values: values}}}
	}
	few := asks(cluster.LabelArch, cluster.In, "amd64", "arm64")
	few.Requirements[0].MinValues = 3
	for name, tt := range map[string]struct {
		template cluster.NodeTemplate
		want     string // "": valid
	}{
		"nothing at all is valid":                   {cluster.NodeTemplate{}, ""},
		"labels of one's own are valid":             {cluster.NodeTemplate{Labels: map[string]string{"team": "a"}}, ""},
		"a pool may not label itself (N-001)":       {cluster.NodeTemplate{Labels: map[string]string{cluster.LabelNodePool: "x"}}, `"karpenter.sh/nodepool" may not be set`},
		"a pool may not name hosts (N-001)":         {cluster.NodeTemplate{Labels: map[string]string{cluster.LabelHostname: "x"}}, `"kubernetes.io/hostname" may not be set`},
		"a pool may not use Karpenter's own domain": {cluster.NodeTemplate{Labels: map[string]string{"karpenter.sh/mine": "x"}}, `"karpenter.sh/mine" may not be set`},
		"nor a domain below it":                     {asks("foo.karpenter.sh/mine", cluster.Exists), "may not be used by a pool"},
		"well-known labels may be asked for":        {asks("karpenter.k8s.aws/instance-cpu", cluster.Gt, "4"), ""},
		"In without values":                         {asks(cluster.LabelArch, cluster.In), "In needs at least one value"},
		"more minValues than values (N-003)":        {few, "minValues is 3 with 2 values"},
		"NotIn without values is valid":             {asks(cluster.LabelArch, cluster.NotIn), ""},
		"Exists with values":                        {asks(cluster.LabelArch, cluster.Exists, "amd64"), "Exists takes no values"},
		"Gt with two values":                        {asks("karpenter.k8s.aws/instance-cpu", cluster.Gt, "1", "2"), "Gt needs exactly one value"},
		"Gt with a word":                            {asks("karpenter.k8s.aws/instance-cpu", cluster.Gt, "many"), `whole number from 0 up, not "many"`},
		"Lt with a negative number":                 {asks("karpenter.k8s.aws/instance-cpu", cluster.Lt, "-1"), `whole number from 0 up, not "-1"`},
		"an operator that does not exist":           {asks(cluster.LabelArch, "Like", "a"), `operator "Like" is none of`},
		"a capacity type that does not exist":       {asks(cluster.LabelCapacityType, cluster.In, "cheap"), "none of its values is one of [on-demand spot reserved]"},
		"one capacity type that exists is enough":   {asks(cluster.LabelCapacityType, cluster.In, "cheap", "spot"), ""},
		"an old name of a well-known label":         {asks("failure-domain.beta.kubernetes.io/zone", cluster.In, "us-east-1a"), ""},
		"a taint given twice, once as a startup taint (N-004)": {cluster.NodeTemplate{
			Taints:        []cluster.Taint{{Key: "a", Value: "1", Effect: cluster.NoSchedule}},
			StartupTaints: []cluster.Taint{{Key: "a", Value: "2", Effect: cluster.NoSchedule}},
		}, "taint a:NoSchedule is given twice"},
		"one taint with two effects is valid": {cluster.NodeTemplate{
			Taints: []cluster.Taint{{Key: "a", Effect: cluster.NoSchedule}, {Key: "a", Effect: cluster.NoExecute}},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := cluster.ValidateTemplate(tt.template)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestValidateTemplate_NamesEveryFieldAtFault(t *testing.T) {
	t.Parallel()
	err := cluster.ValidateTemplate(cluster.NodeTemplate{
		Labels: map[string]string{"karpenter.sh/a": "x", "karpenter.sh/b": "x"},
		Requirements: []cluster.Expression{
			{Key: cluster.LabelArch, Operator: cluster.Exists}, {Key: cluster.LabelHostname, Operator: cluster.Exists}, {Key: cluster.LabelOS, Operator: cluster.In},
		},
	})
	for _, want := range []string{"karpenter.sh/a", "karpenter.sh/b", "requirements[1]", "requirements[2]"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "requirements[0]")
}
