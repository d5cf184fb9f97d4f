package e2e

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	sdkscheduler "github.com/aws/aws-sdk-go-v2/service/scheduler"
	sdksqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/events"
	"treadle/infra/local/aws/fault"
	"treadle/infra/local/stack"
)

// spotScene is a stack with a Deployment running on it.
type spotScene struct {
	*stack.Stack
	kube     *clientset.Clientset
	replicas int
}

// newSpotScene starts a stack with the quick start's pool, changed as it is told.
func newSpotScene(ctx context.Context, t *testing.T, replicas int, change *strings.Replacer) *spotScene {
	t.Helper()
	s, err := stack.Start(ctx, stack.Options{
		Build: "../../../build", BootDelay: 5 * time.Second, ShutdownFor: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.Stop(stop))
	})
	manifest, err := stack.Quickstart("default.yaml")
	require.NoError(t, err)
	_, err = s.Apply(ctx, []byte(change.Replace(string(manifest))))
	require.NoError(t, err)
	kube, err := clientset.NewForConfig(s.Kubernetes.AdminConfig())
	require.NoError(t, err)
	scene := &spotScene{s, kube, replicas}
	labels := map[string]string{"app": "web"}
	_, err = kube.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(5)),
					Containers: []corev1.Container{{Name: "c", Image: "web", Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
					}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	scene.eventually(t, 90*time.Second, "the Deployment runs", func() bool { return scene.running(ctx, "") == replicas })
	scene.eventually(t, 30*time.Second, "the nodes are initialised", func() bool {
		return !slices.ContainsFunc(scene.nodes(ctx), func(n corev1.Node) bool { return n.Labels["karpenter.sh/initialized"] == "" })
	})
	return scene
}

func (s *spotScene) eventually(t *testing.T, within time.Duration, what string, done func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	require.Eventually(t, done, within, 50*time.Millisecond, what)
	return time.Since(start)
}

func (s *spotScene) nodes(ctx context.Context) []corev1.Node {
	list, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// running counts the pods that run and are not on their way out, less those on a node.
func (s *spotScene) running(ctx context.Context, less string) int {
	list, err := s.kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0
	}
	n := 0
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && p.Spec.NodeName != less {
			n++
		}
	}
	return n
}

func (s *spotScene) tainted(ctx context.Context, node string) bool {
	n, err := s.kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	return err == nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "karpenter.sh/disrupted" })
}

func (s *spotScene) told(ctx context.Context, reason string) bool {
	list, err := s.kube.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return false
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			return true
		}
	}
	return false
}

// queued counts the messages of a queue, those in flight included.
func (s *spotScene) queued(ctx context.Context, t *testing.T, queue string) string {
	t.Helper()
	out, err := s.AWS.SQS.GetQueueAttributes(ctx, &sdksqs.GetQueueAttributesInput{
		QueueUrl: sdkaws.String(queue),
		AttributeNames: []sqstypes.QueueAttributeName{
			sqstypes.QueueAttributeNameApproximateNumberOfMessages, sqstypes.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		},
	})
	require.NoError(t, err)
	return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}

func (s *spotScene) instance(id string) ec2.Instance {
	for _, one := range s.EC2.Instances() {
		if one.ID == id {
			return one
		}
	}
	return ec2.Instance{}
}

func instanceOf(n *corev1.Node) string {
	return n.Spec.ProviderID[strings.LastIndexByte(n.Spec.ProviderID, '/')+1:]
}

func TestInterruption_ReplacesANodeBeforeItIsTaken(t *testing.T) {
	t.Parallel()
	const replicas = 10
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	s := newSpotScene(ctx, t, replicas, strings.NewReplacer(`["on-demand"]`, `["spot"]`))
	node := s.nodes(ctx)[0]
	id := instanceOf(&node)
	was := len(s.EC2.Instances())

	// A recommendation is no more than news.
	require.NoError(t, s.EC2.Do(ctx, fault.Act{Act: fault.ActRebalance, Instance: id}))
	s.eventually(t, 20*time.Second, "the recommendation is told", func() bool { return s.told(ctx, "SpotRebalanceRecommendation") })
	// An event about an instance of somebody else is acknowledged once.
	detail, err := json.Marshal(map[string]string{"instance-id": "i-07b3d95ce81f2a640", "instance-action": "terminate"})
	require.NoError(t, err)
	before := len(s.Lambda.Reports("interruption"))
	s.AWS.Events.Emit(events.Event{Source: "aws.ec2", DetailType: "EC2 Spot Instance Interruption Warning", Time: time.Now(), Resources: []string{}, Detail: detail})
	s.eventually(t, 20*time.Second, "the foreign event is read", func() bool { return len(s.Lambda.Reports("interruption")) > before })
	s.eventually(t, 5*time.Second, "and acknowledged", func() bool { return s.queued(ctx, t, "treadle-interruption") == "0+0" })
	require.Equal(t, "0+0", s.queued(ctx, t, "treadle-interruption-dlq"))
	require.Equal(t, "0+0", s.queued(ctx, t, "treadle-quarantine"))
	require.False(t, s.tainted(ctx, node.Name))
	require.Equal(t, replicas, s.running(ctx, ""))
	require.Equal(t, was, len(s.EC2.Instances()), "neither made an instance")

	start := time.Now()
	require.NoError(t, s.EC2.Do(ctx, fault.Act{Act: fault.ActInterrupt, Instance: id, Copies: 2}))
	s.eventually(t, 20*time.Second, "the node is tainted", func() bool { return s.tainted(ctx, node.Name) })
	tainted := time.Since(start)
	s.eventually(t, 30*time.Second, "a replacement is asked for", func() bool { return len(s.EC2.Instances()) > was })
	requested := time.Since(start)
	s.eventually(t, time.Until(start.Add(2*time.Minute)), "all pods run elsewhere", func() bool { return s.running(ctx, node.Name) == replicas })
	elsewhere := time.Since(start)
	t.Logf("after the notice: tainted %v, replacement requested %v, all %d pods running elsewhere %v",
		tainted.Round(time.Millisecond), requested.Round(time.Millisecond), replicas, elsewhere.Round(time.Millisecond))
	require.Less(t, elsewhere, 2*time.Minute)
	require.True(t, s.told(ctx, "SpotInterrupted"))
	require.True(t, s.told(ctx, "TerminatingOnInterruption"))

	s.eventually(t, time.Minute, "the node is gone", func() bool {
		return !slices.ContainsFunc(s.nodes(ctx), func(n corev1.Node) bool { return n.Name == node.Name })
	})
	lost := s.instance(id)
	for _, n := range s.nodes(ctx) {
		other := s.instance(instanceOf(&n))
		require.False(t, other.Type == lost.Type && other.Zone == lost.Zone, "the reclaimed offering is not asked for again")
	}
	require.Equal(t, replicas, s.running(ctx, ""))
	alive := slices.DeleteFunc(s.EC2.Instances(), func(i ec2.Instance) bool { return i.State == "shutting-down" || i.State == "terminated" })
	require.Len(t, alive, len(s.nodes(ctx)), "the second copy of the notice replaced nothing")
	s.eventually(t, 10*time.Second, "nothing is left in the queue", func() bool { return s.queued(ctx, t, "treadle-interruption") == "0+0" })
}

func TestExpiry_EndsANodeAtItsTime(t *testing.T) {
	t.Parallel()
	const replicas = 2
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := newSpotScene(ctx, t, replicas, strings.NewReplacer("720h", "30s"))
	old := s.nodes(ctx)[0]
	schedules := func() []string {
		out, err := s.AWS.Scheduler.ListSchedules(ctx, &sdkscheduler.ListSchedulesInput{GroupName: sdkaws.String("treadle")})
		require.NoError(t, err)
		var names []string
		for _, one := range out.Schedules {
			names = append(names, *one.Name)
		}
		return names
	}
	s.eventually(t, 20*time.Second, "the claim has a schedule", func() bool { return len(schedules()) > 0 })
	first := schedules()
	s.eventually(t, time.Minute, "the schedule fires", func() bool { return len(s.Lambda.Reports("expiry")) > 0 })
	s.eventually(t, 30*time.Second, "the claim's end is told", func() bool { return s.told(ctx, "Expired") })
	s.eventually(t, 2*time.Minute, "the node is gone", func() bool {
		return !slices.ContainsFunc(s.nodes(ctx), func(n corev1.Node) bool { return n.Name == old.Name })
	})
	s.eventually(t, time.Minute, "its pods run elsewhere", func() bool { return s.running(ctx, old.Name) == replicas })
	for _, name := range first {
		require.NotContains(t, schedules(), name, "a schedule goes when it has fired")
	}
}
