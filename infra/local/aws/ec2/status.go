package ec2

import (
	"cmp"
	"context"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
)

func (s *Service) describeInstanceStatus(_ *fault.Call, in *sdk.DescribeInstanceStatusInput) (*sdk.DescribeInstanceStatusOutput, error) {
	own, plain := splitStatusFilters(in.Filters)
	pass, err := statusFilters.compile(own, nil)
	if err != nil {
		return nil, err
	}
	shown := func(i *instance) bool {
		return (deref(in.IncludeAllInstances) || i.state == types.InstanceStateNameRunning) && pass(i)
	}
	picked, next, err := s.pick("DescribeInstanceStatus", in.InstanceIds, plain, in.MaxResults, in.NextToken, shown)
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeInstanceStatusOutput{NextToken: next, InstanceStatuses: []types.InstanceStatus{}}
	for _, i := range picked {
		out.InstanceStatuses = append(out.InstanceStatuses, types.InstanceStatus{
			InstanceId: new(i.id), AvailabilityZone: new(i.pool.Zone), AvailabilityZoneId: new(zoneIDs[i.pool.Zone]), InstanceState: stateOf(i.state),
			InstanceStatus: i.check("instance"), SystemStatus: i.check("system"), AttachedEbsStatus: i.ebsCheck(),
			Events: append([]types.InstanceStatusEvent{}, i.events...),
		})
	}
	return out, nil
}

// splitStatusFilters separates the filters on checks and events from those that DescribeInstances has as well.
func splitStatusFilters(asked []types.Filter) (own, plain []types.Filter) {
	for _, f := range asked {
		if _, ok := statusFilters[deref(f.Name)]; ok {
			own = append(own, f)
		} else {
			plain = append(plain, f)
		}
	}
	return own, plain
}

//nolint:gochecknoglobals // a table
var statusFilters = filters[*instance]{
	"instance-status.status":       func(i *instance) []string { return one(string(i.check("instance").Status)) },
	"instance-status.reachability": func(i *instance) []string { return one(string(i.check("instance").Details[0].Status)) },
	"system-status.status":         func(i *instance) []string { return one(string(i.check("system").Status)) },
	"system-status.reachability":   func(i *instance) []string { return one(string(i.check("system").Details[0].Status)) },
	"attached-ebs-status.status":   func(i *instance) []string { return one(string(i.ebsCheck().Status)) },
	"event.code": func(i *instance) []string {
		var codes []string
		for _, e := range i.events {
			codes = append(codes, string(e.Code))
		}
		return codes
	},
}

// check shows one of an instance's status checks.
func (i *instance) check(name string) *types.InstanceStatusSummary {
	since, failed := i.impaired[name]
	v := &types.InstanceStatusSummary{Status: types.SummaryStatusOk, Details: []types.InstanceStatusDetails{
		{Name: types.StatusNameReachability, Status: types.StatusTypePassed},
	}}
	switch {
	case i.state != types.InstanceStateNameRunning:
		v.Status, v.Details[0].Status = types.SummaryStatusNotApplicable, types.StatusTypeInsufficientData
	case failed:
		v.Status = types.SummaryStatusImpaired
		v.Details[0].Status, v.Details[0].ImpairedSince = types.StatusTypeFailed, new(since)
	}
	return v
}

func (i *instance) ebsCheck() *types.EbsStatusSummary {
	v := i.check("ebs")
	return &types.EbsStatusSummary{Status: v.Status, Details: []types.EbsStatusDetails{{
		Name: v.Details[0].Name, Status: v.Details[0].Status, ImpairedSince: v.Details[0].ImpairedSince,
	}}}
}

var _ fault.World = (*Service)(nil)

// Do carries out an act on the world. It fails if there is no such instance, or if the act is not for one like it.
func (s *Service) Do(_ context.Context, act fault.Act) error {
	if act.Act == fault.ActRollImages {
		s.RollImages()
		return nil
	}
	err := s.with(act.Instance, func(i *instance) error { return s.act(i, act) })
	s.deliver()
	if err != nil {
		return fmt.Errorf("%s: %w", act.Act, err)
	}
	return nil
}

// act carries out an act on one live instance.
func (s *Service) act(i *instance, act fault.Act) error {
	if (act.Act == fault.ActInterrupt || act.Act == fault.ActRebalance) && i.pool.Capacity != spot {
		return fmt.Errorf("%s is not a Spot instance", i.id)
	}
	switch act.Act {
	case fault.ActInterrupt:
		s.interrupt(i, cmp.Or(time.Duration(act.Notice), fault.SpotNotice), act.Copies)
	case fault.ActRebalance:
		for range max(act.Copies, 1) {
			s.announce(Change{Kind: Rebalance}, i)
		}
	case fault.ActTerminate:
		code := cmp.Or(act.Code, "Server.InternalError")
		s.end(i, code, cmp.Or(act.Message, "Internal error"), code)
	case fault.ActImpair:
		if act.Healthy {
			delete(i.impaired, act.Check)
		} else if _, already := i.impaired[act.Check]; !already {
			i.impaired[act.Check] = time.Now()
		}
	case fault.ActScheduleEvent:
		s.schedule(i, act)
	default:
		return fmt.Errorf("unknown act %q", act.Act)
	}
	return nil
}

// with runs do on a live instance under the lock.
func (s *Service) with(id string, do func(*instance) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok {
		return fmt.Errorf("no instance %q", id)
	}
	if !i.live() {
		return fmt.Errorf("instance %s is %s", id, i.state)
	}
	return do(i)
}

func (s *Service) schedule(i *instance, act fault.Act) {
	at := time.Now().Add(time.Duration(act.Notice))
	i.events = append(i.events, types.InstanceStatusEvent{
		InstanceEventId: new(s.mint("instance-event-")), Code: types.EventCode(act.Code), NotBefore: new(at),
		Description: new(cmp.Or(act.Message, "The instance is scheduled for "+act.Code)),
	})
	s.announce(Change{Kind: ScheduledEvent, At: at, Code: act.Code}, i)
}
