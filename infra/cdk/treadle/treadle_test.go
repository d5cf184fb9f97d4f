package treadle_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"treadle/infra/cdk/treadle"
	"treadle/infra/deployment"
)

var update = flag.Bool("update", false, "write the golden template anew")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

// built is a folder of functions that are there, if only by name.
func built(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range deployment.Functions() {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, f.Name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name, "bootstrap"), []byte(f.Name), 0o755))
	}
	return dir
}

// deploy adds Treadle to a stack. The CDK runs on Node.js.
func deploy(t *testing.T, props treadle.Props) (awscdk.Stack, *treadle.Treadle) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("NOT TESTED: the CDK needs Node.js, and there is no node in PATH")
	}
	if props.Build == "" {
		props.Build = built(t)
	}
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
	stack := awscdk.NewStack(app, jsii.String("Treadle"), nil)
	made, err := treadle.New(stack, "Treadle", props)
	require.NoError(t, err)
	return stack, made
}

// template synthesises a stack with Treadle in it.
func template(t *testing.T, props treadle.Props) map[string]any {
	t.Helper()
	stack, _ := deploy(t, props)
	return *assertions.Template_FromStack(stack, nil).ToJSON()
}

func some() treadle.Props {
	return treadle.Props{Clusters: []treadle.Cluster{{Name: "blue"}, {Name: "green"}}}
}

// resources returns the resources of a type by logical id.
func resources(template map[string]any, kind string) map[string]map[string]any {
	out := map[string]map[string]any{}
	for id, r := range template["Resources"].(map[string]any) {
		if r := r.(map[string]any); r["Type"] == kind {
			out[id], _ = r["Properties"].(map[string]any)
		}
	}
	return out
}

func text(t *testing.T, v any) string {
	t.Helper()
	body, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	return string(body) + "\n"
}

// hashes are those of assets, which change with every build of a function.
var hashes = regexp.MustCompile(`[0-9a-f]{64}`)

func TestTemplate_IsTheGoldenOne(t *testing.T) {
	got := hashes.ReplaceAllString(text(t, template(t, some())), "HASH")
	const golden = "testdata/template.json"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run go test ./treadle -update if this is what is meant")
}

func TestTemplate_DeploysTheWholeTable(t *testing.T) {
	got := template(t, some())
	functions := resources(got, "AWS::Lambda::Function")
	require.Len(t, functions, len(deployment.Functions()), "and nothing beside: no function of the CDK's own")
	for _, f := range deployment.Functions() {
		at := ""
		for id, p := range functions {
			if p["Description"] == "Treadle: "+f.Name {
				at = id
			}
		}
		require.NotEmpty(t, at, f.Name)
		p := functions[at]
		assert.EqualValues(t, f.MemoryMB, p["MemorySize"])
		assert.EqualValues(t, f.Timeout.Seconds(), p["Timeout"])
		assert.Equal(t, []any{"arm64"}, p["Architectures"])
		assert.Equal(t, "provided.al2023", p["Runtime"])
		assert.Equal(t, "JSON", p["LoggingConfig"].(map[string]any)["LogFormat"])
	}
	for id, q := range resources(got, "AWS::SQS::Queue") {
		if q["DelaySeconds"] != nil {
			assert.EqualValues(t, 1, q["DelaySeconds"], "%s: as long as the bucket of deduplication", id)
			assert.NotNil(t, q["RedrivePolicy"], id)
		}
	}
	for id, s := range resources(got, "AWS::Lambda::EventSourceMapping") {
		assert.Equal(t, []any{"ReportBatchItemFailures"}, s["FunctionResponseTypes"], id)
	}
	require.Len(t, resources(got, "AWS::CloudFormation::Stack"), 2, "one for each cluster")
}

func TestCluster_LetsFunctionsInBeforeTreadleIsInstalled(t *testing.T) {
	_, made := deploy(t, some())
	got := *assertions.Template_FromStack(made.Clusters["blue"], nil).ToJSON()
	entries := resources(got, "AWS::EKS::AccessEntry")
	groups := map[string]bool{}
	for _, e := range entries {
		require.Equal(t, "blue", e["ClusterName"])
		if e["KubernetesGroups"] == nil {
			require.Contains(t, text(t, e["AccessPolicies"]), "AmazonEKSClusterAdminPolicy", "that of install")
			continue
		}
		groups[list(e["KubernetesGroups"])[0]] = true
	}
	for _, f := range deployment.Functions() {
		if f.Group != "" {
			require.True(t, groups[f.Group], f.Group)
		}
	}
	for _, r := range got["Resources"].(map[string]any) {
		if r := r.(map[string]any); r["Type"] == "Custom::TreadleInstallation" {
			require.Len(t, r["DependsOn"], len(entries), "and is uninstalled before they go")
			require.Equal(t, "blue", r["Properties"].(map[string]any)["Cluster"])
		}
	}
}

// statements returns the statements of all policies of roles.
func statements(template map[string]any) []map[string]any {
	var out []map[string]any
	for _, p := range resources(template, "AWS::IAM::Policy") {
		for _, s := range p["PolicyDocument"].(map[string]any)["Statement"].([]any) {
			out = append(out, s.(map[string]any))
		}
	}
	return out
}

func list(v any) []string {
	if one, ok := v.(string); ok {
		return []string{one}
	}
	var out []string
	for _, one := range v.([]any) {
		out = append(out, one.(string))
	}
	return out
}

func TestRights_AreOnEverythingOnlyWhereNothingElseWillDo(t *testing.T) {
	unscoped := []string{
		"pricing:GetProducts", "iam:ListInstanceProfiles",
		"kms:Decrypt", // what a queue with AWS's own key needs of its consumers is on that key
	}
	for _, s := range statements(template(t, some())) {
		if s["Resource"] != "*" {
			continue
		}
		for _, action := range list(s["Action"]) {
			if strings.HasPrefix(action, "ec2:Describe") {
				assert.Contains(t, text(t, s["Condition"]), "aws:RequestedRegion", "%s is bound to the region (O-052)", action)
				continue
			}
			assert.Contains(t, unscoped, action)
		}
	}
}

func TestRights_ToChangeAnythingInEC2AreBoundToTheClustersTags(t *testing.T) {
	free := []string{"ec2:RunInstances", "ec2:CreateFleet"} // on what a launch is made from, O-039
	for _, s := range statements(template(t, some())) {
		condition := text(t, s["Condition"])
		bound := strings.Contains(condition, "eks:eks-cluster-name") && strings.Contains(condition, "blue") && strings.Contains(condition, "green")
		for _, action := range list(s["Action"]) {
			if !strings.HasPrefix(action, "ec2:") || strings.HasPrefix(action, "ec2:Describe") || bound {
				continue
			}
			assert.Contains(t, free, action)
			for _, kind := range []string{":instance/", ":fleet/", ":launch-template/", ":volume/"} {
				assert.NotContains(t, text(t, s["Resource"]), kind)
			}
		}
	}
}

func TestRights_WhoReadsAnObjectCanTellThatItIsNotThere(t *testing.T) {
	for _, f := range deployment.Functions() {
		reads, lists := false, false
		for _, r := range f.Rights {
			reads = reads || slices.Contains(r.Actions, "s3:GetObject")
			lists = lists || slices.Contains(r.Actions, "s3:ListBucket") && r.On == deployment.Bucket
		}
		assert.Equal(t, reads, lists, "%s: S3 answers 403 instead of 404 to callers that may not list", f.Name)
	}
	for _, s := range statements(template(t, some())) {
		if slices.Contains(list(s["Action"]), "s3:ListBucket") {
			assert.Nil(t, s["Condition"], "a GET carries no prefix")
		}
	}
}

func TestCluster_IsInstalledAnewByAnotherBuild(t *testing.T) {
	version := func(props treadle.Props) any {
		_, made := deploy(t, props)
		for _, r := range (*assertions.Template_FromStack(made.Clusters["blue"], nil).ToJSON())["Resources"].(map[string]any) {
			if r := r.(map[string]any); r["Type"] == "Custom::TreadleInstallation" {
				return r["Properties"].(map[string]any)["Version"]
			}
		}
		return nil
	}
	props := some()
	props.Build = built(t)
	first := version(props)
	require.NotEmpty(t, first)
	require.Equal(t, first, version(some()), "the same build")
	require.NoError(t, os.WriteFile(filepath.Join(props.Build, "install", "crd.yaml"), []byte("kind: CustomResourceDefinition"), 0o644))
	require.NotEqual(t, first, version(props))
}

func TestRights_FitIntoAPolicy(t *testing.T) {
	many := treadle.Props{}
	for i := range 60 {
		many.Clusters = append(many.Clusters, treadle.Cluster{Name: "cluster-with-a-long-name-" + string(rune('a'+i%26)) + string(rune('a'+i/26))})
	}
	got := template(t, many)
	for id, p := range resources(got, "AWS::IAM::Policy") {
		body, err := json.Marshal(p["PolicyDocument"])
		require.NoError(t, err)
		assert.Less(t, len(body), 10_240*2, "%s: a role's inline policies hold 10,240 characters once references are resolved", id)
	}
	assert.Less(t, len(text(t, got)), 1<<20, "a template holds 1 MiB")
	assert.Less(t, len(got["Resources"].(map[string]any)), 500, "a stack holds 500 resources")
}

func TestCluster_AddingOneTouchesNoOther(t *testing.T) {
	one := template(t, treadle.Props{Clusters: []treadle.Cluster{{Name: "blue"}}})["Resources"].(map[string]any)
	two := template(t, some())["Resources"].(map[string]any)
	for id, before := range one {
		kind := before.(map[string]any)["Type"].(string)
		if kind == "AWS::IAM::Policy" {
			continue // which names the clusters
		}
		require.Equal(t, hashes.ReplaceAllString(text(t, before), "HASH"), hashes.ReplaceAllString(text(t, two[id]), "HASH"), id)
	}
	var added []string
	for id, r := range two {
		if one[id] == nil {
			added = append(added, r.(map[string]any)["Type"].(string))
		}
	}
	slices.Sort(added)
	require.Equal(t, []string{"AWS::CloudFormation::Stack"}, added)
}

func TestProps_SayEverythingThatIsWrong(t *testing.T) {
	dir := built(t)
	for name, tt := range map[string]struct {
		props treadle.Props
		want  []string
	}{
		"a name": {treadle.Props{Clusters: []treadle.Cluster{{Name: "no/name"}}}, []string{`clusters[0].name: "no/name" is no name of an EKS cluster`}},
		"twice":  {treadle.Props{Clusters: []treadle.Cluster{{Name: "a"}, {Name: "a"}}}, []string{`clusters[1].name: "a" is there twice`}},
		"several fields": {
			treadle.Props{Architecture: "mips", KMSKeyARN: "key", RolePath: "platform", VPC: &treadle.VPC{}, NodeRoles: []string{"role"}},
			[]string{"architecture:", "kmsKeyARN:", "rolePath:", "vpc:", "nodeRoles:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.props.Build = dir
			_, err := treadle.New(nil, "Treadle", tt.props)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err := treadle.New(nil, "Treadle", treadle.Props{Build: t.TempDir()})
	require.ErrorContains(t, err, "build: function wake is not there; run make build")
}

func TestDecode_KnowsItsFields(t *testing.T) {
	var p treadle.Props
	require.NoError(t, treadle.Decode([]byte(`{"clusters":[{"name":"a"}],"nodeRepair":true}`), &p))
	require.Equal(t, treadle.Props{Clusters: []treadle.Cluster{{Name: "a"}}, NodeRepair: true}, p)
	require.NoError(t, treadle.Decode([]byte("null"), &p))
	require.ErrorContains(t, treadle.Decode([]byte(`{"cluster":"a"}`), &p), `unknown field "cluster"`)
	require.ErrorContains(t, treadle.Decode([]byte(`{} {}`), &p), "more than one")
}
