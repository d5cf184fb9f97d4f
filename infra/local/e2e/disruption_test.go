package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDisruption_RenewsAndConsolidates changes a pool under running pods, and then takes most of the pods away.
func TestDisruption_RenewsAndConsolidates(t *testing.T) {
	s := turn(t)
	manifest := strings.Replace(pool("general", onDemand, typeIs+"m5.xlarge,m5.2xlarge"), "consolidationPolicy: WhenEmpty,", "consolidationPolicy: WhenEmptyOrUnderutilized,", 1)
	s.apply(t, class("general", "demo"), manifest)
	for _, app := range []string{"a", "b"} {
		spec := podSpec("1500m")
		spec.Affinity = apart(app)
		s.deploy(t, app, 2, spec)
	}
	s.eventually(t, later, "all pods run", func() error { return errors.Join(s.run("a", 2)(), s.run("b", 2)()) })
	s.eventually(t, later, "nodes are initialised", s.settled)

	before := map[string]bool{}
	for _, n := range s.nodes() {
		before[n.Name] = true
	}
	s.apply(t, strings.Replace(manifest, "  template:\n", "  template:\n    metadata: {labels: {generation: second}}\n", 1))
	took := s.eventually(t, 2*time.Minute, "every node is of the pool's second generation, and every pod runs", func() error {
		var errs []error
		for _, n := range s.nodes() {
			if n.Labels["generation"] != "second" {
				errs = append(errs, fmt.Errorf("node %s is of the first generation", n.Name))
			}
			if before[n.Name] {
				errs = append(errs, fmt.Errorf("node %s is an old one", n.Name))
			}
		}
		return errors.Join(append(errs, s.run("a", 2)(), s.run("b", 2)())...)
	})
	t.Logf("renewed after %v", took.Round(time.Millisecond))
	s.eventually(t, later, "nodes are initialised", s.settled)

	s.undeploy(t, "b")
	_, err := s.kube.AppsV1().Deployments("default").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"template":{"spec":{"affinity":null}}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.eventually(t, later, "the pods run side by side if they may", s.run("a", 2))
	took = s.eventually(t, 3*time.Minute, "one node is left for both pods", func() error {
		if n := len(s.nodes()); n != 1 {
			return fmt.Errorf("there are %d nodes", n)
		}
		return s.run("a", 2)()
	})
	t.Logf("consolidated after %v", took.Round(time.Millisecond))
}
