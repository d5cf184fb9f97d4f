package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/stack"
)

// A stock NodePool and EC2NodeClass, every common kind of workload, and back to zero.
func TestMainJob(t *testing.T) {
	s := turn(t)
	ctx := t.Context()
	for _, file := range []string{"default.yaml", "gpu.yaml"} {
		manifest, err := stack.Quickstart(file)
		require.NoError(t, err)
		s.apply(t, string(manifest))
	}
	s.deploy(t, "web", 6, podSpec("500m"))
	s.daemons(t, "agent", nil)
	_, err := s.kube.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{
		ObjectMeta: labelled("report"),
		Spec: batchv1.JobSpec{
			Completions: new(int32(3)), Parallelism: new(int32(3)),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "report"}}, Spec: ending(podSpec("1"))},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	zonal := podSpec("1")
	zonal.NodeSelector = map[string]string{zoneLabel: "us-east-1b"}
	s.pod(t, "zonal", zonal)
	gpu := podSpec("2")
	one := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	gpu.Containers[0].Resources.Limits = one
	gpu.Containers[0].Resources.Requests["nvidia.com/gpu"] = one["nvidia.com/gpu"]
	gpu.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	s.pod(t, "gpu", gpu)

	took := s.eventually(t, later, "everything runs", func() error {
		job, err := s.kube.BatchV1().Jobs("default").Get(ctx, "report", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded < 3 {
			err = fmt.Errorf("%d of 3 pods of the Job are done", job.Status.Succeeded)
		}
		return errors.Join(err, s.run("web", 6)(), s.run("zonal", 1)(), s.run("gpu", 1)())
	})
	t.Logf("everything ran after %v on %d nodes", took.Round(time.Millisecond), len(s.nodes()))
	s.eventually(t, later, "nodes are initialised", s.settled)
	s.eventually(t, soon, "a daemon runs on each node without a taint", func() error {
		set, err := s.kube.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && (set.Status.NumberReady == 0 || set.Status.NumberReady != set.Status.DesiredNumberScheduled) {
			err = fmt.Errorf("%d of %d daemons are ready", set.Status.NumberReady, set.Status.DesiredNumberScheduled)
		}
		return err
	})
	for _, n := range s.nodes() {
		s.checkNode(t, n)
	}
	require.Equal(t, "us-east-1b", s.nodeOf(t, "zonal").Labels[zoneLabel])
	require.Equal(t, "gpu", s.nodeOf(t, "gpu").Labels["karpenter.sh/nodepool"])
	s.eventually(t, soon, "instances are named after their nodes", s.tagged)
	for _, columns := range []struct {
		resource, path string
		mayBeEmpty     []string
	}{
		{"nodeclaims", "/apis/karpenter.sh/v1/nodeclaims", []string{"Drifted"}}, // which none has (D-070)
		{"nodepools", "/apis/karpenter.sh/v1/nodepools", []string{"Weight"}},    // which neither pool gives
		{"ec2nodeclasses", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses", nil},
	} {
		s.eventually(t, soon, "every column of "+columns.resource+" is filled", func() error { return s.columns(columns.path, columns.mayBeEmpty) })
	}

	// The DaemonSet stays: its pods keep no node.
	s.undeploy(t, "web")
	for _, name := range []string{"zonal", "gpu"} {
		require.NoError(t, s.kube.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}))
	}
	took = s.eventually(t, 3*time.Minute, "the cluster is back at zero", func() error { return errors.Join(s.empty(), s.none(nodeClaims)) })
	t.Logf("zero nodes %v after the pods went; the pools wait a minute", took.Round(time.Millisecond))
	require.Greater(t, took, time.Minute, "consolidateAfter is kept")
}

func ending(spec corev1.PodSpec) corev1.PodSpec {
	spec.RestartPolicy = corev1.RestartPolicyNever
	return spec
}

// daemons creates a small DaemonSet.
func (s *scene) daemons(t *testing.T, app string, annotations map[string]string) {
	t.Helper()
	labels := map[string]string{"app": app}
	_, err := s.kube.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: labelled(app),
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: podSpec("100m")},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// nodeOf returns the node that the pod called name runs on.
func (s *scene) nodeOf(t *testing.T, name string) *corev1.Node {
	t.Helper()
	pod, err := s.kube.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	node, err := s.kube.CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	return node
}

// checkNode holds a node against the catalogue, its instance and its claim.
func (s *scene) checkNode(t *testing.T, n corev1.Node) {
	t.Helper()
	at := slices.IndexFunc(s.instances(), func(i ec2.Instance) bool { return i.ProviderID() == n.Spec.ProviderID })
	require.GreaterOrEqual(t, at, 0, "node %s has an instance", n.Name)
	instance := s.instances()[at]
	kind, found := ec2.LookupType(instance.Type)
	require.True(t, found)
	pool := n.Labels["karpenter.sh/nodepool"]
	for key, want := range map[string]string{
		"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", "karpenter.k8s.aws/ec2nodeclass": "default",
		capacityIs: instance.CapacityType, typeLabel: instance.Type, zoneLabel: instance.Zone, "topology.k8s.aws/zone-id": instance.ZoneID,
		"topology.kubernetes.io/region": "us-east-1", "kubernetes.io/arch": kind.Arch, "kubernetes.io/os": "linux",
		"karpenter.k8s.aws/instance-family": kind.Family(), "karpenter.k8s.aws/instance-size": kind.Size(),
		"karpenter.k8s.aws/instance-category": kind.Category, "karpenter.k8s.aws/instance-generation": strconv.Itoa(kind.Generation),
		"karpenter.k8s.aws/instance-cpu": strconv.Itoa(kind.VCPU), "karpenter.k8s.aws/instance-memory": strconv.Itoa(kind.MemoryMiB),
	} {
		require.Equal(t, want, n.Labels[key], "label %s of node %s", key, n.Name)
	}
	require.Contains(t, n.Finalizers, "karpenter.sh/termination")
	for _, annotation := range []string{"karpenter.sh/nodepool-hash", "karpenter.k8s.aws/ec2nodeclass-hash"} {
		require.NotEmpty(t, n.Annotations[annotation], "annotation %s of node %s", annotation, n.Name)
	}
	require.Len(t, n.OwnerReferences, 1)
	require.Equal(t, "NodeClaim", n.OwnerReferences[0].Kind)
	claim, err := s.objects.Resource(nodeClaims).Get(t.Context(), n.OwnerReferences[0].Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, claim.GetUID(), n.OwnerReferences[0].UID)
	var keys []string
	for _, taint := range n.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	if pool == "gpu" {
		require.Equal(t, []string{"nvidia.com/gpu"}, keys)
		require.Positive(t, n.Status.Allocatable.Name("nvidia.com/gpu", resource.DecimalSI).Value())
	} else {
		require.Empty(t, keys)
	}
	for key, want := range map[string]string{
		"kubernetes.io/cluster/demo": "owned", "eks:eks-cluster-name": "demo", "karpenter.sh/nodepool": pool, "karpenter.k8s.aws/ec2nodeclass": "default",
	} {
		require.Equal(t, want, instance.Tags[key], "tag %s of instance %s", key, instance.ID)
	}
}

// tagged objects while an instance lacks the name of its node or its claim.
func (s *scene) tagged() error {
	claims := map[string]string{}
	for _, n := range s.nodes() {
		claims[n.Spec.ProviderID] = n.OwnerReferences[0].Name
	}
	for _, i := range s.instances() {
		if i.Tags["Name"] != i.PrivateDNSName || i.Tags["karpenter.sh/nodeclaim"] != claims[i.ProviderID()] {
			return fmt.Errorf("instance %s has tags %v", i.ID, i.Tags)
		}
	}
	return nil
}

// columns objects while a cell is empty in what kubectl get -o wide shows.
func (s *scene) columns(path string, mayBeEmpty []string) error {
	body, err := s.kube.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		DoRaw(context.Background())
	if err != nil {
		return err
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		return err
	}
	if len(table.Rows) == 0 || len(table.ColumnDefinitions) < 4 {
		return fmt.Errorf("%d rows of %d columns", len(table.Rows), len(table.ColumnDefinitions))
	}
	for _, row := range table.Rows {
		for i, column := range table.ColumnDefinitions {
			if cell := row.Cells[i]; (cell == nil || cell == "") && !slices.Contains(mayBeEmpty, column.Name) {
				return fmt.Errorf("column %s of %v is empty", column.Name, row.Cells[0])
			}
		}
	}
	return nil
}
