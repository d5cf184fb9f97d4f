package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	bindings     = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	webhooks     = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

// Treadle can be installed again and again, taken out without leaving anything that waits for it, and put back.
func TestInstallAndUninstall(t *testing.T) {
	s := turn(t)
	ctx := t.Context()
	require.NoError(t, s.Install(ctx, ctx), "again")
	s.apply(t, class("stay", "demo"), pool("stay", onDemand, family+"m5"))
	s.deploy(t, "stay", 3, podSpec("500m"))
	s.eventually(t, later, "the pods run", s.run("stay", 3))
	s.eventually(t, later, "on one node", s.settled)
	s.eventually(t, later, "nothing is under way", s.quiet)

	require.NoError(t, s.Call(ctx, "install", map[string]string{"action": "uninstall", "cluster": "demo"}))
	require.NoError(t, s.Call(ctx, "install", map[string]string{"action": "uninstall", "cluster": "demo"}), "again")
	for _, resource := range []schema.GroupVersionResource{nodeClaims, nodePools, nodeClasses} {
		objects := s.list(resource)
		require.NotEmpty(t, objects, "%s stay", resource.Resource)
		for _, o := range objects {
			require.Empty(t, o.GetFinalizers(), "%s %s", resource.Resource, o.GetName())
		}
	}
	nodes := s.nodes()
	require.Len(t, nodes, 1, "nodes stay")
	require.Empty(t, nodes[0].Finalizers)
	require.NoError(t, s.run("stay", 3)(), "and so do their pods")
	_, err := s.objects.Resource(webhooks).Get(ctx, "treadle", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "no webhook: %v", err)
	for _, resource := range []schema.GroupVersionResource{clusterRoles, bindings} {
		for _, o := range s.list(resource) {
			require.NotContains(t, o.GetName(), "treadle", resource.Resource)
		}
	}
	// Whoever is woken now has nothing to do.
	s.wake(t, "provision")
	s.wake(t, "lifecycle")
	s.eventually(t, later, "wake-ups are acknowledged", s.quiet)
	require.Empty(t, s.nodes()[0].Finalizers, "nobody puts a finalizer on any more")

	require.NoError(t, s.Install(ctx, ctx))
	s.deploy(t, "more", 3, podSpec("3"))
	s.eventually(t, later, "new pods run", s.run("more", 3))
	require.NoError(t, s.run("stay", 3)(), "the old ones still do")
	require.NotEmpty(t, s.instances())
	s.eventually(t, later, "the node that stayed is managed again", s.settled)
}

// The token is changed over and over while the API server calls: no call is refused.
func TestInstall_ChangesTheTokenUnderWay(t *testing.T) {
	s := turn(t)
	ctx := t.Context()
	s.apply(t, class("token", "demo"), pool("token", onDemand, family+"m5"))
	refused, sent := s.warnings(t), s.sentByWake()
	tokens := map[string]bool{}
	for round := range 6 {
		// Pods for which there is no room, so that the scheduler has something to say; a fresh one each round.
		s.deploy(t, fmt.Sprintf("token-%d", round), 5, podSpec("200"))
		require.NoError(t, s.Install(ctx, ctx))
		tokens[s.webhookURL(t)] = true
	}
	require.Len(t, tokens, 6, "each installation has a token of its own")
	s.deploy(t, "last", 1, podSpec("1"))
	s.eventually(t, later, "a pod is still heard", s.run("last", 1))
	require.Greater(t, s.sentByWake(), sent, "calls came through")
	require.Equal(t, refused, s.warnings(t), "and none was refused")
}
