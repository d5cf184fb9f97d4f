package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"

	"treadle/infra/local/aws/events"
	"treadle/infra/local/aws/rpc"
)

// Deliverer hands a payload to the target with the ARN. The group is the message group of a FIFO queue, or empty.
type Deliverer interface {
	Deliver(ctx context.Context, arn string, payload []byte, group string) error
}

// Options say where a Service stands and where its schedules fire to.
type Options struct {
	Region      string // us-east-1 when empty
	Account     string // 123456789012 when empty
	Targets     Deliverer
	RetryDelays []time.Duration // between the tries of one delivery; 0.1 s, 1 s, 10 s when nil
}

const defaultGroup = "default"

// Service holds groups and schedules. Safe for concurrent use.
type Service struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup // deliveries under way

	mu        sync.Mutex
	groups    map[string]types.ScheduleGroupSummary
	schedules map[key]*schedule
	closed    bool
}

type key struct{ group, name string }

func (k key) String() string { return k.group + "/" + k.name }

// schedule is what was created or last updated, and its next time.
type schedule struct {
	in       scheduler.CreateScheduleInput
	created  time.Time
	modified time.Time
	every    time.Duration // zero for a schedule that fires once
	due      time.Time
	timer    *time.Timer // nil while disabled, and after the last time
}

// New returns a service that has the default group alone.
func New(o Options) *Service {
	o.Region, o.Account = cmp.Or(o.Region, "us-east-1"), cmp.Or(o.Account, "123456789012")
	if o.RetryDelays == nil {
		o.RetryDelays = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{options: o, ctx: ctx, cancel: cancel, groups: map[string]types.ScheduleGroupSummary{}, schedules: map[key]*schedule{}}
	s.addGroup(defaultGroup)
	return s
}

// Close stops all schedules and drops deliveries that wait for another try.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for _, sc := range s.schedules {
		sc.stop()
	}
	s.mu.Unlock()
	s.cancel()
	s.wait.Wait()
}

// Handler serves the schedules over REST-JSON.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	byName := map[string]string{"groupName": "GroupName", "clientToken": "ClientToken"}
	return rpc.REST(rpc.Service{
		Name: "scheduler",
		Status: map[string]int{
			"ConflictException":             http.StatusConflict,
			"ResourceNotFoundException":     http.StatusNotFound,
			"ServiceQuotaExceededException": http.StatusPaymentRequired,
			"ThrottlingException":           http.StatusTooManyRequests,
			"AccessDeniedException":         http.StatusForbidden,
		},
		Hooks: h,
		Actions: map[string]rpc.Action{
			"CreateSchedule":      rpc.Bind(s.CreateSchedule),
			"CreateScheduleGroup": rpc.Bind(s.CreateScheduleGroup),
			"DeleteSchedule":      rpc.Bind(s.DeleteSchedule),
			"DeleteScheduleGroup": rpc.Bind(s.DeleteScheduleGroup),
			"GetSchedule":         rpc.Bind(s.GetSchedule),
			"GetScheduleGroup":    rpc.Bind(s.GetScheduleGroup),
			"ListScheduleGroups":  rpc.Bind(s.ListScheduleGroups),
			"ListSchedules":       rpc.Bind(s.ListSchedules),
			"UpdateSchedule":      rpc.Bind(s.UpdateSchedule),
		},
	}, false,
		rpc.Route{Pattern: "POST /schedules/{Name}", Action: "CreateSchedule"},
		rpc.Route{Pattern: "GET /schedules/{Name}", Action: "GetSchedule", Query: byName},
		rpc.Route{Pattern: "PUT /schedules/{Name}", Action: "UpdateSchedule"},
		rpc.Route{Pattern: "DELETE /schedules/{Name}", Action: "DeleteSchedule", Query: byName},
		rpc.Route{Pattern: "GET /schedules", Action: "ListSchedules", Query: map[string]string{
			"ScheduleGroup": "GroupName", "MaxResults": "MaxResults", "NamePrefix": "NamePrefix", "NextToken": "NextToken", "State": "State"}},
		rpc.Route{Pattern: "POST /schedule-groups/{Name}", Action: "CreateScheduleGroup"},
		rpc.Route{Pattern: "GET /schedule-groups/{Name}", Action: "GetScheduleGroup"},
		rpc.Route{Pattern: "DELETE /schedule-groups/{Name}", Action: "DeleteScheduleGroup", Query: byName},
		rpc.Route{Pattern: "GET /schedule-groups", Action: "ListScheduleGroups", Query: map[string]string{
			"MaxResults": "MaxResults", "NamePrefix": "NamePrefix", "NextToken": "NextToken"}},
	)
}

func (s *Service) arn(kind, id string) string {
	return "arn:aws:scheduler:" + s.options.Region + ":" + s.options.Account + ":" + kind + "/" + id
}

func (s *Service) scheduleARN(k key) string { return s.arn("schedule", k.String()) }

func notFound(kind, name string) error {
	return &types.ResourceNotFoundException{Message: aws.String(kind + " " + name + " does not exist.")}
}

func conflict(kind, name string) error {
	return &types.ConflictException{Message: aws.String(kind + " " + name + " already exists.")}
}

func invalid(format string, args ...any) error {
	return &types.ValidationException{Message: aws.String(fmt.Sprintf(format, args...))}
}

var validName = regexp.MustCompile(`^[0-9a-zA-Z_.-]{1,64}$`)

// addGroup makes a group. The lock must be held, or the service not be shared yet.
func (s *Service) addGroup(name string) {
	now := time.Now()
	s.groups[name] = types.ScheduleGroupSummary{
		Arn: aws.String(s.arn("schedule-group", name)), Name: aws.String(name), State: types.ScheduleGroupStateActive,
		CreationDate: &now, LastModificationDate: &now,
	}
}

// CreateScheduleGroup makes a group.
func (s *Service) CreateScheduleGroup(_ context.Context, in *scheduler.CreateScheduleGroupInput, _ ...func(*scheduler.Options)) (*scheduler.CreateScheduleGroupOutput, error) {
	name := aws.ToString(in.Name)
	if !validName.MatchString(name) {
		return nil, invalid("%q is not a name of a group", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.groups[name]; ok {
		return nil, conflict("Schedule group", name)
	}
	s.addGroup(name)
	return &scheduler.CreateScheduleGroupOutput{ScheduleGroupArn: s.groups[name].Arn}, nil
}

// GetScheduleGroup returns a group.
func (s *Service) GetScheduleGroup(_ context.Context, in *scheduler.GetScheduleGroupInput, _ ...func(*scheduler.Options)) (*scheduler.GetScheduleGroupOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.groups[aws.ToString(in.Name)]
	if !ok {
		return nil, notFound("Schedule group", aws.ToString(in.Name))
	}
	return &scheduler.GetScheduleGroupOutput{
		Arn: g.Arn, Name: g.Name, State: g.State, CreationDate: g.CreationDate, LastModificationDate: g.LastModificationDate,
	}, nil
}

// ListScheduleGroups returns the groups by name. It never pages.
func (s *Service) ListScheduleGroups(_ context.Context, in *scheduler.ListScheduleGroupsInput, _ ...func(*scheduler.Options)) (*scheduler.ListScheduleGroupsOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &scheduler.ListScheduleGroupsOutput{ScheduleGroups: []types.ScheduleGroupSummary{}}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		if strings.HasPrefix(name, aws.ToString(in.NamePrefix)) {
			out.ScheduleGroups = append(out.ScheduleGroups, s.groups[name])
		}
	}
	return out, nil
}

// DeleteScheduleGroup deletes a group and its schedules.
func (s *Service) DeleteScheduleGroup(_ context.Context, in *scheduler.DeleteScheduleGroupInput, _ ...func(*scheduler.Options)) (*scheduler.DeleteScheduleGroupOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := aws.ToString(in.Name)
	if _, ok := s.groups[name]; !ok {
		return nil, notFound("Schedule group", name)
	}
	if name == defaultGroup {
		return nil, invalid("the default group cannot be deleted")
	}
	for k := range s.schedules {
		if k.group == name {
			s.remove(k)
		}
	}
	delete(s.groups, name)
	return &scheduler.DeleteScheduleGroupOutput{}, nil
}

// CreateSchedule makes a schedule. The same client token again returns the schedule that it made.
func (s *Service) CreateSchedule(_ context.Context, in *scheduler.CreateScheduleInput, _ ...func(*scheduler.Options)) (*scheduler.CreateScheduleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(in.GroupName, in.Name)
	if _, ok := s.groups[k.group]; !ok {
		return nil, notFound("Schedule group", k.group)
	}
	if old, ok := s.schedules[k]; ok {
		if in.ClientToken != nil && aws.ToString(old.in.ClientToken) == *in.ClientToken {
			return &scheduler.CreateScheduleOutput{ScheduleArn: aws.String(s.scheduleARN(k))}, nil
		}
		return nil, conflict("Schedule", k.name)
	}
	now := time.Now()
	sc, err := parse(*in, now)
	if err != nil {
		return nil, err
	}
	sc.created = now
	s.schedules[k] = sc
	s.arm(k, sc)
	return &scheduler.CreateScheduleOutput{ScheduleArn: aws.String(s.scheduleARN(k))}, nil
}

func keyOf(group, name *string) key {
	return key{cmp.Or(aws.ToString(group), defaultGroup), aws.ToString(name)}
}

var atForm = regexp.MustCompile(`^at\((\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\)$`)

// parse checks a schedule and finds its first time.
func parse(in scheduler.CreateScheduleInput, now time.Time) (*schedule, error) {
	sc := &schedule{in: in, modified: now}
	expression := aws.ToString(in.ScheduleExpression)
	switch {
	case !validName.MatchString(aws.ToString(in.Name)):
		return nil, invalid("%q is not a name of a schedule", aws.ToString(in.Name))
	case in.FlexibleTimeWindow == nil || in.FlexibleTimeWindow.Mode != types.FlexibleTimeWindowModeOff:
		return nil, invalid("FlexibleTimeWindow must be given, and only the mode OFF is served here")
	case in.Target == nil || !strings.HasPrefix(aws.ToString(in.Target.Arn), "arn:") || !strings.HasPrefix(aws.ToString(in.Target.RoleArn), "arn:"):
		return nil, invalid("Target must have the ARN of a target and of a role")
	case strings.HasSuffix(*in.Target.Arn, ".fifo") && (in.Target.SqsParameters == nil || in.Target.SqsParameters.MessageGroupId == nil):
		return nil, invalid("SqsParameters must be specified for a FIFO queue")
	}
	if m := atForm.FindStringSubmatch(expression); m != nil {
		zone, err := time.LoadLocation(cmp.Or(aws.ToString(in.ScheduleExpressionTimezone), "UTC"))
		if err != nil {
			return nil, invalid("ScheduleExpressionTimezone %s is not known", *in.ScheduleExpressionTimezone)
		}
		if sc.due, err = time.ParseInLocation("2006-01-02T15:04:05", m[1], zone); err != nil || now.Sub(sc.due) > time.Minute {
			return nil, invalid("Invalid Schedule Expression %s.", expression)
		}
		return sc, nil
	}
	every, err := events.ParseRate(expression)
	if err != nil {
		return nil, invalid("Invalid Schedule Expression %s.", expression)
	}
	sc.every = every
	start := now
	if in.StartDate != nil && in.StartDate.After(now) {
		start = *in.StartDate
	}
	sc.due = start.Add(every)
	return sc, nil
}

// arm sets the clock for the next time of a schedule. The lock must be held.
func (s *Service) arm(k key, sc *schedule) {
	over := sc.in.EndDate != nil && sc.every > 0 && sc.due.After(*sc.in.EndDate)
	if sc.in.State == types.ScheduleStateDisabled || s.closed || over {
		return
	}
	sc.timer = time.AfterFunc(time.Until(sc.due), func() { s.fire(k, sc) })
}

func (sc *schedule) stop() {
	if sc.timer != nil {
		sc.timer.Stop()
		sc.timer = nil
	}
}

func (s *Service) remove(k key) {
	s.schedules[k].stop()
	delete(s.schedules, k)
}

// fire delivers what is due and sets up the next time. What was changed or deleted meanwhile does not fire.
func (s *Service) fire(k key, sc *schedule) {
	s.mu.Lock()
	if s.schedules[k] != sc || sc.timer == nil || s.closed {
		s.mu.Unlock()
		return
	}
	due := sc.due
	sc.timer = nil
	switch {
	case sc.every > 0:
		sc.due = due.Add(sc.every)
		s.arm(k, sc)
	case sc.in.ActionAfterCompletion == types.ActionAfterCompletionDelete:
		delete(s.schedules, k)
	}
	s.wait.Go(func() { s.deliver(k, *sc.in.Target, due) })
	s.mu.Unlock()
}

// deliver hands a firing to its target, again and again if need be.
func (s *Service) deliver(k key, t types.Target, due time.Time) {
	group := ""
	if t.SqsParameters != nil {
		group = aws.ToString(t.SqsParameters.MessageGroupId)
	}
	execution := rpc.NewID()
	for try := 0; ; try++ {
		payload := s.payload(k, t, due, execution, try+1)
		if s.options.Targets.Deliver(s.ctx, *t.Arn, payload, group) == nil {
			return
		}
		if try >= len(s.options.RetryDelays) {
			if t.DeadLetterConfig != nil && t.DeadLetterConfig.Arn != nil {
				_ = s.options.Targets.Deliver(s.ctx, *t.DeadLetterConfig.Arn, payload, "") // there is no further place to go
			}
			return
		}
		select {
		case <-time.After(s.options.RetryDelays[try]):
		case <-s.ctx.Done():
			return
		}
	}
}

// payload is the target's input with its context attributes filled in, or an event that names the schedule.
func (s *Service) payload(k key, t types.Target, due time.Time, execution string, attempt int) []byte {
	if t.Input != nil {
		return []byte(strings.NewReplacer(
			"<aws.scheduler.schedule-arn>", s.scheduleARN(k),
			"<aws.scheduler.scheduled-time>", due.UTC().Format(time.RFC3339),
			"<aws.scheduler.execution-id>", execution,
			"<aws.scheduler.attempt-number>", fmt.Sprint(attempt),
		).Replace(*t.Input))
	}
	payload, err := json.Marshal(map[string]any{
		"version": "0", "id": execution, "detail-type": "Scheduled Event", "source": "aws.scheduler", "account": s.options.Account,
		"time": due.UTC().Format(time.RFC3339), "region": s.options.Region, "resources": []string{s.scheduleARN(k)}, "detail": "{}",
	})
	if err != nil {
		panic(err) // strings always encode
	}
	return payload
}

// GetSchedule returns a schedule.
func (s *Service) GetSchedule(_ context.Context, in *scheduler.GetScheduleInput, _ ...func(*scheduler.Options)) (*scheduler.GetScheduleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(in.GroupName, in.Name)
	sc, ok := s.schedules[k]
	if !ok {
		return nil, notFound("Schedule", k.name)
	}
	return &scheduler.GetScheduleOutput{
		Arn: aws.String(s.scheduleARN(k)), GroupName: aws.String(k.group), Name: aws.String(k.name),
		ActionAfterCompletion: sc.in.ActionAfterCompletion, Description: sc.in.Description,
		CreationDate: aws.Time(sc.created), LastModificationDate: aws.Time(sc.modified),
		StartDate: sc.in.StartDate, EndDate: sc.in.EndDate, FlexibleTimeWindow: sc.in.FlexibleTimeWindow,
		ScheduleExpression: sc.in.ScheduleExpression, State: sc.state(), Target: sc.in.Target,
		ScheduleExpressionTimezone: aws.String(cmp.Or(aws.ToString(sc.in.ScheduleExpressionTimezone), "UTC")),
	}, nil
}

func (sc *schedule) state() types.ScheduleState {
	return cmp.Or(sc.in.State, types.ScheduleStateEnabled)
}

// UpdateSchedule replaces all of a schedule: what the request leaves out is unset.
func (s *Service) UpdateSchedule(_ context.Context, in *scheduler.UpdateScheduleInput, _ ...func(*scheduler.Options)) (*scheduler.UpdateScheduleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(in.GroupName, in.Name)
	old, ok := s.schedules[k]
	if !ok {
		return nil, notFound("Schedule", k.name)
	}
	sc, err := parse(scheduler.CreateScheduleInput{
		Name: in.Name, GroupName: in.GroupName, ClientToken: in.ClientToken, Description: in.Description,
		FlexibleTimeWindow: in.FlexibleTimeWindow, ScheduleExpression: in.ScheduleExpression, State: in.State, Target: in.Target,
		ScheduleExpressionTimezone: in.ScheduleExpressionTimezone, StartDate: in.StartDate, EndDate: in.EndDate,
		ActionAfterCompletion: in.ActionAfterCompletion, KmsKeyArn: in.KmsKeyArn,
	}, time.Now())
	if err != nil {
		return nil, err
	}
	sc.created = old.created
	old.stop()
	s.schedules[k] = sc
	s.arm(k, sc)
	return &scheduler.UpdateScheduleOutput{ScheduleArn: aws.String(s.scheduleARN(k))}, nil
}

// DeleteSchedule deletes a schedule.
func (s *Service) DeleteSchedule(_ context.Context, in *scheduler.DeleteScheduleInput, _ ...func(*scheduler.Options)) (*scheduler.DeleteScheduleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(in.GroupName, in.Name)
	if _, ok := s.schedules[k]; !ok {
		return nil, notFound("Schedule", k.name)
	}
	s.remove(k)
	return &scheduler.DeleteScheduleOutput{}, nil
}

// ListSchedules returns schedules in order of GROUP/NAME, a hundred a page.
func (s *Service) ListSchedules(_ context.Context, in *scheduler.ListSchedulesInput, _ ...func(*scheduler.Options)) (*scheduler.ListSchedulesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := int(cmp.Or(aws.ToInt32(in.MaxResults), 100))
	keys := slices.SortedFunc(maps.Keys(s.schedules), func(a, b key) int { return cmp.Compare(a.String(), b.String()) })
	out := &scheduler.ListSchedulesOutput{Schedules: []types.ScheduleSummary{}}
	for _, k := range keys {
		sc := s.schedules[k]
		if in.GroupName != nil && *in.GroupName != k.group || !strings.HasPrefix(k.name, aws.ToString(in.NamePrefix)) ||
			in.State != "" && in.State != sc.state() || k.String() <= aws.ToString(in.NextToken) {
			continue
		}
		if n := len(out.Schedules); n == limit {
			last := out.Schedules[n-1]
			out.NextToken = aws.String(*last.GroupName + "/" + *last.Name)
			break
		}
		out.Schedules = append(out.Schedules, types.ScheduleSummary{
			Arn: aws.String(s.scheduleARN(k)), GroupName: aws.String(k.group), Name: aws.String(k.name), State: sc.state(),
			CreationDate: aws.Time(sc.created), LastModificationDate: aws.Time(sc.modified), Target: &types.TargetSummary{Arn: sc.in.Target.Arn},
		})
	}
	return out, nil
}
