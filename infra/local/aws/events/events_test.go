package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/events"
)

func TestPattern_MatchesAsEventBridgeDoes(t *testing.T) {
	t.Parallel()
	const event = `{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","resources":["arn:a","arn:b"],
		"detail":{"instance-id":"i-0abc","state":"terminated","count":7,"price":0.10,"ip":"10.0.1.7","none":null,"flag":true,
		"list":[{"k":"x","v":1},{"k":"y","v":2}],"empty":""}}`
	for name, row := range map[string]struct {
		pattern string
		want    bool
	}{
		"one of a list":                        {`{"source":["aws.ec2","aws.health"]}`, true},
		"none of a list":                       {`{"source":["aws.s3"]}`, false},
		"all fields must meet":                 {`{"source":["aws.ec2"],"detail":{"state":["running"]}}`, false},
		"a field in the detail":                {`{"detail":{"state":["shutting-down","terminated"]}}`, true},
		"any element of an array":              {`{"resources":["arn:b"]}`, true},
		"a field of any element":               {`{"detail":{"list":{"k":["y"]}}}`, true},
		"fields of the same element":           {`{"detail":{"list":{"k":["x"],"v":[2]}}}`, false},
		"prefix":                               {`{"detail":{"instance-id":[{"prefix":"i-"}]}}`, true},
		"prefix in any case":                   {`{"detail":{"instance-id":[{"prefix":{"equals-ignore-case":"I-0A"}}]}}`, true},
		"suffix":                               {`{"detail":{"instance-id":[{"suffix":"xyz"}]}}`, false},
		"suffix in any case":                   {`{"detail":{"instance-id":[{"suffix":{"equals-ignore-case":"ABC"}}]}}`, true},
		"equals-ignore-case":                   {`{"detail":{"state":[{"equals-ignore-case":"TERMINATED"}]}}`, true},
		"exists":                               {`{"detail":{"state":[{"exists":true}]}}`, true},
		"exists, and it is null":               {`{"detail":{"none":[{"exists":true}]}}`, true},
		"exists not":                           {`{"detail":{"state":[{"exists":false}]}}`, false},
		"exists not, and it does not":          {`{"detail":{"other":[{"exists":false}]}}`, true},
		"exists not below what does not exist": {`{"other":{"more":[{"exists":false}]}}`, true},
		"exists not, or a value":               {`{"detail":{"state":[{"exists":false},"terminated"]}}`, true},
		"anything but a value":                 {`{"detail":{"state":[{"anything-but":"running"}]}}`, true},
		"anything but a list":                  {`{"detail":{"state":[{"anything-but":["running","terminated"]}]}}`, false},
		"anything but a number":                {`{"detail":{"count":[{"anything-but":[7.0]}]}}`, false},
		"anything but a prefix":                {`{"detail":{"state":[{"anything-but":{"prefix":"term"}}]}}`, false},
		"anything but two suffixes":            {`{"detail":{"state":[{"anything-but":{"suffix":["ing","ped"]}}]}}`, true},
		"anything but, of what is not there":   {`{"detail":{"other":[{"anything-but":"x"}]}}`, false},
		"numeric equality":                     {`{"detail":{"price":[{"numeric":["=",0.1]}]}}`, true},
		"numeric range":                        {`{"detail":{"count":[{"numeric":[">",0,"<=",7]}]}}`, true},
		"numeric range missed":                 {`{"detail":{"count":[{"numeric":[">",7]}]}}`, false},
		"a number by value":                    {`{"detail":{"price":[1e-1]}}`, true},
		"text is no number":                    {`{"detail":{"count":["7"]}}`, false},
		"true":                                 {`{"detail":{"flag":[true]}}`, true},
		"null":                                 {`{"detail":{"none":[null]}}`, true},
		"empty text":                           {`{"detail":{"empty":[""]}}`, true},
		"cidr":                                 {`{"detail":{"ip":[{"cidr":"10.0.0.0/16"}]}}`, true},
		"wildcard":                             {`{"detail-type":[{"wildcard":"EC2 * Interruption *"}]}`, true},
		"wildcard at both ends":                {`{"detail-type":[{"wildcard":"*Spot*"}]}`, true},
		"wildcard must reach the end":          {`{"detail-type":[{"wildcard":"EC2 *Interruption"}]}`, false},
		"wildcard does not use a letter twice": {`{"detail":{"instance-id":[{"wildcard":"i-0abc*c"}]}}`, false},
		"an escaped star is a star":            {`{"detail":{"state":[{"wildcard":"termin\\*"}]}}`, false},
		"or":                                   {`{"$or":[{"source":["aws.s3"]},{"detail":{"count":[7]}}]}`, true},
		"or within the detail":                 {`{"detail":{"$or":[{"state":["running"]},{"count":[8]}]}}`, false},
		"or and more":                          {`{"source":["aws.s3"],"$or":[{"detail":{"count":[7]}},{"detail":{"count":[8]}}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := events.ParsePattern(row.pattern)
			require.NoError(t, err)
			got, err := p.Match([]byte(event))
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
}

func TestPattern_RefusesWhatEventBridgeRefuses(t *testing.T) {
	t.Parallel()
	for name, pattern := range map[string]string{
		"no JSON":                `{`,
		"a list":                 `[]`,
		"nothing":                `{}`,
		"a value outside a list": `{"source":"aws.ec2"}`,
		"no alternatives":        `{"source":[]}`,
		"an empty object":        `{"detail":{}}`,
		"an unknown operator":    `{"source":[{"like":"x"}]}`,
		"two operators":          `{"source":[{"prefix":"a","suffix":"b"}]}`,
		"exists of text":         `{"source":[{"exists":"yes"}]}`,
		"prefix of a number":     `{"source":[{"prefix":1}]}`,
		"half a numeric":         `{"count":[{"numeric":["<"]}]}`,
		"numeric of text":        `{"count":[{"numeric":["<","a"]}]}`,
		"an unknown comparison":  `{"count":[{"numeric":["!=",1]}]}`,
		"two stars":              `{"source":[{"wildcard":"a**"}]}`,
		"an escape of nothing":   `{"source":[{"wildcard":"a\\"}]}`,
		"an or of one":           `{"$or":[{"source":["a"]}]}`,
		"a list in a list":       `{"source":[["a"]]}`,
		"a cidr that is none":    `{"ip":[{"cidr":"10.0.0.0"}]}`,
		"anything but nothing":   `{"source":[{"anything-but":[]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := events.ParsePattern(pattern)
			require.Error(t, err)
		})
	}
}

// sink keeps what was delivered, and fails while told to.
type sink struct {
	mu    sync.Mutex
	got   []string
	fails int
}

func (s *sink) Deliver(_ context.Context, arn string, payload []byte, group string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return errors.New("not now")
	}
	s.got = append(s.got, arn[strings.LastIndexByte(arn, ':')+1:]+"/"+group+" "+string(payload))
	return nil
}

func (s *sink) fail(times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = times
}

func (s *sink) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

const queueARN = "arn:aws:sqs:us-east-1:123456789012:q"

func bus(t *testing.T) (*events.Service, *sink) {
	t.Helper()
	out := &sink{}
	s := events.New(events.Options{Targets: out})
	t.Cleanup(s.Close)
	return s, out
}

func put(t *testing.T, s *events.Service, name, pattern string, target types.Target) {
	t.Helper()
	_, err := s.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: &name, EventPattern: &pattern})
	require.NoError(t, err)
	target.Id = aws.String("t")
	_, err = s.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: &name, Targets: []types.Target{target}})
	require.NoError(t, err)
}

func TestEmit_DeliversTheEventToTheTargetsOfRulesThatMatch(t *testing.T) {
	t.Parallel()
	s, out := bus(t)
	put(t, s, "spot", `{"source":["aws.ec2"]}`, types.Target{
		Arn: aws.String(queueARN + ".fifo"), SqsParameters: &types.SqsParameters{MessageGroupId: aws.String("g")},
	})
	put(t, s, "other", `{"source":["aws.s3"]}`, types.Target{Arn: aws.String(queueARN)})
	s.Emit(events.Event{Source: "aws.ec2", DetailType: "D", Resources: []string{"arn:i"}, Detail: json.RawMessage(`{"a":1}`), ID: "1", Time: time.Unix(0, 0).UTC()})
	require.Equal(t, []string{`q.fifo/g {"version":"0","id":"1","detail-type":"D","source":"aws.ec2","account":"123456789012",` +
		`"time":"1970-01-01T00:00:00Z","region":"us-east-1","resources":["arn:i"],"detail":{"a":1}}`}, out.take())

	_, err := s.DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: aws.String("spot")})
	require.NoError(t, err)
	s.Emit(events.Event{Source: "aws.ec2"})
	require.Empty(t, out.take())
}

func TestTargets_GetTheInputThatTheyAskFor(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		target types.Target
		want   string
	}{
		"a constant":         {types.Target{Input: aws.String(`{"fixed":true}`)}, `{"fixed":true}`},
		"a part":             {types.Target{InputPath: aws.String("$.detail")}, `{"a":1,"b":"x"}`},
		"a part that is not": {types.Target{InputPath: aws.String("$.detail.c.d")}, `null`},
		"a filled template": {types.Target{InputTransformer: &types.InputTransformer{
			InputPathsMap: map[string]string{"a": "$.detail.a", "b": "$.detail.b"},
			InputTemplate: aws.String(`{"n": <a>, "t": <b>, "s": "is <b> of <aws.events.rule-name>", "u": <c>}`),
		}}, `{"n": 1, "t": "x", "s": "is x of r", "u": <c>}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, out := bus(t)
			row.target.Arn = aws.String(queueARN)
			put(t, s, "r", `{"source":["s"]}`, row.target)
			s.Emit(events.Event{Source: "s", Detail: json.RawMessage(`{"a":1,"b":"x"}`)})
			require.Equal(t, []string{"q/ " + row.want}, out.take())
		})
	}
}

func TestDelivery_IsTriedAgainAndThenGoesToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := bus(t)
		put(t, s, "r", `{"source":["s"]}`, types.Target{Arn: aws.String(queueARN), Input: aws.String("x"), DeadLetterConfig: &types.DeadLetterConfig{Arn: aws.String(queueARN + "-dead")}})
		out.fail(2)
		s.Emit(events.Event{Source: "s"})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"q/ x"}, out.take())
		out.fail(4)
		s.Emit(events.Event{Source: "s"})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"q-dead/ x"}, out.take())
	})
}

func TestRate_FiresAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := bus(t)
		rule := &eventbridge.PutRuleInput{Name: aws.String("clock"), ScheduleExpression: aws.String("rate(1 minute)")}
		_, err := s.PutRule(t.Context(), rule)
		require.NoError(t, err)
		_, err = s.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: rule.Name, Targets: []types.Target{{Id: aws.String("1"), Arn: aws.String(queueARN)}}})
		require.NoError(t, err)
		time.Sleep(3*time.Minute + time.Second)
		got := out.take()
		require.Len(t, got, 3)
		require.Contains(t, got[0], `"detail-type":"Scheduled Event","source":"aws.events"`)
		require.Contains(t, got[0], `"resources":["arn:aws:events:us-east-1:123456789012:rule/clock"]`)
		_, err = s.DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: rule.Name})
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		require.Empty(t, out.take())
		_, err = s.EnableRule(t.Context(), &eventbridge.EnableRuleInput{Name: rule.Name})
		require.NoError(t, err)
		time.Sleep(90 * time.Second)
		require.Len(t, out.take(), 1)
	})
}

func TestParseRate_TakesWholeUnits(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]time.Duration{
		"rate(1 minute)": time.Minute, "rate(5 minutes)": 5 * time.Minute, "rate(1 hour)": time.Hour, "rate(2 days)": 48 * time.Hour,
	} {
		got, err := events.ParseRate(expression)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, expression := range []string{"rate(10 seconds)", "rate(1 minutes)", "rate(2 hour)", "rate(0 minutes)", "rate(-1 minutes)", "cron(0 * * * ? *)", ""} {
		_, err := events.ParseRate(expression)
		require.Error(t, err, expression)
	}
}

func TestPutEvents_RefusesEntriesAlone(t *testing.T) {
	t.Parallel()
	s, out := bus(t)
	put(t, s, "r", `{"source":["mine","aws.ec2"]}`, types.Target{Arn: aws.String(queueARN), InputPath: aws.String("$.detail")})
	entry := func(source, detail string) types.PutEventsRequestEntry {
		return types.PutEventsRequestEntry{Source: &source, DetailType: aws.String("D"), Detail: &detail}
	}
	got, err := s.PutEvents(t.Context(), &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{
		entry("mine", `{"n":1}`), entry("aws.ec2", `{}`), entry("mine", `no`), {Source: aws.String("mine")},
	}})
	require.NoError(t, err)
	require.EqualValues(t, 3, got.FailedEntryCount)
	require.NotNil(t, got.Entries[0].EventId)
	require.Equal(t, "NotAuthorizedForSourceException", *got.Entries[1].ErrorCode)
	require.Equal(t, "MalformedDetail", *got.Entries[2].ErrorCode)
	require.Equal(t, "InvalidArgument", *got.Entries[3].ErrorCode)
	require.Equal(t, []string{`q/ {"n":1}`}, out.take())
}

func TestRules_AreKeptAndRefused(t *testing.T) {
	t.Parallel()
	s, _ := bus(t)
	put(t, s, "r", `{"source":["s"]}`, types.Target{Arn: aws.String(queueARN)})
	_, err := s.DeleteRule(t.Context(), &eventbridge.DeleteRuleInput{Name: aws.String("r")})
	require.ErrorContains(t, err, "has targets")
	listed, err := s.ListTargetsByRule(t.Context(), &eventbridge.ListTargetsByRuleInput{Rule: aws.String("r")})
	require.NoError(t, err)
	require.Len(t, listed.Targets, 1)
	_, err = s.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: aws.String("r"), Targets: []types.Target{{Id: aws.String("f"), Arn: aws.String(queueARN + ".fifo")}}})
	require.ErrorContains(t, err, "SqsParameters")
	_, err = s.RemoveTargets(t.Context(), &eventbridge.RemoveTargetsInput{Rule: aws.String("r"), Ids: []string{"t"}})
	require.NoError(t, err)
	_, err = s.DeleteRule(t.Context(), &eventbridge.DeleteRuleInput{Name: aws.String("r")})
	require.NoError(t, err)
	_, err = s.DescribeRule(t.Context(), &eventbridge.DescribeRuleInput{Name: aws.String("r")})
	_, ok := errors.AsType[*types.ResourceNotFoundException](err)
	require.True(t, ok)
	for name, in := range map[string]*eventbridge.PutRuleInput{
		"no name":       {EventPattern: aws.String(`{"source":["s"]}`)},
		"no trigger":    {Name: aws.String("r")},
		"a bad pattern": {Name: aws.String("r"), EventPattern: aws.String(`{"source":"s"}`)},
		"a bad rate":    {Name: aws.String("r"), ScheduleExpression: aws.String("rate(1 second)")},
	} {
		_, err := s.PutRule(t.Context(), in)
		require.Error(t, err, name)
	}
}
