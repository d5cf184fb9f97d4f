package awstest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/joining"
	"treadle/shared/ledger"
	"treadle/shared/plan"
)

// The tests of this file are public bug reports of other autoscalers, restated; each is named after its number in the list of cases.

func small() cluster.PodSpec {
	return cluster.PodSpec{Requests: cluster.Resources{MilliCPU: 900, MemoryBytes: 1 << 30, Pods: 1}}
}

func TestD08_SpotQuotaFallsToTheOnDemandPool(t *testing.T) {
	t.Parallel()
	p := newPlant(t, newWorld(t),
		pool("spot", 100, in(cluster.LabelCapacityType, "spot"), in(family, "c5", "m5", "c6i", "m6i")),
		pool("on-demand", 10, in(cluster.LabelCapacityType, "on-demand"), in(family, "c5", "m5", "c6i", "m6i")))
	p.pods(500, small())
	require.Empty(t, p.settle(t).Unplaced)
	before := p.served(t)
	require.Positive(t, before["spot"])
	require.Zero(t, before["on-demand"])

	none := 0
	p.breaks(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Capacity: "spot"}, Stock: &none, Code: "MaxSpotInstanceCountExceeded"})
	p.pods(500, small())
	last := p.settle(t)
	require.Empty(t, last.Unplaced)
	require.Empty(t, last.refusals)
	require.LessOrEqual(t, p.passes, 3, "one refused pass is enough to know")
	after := p.served(t)
	require.Equal(t, before["spot"], after["spot"])
	require.Positive(t, after["on-demand"])
	for _, name := range []string{"m5.large", "p5.48xlarge"} {
		require.True(t, p.known.Refused(p.now.Add(14*time.Minute), name, "us-east-1a", cluster.Spot), "a quota is remembered longer than a lack of capacity")
	}
	told := false
	for _, e := range p.cluster.Events {
		told = told || strings.Contains(e.Note, "MaxSpotInstanceCountExceeded")
	}
	require.True(t, told)
}

func TestD09_ChurnIsBoundedAndTheHealthyPoolGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlant(t, newWorld(t),
		pool("churning", 0, in(cluster.LabelCapacityType, "on-demand"), in(family, "c5", "m5", "r5", "c6i", "m6i", "r6i")),
		pool("healthy", 0, in(cluster.LabelCapacityType, "on-demand"), in(family, "m7g")))
	none := 0
	p.breaks(t,
		fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "[cmr][56]*"}, Chance: 0.05, Stock: &none, Code: "UnfulfillableCapacity", Unnamed: true},
		fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "[cmr][56]*"}, Chance: 0.88, Stock: &none})
	for _, name := range []string{"churning", "healthy"} {
		spec := small()
		spec.NodeSelector = map[string]string{cluster.LabelNodePool: name}
		p.pods(150, spec)
	}
	calls := 0
	asked := map[string]time.Time{} // of the last refusal, by offering
	for range 8 {
		for range 6 {
			got, err := p.pass(t)
			require.NoError(t, err)
			calls += len(got.launches)
			require.LessOrEqual(t, len(p.cluster.Claims), 300, "never more claims than pods")
			for _, l := range got.launches {
				for _, c := range l.Configs {
					for _, o := range c.Overrides {
						last, refused := asked[o.InstanceType+o.Zone]
						require.False(t, refused && p.now.Sub(last) < 3*time.Minute && last.Before(p.now), "%s in %s was asked for too soon", o.InstanceType, o.Zone)
					}
				}
			}
			for _, r := range got.refusals {
				asked[r.InstanceType+r.Zone] = p.now
			}
			p.wait(time.Second)
			if len(got.refusals) == 0 {
				break
			}
		}
		p.wait(time.Minute)
	}
	require.NotEmpty(t, asked, "capacity was refused")
	t.Logf("%d calls, %d offerings refused", calls, len(asked))
	require.LessOrEqual(t, calls, 60)
	healthy := 0
	for _, c := range p.cluster.Claims {
		if c.NodePool() == "healthy" {
			healthy++
		}
	}
	require.Positive(t, healthy)
	p.served(t)
	last, err := p.pass(t)
	require.NoError(t, err)
	for _, u := range last.Unplaced {
		require.Contains(t, fmt.Sprint(u.Reasons), "churning", "the pods of the healthy pool all have a node")
	}
}

func TestD10_TheFallbackPoolIsTriedInTheSamePass(t *testing.T) {
	t.Parallel()
	p := newPlant(t, newWorld(t),
		pool("gpu-a", 20, in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelInstanceType, "g4dn.xlarge")),
		pool("gpu-b", 10, in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelInstanceType, "g5.xlarge")))
	none := 0
	p.breaks(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Type: "g4dn.xlarge"}, Stock: &none})
	spec := small()
	spec.Requests.Set("nvidia.com/gpu", 1)
	p.pods(1, spec)
	require.Empty(t, p.settle(t).Unplaced)
	require.Equal(t, 2, p.passes)
	require.Equal(t, 2, p.ec2.Calls().Counts()["CreateFleet"])
	require.Len(t, p.cluster.Claims, 1)
	for _, c := range p.cluster.Claims {
		require.Equal(t, "gpu-b", c.NodePool())
		require.Equal(t, "g5.xlarge", c.Labels[cluster.LabelInstanceType])
	}
}

func TestD11_ErrorsBesideAnInstanceAreNews(t *testing.T) {
	t.Parallel()
	p := newPlant(t, newWorld(t), pool("web", 0, in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelInstanceType, "m5.large")))
	none := 0
	for _, zone := range []string{"us-east-1a", "us-east-1b"} {
		p.breaks(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Zone: zone}, Stock: &none})
	}
	p.pods(1, small())
	got, err := p.pass(t)
	require.NoError(t, err)
	require.Len(t, got.refusals, 2)
	require.Equal(t, map[string]int{"on-demand": 1}, p.served(t))
	for zone, refused := range map[string]bool{"us-east-1a": true, "us-east-1b": true, "us-east-1c": false} {
		require.Equal(t, refused, p.known.Refused(p.now, "m5.large", zone, cluster.OnDemand), zone)
	}
	again, err := p.pass(t)
	require.NoError(t, err)
	require.Empty(t, again.launches)
	require.Len(t, p.ec2.Instances(), 1)
	require.Equal(t, 1, p.ec2.Calls().Counts()["CreateFleet"])
}

type subnet struct {
	zone string // its letter
	free int
}

// subnets adds subnets to a world for a class of their own, and returns their ids.
func subnets(t *testing.T, w *world, all ...subnet) []string {
	t.Helper()
	var ids []string
	for i, one := range all {
		id, err := w.ec2.AddSubnet(ec2.Subnet{
			Zone: "us-east-1" + one.zone, CIDR: fmt.Sprintf("10.9.%d.0/24", i), Tags: map[string]string{"case": "d12"},
		})
		require.NoError(t, err)
		require.NoError(t, w.ec2.SetFreeAddresses(id, one.free))
		ids = append(ids, id)
	}
	return ids
}

func newSubnetPlant(t *testing.T, w *world) *plant {
	t.Helper()
	p := newPlant(t, w, pool("web", 0, in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelInstanceType, "m5.large")))
	p.class = w.class(t, func(s *cluster.NodeClassSpec) {
		s.SubnetSelectorTerms = []cluster.SelectorTerm{{Tags: map[string]string{"case": "d12"}}}
	})
	p.cluster.Classes = []cluster.NodeClass{p.class}
	return p
}

func TestD12_AFullSubnetIsNeverChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := subnets(t, w, subnet{"a", 0}, subnet{"a", 240}, subnet{"b", 240}, subnet{"b", 240}, subnet{"c", 240}, subnet{"c", 240})
	p := newSubnetPlant(t, w)
	p.pods(30, small())
	require.Empty(t, p.settle(t).Unplaced)
	require.NotEmpty(t, p.ec2.Instances())
	for _, i := range p.ec2.Instances() {
		require.NotEqual(t, ids[0], i.SubnetID)
	}
}

func TestD12_AddressesOfLaunchesInFlightAreBooked(t *testing.T) {
	t.Parallel()
	const each = 16
	w := newWorld(t, func(c *ec2.Config) { c.AddressesPer = func(*ec2.Type) int { return each } })
	subnets(t, w, subnet{"a", 60}, subnet{"a", 50})
	p := newSubnetPlant(t, w)
	spec := small()
	spec.Requests.MilliCPU, spec.Requests.Pods = 1500, each-1
	p.pods(40, spec)
	var got passed
	for range 3 {
		var err error
		got, err = p.pass(t)
		require.NoError(t, err)
		require.Empty(t, got.refusals, "no subnet runs out")
	}
	require.Equal(t, 60/each+50/each, p.served(t)["on-demand"], "as many as fit")
	require.Equal(t, 40-60/each-50/each, got.short, "and the others are told why they wait")
}

func TestD12_ARefusedSubnetIsPassedBy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := subnets(t, w, subnet{"a", 200}, subnet{"a", 100})
	p := newSubnetPlant(t, w)
	p.breaks(t, fault.Rule{Kind: fault.SubnetFull, Subnet: ids[0]}) // after it was counted
	p.pods(1, small())
	require.Empty(t, p.settle(t).Unplaced)
	require.Equal(t, 2, p.passes)
	require.Len(t, p.ec2.Instances(), 1)
	require.Equal(t, ids[1], p.ec2.Instances()[0].SubnetID)
}

// TestD17_AThrottleStormStaysWithinTheBucket has 122 clusters launch a node each, all at once, under a bucket twenty times as fast as
// EC2's.
func TestD17_AThrottleStormStaysWithinTheBucket(t *testing.T) {
	t.Parallel()
	const hints, burst, perSecond = 122, 5, 40
	w := newWorld(t)
	w.breaks(t, fault.Rule{Kind: fault.Throttle, Actions: []string{"CreateFleet"}, Burst: burst, PerSecond: perSecond})
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 1, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	start := time.Now()
	var waiting sync.WaitGroup
	work := make(chan int, hints)
	for n := range hints {
		work <- n
	}
	close(work)
	for range 10 {
		b := ledger.NewBudget(w.table(t, time.Now), map[string]ledger.Rate{"CreateFleet": {Burst: burst, PerSecond: perSecond}}, time.Now)
		f := fleet.New(w.metered(b), "demo")
		waiting.Go(func() {
			again := time.NewTicker(20 * time.Millisecond) // a message comes back
			defer again.Stop()
			for n := range work {
				for {
					_, err := f.Launch(t.Context(), request(o, ready, fmt.Sprint("token-", n)))
					if err == nil {
						break
					}
					if !errors.Is(err, plan.ErrThrottled) {
						t.Errorf("hint %d: %v", n, err)
						return
					}
					<-again.C
				}
			}
		})
	}
	waiting.Wait()
	took := time.Since(start)
	ideal := time.Duration(hints-burst) * time.Second / perSecond
	t.Logf("%d launches in %v; the bucket allows %v; %d calls", hints, took, ideal, w.ec2.Calls().Counts()["CreateFleet"])
	require.Len(t, w.ec2.Instances(), hints)
	require.LessOrEqual(t, w.ec2.Calls().Counts()["CreateFleet"], hints+hints/20, "hardly a call is sent that EC2 throttles")
	require.Less(t, took, 3*ideal)
}

func TestD18_AFallbackHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	p := newPlant(t, newWorld(t), pool("web", 0, in(cluster.LabelInstanceType, "m5.large")))
	none := 0
	p.breaks(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Capacity: "spot"}, Stock: &none, Code: "UnfulfillableCapacity", Unnamed: true})
	p.pods(1, small())
	require.Empty(t, p.settle(t).Unplaced)
	require.Equal(t, map[string]int{"on-demand": 1}, p.served(t))
	calls := p.ec2.Calls().Calls("CreateFleet")
	require.Len(t, calls, 2)
	require.NotEqual(t, calls[0].ClientToken, calls[1].ClientToken)
}

func TestD19_ADenialForAnInstanceThatExistsIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 1, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	res, err := w.fleet.Launch(t.Context(), request(o, ready, "token-1"))
	require.NoError(t, err)
	w.breaks(t, fault.Rule{Kind: fault.Deny, Actions: []string{"TerminateInstances"}})
	require.ErrorIs(t, w.fleet.Terminate(t.Context(), res.Instances[0].ID), plan.ErrDenied)
	require.NoError(t, w.fleet.Terminate(t.Context(), "i-0123456789abcdef0"), "what is gone cannot be denied")
}

func TestD20_WhatKilledAnInstanceIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t, newWorld(t), pool("web", 0, in(cluster.LabelCapacityType, "on-demand"), in(cluster.LabelInstanceType, "m5.large")))
	p.breaks(t, fault.Rule{
		Kind: fault.Dies, Code: "Client.InvalidKMSKey.InvalidState", Message: "The KMS key provided is in an incorrect state",
	})
	p.pods(1, small())
	_, err := p.pass(t)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"on-demand": 1}, p.served(t), "the launch itself succeeds")
	id := cluster.InstanceID(p.ec2.Instances()[0].ID)
	var found []cluster.Instance
	require.Eventually(t, func() bool {
		found, err = p.fleet.Describe(t.Context(), id)
		return err == nil && len(found) == 1 && found[0].State != cluster.InstancePending && found[0].State != cluster.InstanceRunning
	}, 5*time.Second, 10*time.Millisecond)
	p.wait(20 * time.Second)
	snap := p.cluster.Snapshot(p.now.Unix())
	got := joining.Decide(&snap, cluster.Sights{id: {Instance: found[0], Found: true}})
	require.NotEmpty(t, got.Moves)
	require.Contains(t, fmt.Sprintf("%+v", got.Moves), "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state")
	require.NotContains(t, fmt.Sprintf("%+v", got.Moves), "15 minutes")
}
