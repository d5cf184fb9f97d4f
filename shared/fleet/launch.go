package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Launch asks EC2 for the instances of r. Repeating a token with the same request starts no second instance: EC2 answers with
// those of the first call.
//
// The error is nil where at least one instance was launched, whatever was refused beside it. Otherwise it matches
// plan.ErrNoCapacity or plan.ErrQuota where other offerings may still do, plan.ErrThrottled where EC2 did not try,
// plan.ErrMismatch where the token belongs to another request, plan.ErrNotFound where a launch template is gone, and
// plan.ErrDenied or plan.ErrInvalid where someone has to act; any other error leaves the outcome unknown, and the same request
// may be repeated. The result holds the refusals also beside an error.
func (f *Fleet) Launch(ctx context.Context, r plan.Request) (plan.Result, error) {
	out, err := f.ec2.CreateFleet(ctx, input(r))
	if err != nil {
		err = fmt.Errorf("create fleet for group %s: %w", r.Launch.Group, translate(err))
		return plan.Result{Refusals: refusal(err, r.Launch)}, err
	}
	res := result(out, r.Launch)
	if len(res.Instances) == 0 {
		return res, fmt.Errorf("create fleet for group %s: %w", r.Launch.Group, refused(res.Refusals))
	}
	return res, nil
}

// refusal turns the failure of a whole call into news about capacity, if it is that.
func refusal(err error, l plan.Launch) []plan.Refusal {
	var api smithy.APIError
	if !errors.Is(err, plan.ErrNoCapacity) && !errors.Is(err, plan.ErrQuota) || !errors.As(err, &api) {
		return nil
	}
	return []plan.Refusal{{
		CapacityType: l.CapacityType, Code: api.ErrorCode(), Message: reason(api.ErrorMessage()), Kind: KindOf(api.ErrorCode()),
	}}
}

func input(r plan.Request) *ec2.CreateFleetInput {
	in := &ec2.CreateFleetInput{
		Type:        types.FleetTypeInstant,
		ClientToken: aws.String(r.Token),
		Context:     given(r.Context),
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity:       aws.Int32(int32(r.Count)), //nolint:gosec // a group of claims, not billions
			DefaultTargetCapacityType: types.DefaultTargetCapacityTypeOnDemand,
		},
		TagSpecifications: tagSpecifications(r),
	}
	if r.Launch.CapacityType == cluster.Spot {
		in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeSpot
		in.SpotOptions = &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyPriceCapacityOptimized}
		if r.Launch.Prioritized {
			in.SpotOptions.AllocationStrategy = types.SpotAllocationStrategyCapacityOptimizedPrioritized
		}
	} else {
		in.OnDemandOptions = &types.OnDemandOptionsRequest{AllocationStrategy: types.FleetOnDemandAllocationStrategyLowestPrice}
		if r.Launch.Prioritized {
			in.OnDemandOptions.AllocationStrategy = types.FleetOnDemandAllocationStrategyPrioritized
		}
	}
	for _, c := range r.Launch.Configs {
		in.LaunchTemplateConfigs = append(in.LaunchTemplateConfigs, config(c))
	}
	return in
}

// tagSpecifications tags all that a call makes, in the call itself: what exists without tags belongs to nobody.
func tagSpecifications(r plan.Request) []types.TagSpecification {
	tags := maps.Clone(r.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[cluster.TagLaunch] = r.Token
	list := tagList(tags)
	var out []types.TagSpecification
	for _, kind := range []types.ResourceType{types.ResourceTypeFleet, types.ResourceTypeInstance, types.ResourceTypeVolume} {
		out = append(out, types.TagSpecification{ResourceType: kind, Tags: list})
	}
	return out
}

func config(c plan.LaunchConfig) types.FleetLaunchTemplateConfigRequest {
	out := types.FleetLaunchTemplateConfigRequest{
		LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{
			LaunchTemplateName: aws.String(c.Template),
			Version:            aws.String("$Latest"),
		},
	}
	for _, o := range c.Overrides {
		one := types.FleetLaunchTemplateOverridesRequest{
			InstanceType:     types.InstanceType(o.InstanceType),
			SubnetId:         aws.String(o.SubnetID),
			AvailabilityZone: aws.String(o.Zone),
			ImageId:          given(o.ImageID),
			Priority:         aws.Float64(float64(o.PriceMicroUSDPerHour) / 1e6),
		}
		out.Overrides = append(out.Overrides, one)
	}
	return out
}

func result(out *ec2.CreateFleetOutput, l plan.Launch) plan.Result {
	res := plan.Result{FleetID: aws.ToString(out.FleetId)}
	for _, group := range out.Instances {
		from := chosen(group.LaunchTemplateAndOverrides, l)
		if group.InstanceType != "" {
			from.InstanceType = string(group.InstanceType)
		}
		for _, id := range group.InstanceIds {
			res.Instances = append(res.Instances, cluster.Instance{
				ID:           cluster.InstanceID(id),
				Type:         from.InstanceType,
				Zone:         from.Zone,
				SubnetID:     from.SubnetID,
				ImageID:      from.ImageID,
				CapacityType: l.CapacityType,
				State:        cluster.InstancePending,
			})
		}
	}
	for _, e := range out.Errors {
		from := chosen(e.LaunchTemplateAndOverrides, l)
		res.Refusals = append(res.Refusals, plan.Refusal{
			InstanceType: from.InstanceType,
			Zone:         from.Zone,
			SubnetID:     from.SubnetID,
			CapacityType: l.CapacityType,
			Code:         aws.ToString(e.ErrorCode),
			Message:      reason(aws.ToString(e.ErrorMessage)),
			Kind:         KindOf(aws.ToString(e.ErrorCode)),
		})
	}
	return res
}

// chosen returns the override that EC2 names, completed from the request: answers may leave out what they were asked.
func chosen(t *types.LaunchTemplateAndOverridesResponse, l plan.Launch) plan.Override {
	if t == nil || t.Overrides == nil {
		return plan.Override{}
	}
	named := plan.Override{
		InstanceType: string(t.Overrides.InstanceType),
		SubnetID:     aws.ToString(t.Overrides.SubnetId),
		Zone:         aws.ToString(t.Overrides.AvailabilityZone),
		ImageID:      aws.ToString(t.Overrides.ImageId),
	}
	for _, c := range l.Configs {
		for _, o := range c.Overrides {
			sameSubnet := named.SubnetID == o.SubnetID || named.SubnetID == "" && named.Zone == o.Zone
			if o.InstanceType == named.InstanceType && sameSubnet {
				return o
			}
		}
	}
	return named
}

// severity orders the kinds of refusals: a fleet that gave nothing fails with the error of the most severe one. Lack of
// capacity weighs least, because the next plan deals with it; what needs a person weighs most.
//
//nolint:gochecknoglobals // a table
var severity = []plan.RefusalKind{
	plan.RefusedThrottled, plan.RefusedAddresses, plan.RefusedCapacity, plan.RefusedQuota, plan.RefusedTypeQuota, plan.RefusedGone,
	plan.RefusedMismatch, "", plan.RefusedConfiguration, plan.RefusedDenied,
}

// refused is the error of a fleet that gave nothing. Its outcome is known: EC2 would give the same answer to the same token again.
// So a throttle in it counts as lack of capacity, which makes a new launch, and a code that nobody knows as a bad request.
func refused(all []plan.Refusal) error {
	if len(all) == 0 {
		return fmt.Errorf("%w: EC2 gave neither an instance nor a reason", plan.ErrNoCapacity)
	}
	worst := slices.MaxFunc(all, func(a, b plan.Refusal) int {
		return cmp.Compare(slices.Index(severity, a.Kind), slices.Index(severity, b.Kind))
	})
	sentinel := errorOf(worst.Kind)
	switch worst.Kind {
	case plan.RefusedThrottled:
		sentinel = plan.ErrNoCapacity
	case "":
		sentinel = plan.ErrInvalid
	default:
	}
	return fmt.Errorf("%w: %s: %s", sentinel, worst.Code, worst.Message)
}

func tagList(tags map[string]string) []types.Tag {
	out := make([]types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

func given(s string) *string {
	if s == "" {
		return nil
	}
	return aws.String(s)
}
