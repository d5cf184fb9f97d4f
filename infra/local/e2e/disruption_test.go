package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestDisruption_RenewsAndConsolidates changes a pool under running pods, and then takes most of the pods away.
func TestDisruption_RenewsAndConsolidates(t *testing.T) {
	s := turn(t)
	manifest := strings.Replace(pool("general", onDemand, typeIs+"m5.xlarge,m5.2xlarge"), "consolidationPolicy: WhenEmpty,", "consolidationPolicy: WhenEmptyOrUnderutilized,", 1)
	s.apply(t, class("general", "demo"), manifest)
	spread := podSpec("2")
	spread.Affinity = apart("b")
	s.deploy(t, "b", 2, spread) // on two nodes, and then there is just room for one more pod on each
	s.eventually(t, later, "the first pods run", s.run("b", 2))
	s.deploy(t, "a", 2, podSpec("1500m"))
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
	took = s.eventually(t, 3*time.Minute, "one node is left for both pods", func() error {
		if n := len(s.nodes()); n != 1 {
			return fmt.Errorf("there are %d nodes", n)
		}
		return s.run("a", 2)()
	})
	t.Logf("consolidated after %v", took.Round(time.Millisecond))
}
