package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Whatever keeps a pod from its node is said within seconds: on the pod, and on the pool or class whose fault it is. When that is
// mended, the pod runs.
func TestSilenceIsTheDefect(t *testing.T) {
	t.Parallel()
	type condition struct {
		resource     schema.GroupVersionResource
		kind, status string
		text         string
	}
	for name, tt := range map[string]struct {
		manifests  []string
		cpu        string
		event      string // on the pod
		conditions []condition
		mend       func(t *testing.T, s *scene)
	}{
		"a NodePool whose EC2NodeClass does not exist": {
			manifests: []string{pool("silent", onDemand, family+"m5")}, cpu: "1",
			event: "EC2NodeClass silent does not exist",
			conditions: []condition{
				{nodePools, "NodeClassReady", "False", `there is no EC2NodeClass "silent"`},
				{nodePools, "Ready", "False", ""},
			},
			mend: func(t *testing.T, s *scene) { s.apply(t, class("silent", "demo")) },
		},
		"a discovery tag that no subnet has": {
			manifests: []string{class("silent", "nowhere"), pool("silent", onDemand, family+"m5")}, cpu: "1",
			event: "ubnet",
			conditions: []condition{
				{nodeClasses, "SubnetsReady", "False", "ubnet"},
				{nodeClasses, "Ready", "False", ""},
				{nodePools, "NodeClassReady", "False", "ubnet"},
			},
			mend: func(t *testing.T, s *scene) { s.apply(t, class("silent", "demo")) },
		},
		"requirements that no offering meets": {
			manifests: []string{class("silent", "demo"), pool("silent", onDemand, family+"m5", "karpenter.k8s.aws/instance-cpu=\"3\"")}, cpu: "1",
			event: "karpenter.k8s.aws/instance-cpu",
			mend: func(t *testing.T, s *scene) {
				s.apply(t, pool("silent", onDemand, family+"m5", "karpenter.k8s.aws/instance-cpu=\"4\""))
			},
		},
		"a pod that insists on a zone without subnets": {
			manifests: []string{class("silent", "demo"), pool("silent", onDemand, family+"m5", zoneLabel+"=us-east-1f")}, cpu: "1",
			event: zoneLabel,
			mend: func(t *testing.T, s *scene) {
				s.apply(t, pool("silent", onDemand, family+"m5", zoneLabel+"=us-east-1c"))
			},
		},
		"a pod that is larger than any type": {
			manifests: []string{class("silent", "demo"), pool("silent", onDemand, family+"m5")}, cpu: "120",
			event: "needs 120 CPU; the largest allowed type",
			mend: func(t *testing.T, s *scene) {
				s.apply(t, pool("silent", onDemand, family+"m5, m7i"))
			},
		},
		"a pool whose limit is reached": {
			manifests: []string{class("silent", "demo"), limited("1")}, cpu: "1",
			event: "limit",
			mend:  func(t *testing.T, s *scene) { s.apply(t, limited("100")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := turn(t)
			s.apply(t, tt.manifests...)
			s.pod(t, "silent", podSpec(tt.cpu))
			took := s.eventually(t, soon, "the pod is told", s.told("Pod", "silent", "FailedScheduling", tt.event))
			t.Logf("told after %v", took)
			for _, c := range tt.conditions {
				s.eventually(t, soon, "the condition says it", s.condition(c.resource, "silent", c.kind, c.status, c.text))
			}
			require.Empty(t, s.list(nodeClaims), "nothing is launched in vain")
			tt.mend(t, s)
			took = s.eventually(t, later, "the pod runs once it is mended", s.run("silent", 1))
			t.Logf("running %v after it was mended", took)
		})
	}
}

// limited is a pool with a limit on CPU.
func limited(cpu string) string {
	return strings.Replace(pool("silent", onDemand, family+"m5"), "spec:\n", "spec:\n  limits: {cpu: "+cpu+"}\n", 1)
}

// A limit that is reached only by what the pool has launched, raised by a patch.
func TestSilenceIsTheDefect_ALimitThatIsUsedUp(t *testing.T) {
	s := turn(t)
	s.apply(t, class("silent", "demo"), strings.Replace(limited("5"), "values: [m5]", "values: [m5]}\n        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"4\"]", 1))
	s.pod(t, "first", podSpec("3"))
	s.eventually(t, later, "the first pod runs", s.run("first", 1))
	s.pod(t, "second", podSpec("3"))
	s.eventually(t, soon, "the second pod is told", s.told("Pod", "second", "FailedScheduling", "exceed the pool's limits"))
	s.eventually(t, later, "all is settled", s.settled)
	require.Len(t, s.nodes(), 1)
	_, err := s.objects.Resource(nodePools).Patch(t.Context(), "silent", types.MergePatchType, []byte(`{"spec":{"limits":{"cpu":"8"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.eventually(t, later, "the second pod runs", s.run("second", 1))
}
