package ec2

import (
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// runInstances launches up to MaxCount instances of one kind; fewer than MinCount is an error and none.
func (s *Service) runInstances(entry *fault.Call, in *sdk.RunInstancesInput) (*sdk.RunInstancesOutput, error) {
	least, most := int(deref(in.MinCount)), int(deref(in.MaxCount))
	switch {
	case in.MinCount == nil:
		return nil, missing("MinCount")
	case in.MaxCount == nil:
		return nil, missing("MaxCount")
	case least < 1 || most < least:
		return nil, invalid("Value (%d) for parameter maxCount is invalid. It must be at least minCount, and that at least 1.", most)
	case len(in.SecurityGroups) > 0:
		return nil, unsupported("security groups by name")
	}
	tags, err := tagSpecs(in.TagSpecifications, types.ResourceTypeInstance, types.ResourceTypeVolume,
		types.ResourceTypeNetworkInterface, types.ResourceTypeSpotInstancesRequest)
	if err != nil {
		return nil, err
	}
	return idempotent(s, entry, in.ClientToken, in, func() (*sdk.RunInstancesOutput, error) {
		c, err := s.runChoice(in)
		if err != nil {
			return nil, err
		}
		if tags[types.ResourceTypeSpotInstancesRequest] != nil && c.pool.Capacity != spot {
			return nil, notTaggable(types.ResourceTypeSpotInstancesRequest)
		}
		if dryRun(in) {
			return nil, errDryRun()
		}
		holds, refused := s.acquireSome("RunInstances", c, least, most)
		if refused != nil {
			return nil, runError(refused)
		}
		out := &sdk.RunInstancesOutput{
			ReservationId: new(s.mint("r-")), OwnerId: new(s.cfg.Account), Groups: []types.GroupIdentifier{}, Instances: []types.Instance{},
		}
		for _, h := range holds {
			i := s.launch(h, *out.ReservationId, deref(in.ClientToken), tags[types.ResourceTypeInstance])
			entry.Launched = append(entry.Launched, i.id)
			out.Instances = append(out.Instances, i.show())
		}
		return out, nil
	})
}

// acquireSome takes capacity for up to most instances; for fewer than least it takes none and says why.
func (s *Service) acquireSome(action string, c *choice, least, most int) ([]*hold, *fault.Refusal) {
	var holds []*hold
	for range most {
		h, refused := s.acquire(action, c)
		if refused == nil {
			holds = append(holds, h)
			continue
		}
		if len(holds) >= least {
			break
		}
		for _, h := range holds {
			h.undo()
		}
		return nil, refused
	}
	return holds, nil
}

// runError is a launch refusal as an error of the whole call.
func runError(refused *fault.Refusal) *wire.Error {
	e := wire.Errorf(refused.Code, "%s", refused.Message)
	if e.Code == "InsufficientInstanceCapacity" {
		e.Status = http.StatusInternalServerError
	}
	return e
}

// runChoice lays what the request says over its launch template.
func (s *Service) runChoice(in *sdk.RunInstancesInput) (*choice, error) {
	data := types.RequestLaunchTemplateData{}
	var from *template
	if lt := in.LaunchTemplate; lt != nil {
		t, err := s.launchTemplate("RunInstances", lt.LaunchTemplateId, lt.LaunchTemplateName, lt.Version)
		if err != nil {
			return nil, err
		}
		from, data = t, t.data
	}
	request := *in
	request.TagSpecifications = nil // those apply to the instance after the template's
	overlay(&data, &request)
	capacity := onDemand
	if m := data.InstanceMarketOptions; m != nil && m.MarketType == types.MarketTypeSpot {
		capacity = spot
	}
	c, refused := s.resolve(data, capacity, deref(in.SubnetId), "")
	if refused != nil {
		return nil, refused
	}
	c.template = from
	return c, nil
}
