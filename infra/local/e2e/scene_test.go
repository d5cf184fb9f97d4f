package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	sdkec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	sdksqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
	"treadle/infra/local/stack"
)

const (
	build = "../../../build"
	// soon is within what an answer to a hint may take; the clock of the sweep is not needed for it.
	soon = 10 * time.Second
	// later is a generous deadline for whatever takes a node or more.
	later = 90 * time.Second
	poll  = 100 * time.Millisecond
)

// scene is a running stack and its cluster's administrator.
type scene struct {
	*stack.Stack
	kube    *clientset.Clientset
	objects dynamic.Interface
}

// shared is the stack that tests take turns with.
var shared struct {
	sync.Mutex
	*scene
}

func TestMain(m *testing.M) {
	for _, name := range stack.Functions() {
		if _, err := os.Stat(filepath.Join(build, name, "bootstrap")); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: %v\nThe functions are not built: run make build at the top of the repository first.\n", err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if shared.scene != nil {
		if err := shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: stop the shared stack:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// turn gives the test the shared stack when the others are done with it.
func turn(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	shared.Lock()
	t.Cleanup(shared.Unlock)
	if shared.scene == nil {
		// A node is ready last, as real ones are: were it ready first, a pod could be bound the moment that the unregistered taint goes, and
		// the taint eviction controller, which may still see that taint, would delete it.
		s, err := start(t.Context(), stack.Options{ShutdownFor: time.Second, ReadyDelay: 2 * time.Second, SweepEvery: 10 * time.Second})
		require.NoError(t, err)
		shared.scene = s
	}
	t.Cleanup(func() { shared.leave(t) })
	return shared.scene
}

// own gives the test a stack of its own, which ends with it.
func own(t testing.TB, o stack.Options) *scene {
	t.Helper()
	s, err := start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.stop()) })
	return s
}

func start(ctx context.Context, o stack.Options) (*scene, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	o.Build = build
	running, err := stack.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &scene{Stack: running}
	if s.kube, err = clientset.NewForConfig(running.Kubernetes.AdminConfig()); err == nil {
		s.objects, err = dynamic.NewForConfig(running.Kubernetes.AdminConfig())
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *scene) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Stop(ctx)
}

// leave takes away whatever is in the cluster and holds that nothing stays behind: no object, instance, launch template, or message.
func (s *scene) leave(t *testing.T) {
	ctx := context.Background()
	s.EC2.Faults().Clear()
	s.Faults.Clear()
	if t.Failed() {
		s.dump(t)
	}
	s.unload(t)
	s.end(ctx, t, nodePools)
	s.end(ctx, t, nodeClasses)
	s.eventually(t, 2*later, "everything is gone", func() error {
		return errors.Join(s.empty(), s.none(nodePools), s.none(nodeClasses), s.none(nodeClaims))
	})
	templates, err := s.EC2.DescribeLaunchTemplates(ctx, &sdkec2.DescribeLaunchTemplatesInput{})
	require.NoError(t, err)
	require.Empty(t, templates.LaunchTemplates, "launch templates go with their class")
	require.Empty(t, s.EC2.Calls().TokensOfSeveralLaunches(), "no client token launched twice")
	s.eventually(t, later, "the queues are empty", s.quiet)
	s.rights(t)
	for _, queue := range []string{"treadle-provision-dlq.fifo", "treadle-lifecycle-dlq.fifo", "treadle-disruption-dlq.fifo", "treadle-interruption-dlq", "treadle-quarantine"} {
		require.Zero(t, s.queued(t, queue), "%s is empty", queue)
	}
}

// unload ends the workload.
func (s *scene) unload(t *testing.T) {
	t.Helper()
	for _, resource := range []schema.GroupVersionResource{
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "apps", Version: "v1", Resource: "daemonsets"},
		{Group: "batch", Version: "v1", Resource: "jobs"},
		{Version: "v1", Resource: "pods"},
	} {
		err := s.objects.Resource(resource).Namespace("default").DeleteCollection(context.Background(),
			metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{})
		require.NoError(t, err)
	}
}

func (s *scene) end(ctx context.Context, t *testing.T, resource schema.GroupVersionResource) {
	t.Helper()
	require.NoError(t, s.objects.Resource(resource).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

var (
	nodeClaims  = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
	nodePools   = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	nodeClasses = schema.GroupVersionResource{Group: "karpenter.k8s.aws", Version: "v1", Resource: "ec2nodeclasses"}
)

// eventually asks until there is no objection and returns how long that took.
func (s *scene) eventually(t testing.TB, within time.Duration, what string, objection func() error) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := objection()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > within {
			s.dump(t)
			require.NoError(t, err, "within %v: %s", within, what)
		}
		<-tick.C
	}
}

// dump says what the cluster looks like, for whoever reads a failure.
func (s *scene) dump(t testing.TB) {
	t.Helper()
	for _, p := range s.pods("") {
		t.Logf("pod %s on %q: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
	}
	for _, c := range s.list(nodeClaims) {
		conditions, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
		t.Logf("nodeclaim %s, deleted %v, finalizers %v: %v", c.GetName(), c.GetDeletionTimestamp(), c.GetFinalizers(), conditions)
	}
	for _, n := range s.nodes() {
		t.Logf("node %s %s, deleted %v, finalizers %v, taints %v", n.Name, n.Spec.ProviderID, n.DeletionTimestamp, n.Finalizers, n.Spec.Taints)
	}
	for _, i := range s.instances() {
		t.Logf("instance %s %s in %s: %s", i.ID, i.Type, i.Zone, i.State)
	}
	for _, e := range last(s.events(), 30) {
		t.Logf("event on %s %s: %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
	}
	for _, function := range stack.Functions() {
		for _, line := range last(s.log(t, function), 12) {
			t.Logf("%s: %s", function, line.raw)
		}
	}
}

func last[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

func (s *scene) nodes() []corev1.Node {
	list, err := s.kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// pods returns those of namespace default that carry the label app; all when empty.
func (s *scene) pods(app string) []corev1.Pod {
	options := metav1.ListOptions{}
	if app != "" {
		options.LabelSelector = "app=" + app
	}
	list, err := s.kube.CoreV1().Pods("default").List(context.Background(), options)
	if err != nil {
		return nil
	}
	return list.Items
}

func (s *scene) list(resource schema.GroupVersionResource) []unstructured.Unstructured {
	list, err := s.objects.Resource(resource).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

func (s *scene) none(resource schema.GroupVersionResource) error {
	list, err := s.objects.Resource(resource).List(context.Background(), metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("%d %s stand", len(list.Items), resource.Resource)
	}
	return err
}

func (s *scene) events() []eventsv1.Event {
	list, err := s.kube.EventsV1().Events("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// instances returns those that have not ended.
func (s *scene) instances() []ec2.Instance {
	return slices.DeleteFunc(s.EC2.Instances(), func(i ec2.Instance) bool { return i.State == "terminated" })
}

// running returns the pods of an app that run and are not on their way out.
func (s *scene) running(app string) []corev1.Pod {
	return slices.DeleteFunc(s.pods(app), func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil
	})
}

// run objects until exactly n pods of an app run.
func (s *scene) run(app string, n int) func() error {
	return func() error {
		if got := len(s.running(app)); got != n {
			return fmt.Errorf("%d of %d pods of %s run", got, n, app)
		}
		return nil
	}
}

// even objects unless instances, NodeClaims and Nodes are the same things.
func (s *scene) even() error {
	machines, claims, nodes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, i := range s.instances() {
		machines[i.ProviderID()] = true
	}
	for _, c := range s.list(nodeClaims) {
		id, _, _ := unstructured.NestedString(c.Object, "status", "providerID")
		if claims[id] {
			return fmt.Errorf("two nodeclaims have instance %q", id)
		}
		claims[id] = true
	}
	for _, n := range s.nodes() {
		nodes[n.Spec.ProviderID] = true
	}
	for id := range machines {
		if !claims[id] || !nodes[id] {
			return fmt.Errorf("instance %s: nodeclaim %v, node %v", id, claims[id], nodes[id])
		}
	}
	if len(claims) != len(machines) || len(nodes) != len(machines) {
		return fmt.Errorf("%d instances, %d nodeclaims, %d nodes", len(machines), len(claims), len(nodes))
	}
	return nil
}

// settled objects until every node is initialised, and instances, NodeClaims and Nodes are the same.
func (s *scene) settled() error {
	for _, n := range s.nodes() {
		if n.Labels["karpenter.sh/initialized"] != "true" || n.DeletionTimestamp != nil {
			return fmt.Errorf("node %s is not initialised", n.Name)
		}
	}
	return s.even()
}

// empty objects as long as there is a node, or an instance that has not ended.
func (s *scene) empty() error {
	if n := len(s.nodes()); n > 0 {
		return fmt.Errorf("%d nodes stand", n)
	}
	if left := s.instances(); len(left) > 0 {
		return fmt.Errorf("%d instances have not ended", len(left))
	}
	return nil
}

// told objects until an Event on an object says so. In either reason or text an empty string matches all.
func (s *scene) told(kind, name, reason, text string) func() error {
	return func() error {
		for _, e := range s.events() {
			if e.Regarding.Kind == kind && (name == "" || e.Regarding.Name == name) && (reason == "" || e.Reason == reason) && strings.Contains(e.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("no Event %s on %s %s says %q", reason, kind, name, text)
	}
}

// condition objects until an object has a condition with the status, and a message that has the text in it.
func (s *scene) condition(resource schema.GroupVersionResource, name, kind, status, text string) func() error {
	return func() error {
		object, err := s.objects.Resource(resource).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, one := range conditions {
			c, _ := one.(map[string]any)
			if c["type"] == kind {
				message, _ := c["message"].(string)
				if c["status"] == status && strings.Contains(message, text) {
					return nil
				}
				return fmt.Errorf("%s %s: condition %s is %v: %s", resource.Resource, name, kind, c["status"], message)
			}
		}
		return fmt.Errorf("%s %s has no condition %s", resource.Resource, name, kind)
	}
}

func (s *scene) queueURL(t testing.TB, name string) *string {
	t.Helper()
	out, err := s.AWS.SQS.GetQueueUrl(context.Background(), &sdksqs.GetQueueUrlInput{QueueName: sdkaws.String(name)})
	require.NoError(t, err)
	return out.QueueUrl
}

// queued counts the messages of a queue: visible, delayed and in flight.
func (s *scene) queued(t testing.TB, name string) int {
	t.Helper()
	out, err := s.AWS.SQS.GetQueueAttributes(context.Background(), &sdksqs.GetQueueAttributesInput{
		QueueUrl: s.queueURL(t, name), AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll},
	})
	require.NoError(t, err)
	sum := 0
	for _, kind := range []sqstypes.QueueAttributeName{
		sqstypes.QueueAttributeNameApproximateNumberOfMessages,
		sqstypes.QueueAttributeNameApproximateNumberOfMessagesDelayed,
		sqstypes.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
	} {
		var n int
		_, err := fmt.Sscan(out.Attributes[string(kind)], &n)
		require.NoError(t, err, "%s of %s", kind, name)
		sum += n
	}
	return sum
}

// quiet objects while there is a message in the queues that functions are fed from.
func (s *scene) quiet() error {
	for _, queue := range []string{"treadle-provision.fifo", "treadle-lifecycle.fifo", "treadle-disruption.fifo", "treadle-interruption"} {
		out, err := s.AWS.SQS.GetQueueUrl(context.Background(), &sdksqs.GetQueueUrlInput{QueueName: sdkaws.String(queue)})
		if err != nil {
			return err
		}
		got, err := s.AWS.SQS.GetQueueAttributes(context.Background(), &sdksqs.GetQueueAttributesInput{
			QueueUrl: out.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll},
		})
		if err != nil {
			return err
		}
		for name, n := range got.Attributes {
			if strings.HasPrefix(name, "ApproximateNumberOfMessages") && n != "0" {
				return fmt.Errorf("%s: %s is %s", queue, name, n)
			}
		}
	}
	return nil
}

// wake asks a function for a look at the cluster, as the webhook and the sweep do.
func (s *scene) wake(t testing.TB, function string) {
	t.Helper()
	_, err := s.AWS.SQS.SendMessage(context.Background(), &sdksqs.SendMessageInput{
		QueueUrl: s.queueURL(t, "treadle-"+function+".fifo"), MessageBody: sdkaws.String(`{"cluster":"demo","why":"test"}`),
		MessageGroupId: sdkaws.String("demo"), MessageDeduplicationId: sdkaws.String(fmt.Sprint("test|", time.Now().UnixNano())),
	})
	require.NoError(t, err)
}

// line is one line of a function's log.
type line struct {
	Level, Message, RequestID string
	raw                       string
}

// log returns what a function has written so far.
func (s *scene) log(t testing.TB, function string) []line {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(s.Dir, "functions", function+".log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var out []line
	scan := bufio.NewScanner(bytes.NewReader(body))
	scan.Buffer(nil, 1<<24)
	for scan.Scan() {
		one := line{raw: scan.Text()}
		_ = json.Unmarshal(scan.Bytes(), &one) // what is no JSON is a line all the same
		out = append(out, one)
	}
	require.NoError(t, scan.Err())
	return out
}

// count counts the lines with a message that a function has written.
func (s *scene) count(t testing.TB, function, message string) int {
	t.Helper()
	n := 0
	for _, l := range s.log(t, function) {
		if l.Message == message {
			n++
		}
	}
	return n
}

// fault puts a rule into force in EC2 and returns how to lift it.
func (s *scene) fault(t testing.TB, rule fault.Rule) (lift func()) {
	t.Helper()
	ids, err := s.EC2.Faults().Add(rule)
	require.NoError(t, err)
	return func() { require.True(t, s.EC2.Faults().Remove(ids[0])) }
}

// fired counts how often a kind of fault has acted since it was last forgotten.
func (s *scene) fired(kind fault.Kind) int {
	n := 0
	for _, e := range s.EC2.Faults().Fired() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
