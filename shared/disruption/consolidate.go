package disruption

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/packing"
	"treadle/shared/plan"
)

// ReasonUnderutilized is the disruption reason of a node that is not worth its price, as budgets name it.
const ReasonUnderutilized = "Underutilized"

const (
	// A move has its price: a command must earn back within an hour what its disruption is worth, or it is not made. In micro-USD for
	// each unit of disruption cost (about one a node and one a pod).
	moveMicroUSD = 500
	// looks bounds how many plans one call makes, each of the whole cluster.
	looks = 40
	// spotChoice is how many types a single Spot node must be able to become to be replaced by another Spot node (D-040).
	spotChoice    = 15
	hoursPerMonth = 730
)

// Options changes how consolidation decides. The zero value is what Karpenter does by default.
type Options struct {
	// Wanted holds nodes that pending pods are expected on.
	Wanted map[cluster.NodeName]bool
	// Buffers holds nodes that CapacityBuffers keep room on: they are not empty, but may be replaced (S-282).
	Buffers map[cluster.NodeName]bool
	// SpotToSpot lets Spot nodes be replaced by cheaper Spot nodes (Karpenter's feature gate SpotToSpotConsolidation).
	SpotToSpot bool
	// Looks bounds the plans that are made, each of the whole cluster; zero stands for a sensible number.
	Looks int
}

// Consolidate returns commands that make the cluster cheaper, best first: nodes whose pods fit on others leave, and sets of nodes are
// replaced by fewer or cheaper ones (D-034 to D-058). It looks at the whole cluster at once: first it takes away as many nodes as others
// have room for, then it lets packing find what the least worthwhile of the rest would best be replaced by, for sets of growing size, and
// takes the set that saves most beyond the price of its disruption. Every pod of a leaving node is planned by packing.Pack under all its
// constraints, and none is moved to a node that leaves too.
//
// While pods wait for capacity that is still to be launched it decides nothing. snap.Types must be filled in. It is deterministic and
// changes nothing in snap. A call makes at most Options.Looks plans.
func Consolidate(snap *cluster.Snapshot, o Options) []plan.Command {
	k := &consolidation{snap: snap, o: o, left: cmp.Or(o.Looks, looks), under: Leaving(snap)}
	k.rank()
	if len(k.ranked) == 0 {
		return nil
	}
	base := k.pack(nil, firstPlan)
	if len(base.Claims) > 0 {
		return nil
	}
	k.unplaced = len(base.Unplaced)
	k.vacate()
	k.replace()
	return k.commands
}

type consolidation struct {
	snap     *cluster.Snapshot
	o        Options
	left     int                // plans that may still be made
	unplaced int                // pods that have no place as things are
	under    []cluster.NodeName // leaving by commands under way
	pools    map[string]worthOf // what all candidates of a pool cost together
	ranked   []candidate        // best first
	allowed  map[string]int     // by pool: how many of its nodes may still leave
	gone     []candidate        // leave by the commands so far
	commands []plan.Command
}

// worthOf is what nodes cost, and what disrupting them would.
type worthOf struct {
	price int64
	cost  float64
}

// rank finds the nodes that may be consolidated, the most worthwhile first.
func (k *consolidation) rank() {
	byPool := membersByPool(k.snap)
	k.allowed = map[string]int{}
	for i := range k.snap.NodePools {
		pool := &k.snap.NodePools[i]
		k.allowed[pool.Name] = Allowed(pool, byPool[pool.Name], ReasonUnderutilized, k.snap.NowUnix)
	}
	all := candidates(k.snap, k.o.Wanted, false, func(cluster.Member, string) {})
	slices.SortFunc(all, bySavings)
	k.pools = map[string]worthOf{}
	for _, c := range all {
		of := k.pools[c.pool.Name]
		k.pools[c.pool.Name] = worthOf{of.price + c.price, of.cost + c.cost}
	}
	for _, c := range all {
		if c.price > 0 && (len(c.moves) > 0 || k.o.Buffers[c.Node.Name]) && consolidates(&c) && k.allowed[c.pool.Name] > 0 {
			k.ranked = append(k.ranked, c)
		}
	}
}

func consolidates(c *candidate) bool {
	policy := c.pool.ConsolidationPolicy
	return c.pool.Replicas == nil && c.pool.ConsolidateAfterSeconds != nil && policy != "WhenEmpty" &&
		c.Claim.Conditions.True(cluster.ConditionConsolidatable)
}

// firstPlan has packing take its first plan: what fits on nodes that are there is the same in all.
const firstPlan = -1

// pack plans the cluster without some nodes, besides those that have left already.
func (k *consolidation) pack(without []candidate, steps int) plan.Plan {
	k.left--
	leaving := slices.Clone(k.under)
	for _, c := range slices.Concat(k.gone, without) {
		leaving = append(leaving, c.Node.Name)
	}
	return packing.Pack(*k.snap, packing.Options{LeavingNodes: leaving, Steps: steps})
}

// settles reports whether a plan has a place for every pod of the nodes that leave, on nodes that are in service or on new ones. Those
// that are gone wait for no new node.
func (k *consolidation) settles(p *plan.Plan, leaving []candidate) bool {
	moved := map[cluster.PodUID]bool{}
	waits := map[cluster.PodUID]bool{}
	for _, c := range k.gone {
		for _, pod := range c.moves {
			waits[pod.UID] = true
		}
	}
	for i := range p.Placed {
		delete(waits, p.Placed[i].Pod.UID)
	}
	for _, c := range leaving {
		for _, pod := range c.moves {
			moved[pod.UID] = true
		}
	}
	if len(waits) > 0 || len(p.Unplaced) > k.unplaced || slices.ContainsFunc(p.Unplaced, func(u plan.Unplaced) bool { return moved[u.Pod.UID] }) {
		return false
	}
	ready := inService(k.snap)
	return !slices.ContainsFunc(p.Placed, func(at plan.Placement) bool { return moved[at.Pod.UID] && !ready[at.Node] }) // D-036
}

// inService returns the nodes that pods of leaving nodes may count on: one that is still to join may never do (D-036).
func inService(snap *cluster.Snapshot) map[cluster.NodeName]bool {
	ready := map[cluster.NodeName]bool{}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		ready[n.Name] = n.Labels[cluster.LabelNodePool] == "" || n.Labels[cluster.LabelInitialized] == "true"
	}
	return ready
}

// vacate takes away the nodes whose pods fit on others. An estimate by requests proposes them, because most of what does not fit does not
// for want of room; what it proposes is planned in full, and where a set cannot go its halves are tried. What cannot go alone gives way to
// the next best: it uses up no budget.
func (k *consolidation) vacate() {
	var p plan.Plan // without those that are gone
	tried := map[cluster.NodeName]bool{}
	blocks := [][]candidate{k.propose(tried, nil)}
	for len(blocks) > 0 && len(blocks[0]) > 0 && k.left > looksKept(k.o.Looks) {
		block := blocks[0]
		blocks = blocks[1:]
		if without := k.pack(block, firstPlan); len(without.Claims) == 0 && k.settles(&without, slices.Concat(k.gone, block)) {
			p = without
			k.gone = append(k.gone, block...)
			for _, c := range block {
				k.allowed[c.pool.Name]--
			}
		} else if half := len(block) / 2; half > 0 {
			blocks = append([][]candidate{block[:half], block[half:]}, blocks...)
		}
		if len(blocks) == 0 && len(k.gone) < len(tried) {
			blocks = append(blocks, k.propose(tried, p.Placed))
		}
	}
	k.commands = k.vacated(&p)
}

// vacated returns the commands for the nodes that are gone, with their pods where a plan has them.
func (k *consolidation) vacated(p *plan.Plan) (commands []plan.Command) {
	for _, c := range k.gone {
		commands = append(commands, k.command([]candidate{c}, nil, p))
	}
	return commands
}

// propose returns nodes whose pods others seem to have room for, besides what those that are gone have taken, as many as budgets allow.
// None is proposed twice.
func (k *consolidation) propose(tried map[cluster.NodeName]bool, placed []plan.Placement) (proposed []candidate) {
	leaving := slices.Clone(k.under)
	moved := map[cluster.PodUID]*cluster.Pod{}
	for _, c := range k.gone {
		leaving = append(leaving, c.Node.Name)
		for _, pod := range c.moves {
			moved[pod.UID] = pod
		}
	}
	r := newRooms(k.snap, leaving)
	for _, at := range placed {
		if pod := moved[at.Pod.UID]; pod != nil {
			r.book(r.at[at.Node], pod)
		}
	}
	allowed := maps.Clone(k.allowed)
	for _, c := range k.ranked {
		if tried[c.Node.Name] || allowed[c.pool.Name] <= 0 {
			continue
		}
		if _, worthIt := k.cheaper([]candidate{c}, nil); worthIt && r.vacate(&c) {
			allowed[c.pool.Name]--
			tried[c.Node.Name] = true
			proposed = append(proposed, c)
		}
	}
	return proposed
}

// looksKept is how many plans are left for replacements.
func looksKept(all int) int { return cmp.Or(all, looks) / 3 }

// replace finds sets of nodes that are dearer than what their pods need.
func (k *consolidation) replace() {
	before := len(k.commands)
	var rest []candidate
	for _, c := range k.ranked {
		if !slices.ContainsFunc(k.gone, func(o candidate) bool { return o.Node.Name == c.Node.Name }) && !k.target(&c) {
			rest = append(rest, c)
		}
	}
	spare := func(c *candidate) float64 { return float64(c.price-k.worth(c)) / max(c.cost, 0.01) }
	slices.SortStableFunc(rest, func(a, b candidate) int { return cmp.Compare(spare(&b), spare(&a)) })
	rest = slices.DeleteFunc(rest, func(c candidate) bool {
		k.allowed[c.pool.Name]--
		return spare(&c) <= moveMicroUSD || k.allowed[c.pool.Name] < 0
	})
	for len(rest) > 0 && k.left > 0 {
		made := k.best(rest)
		if k.commands = append(k.commands, made...); len(k.commands) > before {
			return // what remains is planned anew once these have been carried out
		}
		rest = rest[1:] // alone it is of no use, and it may be what spoils the rest
	}
}

// best returns the commands for the first 1, 2, 4, … of the nodes that save most beyond the price of their disruption.
func (k *consolidation) best(rest []candidate) (commands []plan.Command) {
	most := int64(0)
	for size := 1; k.left > 0; size = min(2*size, len(rest)) {
		p := k.pack(rest[:size], 0)
		if k.settles(&p, slices.Concat(k.gone, rest[:size])) {
			if made, net := k.divide(rest[:size], &p); net > most {
				most, commands = net, made
				k.commands = k.vacated(&p) // all by one plan: two may count on the same room
			}
		}
		if size == len(rest) {
			break
		}
	}
	return commands
}

// divide makes commands from a plan without some nodes: nodes and new claims between which pods move belong together, and each such
// group is a command if it is worth its disruption. net is what all of them save in an hour beyond the price of disruption.
func (k *consolidation) divide(leaving []candidate, p *plan.Plan) (made []plan.Command, net int64) {
	group, claimOf := connect(leaving, p.Claims)
	for g := range leaving {
		var nodes []candidate
		for i, c := range leaving {
			if group[i] == g {
				nodes = append(nodes, c)
			}
		}
		var claims []plan.Claim
		for n := range p.Claims {
			if group[claimOf[n]] == g {
				claims = append(claims, p.Claims[n])
			}
		}
		if len(nodes) == 0 {
			continue
		}
		if claims, ok := k.cheaper(nodes, claims); ok {
			c := k.command(nodes, claims, p)
			made = append(made, c)
			net += c.SavesMicroUSDPerHour - price(nodes)
		}
	}
	return made, net
}

// connect returns, by leaving node, the number of its group, and by claim, a leaving node of its group. A claim for none of their pods is for
// pods that have lost a place that was expected for them, whichever node had it: then all are one group.
func connect(leaving []candidate, claims []plan.Claim) (group, claimOf []int) {
	at := map[cluster.PodUID]int{} // by pod: the leaving node
	group = make([]int, len(leaving))
	for i, c := range leaving {
		group[i] = i
		for _, pod := range c.moves {
			at[pod.UID] = i
		}
	}
	claimOf = make([]int, len(claims))
	for n, claim := range claims {
		claimOf[n] = -1
		for _, pod := range claim.Pods {
			i, moved := at[pod.UID]
			if !moved {
				continue
			}
			if claimOf[n] >= 0 {
				join(group, group[claimOf[n]], group[i])
			}
			claimOf[n] = i
		}
	}
	for n := range claimOf {
		if claimOf[n] < 0 {
			clear(group)
			claimOf[n] = 0
		}
	}
	return group, claimOf
}

// join makes one group of two, under the smaller number.
func join(group []int, a, b int) {
	into, from := min(a, b), max(a, b)
	for i := range group {
		if group[i] == from {
			group[i] = into
		}
	}
}

// price is what the disruption of nodes is worth, in micro-USD.
func price(nodes []candidate) (sum int64) {
	for i := range nodes {
		sum += int64(nodes[i].cost * moveMicroUSD)
	}
	return sum
}

// cheaper cuts the options of replacements down to those that are worth it whichever of them EC2 gives, and reports whether that leaves
// something for each (D-038 to D-043).
func (k *consolidation) cheaper(nodes []candidate, claims []plan.Claim) ([]plan.Claim, bool) {
	var before, after int64
	spot := true
	for i := range nodes {
		before += nodes[i].price
		spot = spot && nodes[i].Node.Labels[cluster.LabelCapacityType] == string(cluster.Spot)
	}
	for i := range claims {
		after += claims[i].Options[0].PriceMicroUSDPerHour
	}
	slack := before - after - price(nodes)
	if slack <= 0 || !k.balanced(nodes, before, before-after) {
		return nil, false
	}
	out := slices.Clone(claims)
	for i := range out {
		c := &out[i]
		if spot && c.Options[0].CapacityType == cluster.Spot && (!k.o.SpotToSpot || len(nodes) == 1 && kinds(c.Options) < spotChoice) {
			return nil, false
		}
		limit := c.Options[0].PriceMicroUSDPerHour + slack/int64(len(out))
		limit = min(limit, sameType(nodes, c.Options)-1)
		c.Options = slices.DeleteFunc(slices.Clone(c.Options), func(o plan.Option) bool { return o.PriceMicroUSDPerHour > limit })
		if len(c.Options) == 0 || !k.narrow(c) {
			return nil, false
		}
	}
	return out, true
}

// balanced reports whether each pool with the policy Balanced gets enough for its disruption: its share of what its nodes cost, which is
// saved, is at least half its share of what disrupting all of them would be worth (D-051 to D-056).
func (k *consolidation) balanced(nodes []candidate, before, saved int64) bool {
	of := map[string]worthOf{}
	for i := range nodes {
		c := &nodes[i]
		if c.pool.ConsolidationPolicy == "Balanced" {
			of[c.pool.Name] = worthOf{of[c.pool.Name].price + c.price, of[c.pool.Name].cost + c.cost}
		}
	}
	for name, part := range of {
		all := k.pools[name]
		gain := float64(saved) * float64(part.price) / float64(before) / float64(all.price)
		if gain < part.cost/all.cost/2 {
			return false
		}
	}
	return true
}

// sameType returns the price of the cheapest leaving node of a type that is among the options: replacing a node by its like gains
// nothing that taking the others away would not (D-041).
func sameType(nodes []candidate, options []plan.Option) int64 {
	least := int64(1) << 62
	for i := range nodes {
		if slices.ContainsFunc(options, func(o plan.Option) bool { return o.InstanceType == nodes[i].Node.Labels[cluster.LabelInstanceType] }) {
			least = min(least, nodes[i].price)
		}
	}
	return least
}

func kinds(options []plan.Option) int {
	seen := map[string]bool{}
	for _, o := range options {
		seen[o.InstanceType] = true
	}
	return len(seen)
}

// narrow makes a claim ask for its options and no others, and reports whether they are still as various as its pool wants (D-043).
func (k *consolidation) narrow(c *plan.Claim) bool {
	c.Requirements = Narrowed(c).Expressions()
	for _, r := range c.Requirements {
		if r.MinValues == 0 {
			continue
		}
		values := map[string]bool{}
		for _, t := range k.snap.TypesOf(c.NodePool, k.snap.Pool(c.NodePool).Template.NodeClass) {
			if slices.ContainsFunc(c.Options, func(o plan.Option) bool { return o.InstanceType == t.Name }) {
				values[t.Labels[r.Key]] = true
			}
		}
		if len(values) < r.MinValues {
			return false
		}
	}
	return true
}

// Narrowed returns the requirements of a claim with its types, zones and capacity type as its options have them, so that whoever launches
// the claim chooses among these.
func Narrowed(c *plan.Claim) cluster.Requirements {
	values := map[string][]string{}
	add := func(key, value string) {
		if !slices.Contains(values[key], value) {
			values[key] = append(values[key], value)
		}
	}
	for _, o := range c.Options {
		add(cluster.LabelInstanceType, o.InstanceType)
		add(cluster.LabelZone, o.Zone)
		add(cluster.LabelCapacityType, string(o.CapacityType))
	}
	reqs := cluster.NewRequirements(nil, c.Requirements...)
	for _, key := range []string{cluster.LabelInstanceType, cluster.LabelZone, cluster.LabelCapacityType} {
		reqs = reqs.Intersect(cluster.NewRequirements(nil, cluster.Expression{Key: key, Operator: cluster.In, Values: values[key]}))
	}
	return reqs
}

// command puts a command into words.
func (k *consolidation) command(nodes []candidate, claims []plan.Claim, p *plan.Plan) plan.Command {
	c := plan.Command{Reason: ReasonUnderutilized, Replacements: claims}
	moved := map[cluster.PodUID]bool{}
	for i := range nodes {
		c.Leaving = append(c.Leaving, nodes[i].Claim.Name)
		c.SavesMicroUSDPerHour += nodes[i].price
		for _, pod := range nodes[i].moves {
			moved[pod.UID] = true
		}
	}
	for i := range claims {
		c.SavesMicroUSDPerHour -= claims[i].Options[0].PriceMicroUSDPerHour
	}
	for _, at := range p.Placed {
		if moved[at.Pod.UID] {
			c.Placed = append(c.Placed, at)
		}
	}
	c.ID = commandID(c.Reason, c.Leaving, k.snap.NowUnix)
	c.Note = fmt.Sprintf("%s for %s saves %.2f USD a month and moves %s",
		count(len(nodes), "node"), count(len(claims), "new one"), float64(c.SavesMicroUSDPerHour)*hoursPerMonth/1e6, count(len(moved), "pod"))
	return c
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// target reports whether pods of leaving nodes are expected on the node: it would move them twice.
func (k *consolidation) target(c *candidate) bool {
	for i := range k.commands {
		if slices.ContainsFunc(k.commands[i].Placed, func(p plan.Placement) bool { return p.Node == c.Node.Name }) {
			return true
		}
	}
	return false
}

// worth estimates from below what the pods of a node cost where nothing is wasted: the dearest of their requests, each at the best price
// that any offering of the class has for it.
func (k *consolidation) worth(c *candidate) int64 {
	var sum cluster.Resources
	for _, pod := range c.moves {
		sum = sum.Plus(pod.Spec.Requests)
	}
	cpu, memory := 1e18, 1e18
	types := k.snap.TypesOf(c.Claim.NodePool(), c.Claim.NodeClass)
	for i := range types {
		t := &types[i]
		for _, o := range t.Offerings {
			if o.Available && o.PriceMicroUSDPerHour > 0 && t.Allocatable.MilliCPU > 0 && t.Allocatable.MemoryBytes > 0 {
				cpu = min(cpu, float64(o.PriceMicroUSDPerHour)/float64(t.Allocatable.MilliCPU))
				memory = min(memory, float64(o.PriceMicroUSDPerHour)/float64(t.Allocatable.MemoryBytes))
			}
		}
	}
	return int64(max(cpu*float64(sum.MilliCPU), memory*float64(sum.MemoryBytes)))
}
