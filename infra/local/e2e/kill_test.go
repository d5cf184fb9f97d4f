package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/infra/local/stack"
)

// Functions die at random moments while waves of pods come and go. A message of a killed invocation stays invisible for the function's
// time limit and a second, which is what this test spends its minutes on.
func TestKills(t *testing.T) {
	t.Parallel()
	const kills = 100
	s := own(t, stack.Options{
		ShutdownFor: time.Second, SweepEvery: 5 * time.Second,
		Timeouts: map[string]time.Duration{"provision": 2 * time.Second, "lifecycle": 10 * time.Second},
	})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s.apply(t, class("waves", "demo"), pool("waves", onDemand, family+"m5, m6i"))

	// Two waves in peace, the first from cold, show how long invocations usually take.
	waves := []string{"calm-1", "calm-2"}
	for _, name := range waves {
		spec := podSpec("1")
		spec.Affinity = apart(name)
		s.deploy(t, name, 3, spec)
		s.eventually(t, later, "a wave runs", s.run(name, 3))
		s.eventually(t, later, "all is settled", s.settled)
	}

	began := time.Now()
	provision := killer{s: s, function: "provision", random: random, limit: kills}
	lifecycle := killer{s: s, function: "lifecycle", random: random, limit: 20}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for wave := 0; provision.killed() < kills; {
		require.Less(t, time.Since(began), 10*time.Minute, "%d kills so far", provision.killed())
		<-tick.C
		provision.arm(t)
		lifecycle.arm(t)
		if time.Since(began) < time.Duration(wave)*time.Second {
			continue
		}
		wave++
		name := fmt.Sprintf("wave-%d", wave)
		// A place of its own for each wave, so that it seldom finds room on what the others have left.
		spec := podSpec(fmt.Sprintf("%dm", 500+random.IntN(3000)))
		spec.NodeSelector = map[string]string{
			typeLabel: []string{"m5.xlarge", "m5.2xlarge", "m6i.xlarge", "m6i.2xlarge"}[random.IntN(4)],
			zoneLabel: []string{"us-east-1a", "us-east-1b", "us-east-1c"}[random.IntN(3)],
		}
		if random.IntN(2) == 0 {
			spec.Affinity = apart(name)
		}
		s.deploy(t, name, 1+random.IntN(4), spec)
		if waves = append(waves, name); len(waves) > 4 {
			gone := random.IntN(len(waves))
			s.undeploy(t, waves[gone])
			waves = slices.Delete(waves, gone, gone+1)
		}
	}
	resumed := s.count(t, "provision", "finishing an interrupted launch")
	t.Logf("killed provision %d times and lifecycle %d times in %v: %d calls of CreateFleet, %d launches finished by a later invocation",
		provision.killed(), lifecycle.killed(), time.Since(began).Round(time.Second), len(s.EC2.Calls().Calls("CreateFleet")), resumed)
	require.GreaterOrEqual(t, lifecycle.killed(), 5)
	require.Positive(t, resumed, "some kills were between two writes of a launch")
	require.NoError(t, s.Lambda.KillAfter("provision", time.Hour), "no trap is left")
	require.NoError(t, s.Lambda.KillAfter("lifecycle", time.Hour), "no trap is left")

	took := s.eventually(t, 3*time.Minute, "every pod runs, on instances that are the claims and the nodes", func() error {
		for _, p := range s.pods("") {
			if p.Spec.NodeName == "" || p.Status.Phase != "Running" || p.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s on %q is %s", p.Name, p.Spec.NodeName, p.Status.Phase)
			}
		}
		return s.settled()
	})
	t.Logf("all was well %v after the last kill: %d pods on %d nodes", took.Round(time.Millisecond), len(s.pods("")), len(s.nodes()))
	require.NotEmpty(t, s.pods(""))
	require.Empty(t, s.EC2.Calls().TokensOfSeveralLaunches(), "no client token launched twice")

	s.unload(t)
	s.eventually(t, 3*time.Minute, "the cluster is back at zero", func() error { return errors.Join(s.empty(), s.none(nodeClaims)) })
	require.Empty(t, s.EC2.Calls().TokensOfSeveralLaunches())
}

// killer kills invocations of a function one after the other.
type killer struct {
	s        *scene
	function string
	random   *rand.Rand
	limit    int
	armed    int // the number of reports that end the last trap
}

// arm sets the next trap once the last invocation has ended, at a moment that is uniform over the usual length of an invocation: three in
// four that came to their end took no longer.
func (k *killer) arm(t *testing.T) {
	t.Helper()
	reports := k.s.Lambda.Reports(k.function)
	if len(reports) < k.armed || k.killed() >= k.limit {
		return
	}
	k.armed = len(reports) + 1
	var lengths []time.Duration
	for _, r := range reports {
		if r.Error == "" {
			lengths = append(lengths, r.Duration)
		}
	}
	slices.Sort(lengths)
	usual := lengths[len(lengths)*3/4]
	require.NoError(t, k.s.Lambda.KillAfter(k.function, time.Duration(k.random.Int64N(int64(usual)))))
}

// killed counts the invocations that ended in the middle.
func (k *killer) killed() int {
	n := 0
	for _, r := range k.s.Lambda.Reports(k.function) {
		if r.Error == "Runtime.ExitError" {
			n++
		}
	}
	return n
}
