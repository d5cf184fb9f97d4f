package kubernetes_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"treadle/infra/local/kubernetes"
)

const (
	patience = time.Minute
	tick     = 100 * time.Millisecond

	unreachable = "node.kubernetes.io/unreachable"
	notReady    = "node.kubernetes.io/not-ready"
)

// start starts a control plane that ends with the test.
func start(t *testing.T, o kubernetes.Options) *kubernetes.Cluster {
	t.Helper()
	o.Dir, o.Progress = t.TempDir(), os.Stderr
	c, err := kubernetes.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, c.Stop(ctx))
		for _, id := range c.Processes() {
			require.ErrorIs(t, syscall.Kill(id, 0), syscall.ESRCH, "Stop leaves no process")
		}
	})
	return c
}

func client(t *testing.T, c *rest.Config) clientset.Interface {
	t.Helper()
	client, err := clientset.NewForConfig(c)
	require.NoError(t, err)
	return client
}

func namespace(t *testing.T, c clientset.Interface, name string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the service account controller serves the namespace", func(t *assert.CollectT) {
		_, err := c.CoreV1().ServiceAccounts(name).Get(context.Background(), "default", metav1.GetOptions{})
		require.NoError(t, err)
	})
}

func eventually(t *testing.T, what string, condition func(*assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, condition, 2*patience, tick, what)
}

// podOn returns the template of a pod that only the named node takes.
func podOn(node string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": node}},
		Spec: corev1.PodSpec{
			NodeSelector:  map[string]string{"kubernetes.io/hostname": node},
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "main", Image: "example", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			}}},
		},
	}
}

// register makes a node that says once that it is ready, and then no more.
func register(t *testing.T, c clientset.Interface, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
	node, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, notReady, node.Spec.Taints[0].Key, "admission taints a node until it is ready")
	node.ResourceVersion = "" // a controller may have written in between
	now := metav1.Now()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("20")}
	node.Status.Capacity = node.Status.Allocatable
	_, err = c.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func deploy(t *testing.T, c clientset.Interface, ns, node string, replicas int32) {
	t.Helper()
	_, err := c.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": node}},
			Template: podOn(node),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func pods(t *assert.CollectT, c clientset.Interface, ns string) []corev1.Pod {
	list, err := c.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func taintKeys(t *assert.CollectT, c clientset.Interface, name string) (keys []string) {
	node, err := c.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func TestCluster(t *testing.T) {
	t.Parallel()
	webhook := httptest.NewTLSServer(http.HandlerFunc(reviewToken))
	t.Cleanup(webhook.Close)
	cluster := start(t, kubernetes.Options{
		NodeMonitorGrace: 10 * time.Second,
		AuditLog:         true,
		TokenWebhookURL:  webhook.URL,
		TokenWebhookCA:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
	})
	admin := client(t, cluster.AdminConfig())

	// The subtests run at the same time, each in its own namespace and with its own node, inside one that ends before
	// the cluster is stopped.
	t.Run("behaviour", func(t *testing.T) {
		for sentence, test := range map[string]func(*testing.T, *kubernetes.Cluster, clientset.Interface){
			"the version is the real one":                                         sameVersion,
			"the pods of a deployment wait for a ready node and are bound to it":  bindsPods,
			"a job makes its pod and is done when the pod is":                     runsJob,
			"a deleted namespace is emptied, claims included":                     deletesNamespace,
			"a node that falls silent is tainted":                                 taintsSilentNode,
			"the pods of a node that is gone are removed":                         removesOrphans,
			"a disruption budget refuses an eviction":                             refusesEviction,
			"the token webhook says who a caller is":                              asksWebhook,
			"a node may change itself and no other one":                           restrictsNode,
			"the audit log names the controller's own account, as with real ones": auditsController,
			"the kubeconfig file is private and lets its reader in":               writesKubeconfig,
			"objects of a deleted owner are collected":                            collectsGarbage,
		} {
			t.Run(sentence, func(t *testing.T) {
				t.Parallel()
				test(t, cluster, admin)
			})
		}
	})
	require.NoError(t, cluster.Err())
}

func sameVersion(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	v, err := admin.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v1.37.2", v.GitVersion)
	require.Equal(t, "37", v.Minor)
}

func bindsPods(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	const node = "binds"
	namespace(t, admin, node)
	deploy(t, admin, node, node, 3)
	eventually(t, "all pods are refused by the scheduler", func(t *assert.CollectT) {
		all := pods(t, admin, node)
		require.Len(t, all, 3)
		for _, pod := range all {
			require.Len(t, pod.Status.Conditions, 1)
			require.Equal(t, corev1.PodReasonUnschedulable, pod.Status.Conditions[0].Reason)
		}
	})
	register(t, admin, node)
	eventually(t, "all pods are bound", func(t *assert.CollectT) {
		for _, pod := range pods(t, admin, node) {
			require.Equal(t, node, pod.Spec.NodeName)
		}
	})
}

func runsJob(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	const name = "job"
	namespace(t, admin, name)
	template := podOn(name)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := admin.BatchV1().Jobs(name).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var pod corev1.Pod
	eventually(t, "the pod exists", func(t *assert.CollectT) {
		all := pods(t, admin, name)
		require.Len(t, all, 1)
		pod = all[0]
	})
	pod.ResourceVersion = "" // the scheduler may have written in between
	pod.Status.Phase = corev1.PodSucceeded
	_, err = admin.CoreV1().Pods(name).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, "the job is complete", func(t *assert.CollectT) {
		job, err := admin.BatchV1().Jobs(name).Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, int32(1), job.Status.Succeeded)
		require.NotNil(t, job.Status.CompletionTime)
	})
}

func deletesNamespace(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	const name = "leaving"
	namespace(t, admin, name)
	deploy(t, admin, name, name, 2)
	_, err := admin.CoreV1().PersistentVolumeClaims(name).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, admin.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	eventually(t, "the namespace is gone", func(t *assert.CollectT) {
		_, err := admin.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func taintsSilentNode(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	const node = "silent"
	register(t, admin, node)
	eventually(t, "the ready node loses its taint", func(t *assert.CollectT) {
		require.Empty(t, taintKeys(t, admin, node))
	})
	eventually(t, "the silent node is unreachable", func(t *assert.CollectT) {
		require.Contains(t, taintKeys(t, admin, node), unreachable)
	})
}

func removesOrphans(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	const node = "ghost"
	namespace(t, admin, node)
	template := podOn(node)
	template.Spec.NodeName = node
	_, err := admin.CoreV1().Pods(node).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: template.Spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the pod is gone", func(t *assert.CollectT) { require.Empty(t, pods(t, admin, node)) })
}

func refusesEviction(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	const name = "budget"
	namespace(t, admin, name)
	all := intstr.FromString("100%")
	_, err := admin.PolicyV1().PodDisruptionBudgets(name).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	deploy(t, admin, name, name, 1)
	var pod corev1.Pod
	eventually(t, "the budget counts the pod", func(t *assert.CollectT) {
		budget, err := admin.PolicyV1().PodDisruptionBudgets(name).Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, int32(1), budget.Status.ExpectedPods)
		pod = pods(t, admin, name)[0]
	})
	// A pending pod may always be evicted; only running ones are protected.
	pod.ResourceVersion = ""
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = admin.CoreV1().Pods(name).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	err = admin.PolicyV1().Evictions(name).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: name}})
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
}

// reviewToken knows one token, as whose bearer it names a user with a group.
func reviewToken(w http.ResponseWriter, r *http.Request) {
	var review authv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if review.Spec.Token == "k8s-aws-v1.genuine" {
		review.Status.Authenticated = true
		review.Status.User = authv1.UserInfo{Username: "a-function", Groups: []string{"treadle"}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the caller notices
}

func asksWebhook(t *testing.T, cluster *kubernetes.Cluster, _ clientset.Interface) {
	whoAmI := func(token string) (authv1.UserInfo, error) {
		c := client(t, &rest.Config{
			Host: cluster.Endpoint(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: cluster.CA()},
		})
		review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authv1.UserInfo{}, err
		}
		return review.Status.UserInfo, nil
	}
	user, err := whoAmI("k8s-aws-v1.genuine")
	require.NoError(t, err)
	require.Equal(t, "a-function", user.Username)
	require.Contains(t, user.Groups, "treadle")
	_, err = whoAmI("k8s-aws-v1.forged")
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)
}

func restrictsNode(t *testing.T, cluster *kubernetes.Cluster, _ clientset.Interface) {
	config, err := cluster.UserConfig("system:node:own", "system:nodes")
	require.NoError(t, err)
	kubelet := client(t, config)
	for name, allowed := range map[string]bool{"own": true, "other": false} {
		_, err := kubelet.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.Equal(t, allowed, err == nil, "%s: %v", name, err)
		require.Equal(t, !allowed, apierrors.IsForbidden(err), "%s: %v", name, err)
	}
}

func auditsController(t *testing.T, cluster *kubernetes.Cluster, admin clientset.Interface) {
	const name = "audited"
	namespace(t, admin, name)
	deploy(t, admin, name, name, 1)
	eventually(t, "the log has the replica set controller's request", func(t *assert.CollectT) {
		log, err := os.ReadFile(filepath.Join(cluster.Dir(), "logs", "audit.log"))
		require.NoError(t, err)
		require.Contains(t, string(log), `"username":"system:serviceaccount:kube-system:replicaset-controller"`)
	})
}

func writesKubeconfig(t *testing.T, cluster *kubernetes.Cluster, _ clientset.Interface) {
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, cluster.WriteKubeconfig(path))
	for _, path := range []string{path, cluster.Kubeconfig()} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), cluster.Endpoint())
	}
}

func collectsGarbage(t *testing.T, _ *kubernetes.Cluster, admin clientset.Interface) {
	const name = "garbage"
	namespace(t, admin, name)
	deploy(t, admin, name, name, 1)
	eventually(t, "the pod exists", func(t *assert.CollectT) { require.Len(t, pods(t, admin, name), 1) })
	require.NoError(t, admin.AppsV1().Deployments(name).Delete(t.Context(), name, metav1.DeleteOptions{}))
	eventually(t, "the pod is gone with its owners", func(t *assert.CollectT) { require.Empty(t, pods(t, admin, name)) })
}

func TestCluster_ReportsAProcessThatDies(t *testing.T) {
	t.Parallel()
	cluster := start(t, kubernetes.Options{SkipScheduler: true, SkipController: true})
	require.NoError(t, cluster.Err())
	require.Zero(t, cluster.Process("kube-scheduler"))
	require.NoError(t, syscall.Kill(cluster.Process("kube-apiserver"), syscall.SIGKILL))
	<-cluster.Done()
	require.ErrorContains(t, cluster.Err(), "kube-apiserver ended: signal: killed")
	require.ErrorContains(t, cluster.Err(), filepath.Join(cluster.Dir(), "logs", "kube-apiserver.log"))
}

func TestStart_TellsWhyAComponentDied(t *testing.T) {
	t.Parallel()
	_, err := kubernetes.Start(t.Context(), kubernetes.Options{Dir: t.TempDir(), Controllers: []string{"nonsense"}})
	require.ErrorContains(t, err, "kube-controller-manager ended: exit status 1")
	require.ErrorContains(t, err, `unknown controller \"nonsense\"`)
}

// The second half of the test runs in a copy of the test binary, which is then killed.
func TestStart_ProcessesEndWithTheirParent(t *testing.T) {
	const variable = "KUBERNETES_TEST_PARENT"
	if os.Getenv(variable) != "" {
		cluster, err := kubernetes.Start(t.Context(), kubernetes.Options{Dir: os.Getenv(variable), SkipScheduler: true, SkipController: true})
		require.NoError(t, err)
		require.NoError(t, json.NewEncoder(os.Stdout).Encode(cluster.Processes()))
		select {}
	}
	t.Parallel()
	_, err := kubernetes.Build(t.Context(), os.Stderr) // so that the copy need not
	require.NoError(t, err)
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), fmt.Sprintf("%s=%s", variable, t.TempDir()))
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var ids []int
	require.NoError(t, json.NewDecoder(out).Decode(&ids))
	require.Len(t, ids, 2)
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	eventually(t, "all processes are gone", func(t *assert.CollectT) {
		for _, id := range ids {
			require.ErrorIs(t, syscall.Kill(id, 0), syscall.ESRCH)
		}
	})
}
