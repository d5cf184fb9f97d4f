package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Deleting a Node, or its NodeClaim, drains the node as the PodDisruptionBudget allows, ends the instance and lets both objects go.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, s *scene, node corev1.Node) error{
		"kubectl delete node": func(t *testing.T, s *scene, node corev1.Node) error {
			return s.kube.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{})
		},
		"kubectl delete nodeclaim": func(t *testing.T, s *scene, node corev1.Node) error {
			return s.objects.Resource(nodeClaims).Delete(t.Context(), node.OwnerReferences[0].Name, metav1.DeleteOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := turn(t)
			const replicas = 4
			s.apply(t, class("drain", "demo"), pool("drain", onDemand, family+"m5"))
			s.deploy(t, "drain", replicas, podSpec("400m"))
			_, err := s.kube.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: "drain"},
				Spec: policyv1.PodDisruptionBudgetSpec{
					MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "drain"}},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			s.eventually(t, later, "the pods run", s.run("drain", replicas))
			s.eventually(t, later, "on one node", s.settled)
			require.Len(t, s.nodes(), 1)
			node := s.nodes()[0]
			instance := s.instances()[0].ID

			require.NoError(t, remove(t, s, node))
			least := replicas
			took := s.eventually(t, 2*later, "the node is gone and all pods run on another", func() error {
				running := len(s.running("drain"))
				least = min(least, running)
				if state := s.state(instance); running < replicas-1 && state != "running" {
					return fmt.Errorf("the instance is %s while %d pods run", state, running)
				}
				_, err := s.kube.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
				if err == nil {
					return errors.New("the node stands")
				}
				return errors.Join(s.run("drain", replicas)(), s.settled())
			})
			t.Logf("drained in %v, never fewer than %d of %d pods running", took.Round(time.Millisecond), least, replicas)
			require.Equal(t, replicas-1, least, "one at a time")
			require.Equal(t, "terminated", s.state(instance))
			require.NotEqual(t, node.Name, s.nodes()[0].Name)
		})
	}
}

// A daemon with do-not-disrupt keeps a node that nothing else needs, until the annotation goes.
func TestDoNotDisrupt(t *testing.T) {
	s := turn(t)
	s.apply(t, class("keep", "demo"), pool("keep", onDemand, family+"m5"))
	s.daemons(t, "agent", map[string]string{"karpenter.sh/do-not-disrupt": "true"})
	s.pod(t, "guest", podSpec("1"))
	s.eventually(t, later, "pod and daemon run", func() error { return errors.Join(s.run("guest", 1)(), s.run("agent", 1)()) })
	s.eventually(t, later, "on one node", s.settled)
	require.NoError(t, s.kube.CoreV1().Pods("default").Delete(t.Context(), "guest", metav1.DeleteOptions{}))
	s.eventually(t, soon, "the pod is gone", s.run("guest", 0))
	looks := len(s.Lambda.Reports("lifecycle"))
	s.wake(t, "lifecycle")
	s.eventually(t, later, "lifecycle has looked", func() error {
		if len(s.Lambda.Reports("lifecycle")) < looks+2 {
			return errors.New("no second look yet")
		}
		return nil
	})
	require.NoError(t, s.settled(), "the node stands")
	require.Len(t, s.nodes(), 1)
	require.Empty(t, s.nodes()[0].Spec.Taints)
	require.NoError(t, s.kube.AppsV1().DaemonSets("default").Delete(t.Context(), "agent", metav1.DeleteOptions{}))
	s.eventually(t, later, "now it goes", func() error { return errors.Join(s.empty(), s.none(nodeClaims)) })
}
