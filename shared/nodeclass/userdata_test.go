package nodeclass

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
)

var update = flag.Bool("update", false, "write golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "userdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "golden file %s", name)
}

// node is a node of pool web with one taint of the pool and one that goes once the node is ready.
func node(f family, change ...func(*booting)) booting {
	b := booting{
		family: f,
		facts: Facts{
			Cluster: "demo", Region: "us-east-1", KubernetesVersion: "1.36", Endpoint: "https://demo.example",
			CA: "Y2VydA==", ServiceCIDR: "10.100.0.0/16", DNSIP: "10.100.0.10",
		},
		labels: map[string]string{
			cluster.LabelNodePool: "web", cluster.LabelCapacityType: "spot", cluster.LabelNoTaintSync: "true", "team": "shop",
		},
		taints: []cluster.Taint{
			{Key: "dedicated", Value: "web", Effect: cluster.NoSchedule},
			{Key: "node.example/starting", Effect: cluster.NoExecute},
			{Key: cluster.TaintUnregistered, Effect: cluster.NoExecute},
		},
		kubelet: cluster.Kubelet{ClusterDNS: []string{"10.100.0.10"}},
		maxPods: 29,
	}
	for _, f := range change {
		f(&b)
	}
	return b
}

func allKubeletSettings(b *booting) {
	n := func(v int32) *int32 { return &v }
	no := false
	b.kubelet = cluster.Kubelet{
		ClusterDNS: []string{"10.100.0.10", "10.100.0.11"}, PodsPerCore: n(4),
		SystemReserved: map[string]string{"cpu": "100m", "memory": "100Mi"},
		KubeReserved:   map[string]string{"memory": "500Mi"},
		EvictionHard:   map[string]string{"memory.available": "5%", "nodefs.available": "10%"},
		EvictionSoft:   map[string]string{"memory.available": "10%"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "1m30s"},
		EvictionMaxPodGracePeriod: n(60), ImageGCHighThresholdPercent: n(85), ImageGCLowThresholdPercent: n(80), CPUCFSQuota: &no,
	}
}

func own(text string) func(*booting) { return func(b *booting) { b.custom = text } }

func raid0(b *booting) { b.raid0 = true }

func ipv6(b *booting) {
	b.facts.DNSIP, b.facts.ServiceCIDR = "fd00::a", "fd00::/108"
	b.kubelet.ClusterDNS = []string{"fd00::a"}
}

const ownMIME = `Content-Type: multipart/mixed; boundary="BORDER"
MIME-Version: 1.0

--BORDER
Content-Type: text/cloud-config; charset="us-ascii"

packages: [htop]

--BORDER
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 5
--BORDER--
`

func TestUserData_Golden(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]booting{
		"al2023.txt":               node(al2023),
		"al2023-kubelet.txt":       node(al2023, allKubeletSettings),
		"al2023-raid0.txt":         node(al2023, raid0),
		"al2023-ipv6.txt":          node(al2023, ipv6),
		"al2023-own-script.txt":    node(al2023, own("#!/bin/bash\necho hello\n")),
		"al2023-own-config.txt":    node(al2023, own("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      maxPods: 5\n")),
		"al2023-own-mime.txt":      node(al2023, own(ownMIME)),
		"al2.txt":                  node(al2),
		"al2-kubelet.txt":          node(al2, allKubeletSettings, raid0),
		"al2-ipv6-own-mime.txt":    node(al2, ipv6, own(ownMIME)),
		"bottlerocket.toml":        node(bottlerocket),
		"bottlerocket-all.toml":    node(bottlerocket, allKubeletSettings, raid0),
		"bottlerocket-new-os.toml": node(bottlerocket, raid0, func(b *booting) { b.image = "bottlerocket-aws-k8s-1.36-x86_64-v1.46.0-1a2b3c" }),
		"bottlerocket-old-os.toml": node(bottlerocket, raid0, func(b *booting) { b.image = "bottlerocket-aws-k8s-1.36-x86_64-v1.45.2-1a2b3c" }),
		"bottlerocket-own.toml": node(bottlerocket, own("[settings.motd]\nx = \"y\"\n[settings.kubernetes]\nmax-pods = 5\nallowed-unsafe-sysctls = [\"net.core.somaxconn\"]\n"+
			"[settings.kubernetes.node-labels]\nlost = \"true\"\n[settings.bootstrap-commands.mine]\nmode = \"once\"\n"), raid0),
		"windows.ps1":     node(windows2022),
		"windows-own.ps1": node(windows2025, own("<powershell>\nWrite-Host hello\n</powershell>"), allKubeletSettings),
		"custom.txt":      node(custom, own("only mine, to the letter\n")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := userData(b)
			require.NoError(t, err)
			golden(t, name, text)
			if strings.HasPrefix(text, "MIME-Version") {
				_, err := parts(text)
				require.NoError(t, err, "what is written has to be readable")
			}
		})
	}
}

func TestUserData_RefusesWhatItCannotMerge(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		b    booting
		says string
	}{
		"TOML that is none":                     {node(bottlerocket, own("[settings")), "no TOML"},
		"settings that are no table":            {node(bottlerocket, own("settings = 3")), "settings in the user data is no table"},
		"settings.kubernetes that are no table": {node(bottlerocket, own("[settings]\nkubernetes = 3")), "kubernetes in the user data is no table"},
		"commands that are no table":            {node(bottlerocket, raid0, own("[settings]\nbootstrap-commands = 3")), "bootstrap-commands in the user data is no table"},
		"MIME without parts":                    {node(al2023, own("MIME-Version: 1.0\nContent-Type: text/plain\n\nhello")), "not multipart"},
		"MIME without a type":                   {node(al2023, own("MIME-Version: 1.0\n\nhello")), "content type"},
		"MIME that is cut off":                  {node(al2, own(ownMIME[:len(ownMIME)-20])), "user data"},
		"a family that nobody knows":            {node(unknownFamily), "no image family"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := userData(tt.b)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestNodeLabels_LeaveKubernetesKeysToRegistration(t *testing.T) {
	t.Parallel()
	o := order()
	o.Pool.Template.Labels = map[string]string{"team": "shop", "node-role.kubernetes.io/web": "", "sub.k8s.io/x": "y"}
	o.Claim.Requirements = []cluster.Expression{
		{Key: "tier", Operator: cluster.In, Values: []string{"front"}},
		{Key: "choice", Operator: cluster.In, Values: []string{"a", "b"}},
		{Key: cluster.LabelZone, Operator: cluster.In, Values: []string{"us-east-1a"}},
		{Key: "karpenter.k8s.aws/instance-category", Operator: cluster.In, Values: []string{"m"}},
	}
	require.Equal(t, map[string]string{
		"team": "shop", "tier": "front", cluster.LabelNodePool: "web", cluster.LabelNodeClass: "default",
		cluster.LabelCapacityType: "spot", cluster.LabelNoTaintSync: "true",
	}, nodeLabels(o))
	o.Class.Spec.AMISelectorTerms, o.Class.Spec.AMIFamily = nil, "Custom"
	require.NotContains(t, nodeLabels(o), cluster.LabelNoTaintSync, "a custom image registers its taints as it likes")
}
