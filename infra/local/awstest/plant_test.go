package awstest

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/apply"
	"treadle/shared/apply/simtest"
	"treadle/shared/catalog"
	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/ledger"
	"treadle/shared/nodeclass"
	"treadle/shared/packing"
	"treadle/shared/plan"
	"treadle/shared/readiness"
)

// plant is a cluster in memory whose nodes come from an emulated AWS. One pass of it does what one look of the function provision
// does, with the product's own parts: plan, templates, claims, launch, ledger.
type plant struct {
	*world
	cluster *simtest.World
	known   *ledger.Ledger
	book    *nodeclass.Addresses
	fleet   *fleet.Fleet
	class   cluster.NodeClass
	now     time.Time
	passes  int
}

func newPlant(t *testing.T, w *world, pools ...cluster.NodePool) *plant {
	t.Helper()
	p := &plant{world: w, fleet: w.fleet, now: time.Now(), class: w.class(t)}
	p.known = ledger.New(w.table(t, time.Now))
	p.cluster = simtest.New(p.now.Unix())
	p.cluster.Classes = []cluster.NodeClass{p.class}
	for i := range pools {
		pools[i].UID = pools[i].Name
		pools[i].Template.NodeClass, pools[i].Template.NodeClassGroup, pools[i].Template.NodeClassKind = "default", "karpenter.k8s.aws", "EC2NodeClass"
	}
	p.cluster.Pools = pools
	instanceTypes(t, w, p.class) // reads the catalogue
	return p
}

// pool requires labels to have one of the values given.
func pool(name string, weight int32, needs ...cluster.Expression) cluster.NodePool {
	return cluster.NodePool{Name: name, Weight: weight, Template: cluster.NodeTemplate{Requirements: needs}}
}

func in(key string, values ...string) cluster.Expression {
	return cluster.Expression{Key: key, Operator: cluster.In, Values: values}
}

const family = "karpenter.k8s.aws/instance-family"

func (p *plant) pods(n int, spec cluster.PodSpec) {
	for range n {
		p.cluster.AddPod(fmt.Sprint("p", len(p.cluster.Pods)), "", spec)
	}
}

func (p *plant) wait(d time.Duration) {
	p.now = p.now.Add(d)
	p.cluster.Advance(int64(d.Seconds()))
}

// passed is what came of a pass.
type passed struct {
	plan.Plan
	refusals []plan.Refusal
	launches []plan.Launch
	short    int // claims for which there were no addresses
}

// pass looks once. An error is a throttle; any other trouble fails the test.
func (p *plant) pass(t *testing.T) (passed, error) {
	t.Helper()
	p.passes++
	p.known.Read(t.Context(), p.now)
	snap := p.cluster.Snapshot(p.now.Unix())
	snap.NodePools = readiness.Pools(&snap)
	snap.Types = map[string][]cluster.InstanceType{"default": catalog.InstanceTypes(shared, p.class, catalog.Options{
		Refused: func(name, place string, kind cluster.CapacityType) bool {
			return p.known.Refused(p.now, name, place, kind)
		},
	})}
	if p.book == nil {
		p.book = nodeclass.NewAddresses(p.class.Status.Subnets)
	}
	for _, s := range p.class.Status.Subnets {
		if p.known.Full(p.now, s.ID) {
			p.book.Refuse(s.ID)
		}
	}
	out := passed{Plan: packing.Pack(snap, packing.Options{})}
	groups, order := map[string][]plan.Claim{}, []string{}
	for _, c := range out.Claims {
		key := fmt.Sprint(c.NodePool, c.Options)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], c)
	}
	for n, key := range order {
		if err := p.launch(t, &snap, fmt.Sprintf("g%d-%d", p.passes, n), groups[key], &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (p *plant) launch(t *testing.T, snap *cluster.Snapshot, group string, claims []plan.Claim, out *passed) error {
	t.Helper()
	for part := 0; len(claims) > 0; part++ {
		size := min(len(claims), 50)
		o := nodeclass.Order{
			Facts: p.facts, Class: p.class, Pool: *snap.Pool(claims[0].NodePool), Claim: claims[0], Count: size,
			Types: snap.Types["default"], Addresses: p.book,
		}
		ready, err := p.templates.Prepare(t.Context(), o)
		if errors.Is(err, nodeclass.ErrNoAddresses) {
			out.short += len(claims)
			return nil
		}
		require.NoError(t, err)
		launch := plan.Launch{Group: fmt.Sprint(group, "-", part), CapacityType: claims[0].Options[0].CapacityType, Configs: ready.Configs}
		var wants []cluster.NodeClaim
		for _, c := range claims[:ready.Count] {
			wants = append(wants, apply.NodeClaim(&o.Pool, &p.class, c, launch))
		}
		made, err := apply.Create(t.Context(), p.cluster, launch.Group, wants)
		require.NoError(t, err)
		if err := p.call(t, plan.Groups(made)[0], ready, out); err != nil {
			return err
		}
		claims = claims[ready.Count:]
	}
	return nil
}

func (p *plant) call(t *testing.T, group plan.Group, ready nodeclass.Prepared, out *passed) error {
	t.Helper()
	launcher := apply.Launcher{Cluster: "demo", Kube: p.cluster, Fleet: p.fleet, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return p.now }}
	res, err := launcher.Launch(t.Context(), apply.Order{
		Group: group, Tags: fleet.Tags("demo", group.Claims[0].NodePool(), p.class),
		Type: func(string) *cluster.InstanceType { return nil },
	})
	out.launches = append(out.launches, group.Launch)
	out.refusals = append(out.refusals, res.Refusals...)
	p.known.Add(p.now, group.Launch, res.Refusals)
	p.known.Write(t.Context(), p.now)
	ready.Settle(p.book, res.Instances)
	if !errors.Is(err, plan.ErrThrottled) {
		require.NoError(t, err)
	}
	return err
}

// settle passes until nothing is refused any more, at most as often as one wake-up of the function does.
func (p *plant) settle(t *testing.T) passed {
	t.Helper()
	var last passed
	for range 6 {
		var err error
		last, err = p.pass(t)
		require.NoError(t, err)
		if len(last.refusals) == 0 {
			break
		}
	}
	return last
}

// served counts the claims that have an instance, by capacity type.
func (p *plant) served(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	seen := map[string]bool{}
	for _, c := range p.cluster.Claims {
		require.NotEmpty(t, c.ProviderID, "claim %s stands for nothing", c.Name)
		require.False(t, seen[c.ProviderID], "two claims have %s", c.ProviderID)
		seen[c.ProviderID] = true
		out[c.Labels[cluster.LabelCapacityType]]++
	}
	require.Empty(t, p.ec2.Calls().TokensOfSeveralLaunches())
	return out
}
