package kubelet

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// testCA stands for a certificate: kubelets only compare it.
const testCA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

func testCA64() string { return base64.StdEncoding.EncodeToString([]byte(testCA)) }

const nodeConfigTemplate = `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: https://127.0.0.1:6443
    certificateAuthority: CA
    cidr: 10.96.0.0/16
  kubelet:
    config:
      maxPods: 29
      clusterDNS: [10.96.0.10]
      registerWithTaints:
      - {key: karpenter.sh/unregistered, effect: NoExecute}
      - {key: team, value: a, effect: NoSchedule}
      kubeReserved: {memory: 1Gi}
      evictionHard: {memory.available: 5%}
    flags:
    - --node-labels="karpenter.sh/nodepool=default,karpenter.sh/capacity-type=spot,empty="
`

func nodeConfigYAML() string { return strings.Replace(nodeConfigTemplate, "CA", testCA64(), 1) }

func multipartOf(parts ...string) string {
	var b strings.Builder
	b.WriteString("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n")
	for i := 0; i+1 < len(parts); i += 2 {
		b.WriteString("--//\nContent-Type: " + parts[i] + "\n\n" + parts[i+1] + "\n")
	}
	return b.String() + "--//--\n"
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func bootstrapCall() string {
	return `#!/bin/bash -xe
exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1
# /etc/eks/bootstrap.sh 'other'
/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://127.0.0.1:6443' --b64-cluster-ca '` + testCA64() + `' \
--dns-cluster-ip '10.96.0.10' \
--use-max-pods false --local-disks raid0 \
--kubelet-extra-args '--node-labels="a=b,c=d" --register-with-taints="team=a:NoSchedule,x:NoExecute" --max-pods=110 --eviction-hard=memory.available<5% --kube-reserved=cpu=100m,memory=300Mi'
`
}

func bottlerocketTOML() string {
	return `[settings]
[settings.kubernetes]
cluster-name = 'demo'
api-server = 'https://127.0.0.1:6443'
cluster-certificate = '` + testCA64() + `'
cluster-dns-ip = '10.96.0.10'
max-pods = 58
[settings.kubernetes.node-labels]
'karpenter.sh/nodepool' = 'default'
[settings.kubernetes.node-taints]
'karpenter.sh/unregistered' = [':NoExecute']
team = ['a:NoSchedule']
[settings.kubernetes.kube-reserved]
cpu = '200m'
[settings.kubernetes.eviction-hard]
'memory.available' = '12%'
[settings.bootstrap-commands.000-mount-instance-storage]
commands = [['apiclient', 'ephemeral-storage', 'init'], ['apiclient', 'ephemeral-storage', 'bind', '--dirs', '/var/lib/kubelet']]
mode = 'always'
essential = true
`
}

func TestParseUserData(t *testing.T) {
	t.Parallel()
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	team := corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	al2023 := bootstrap{
		family: AL2023, cluster: "demo", endpoint: "https://127.0.0.1:6443", ca: []byte(testCA),
		labels: map[string]string{"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot", "empty": ""},
		taints: []corev1.Taint{unregistered, team}, maxPods: 29,
		kubeReserved: map[string]string{"memory": "1Gi"}, evictionHard: map[string]string{"memory.available": "5%"},
	}
	merged := al2023
	merged.maxPods, merged.raid0 = 29, true
	merged.kubeReserved = map[string]string{"cpu": "1", "memory": "1Gi"}
	userPart := "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      maxPods: 5\n      kubeReserved: {cpu: '1', memory: 2Gi}\n  instance:\n    localStorage: {strategy: RAID0}\n"
	flagged := al2023
	flagged.maxPods = 10
	flagged.labels = map[string]string{"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "od", "empty": ""}

	al2 := bootstrap{
		family: AL2, cluster: "demo", endpoint: "https://127.0.0.1:6443", ca: []byte(testCA),
		labels: map[string]string{"a": "b", "c": "d"},
		taints: []corev1.Taint{team, {Key: "x", Effect: corev1.TaintEffectNoExecute}}, maxPods: 110, raid0: true,
		kubeReserved: map[string]string{"cpu": "100m", "memory": "300Mi"}, onlyReserved: true,
		evictionHard: map[string]string{"memory.available": "5%"}, onlyEviction: true,
	}
	bottlerocket := bootstrap{
		family: Bottlerocket, cluster: "demo", endpoint: "https://127.0.0.1:6443", ca: []byte(testCA),
		labels: map[string]string{"karpenter.sh/nodepool": "default"},
		taints: []corev1.Taint{unregistered, team}, maxPods: 58, raid0: true,
		kubeReserved: map[string]string{"cpu": "200m"}, evictionHard: map[string]string{"memory.available": "12%"},
	}
	moreFlags := strings.Replace(nodeConfigYAML(), "    flags:\n", "    flags:\n    - --max-pods\n    - '10'\n", 1) +
		"    - --node-labels=karpenter.sh/capacity-type=od\n"

	for name, c := range map[string]struct {
		family Family
		data   string
		want   bootstrap
	}{
		"a bare NodeConfig configures AL2023":               {AL2023, nodeConfigYAML(), al2023},
		"gzip is undone":                                    {AL2023, packed(t, nodeConfigYAML()), al2023},
		"base64 is undone":                                  {AL2023, base64.StdEncoding.EncodeToString([]byte(nodeConfigYAML())), al2023},
		"the family is guessed from a NodeConfig":           {"", nodeConfigYAML(), al2023},
		"the family is guessed from a bootstrap call":       {Custom, bootstrapCall(), al2},
		"the family is guessed from TOML":                   {"", bottlerocketTOML(), bottlerocket},
		"later NodeConfigs win over earlier ones, deeply":   {AL2023, multipartOf("application/node.eks.aws", userPart, "text/x-shellscript", "#!/bin/sh\necho hi", "application/node.eks.aws", nodeConfigYAML()), merged},
		"flags win over the file and labels add up":         {AL2023, moreFlags, flagged},
		"a bootstrap call configures AL2":                   {AL2, bootstrapCall(), al2},
		"a bootstrap call is found in a part of a document": {AL2, multipartOf(`text/x-shellscript; charset="us-ascii"`, "#!/bin/bash\necho user", `text/x-shellscript; charset="us-ascii"`, bootstrapCall()), al2},
		"settings configure Bottlerocket":                   {Bottlerocket, bottlerocketTOML(), bottlerocket},
		"a header order other than usual is accepted":       {AL2023, strings.Replace(multipartOf("application/node.eks.aws", nodeConfigYAML()), "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n", "Content-Type: multipart/mixed; boundary=\"//\"\nMIME-Version: 1.0\n", 1), al2023},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseUserData(c.family, []byte(c.data))
			require.NoError(t, err)
			require.ElementsMatch(t, c.want.taints, got.taints)
			got.taints = c.want.taints
			require.Equal(t, c.want, got)
		})
	}
}

func TestParseUserData_Refuses(t *testing.T) {
	t.Parallel()
	edit := func(old, with string) string { return strings.Replace(nodeConfigYAML(), old, with, 1) }
	for name, c := range map[string]struct {
		family Family
		data   string
		want   string
	}{
		"nothing at all":                           {"", "", "no bootstrap"},
		"a script that starts no kubelet":          {Custom, "#!/bin/bash\necho hello", "no bootstrap"},
		"a NodeConfig on AL2":                      {AL2, nodeConfigYAML(), "no bootstrap"},
		"a bootstrap call on AL2023":               {AL2023, bootstrapCall(), "no bootstrap"},
		"a script on Bottlerocket":                 {Bottlerocket, bootstrapCall(), "parse Bottlerocket"},
		"a NodeConfig without cluster name":        {AL2023, edit("name: demo", "name: ''"), "cluster.name is missing"},
		"a NodeConfig without CIDR":                {AL2023, edit("    cidr: 10.96.0.0/16\n", ""), "cluster.cidr is missing"},
		"a NodeConfig of another kind":             {AL2023, multipartOf("application/node.eks.aws", edit("kind: NodeConfig", "kind: Other")), "unexpected kind"},
		"YAML that does not parse":                 {AL2023, edit("spec:", "spec: ]["), "parse NodeConfig"},
		"a reserved amount that is no string":      {AL2023, edit("{memory: 1Gi}", "{cpu: 1}"), "parse kubelet config"},
		"a taint without effect":                   {AL2023, nodeConfigYAML() + "    - --register-with-taints=a=b\n", "has no effect"},
		"a taint with an unknown effect":           {AL2023, nodeConfigYAML() + "    - --register-with-taints=a=b:Never\n", "unknown effect"},
		"a bootstrap call without a cluster":       {AL2, "/etc/eks/bootstrap.sh --b64-cluster-ca " + testCA64(), "no cluster name"},
		"a bootstrap call with an open quote":      {AL2, "/etc/eks/bootstrap.sh 'demo", "unterminated quote"},
		"a certificate that is no base64":          {AL2, "/etc/eks/bootstrap.sh demo --b64-cluster-ca '!'", "b64-cluster-ca"},
		"TOML that does not parse":                 {Bottlerocket, "[settings", "parse Bottlerocket settings"},
		"Bottlerocket settings without a cluster":  {Bottlerocket, "[settings.kubernetes]\nmax-pods = 3\n", "is missing"},
		"a Bottlerocket taint without effect":      {Bottlerocket, strings.Replace(bottlerocketTOML(), "a:NoSchedule", "a", 1), "not value:effect"},
		"a multi-part document without NodeConfig": {AL2023, multipartOf("text/x-shellscript", "#!/bin/sh"), "no bootstrap"},
		"gzip that is cut off":                     {"", packed(t, nodeConfigYAML())[:40], "unpack user data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseUserData(c.family, []byte(c.data))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func FuzzParseUserData(f *testing.F) {
	for _, seed := range []string{
		"", nodeConfigYAML(), bootstrapCall(), bottlerocketTOML(),
		multipartOf("application/node.eks.aws", nodeConfigYAML(), "text/x-shellscript", bootstrapCall()),
	} {
		for _, family := range []Family{"", AL2023, AL2, Bottlerocket, Custom} {
			f.Add(string(family), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, family string, data []byte) {
		b, err := parseUserData(Family(family), data)
		if err != nil {
			return
		}
		require.NotEmpty(t, b.family)
		require.NotEmpty(t, b.cluster, "a kubelet that starts names its cluster")
		for _, taint := range b.taints {
			require.NotContains(t, string(taint.Effect), ":")
		}
		again, err := parseUserData(Family(family), data)
		require.NoError(t, err)
		require.Equal(t, b.labels, again.labels, "the same user data gives the same node")
	})
}

func TestShellWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		`a b  c`:            {"a", "b", "c"},
		`a 'b c' "d e"`:     {"a", "b c", "d e"},
		`--x='a "b" c' d`:   {`--x=a "b" c`, "d"},
		`a\ b '' \"c`:       {"a b", "", `"c`},
		`'back\slash' "\""`: {`back\slash`, `"`},
		``:                  nil,
	} {
		got, err := shellWords(line)
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
	}
}

func TestCluster_AcceptsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	ours := Cluster{Name: "demo", Endpoint: "https://10.0.0.1", CA: []byte(testCA)}
	good := bootstrap{cluster: "demo", endpoint: "https://10.0.0.1:443/", ca: []byte(strings.TrimSpace(testCA))}
	require.NoError(t, ours.accepts(good))
	for name, spoil := range map[string]func(*bootstrap){
		"another cluster's name is unauthorized": func(b *bootstrap) { b.cluster = "other" },
		"another endpoint is not reached":        func(b *bootstrap) { b.endpoint = "https://10.0.0.2" },
		"plain HTTP is not spoken":               func(b *bootstrap) { b.endpoint = "http://10.0.0.1:443" },
		"an endpoint must be a URL":              func(b *bootstrap) { b.endpoint = "https://[" },
		"another authority is not trusted":       func(b *bootstrap) { b.ca = []byte("other") },
	} {
		t.Run(name, func(t *testing.T) {
			b := good
			spoil(&b)
			require.Error(t, ours.accepts(b))
		})
	}
}

func TestCheckLabels(t *testing.T) {
	t.Parallel()
	for key, allowed := range map[string]bool{
		"karpenter.sh/nodepool":                 true,
		"karpenter.k8s.aws/instance-family":     true,
		"team":                                  true,
		"node.kubernetes.io/instance-type":      true,
		"custom.node.kubernetes.io/x":           true,
		"kubelet.kubernetes.io/x":               true,
		"topology.kubernetes.io/zone":           true,
		"kubernetes.io/arch":                    true,
		"node-role.kubernetes.io/worker":        false,
		"node-restriction.kubernetes.io/secret": false,
		"kubernetes.io/cluster-service":         false,
		"cluster-autoscaler.kubernetes.io/x":    false,
		"k8s.io/x":                              false,
		"notkubernetes.io/x":                    true,
	} {
		err := checkLabels(map[string]string{key: "v"})
		require.Equal(t, allowed, err == nil, "%s: %v", key, err)
	}
}
