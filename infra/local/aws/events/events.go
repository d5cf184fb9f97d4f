package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"treadle/infra/local/aws/rpc"
)

// Deliverer hands a payload to the target with the ARN. The group is the message group of a FIFO queue, or empty.
type Deliverer interface {
	Deliver(ctx context.Context, arn string, payload []byte, group string) error
}

// Options say where a Service stands and where its events go.
type Options struct {
	Region      string // us-east-1 when empty
	Account     string // 123456789012 when empty
	Targets     Deliverer
	RetryDelays []time.Duration // between the tries of one delivery; 0.1 s, 1 s, 10 s when nil
}

// Event is one event as targets get it.
type Event struct {
	Version    string          `json:"version"`
	ID         string          `json:"id"`
	DetailType string          `json:"detail-type"`
	Source     string          `json:"source"`
	Account    string          `json:"account"`
	Time       time.Time       `json:"time"`
	Region     string          `json:"region"`
	Resources  []string        `json:"resources"`
	Detail     json.RawMessage `json:"detail"`
}

// Service holds the rules of the default bus. Safe for concurrent use.
type Service struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup // deliveries that are tried again

	mu     sync.Mutex
	rules  map[string]*rule
	closed bool
}

type rule struct {
	name, description   string
	pattern, expression string
	matches             Pattern // when there is a pattern
	every               time.Duration
	timer               *time.Timer // runs while a rate rule is enabled
	enabled             bool
	targets             map[string]types.Target
}

// New returns a bus without rules.
func New(o Options) *Service {
	o.Region, o.Account = cmp.Or(o.Region, "us-east-1"), cmp.Or(o.Account, "123456789012")
	if o.RetryDelays == nil {
		o.RetryDelays = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Service{options: o, ctx: ctx, cancel: cancel, rules: map[string]*rule{}}
}

// Close stops rate rules and drops deliveries that wait for another try.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for _, r := range s.rules {
		r.stop()
	}
	s.mu.Unlock()
	s.cancel()
	s.wait.Wait()
}

// Handler serves the bus over AWS JSON 1.1.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return rpc.JSON(rpc.Service{
		Name:   "events",
		Errors: eventbridge.TypeRegistry,
		Hooks:  h,
		Actions: map[string]rpc.Action{
			"DeleteRule":        rpc.Bind(s.DeleteRule),
			"DescribeRule":      rpc.Bind(s.DescribeRule),
			"DisableRule":       rpc.Bind(s.DisableRule),
			"EnableRule":        rpc.Bind(s.EnableRule),
			"ListRules":         rpc.Bind(s.ListRules),
			"ListTargetsByRule": rpc.Bind(s.ListTargetsByRule),
			"PutEvents":         rpc.Bind(s.PutEvents),
			"PutRule":           rpc.Bind(s.PutRule),
			"PutTargets":        rpc.Bind(s.PutTargets),
			"RemoveTargets":     rpc.Bind(s.RemoveTargets),
			"TestEventPattern":  rpc.Bind(s.TestEventPattern),
		},
	}, "1.1")
}

func (s *Service) ruleARN(name string) string {
	return "arn:aws:events:" + s.options.Region + ":" + s.options.Account + ":rule/" + name
}

// rule finds a rule of the default bus. The lock must be held.
func (s *Service) rule(name, bus *string) (*rule, error) {
	if b := aws.ToString(bus); b != "" && b != "default" && !strings.HasSuffix(b, "/default") {
		return nil, notFound("Event bus " + b + " does not exist.")
	}
	r, ok := s.rules[aws.ToString(name)]
	if !ok {
		return nil, notFound("Rule " + aws.ToString(name) + " does not exist on EventBus default.")
	}
	return r, nil
}

func notFound(message string) error {
	return &types.ResourceNotFoundException{Message: aws.String(message)}
}

func invalid(format string, args ...any) error {
	return rpc.Errorf("ValidationException", format, args...)
}

var (
	ruleName = regexp.MustCompile(`^[.\-_A-Za-z0-9]{1,64}$`)
	rateForm = regexp.MustCompile(`^rate\(([1-9][0-9]*) (minute|minutes|hour|hours|day|days)\)$`)
)

// ParseRate returns the interval of rate(N UNIT).
func ParseRate(expression string) (time.Duration, error) {
	m := rateForm.FindStringSubmatch(expression)
	if m == nil {
		return 0, fmt.Errorf("expression %q is not of the form rate(N minutes), hours or days", expression)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || (n == 1) == strings.HasSuffix(m[2], "s") {
		return 0, fmt.Errorf("expression %q: the unit must agree with the number", expression)
	}
	unit := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}[strings.TrimSuffix(m[2], "s")]
	return time.Duration(n) * unit, nil
}

// PutRule makes or changes a rule; its targets stay. A rule that goes by a rate first fires after one interval.
func (s *Service) PutRule(_ context.Context, in *eventbridge.PutRuleInput, _ ...func(*eventbridge.Options)) (*eventbridge.PutRuleOutput, error) {
	name := aws.ToString(in.Name)
	if !ruleName.MatchString(name) {
		return nil, invalid("name %q is not a name of a rule", name)
	}
	r := &rule{
		name: name, description: aws.ToString(in.Description),
		pattern: aws.ToString(in.EventPattern), expression: aws.ToString(in.ScheduleExpression),
		enabled: in.State != types.RuleStateDisabled,
		targets: map[string]types.Target{},
	}
	if r.pattern == "" && r.expression == "" {
		return nil, invalid("Parameter(s) EventPattern or ScheduleExpression must be specified.")
	}
	var err error
	if r.pattern != "" {
		if r.matches, err = ParsePattern(r.pattern); err != nil {
			return nil, &types.InvalidEventPatternException{Message: aws.String("Event pattern is not valid. Reason: " + err.Error())}
		}
	}
	if r.expression != "" {
		if r.every, err = ParseRate(r.expression); err != nil {
			return nil, invalid("Parameter ScheduleExpression is not valid: %v", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.rules[name]; ok {
		old.stop()
		r.targets = old.targets
	}
	s.rules[name] = r
	s.schedule(r)
	return &eventbridge.PutRuleOutput{RuleArn: aws.String(s.ruleARN(name))}, nil
}

// schedule lets a rate rule fire again and again while it is enabled. The lock must be held.
func (s *Service) schedule(r *rule) {
	if r.every == 0 || !r.enabled || s.closed || r.timer != nil {
		return
	}
	due := time.Now().Add(r.every)
	r.timer = time.AfterFunc(r.every, func() {
		s.mu.Lock()
		if r.timer == nil || s.closed {
			s.mu.Unlock()
			return
		}
		due = due.Add(r.every) // from when it was due, so that delays do not add up
		r.timer.Reset(time.Until(due))
		targets := slices.Collect(maps.Values(r.targets))
		s.mu.Unlock()
		event := s.event("aws.events", "Scheduled Event", []string{s.ruleARN(r.name)}, json.RawMessage("{}"))
		s.send(event, r.name, targets)
	})
}

func (r *rule) stop() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// DescribeRule returns a rule.
func (s *Service) DescribeRule(_ context.Context, in *eventbridge.DescribeRuleInput, _ ...func(*eventbridge.Options)) (*eventbridge.DescribeRuleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.rule(in.Name, in.EventBusName)
	if err != nil {
		return nil, err
	}
	d := s.describe(r)
	return &eventbridge.DescribeRuleOutput{
		Arn: d.Arn, Name: d.Name, Description: d.Description, EventBusName: d.EventBusName,
		EventPattern: d.EventPattern, ScheduleExpression: d.ScheduleExpression, State: d.State,
	}, nil
}

func (s *Service) describe(r *rule) types.Rule {
	d := types.Rule{Arn: aws.String(s.ruleARN(r.name)), Name: aws.String(r.name), EventBusName: aws.String("default"), State: types.RuleStateDisabled}
	if r.enabled {
		d.State = types.RuleStateEnabled
	}
	for value, into := range map[*string]**string{&r.description: &d.Description, &r.pattern: &d.EventPattern, &r.expression: &d.ScheduleExpression} {
		if *value != "" {
			*into = aws.String(*value)
		}
	}
	return d
}

// ListRules returns the rules whose name has the prefix, by name. It never pages.
func (s *Service) ListRules(_ context.Context, in *eventbridge.ListRulesInput, _ ...func(*eventbridge.Options)) (*eventbridge.ListRulesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &eventbridge.ListRulesOutput{Rules: []types.Rule{}}
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		if strings.HasPrefix(name, aws.ToString(in.NamePrefix)) {
			out.Rules = append(out.Rules, s.describe(s.rules[name]))
		}
	}
	return out, nil
}

// DeleteRule deletes a rule that has no targets. Deleting what is not there is no error.
func (s *Service) DeleteRule(_ context.Context, in *eventbridge.DeleteRuleInput, _ ...func(*eventbridge.Options)) (*eventbridge.DeleteRuleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.rule(in.Name, in.EventBusName)
	if err != nil {
		return &eventbridge.DeleteRuleOutput{}, nil //nolint:nilerr // as EventBridge has it
	}
	if len(r.targets) > 0 {
		return nil, invalid("Rule can't be deleted since it has targets.")
	}
	r.stop()
	delete(s.rules, r.name)
	return &eventbridge.DeleteRuleOutput{}, nil
}

// EnableRule lets a rule work.
func (s *Service) EnableRule(_ context.Context, in *eventbridge.EnableRuleInput, _ ...func(*eventbridge.Options)) (*eventbridge.EnableRuleOutput, error) {
	return &eventbridge.EnableRuleOutput{}, s.enable(in.Name, in.EventBusName, true)
}

// DisableRule keeps a rule from working.
func (s *Service) DisableRule(_ context.Context, in *eventbridge.DisableRuleInput, _ ...func(*eventbridge.Options)) (*eventbridge.DisableRuleOutput, error) {
	return &eventbridge.DisableRuleOutput{}, s.enable(in.Name, in.EventBusName, false)
}

func (s *Service) enable(name, bus *string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.rule(name, bus)
	if err != nil {
		return err
	}
	r.enabled = on
	if !on {
		r.stop()
	}
	s.schedule(r)
	return nil
}

// PutTargets adds targets to a rule, or replaces those of the same id.
func (s *Service) PutTargets(_ context.Context, in *eventbridge.PutTargetsInput, _ ...func(*eventbridge.Options)) (*eventbridge.PutTargetsOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.rule(in.Rule, in.EventBusName)
	if err != nil {
		return nil, err
	}
	for _, t := range in.Targets {
		if aws.ToString(t.Id) == "" || !strings.HasPrefix(aws.ToString(t.Arn), "arn:") {
			return nil, invalid("a target needs an id and an ARN")
		}
		fifo := strings.HasPrefix(*t.Arn, "arn:aws:sqs:") && strings.HasSuffix(*t.Arn, ".fifo")
		if fifo && (t.SqsParameters == nil || aws.ToString(t.SqsParameters.MessageGroupId) == "") {
			return nil, invalid("Parameter(s) SqsParameters must be specified for target: %s.", *t.Id)
		}
	}
	if len(r.targets)+len(in.Targets) > 5 {
		return nil, &types.LimitExceededException{Message: aws.String("The requested resource exceeds the maximum number allowed: 5 targets.")}
	}
	for _, t := range in.Targets {
		r.targets[*t.Id] = t
	}
	return &eventbridge.PutTargetsOutput{FailedEntries: []types.PutTargetsResultEntry{}}, nil
}

// RemoveTargets takes targets from a rule.
func (s *Service) RemoveTargets(_ context.Context, in *eventbridge.RemoveTargetsInput, _ ...func(*eventbridge.Options)) (*eventbridge.RemoveTargetsOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.rule(in.Rule, in.EventBusName)
	if err != nil {
		return nil, err
	}
	for _, id := range in.Ids {
		delete(r.targets, id)
	}
	return &eventbridge.RemoveTargetsOutput{FailedEntries: []types.RemoveTargetsResultEntry{}}, nil
}

// ListTargetsByRule returns the targets of a rule by id.
func (s *Service) ListTargetsByRule(_ context.Context, in *eventbridge.ListTargetsByRuleInput, _ ...func(*eventbridge.Options)) (*eventbridge.ListTargetsByRuleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.rule(in.Rule, in.EventBusName)
	if err != nil {
		return nil, err
	}
	out := &eventbridge.ListTargetsByRuleOutput{Targets: []types.Target{}}
	for _, id := range slices.Sorted(maps.Keys(r.targets)) {
		out.Targets = append(out.Targets, r.targets[id])
	}
	return out, nil
}

// TestEventPattern says whether an event meets a pattern.
func (s *Service) TestEventPattern(_ context.Context, in *eventbridge.TestEventPatternInput, _ ...func(*eventbridge.Options)) (*eventbridge.TestEventPatternOutput, error) {
	p, err := ParsePattern(aws.ToString(in.EventPattern))
	if err != nil {
		return nil, &types.InvalidEventPatternException{Message: aws.String("Event pattern is not valid. Reason: " + err.Error())}
	}
	matches, err := p.Match([]byte(aws.ToString(in.Event)))
	if err != nil {
		return nil, invalid("Parameter Event is not valid: %v", err)
	}
	return &eventbridge.TestEventPatternOutput{Result: matches}, nil
}

// PutEvents takes up to ten events, each of which may be refused alone. Sources that begin with aws. are AWS's own.
func (s *Service) PutEvents(_ context.Context, in *eventbridge.PutEventsInput, _ ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	if len(in.Entries) == 0 || len(in.Entries) > 10 {
		return nil, invalid("entries must have 1 to 10 members, not %d", len(in.Entries))
	}
	out := &eventbridge.PutEventsOutput{}
	for _, e := range in.Entries {
		var result types.PutEventsResultEntry
		code, message := refusal(e)
		if code == "" {
			event := s.event(*e.Source, *e.DetailType, e.Resources, json.RawMessage(*e.Detail))
			if e.Time != nil {
				event.Time = e.Time.UTC().Truncate(time.Second)
			}
			result.EventId = aws.String(event.ID)
			s.Emit(event)
		} else {
			result.ErrorCode, result.ErrorMessage = aws.String(code), aws.String(message)
			out.FailedEntryCount++
		}
		out.Entries = append(out.Entries, result)
	}
	return out, nil
}

func refusal(e types.PutEventsRequestEntry) (code, message string) {
	var detail map[string]any
	switch {
	case aws.ToString(e.Source) == "" || aws.ToString(e.DetailType) == "" || e.Detail == nil:
		return "InvalidArgument", "Parameters Source, DetailType and Detail are required."
	case strings.HasPrefix(*e.Source, "aws."):
		return "NotAuthorizedForSourceException", "Not authorized for the source."
	case json.Unmarshal([]byte(*e.Detail), &detail) != nil:
		return "MalformedDetail", "Detail is malformed."
	}
	return "", ""
}

func (s *Service) event(source, detailType string, resources []string, detail json.RawMessage) Event {
	return Event{Source: source, DetailType: detailType, Resources: resources, Detail: detail}.complete(s.options.Region, s.options.Account)
}

// complete fills in what every event has.
func (e Event) complete(region, account string) Event {
	e.Version = cmp.Or(e.Version, "0")
	e.ID = cmp.Or(e.ID, rpc.NewID())
	e.Region, e.Account = cmp.Or(e.Region, region), cmp.Or(e.Account, account)
	if e.Time.IsZero() {
		e.Time = time.Now().UTC().Truncate(time.Second)
	}
	if e.Resources == nil {
		e.Resources = []string{}
	}
	if e.Detail == nil {
		e.Detail = json.RawMessage("{}")
	}
	return e
}

// Emit sends an event of any source to the targets of the rules that match it, and returns when each was tried once.
// Id, time, region and account are filled in when empty.
func (s *Service) Emit(event Event) {
	event = event.complete(s.options.Region, s.options.Account)
	raw, err := json.Marshal(event)
	if err != nil {
		return // a detail that is no JSON has no targets
	}
	type match struct {
		rule    string
		targets []types.Target
	}
	var matched []match
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		r := s.rules[name]
		if r.pattern == "" || !r.enabled {
			continue
		}
		if ok, err := r.matches.Match(raw); err != nil || !ok {
			continue
		}
		matched = append(matched, match{name, slices.Collect(maps.Values(r.targets))})
	}
	s.mu.Unlock()
	for _, m := range matched {
		s.send(event, m.rule, m.targets)
	}
}

// send delivers an event to targets, and goes on trying in the background where that fails.
func (s *Service) send(event Event, ruleName string, targets []types.Target) {
	raw, err := json.Marshal(event)
	if err != nil {
		return
	}
	for _, t := range targets {
		payload, err := input(t, raw, s.ruleARN(ruleName), ruleName)
		if err != nil {
			continue // EventBridge drops what its transformer cannot make
		}
		if s.deliver(t, payload) == nil {
			continue
		}
		s.mu.Lock()
		if !s.closed {
			s.wait.Go(func() { s.retry(t, payload) })
		}
		s.mu.Unlock()
	}
}

func (s *Service) deliver(t types.Target, payload []byte) error {
	group := ""
	if t.SqsParameters != nil {
		group = aws.ToString(t.SqsParameters.MessageGroupId)
	}
	return s.options.Targets.Deliver(s.ctx, *t.Arn, payload, group)
}

func (s *Service) retry(t types.Target, payload []byte) {
	for _, delay := range s.options.RetryDelays {
		select {
		case <-time.After(delay):
		case <-s.ctx.Done():
			return
		}
		if s.deliver(t, payload) == nil {
			return
		}
	}
	if t.DeadLetterConfig != nil && t.DeadLetterConfig.Arn != nil {
		_ = s.options.Targets.Deliver(s.ctx, *t.DeadLetterConfig.Arn, payload, "") // there is no further place to go
	}
}
