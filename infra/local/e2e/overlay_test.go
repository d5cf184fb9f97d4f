package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const overlays = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: m5-is-paid-for}
spec:
  price: "0.01"
  requirements:
    - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: a-second-opinion}
spec:
  priceAdjustment: "+10%"
  requirements:
    - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
`

// TestOverlay_DecidesWhichTypeIsLaunched has a type that lists call the dearer one be the cheaper.
func TestOverlay_DecidesWhichTypeIsLaunched(t *testing.T) {
	s := turn(t)
	resource := schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1alpha1", Resource: "nodeoverlays"}
	t.Cleanup(func() { s.end(context.WithoutCancel(t.Context()), t, resource) })
	s.apply(t, class("general", "demo"), pool("general", onDemand, typeIs+"m5.large,m6a.large"), overlays)
	s.eventually(t, soon, "one overlay is ready", s.condition(resource, "m5-is-paid-for", "Ready", "True", ""))
	s.eventually(t, soon, "the other one is told why it is not", s.condition(resource, "a-second-opinion", "ValidationSucceeded", "False", "nodeoverlay m5-is-paid-for of the same weight"))
	s.deploy(t, "a", 1, podSpec("500m"))
	s.eventually(t, later, "the pod runs", s.run("a", 1))
	require.Len(t, s.nodes(), 1)
	require.Equal(t, "m5.large", s.nodes()[0].Labels[corev1.LabelInstanceTypeStable])
}
