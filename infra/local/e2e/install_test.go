package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	// Whoever is woken now has nothing to do. Warm functions would believe for a minute that the cluster is served, and be denied.
	s.Lambda.Kill("provision")
	s.Lambda.Kill("lifecycle")
	s.wake(t, "provision")
	s.wake(t, "lifecycle")
	s.eventually(t, later, "wake-ups are acknowledged", s.quiet)
	require.Empty(t, s.nodes()[0].Finalizers, "nobody puts a finalizer on any more")

	require.NoError(t, s.Install(ctx, ctx))
	s.deploy(t, "more", 3, podSpec("3"))
	s.eventually(t, later, "new pods run", s.run("more", 3))
	require.NoError(t, s.run("stay", 3)(), "the old ones still do")
	require.NotEmpty(t, s.instances())
	s.eventually(t, later, "the node that stayed is held again", func() error {
		for _, n := range s.nodes() {
			if !slices.Contains(n.Finalizers, "karpenter.sh/termination") {
				return fmt.Errorf("node %s has no finalizer", n.Name)
			}
		}
		return s.settled()
	})
}

// The token is changed over and over while the API server calls. A call may be refused while the change is under way: wake believes what it
// has read for two seconds, and the API server its old configuration for a moment. Afterwards none is.
func TestInstall_ChangesTheTokenUnderWay(t *testing.T) {
	s := turn(t)
	ctx := t.Context()
	s.apply(t, class("token", "demo"), pool("token", onDemand, family+"m5"))
	tokens := map[string]bool{}
	for round := range 6 {
		// Pods for which there is no room, so that the scheduler has something to say; fresh ones each round.
		s.deploy(t, fmt.Sprintf("token-%d", round), 5, podSpec("200"))
		require.NoError(t, s.Install(ctx, ctx))
		tokens[s.webhookURL(t)] = true
	}
	require.Len(t, tokens, 6, "each installation has a token of its own")
	sent := s.sentByWake()
	s.eventually(t, soon, "the new token is known", func() error {
		s.remark(t)
		if s.sentByWake() == sent {
			return errors.New("no call came through yet")
		}
		return nil
	})
	refused := s.warnings(t)
	sent = s.sentByWake()
	for round := range 5 {
		s.deploy(t, fmt.Sprintf("after-%d", round), 5, podSpec("200"))
	}
	s.deploy(t, "last", 1, podSpec("1"))
	s.eventually(t, later, "a pod is heard", s.run("last", 1))
	require.Greater(t, s.sentByWake(), sent, "calls came through")
	require.Equal(t, refused, s.warnings(t), "and none was refused")
}

// remark changes a pool in a way that matters to nobody, so that the webhook is called.
func (s *scene) remark(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/remark":"%d"}}}`, time.Now().UnixNano())
	_, err := s.objects.Resource(nodePools).Patch(t.Context(), "token", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}
