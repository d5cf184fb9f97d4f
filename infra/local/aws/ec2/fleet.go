package ec2

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// maxOverrides is EC2's limit on the overrides of one fleet.
const maxOverrides = 300

// option is one override of a fleet for one capacity type, with what allocation ranks it by.
type option struct {
	*choice
	shown    *types.LaunchTemplateAndOverridesResponse // as the answer names it
	refused  *wire.Error                               // why it cannot be launched at all
	price    float64
	priority float64
	weight   float64
	maxPrice float64 // 0: none
}

// createFleet launches an instant fleet: for each capacity type it ranks the overrides by the allocation strategy and takes what
// there is until the target is met. Overrides that gave less than was asked of them come back as errors beside the instances.
func (s *Service) createFleet(entry *fault.Call, in *sdk.CreateFleetInput) (*sdk.CreateFleetOutput, error) {
	targets, err := fleetTargets(in)
	if err != nil {
		return nil, err
	}
	tags, err := tagSpecs(in.TagSpecifications, types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeFleet,
		types.ResourceTypeNetworkInterface, types.ResourceTypeSpotInstancesRequest)
	if err != nil {
		return nil, err
	}
	if tags[types.ResourceTypeSpotInstancesRequest] != nil && targets[spot] == 0 {
		return nil, notTaggable(types.ResourceTypeSpotInstancesRequest)
	}
	return idempotent(s, entry, in.ClientToken, in, func() (*sdk.CreateFleetOutput, error) {
		templates, err := s.fleetTemplates(in)
		if err != nil {
			return nil, err
		}
		if dryRun(in) {
			return nil, errDryRun()
		}
		f := &fleet{service: s, entry: entry, id: "fleet-" + s.mintUUID(), tags: maps.Clone(tags[types.ResourceTypeInstance])}
		if f.tags == nil {
			f.tags = map[string]string{}
		}
		f.tags["aws:ec2:fleet-id"] = f.id
		f.out = &sdk.CreateFleetOutput{FleetId: new(f.id), Errors: []types.CreateFleetError{}, Instances: []types.CreateFleetInstance{}}
		for _, capacity := range []string{reserved, onDemand, spot} {
			if targets[capacity] > 0 {
				f.fill(capacity, targets[capacity], f.options(in, templates, capacity), rules(in, capacity))
			}
		}
		return f.out, nil
	})
}

// fleetTargets checks a request and returns the capacity wanted of each capacity type.
func fleetTargets(in *sdk.CreateFleetInput) (map[string]int, error) {
	target := in.TargetCapacitySpecification
	overrides := 0
	for _, c := range in.LaunchTemplateConfigs {
		overrides += len(c.Overrides)
	}
	switch {
	case in.Type != types.FleetTypeInstant:
		return nil, unsupported(fmt.Sprintf("fleets of type '%s', only 'instant'", in.Type))
	case len(in.LaunchTemplateConfigs) == 0:
		return nil, missing("LaunchTemplateConfigs")
	case target == nil || target.TotalTargetCapacity == nil:
		return nil, missing("TargetCapacitySpecification.TotalTargetCapacity")
	case *target.TotalTargetCapacity < 1:
		return nil, invalid("TotalTargetCapacity must be at least 1")
	case overrides > maxOverrides:
		return nil, wire.Errorf("InvalidParameterValue", "The number of overrides exceeds the limit of %d", maxOverrides)
	case target.TargetCapacityUnitType != "" && target.TargetCapacityUnitType != types.TargetCapacityUnitTypeUnits:
		return nil, unsupported("target capacity in other units than instances")
	case in.ValidFrom != nil || in.ValidUntil != nil:
		return nil, unsupported("fleets valid for a time")
	}
	if err := checkOptions(in); err != nil {
		return nil, err
	}
	targets := map[string]int{
		onDemand: int(deref(target.OnDemandTargetCapacity)), spot: int(deref(target.SpotTargetCapacity)),
	}
	rest := int(*target.TotalTargetCapacity) - targets[onDemand] - targets[spot]
	if rest < 0 || targets[onDemand] < 0 || targets[spot] < 0 {
		return nil, invalid("The On-Demand and Spot target capacities cannot exceed TotalTargetCapacity")
	}
	switch target.DefaultTargetCapacityType {
	case types.DefaultTargetCapacityTypeSpot:
		targets[spot] += rest
	case types.DefaultTargetCapacityTypeOnDemand, "":
		targets[onDemand] += rest
	case types.DefaultTargetCapacityTypeCapacityBlock, types.DefaultTargetCapacityTypeReservedCapacity:
		targets[reserved] += rest
	default:
		return nil, invalid("Value (%s) for parameter defaultTargetCapacityType is invalid.", target.DefaultTargetCapacityType)
	}
	return targets, nil
}

// checkOptions refuses options that contradict each other or would be ignored here.
func checkOptions(in *sdk.CreateFleetInput) error {
	loose := func(least *int32, singleType, singleZone *bool) bool {
		return deref(least) > 0 && !deref(singleType) && !deref(singleZone)
	}
	const single = "MinTargetCapacity requires SingleInstanceType or SingleAvailabilityZone"
	if o := in.SpotOptions; o != nil {
		switch {
		case o.MaxTotalPrice != nil:
			return unsupported("MaxTotalPrice")
		case o.InstanceInterruptionBehavior != "" && o.InstanceInterruptionBehavior != types.SpotInstanceInterruptionBehaviorTerminate:
			return unsupported("stopping or hibernating interrupted instances")
		case o.MaintenanceStrategies != nil:
			return unsupported("maintenance strategies")
		case loose(o.MinTargetCapacity, o.SingleInstanceType, o.SingleAvailabilityZone):
			return wire.Errorf("InvalidParameterCombination", single)
		}
	}
	if o := in.OnDemandOptions; o != nil {
		switch {
		case o.MaxTotalPrice != nil:
			return unsupported("MaxTotalPrice")
		case o.CapacityReservationOptions != nil:
			return unsupported("using capacity reservations first")
		case loose(o.MinTargetCapacity, o.SingleInstanceType, o.SingleAvailabilityZone):
			return wire.Errorf("InvalidParameterCombination", single)
		}
	}
	if o := in.ReservedCapacityOptions; o != nil && (o.ReservedCapacityFallbackOptions != nil || o.CapacityReservationTarget != nil) {
		return unsupported("fallbacks of reserved capacity and targets outside the launch template")
	}
	return nil
}

// fleetTemplates finds the template of each config.
func (s *Service) fleetTemplates(in *sdk.CreateFleetInput) ([]*template, error) {
	var all []*template
	for _, c := range in.LaunchTemplateConfigs {
		spec := c.LaunchTemplateSpecification
		if spec == nil {
			return nil, missing("LaunchTemplateConfigs.LaunchTemplateSpecification")
		}
		if deref(spec.Version) == "" {
			return nil, missing("LaunchTemplateConfigs.LaunchTemplateSpecification.Version")
		}
		if spec.LaunchTemplateSpecificationUserData != nil {
			return nil, unsupported("user data beside the launch template's")
		}
		t, err := s.launchTemplate("CreateFleet", spec.LaunchTemplateId, spec.LaunchTemplateName, spec.Version)
		if err != nil {
			return nil, err
		}
		for _, o := range c.Overrides {
			if o.InstanceRequirements != nil {
				return nil, unsupported("choosing instance types by requirements")
			}
		}
		all = append(all, t)
	}
	return all, nil
}

// fleet is one CreateFleet call under way.
type fleet struct {
	service *Service
	entry   *fault.Call
	id      string
	tags    map[string]string
	out     *sdk.CreateFleetOutput
	started int
}

// options makes one option of each override, or of each template without overrides.
func (f *fleet) options(in *sdk.CreateFleetInput, templates []*template, capacity string) []*option {
	var all []*option
	for n, c := range in.LaunchTemplateConfigs {
		overrides := c.Overrides
		if len(overrides) == 0 {
			overrides = []types.FleetLaunchTemplateOverridesRequest{{}}
		}
		for _, o := range overrides {
			opt := f.option(templates[n], o, capacity)
			// EC2 names a template by its id, however it was asked for.
			opt.shown.LaunchTemplateSpecification = &types.FleetLaunchTemplateSpecification{
				LaunchTemplateId: new(templates[n].id), Version: templateVersion(),
			}
			all = append(all, opt)
		}
	}
	return all
}

func (f *fleet) option(t *template, o types.FleetLaunchTemplateOverridesRequest, capacity string) *option {
	opt := &option{
		shown:    &types.LaunchTemplateAndOverridesResponse{Overrides: new(convert[types.FleetLaunchTemplateOverrides](o))},
		priority: math.Inf(1), weight: 1,
	}
	if o.Priority != nil {
		opt.priority = *o.Priority
	}
	if o.WeightedCapacity != nil {
		opt.weight = *o.WeightedCapacity
	}
	if o.MaxPrice != nil {
		p, err := strconv.ParseFloat(*o.MaxPrice, 64)
		if err != nil || p <= 0 {
			opt.refused = invalid("Value (%s) for parameter maxPrice is invalid.", *o.MaxPrice)
			return opt
		}
		opt.maxPrice = p
	}
	data := t.data
	if o.InstanceType != "" {
		data.InstanceType = o.InstanceType
	}
	if o.ImageId != nil {
		data.ImageId = o.ImageId
	}
	if o.IamInstanceProfile != nil {
		data.IamInstanceProfile = new(convert[types.LaunchTemplateIamInstanceProfileSpecificationRequest](o.IamInstanceProfile))
	}
	if o.MetadataOptions != nil {
		data.MetadataOptions = new(convert[types.LaunchTemplateInstanceMetadataOptionsRequest](o.MetadataOptions))
	}
	if o.Placement != nil {
		data.Placement = new(convert[types.LaunchTemplatePlacementRequest](o.Placement))
	}
	if len(o.BlockDeviceMappings) > 0 {
		data.BlockDeviceMappings = convert[[]types.LaunchTemplateBlockDeviceMappingRequest](o.BlockDeviceMappings)
	}
	zone := deref(o.AvailabilityZone)
	if zone == "" && o.AvailabilityZoneId != nil {
		zone = cmp.Or(zoneOf(*o.AvailabilityZoneId), *o.AvailabilityZoneId)
	}
	if capacity != spot && slices.ContainsFunc(data.TagSpecifications, func(spec types.LaunchTemplateTagSpecificationRequest) bool {
		return spec.ResourceType == types.ResourceTypeSpotInstancesRequest
	}) {
		opt.refused = notTaggable(types.ResourceTypeSpotInstancesRequest)
		return opt
	}
	if m := data.InstanceMarketOptions; m != nil && m.MarketType == types.MarketTypeSpot {
		opt.refused = wire.Errorf("InvalidParameterCombination", "A fleet's launch template cannot ask for Spot itself.")
		return opt
	}
	c, refused := f.service.resolve(data, capacity, deref(o.SubnetId), zone)
	if refused != nil {
		opt.refused = refused
		return opt
	}
	c.template = t
	opt.choice = c
	opt.price = c.typ.OnDemandUSD
	if capacity == spot {
		opt.price = f.service.spotPrice(c.typ, c.pool.Zone)
	}
	return opt
}

// allocation is how a fleet fills one capacity type.
type allocation struct {
	strategy   string
	pools      int // lowest-price Spot: over how many pools
	least      int // fewer than this: none at all
	singleType bool
	singleZone bool
}

func rules(in *sdk.CreateFleetInput, capacity string) allocation {
	a := allocation{strategy: "lowest-price", pools: 1}
	switch {
	case capacity == spot && in.SpotOptions != nil:
		o := in.SpotOptions
		a = allocation{
			strategy: cmp.Or(string(o.AllocationStrategy), a.strategy), pools: max(int(deref(o.InstancePoolsToUseCount)), 1),
			least: int(deref(o.MinTargetCapacity)), singleType: deref(o.SingleInstanceType), singleZone: deref(o.SingleAvailabilityZone),
		}
	case capacity != spot && in.OnDemandOptions != nil:
		o := in.OnDemandOptions
		a.strategy = cmp.Or(string(o.AllocationStrategy), a.strategy)
		a.least, a.singleType, a.singleZone = int(deref(o.MinTargetCapacity)), deref(o.SingleInstanceType), deref(o.SingleAvailabilityZone)
	}
	return a
}

// rank sorts options in the order in which the strategy tries them.
func (a allocation) rank(all []*option) {
	byPrice := func(x, y *option) int { return cmp.Compare(x.price/x.weight, y.price/y.weight) }
	byPriority := func(x, y *option) int { return cmp.Compare(x.priority, y.priority) }
	byDepth := func(x, y *option) int { return cmp.Compare(depth(x.typ), depth(y.typ)) }
	byBand := func(x, y *option) int {
		return cmp.Or(cmp.Compare(x.typ.InterruptBand, y.typ.InterruptBand), cmp.Compare(scatter(x.pool), scatter(y.pool)))
	}
	slices.SortStableFunc(all, func(x, y *option) int {
		// What cannot be launched is tried last, so that it only shows as an error where nothing else did it.
		if c := cmp.Compare(btoi(x.refused != nil), btoi(y.refused != nil)); c != 0 || x.refused != nil {
			return c
		}
		switch a.strategy {
		case "prioritized":
			return byPriority(x, y)
		case "price-capacity-optimized":
			return cmp.Or(byDepth(x, y), byPrice(x, y))
		case "capacity-optimized":
			return byBand(x, y)
		case "capacity-optimized-prioritized":
			return cmp.Or(byDepth(x, y), byPriority(x, y))
		default:
			return byPrice(x, y)
		}
	})
}

// depth sorts Spot pools into deep (0), middling and shallow ones by how often their type is interrupted: EC2 does not publish
// how much capacity a pool has, and this is what follows from what it does publish.
func depth(t *Type) int { return t.InterruptBand / 2 }

// scatter is an order of pools that means nothing but is always the same.
func scatter(p fault.Pool) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, p.Type, p.Zone)
	return h.Sum64()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// part is what one option gave.
type part struct {
	*option
	holds   []*hold
	refused *fault.Refusal
}

// fill launches target units of one capacity type.
func (f *fleet) fill(capacity string, target int, options []*option, a allocation) {
	a.rank(options)
	groups := a.split(options)
	var best []*part
	got := -1.0
	for _, group := range groups {
		parts, filled := f.gather(group, float64(target), a)
		if filled <= got {
			giveBack(parts)
			continue
		}
		giveBack(best)
		best, got = parts, filled
		if filled >= float64(target) {
			break
		}
	}
	if got < float64(a.least) {
		giveBack(best)
	}
	f.commit(capacity, best)
}

// split divides options into those that may be mixed: all, or those of one type or zone. Groups keep the options' order.
func (a allocation) split(options []*option) [][]*option {
	if !a.singleType && !a.singleZone {
		return [][]*option{options}
	}
	var keys []string
	byKey := map[string][]*option{}
	for _, o := range options {
		key := ""
		if o.choice != nil && a.singleType {
			key += o.pool.Type
		}
		if o.choice != nil && a.singleZone {
			key += "/" + o.pool.Zone
		}
		if byKey[key] == nil {
			keys = append(keys, key)
		}
		byKey[key] = append(byKey[key], o)
	}
	var groups [][]*option
	for _, key := range keys {
		groups = append(groups, byKey[key])
	}
	return groups
}

// gather takes capacity from options in order until target is met. Strategies that spread take it in turns.
func (f *fleet) gather(options []*option, target float64, a allocation) (parts []*part, got float64) {
	for _, o := range options {
		parts = append(parts, &part{option: o})
	}
	width := 1
	switch a.strategy {
	case "diversified":
		width = len(parts)
	case "lowest-price":
		width = a.pools
	}
	open := slices.Clone(parts)
	for got < target && len(open) > 0 {
		for n := 0; n < min(width, len(open)) && got < target; {
			p := open[n]
			h, refused := f.take(p.option)
			if refused != nil {
				p.refused = refused
				open = slices.Delete(open, n, n+1)
				continue
			}
			p.holds = append(p.holds, h)
			got += p.weight
			n++
		}
	}
	return parts, got
}

func (f *fleet) take(o *option) (*hold, *fault.Refusal) {
	if o.refused != nil {
		return nil, &fault.Refusal{Code: o.refused.Code, Message: o.refused.Message}
	}
	if o.maxPrice > 0 && o.pool.Capacity == spot && o.price > o.maxPrice {
		return nil, &fault.Refusal{Code: "SpotMaxPriceTooLow", Message: fmt.Sprintf(
			"Your Spot request price of %v is lower than the minimum required Spot request fulfillment price of %.6f.", o.maxPrice, o.price)}
	}
	return f.service.acquire("CreateFleet", o.choice)
}

// giveBack gives back what parts hold.
func giveBack(parts []*part) {
	for _, p := range parts {
		for _, h := range p.holds {
			h.undo()
		}
		p.holds = nil
	}
}

// commit launches what is held and writes the answer: one entry for each override that gave instances, one error for each that
// did not give what was asked.
func (f *fleet) commit(capacity string, parts []*part) {
	s := f.service
	for _, p := range parts {
		lifecycle := p.lifecycle(capacity)
		if len(p.holds) > 0 {
			launched := types.CreateFleetInstance{
				InstanceType: types.InstanceType(p.typ.Name), Lifecycle: lifecycle, LaunchTemplateAndOverrides: p.shown,
				AvailabilityZone: new(p.pool.Zone), AvailabilityZoneId: new(zoneIDs[p.pool.Zone]), SubnetId: new(p.subnet.ID),
			}
			batch := s.mint("r-")
			for _, h := range p.holds {
				i := s.launch(h, batch, fmt.Sprintf("%s-%d", f.id, f.started), f.tags)
				f.started++
				launched.InstanceIds = append(launched.InstanceIds, i.id)
			}
			f.entry.Launched = append(f.entry.Launched, launched.InstanceIds...)
			f.out.Instances = append(f.out.Instances, launched)
		}
		if p.refused != nil {
			shown := p.shown
			if p.refused.Unnamed {
				shown = &types.LaunchTemplateAndOverridesResponse{LaunchTemplateSpecification: shown.LaunchTemplateSpecification}
			}
			f.out.Errors = append(f.out.Errors, types.CreateFleetError{
				ErrorCode: new(p.refused.Code), ErrorMessage: new(p.refused.Message), Lifecycle: lifecycle, LaunchTemplateAndOverrides: shown,
			})
		}
	}
	f.out.Errors = compactUnnamed(f.out.Errors)
}

// lifecycle is how an answer names what an option gives or fails to give.
func (o *option) lifecycle(capacity string) types.InstanceLifecycle {
	switch {
	case capacity == spot:
		return types.InstanceLifecycleSpot
	case o.choice != nil && o.reserved != nil && o.reserved.Block:
		return types.InstanceLifecycleCapacityBlock
	case o.choice != nil && o.reserved != nil && o.reserved.Interruptible:
		return types.InstanceLifecycleInterruptibleCapacityReservation
	default:
		return types.InstanceLifecycleOnDemand
	}
}

// compactUnnamed keeps one of several errors that say the same and name no override.
func compactUnnamed(all []types.CreateFleetError) []types.CreateFleetError {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(e types.CreateFleetError) bool {
		if e.LaunchTemplateAndOverrides.Overrides != nil {
			return false
		}
		key := *e.ErrorCode + "/" + string(e.Lifecycle)
		before := seen[key]
		seen[key] = true
		return before
	})
}
