package scheduler_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsscheduler "github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/scheduler"
)

// sink keeps what was delivered and when, and fails while told to.
type sink struct {
	mu    sync.Mutex
	got   []string
	at    []time.Time
	fails int
}

func (s *sink) Deliver(_ context.Context, arn string, payload []byte, group string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return errors.New("not now")
	}
	s.got, s.at = append(s.got, arn+" "+group+" "+string(payload)), append(s.at, time.Now())
	return nil
}

func (s *sink) fail(times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = times
}

// take returns what was delivered since it was last called.
func (s *sink) take() ([]string, []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got, at := s.got, s.at
	s.got, s.at = nil, nil
	return got, at
}

// delivered is take without the times.
func (s *sink) delivered() []string {
	got, _ := s.take()
	return got
}

const (
	queue = "arn:aws:sqs:us-east-1:123456789012:q"
	role  = "arn:aws:iam::123456789012:role/scheduler"
)

// once is a schedule that fires after d and deletes itself.
func once(name string, d time.Duration) *awsscheduler.CreateScheduleInput {
	return &awsscheduler.CreateScheduleInput{
		Name: &name, ScheduleExpression: aws.String(time.Now().Add(d).UTC().Format("at(2006-01-02T15:04:05)")),
		FlexibleTimeWindow:    &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff},
		ActionAfterCompletion: types.ActionAfterCompletionDelete,
		Target:                &types.Target{Arn: aws.String(queue), RoleArn: aws.String(role), Input: aws.String("hello")},
	}
}

func service(t *testing.T) (*scheduler.Service, *sink) {
	t.Helper()
	out := &sink{}
	s := scheduler.New(scheduler.Options{Targets: out})
	t.Cleanup(s.Close)
	return s, out
}

func exists(t *testing.T, s *scheduler.Service, name string) bool {
	t.Helper()
	_, err := s.GetSchedule(t.Context(), &awsscheduler.GetScheduleInput{Name: &name})
	if err != nil {
		_, ok := errors.AsType[*types.ResourceNotFoundException](err)
		require.True(t, ok, "%v", err)
	}
	return err == nil
}

func TestAt_FiresOnceAtItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := service(t)
		start := time.Now()
		kept := once("kept", 90*time.Second)
		kept.ActionAfterCompletion = types.ActionAfterCompletionNone
		for _, in := range []*awsscheduler.CreateScheduleInput{once("gone", time.Minute), kept} {
			_, err := s.CreateSchedule(t.Context(), in)
			require.NoError(t, err)
		}
		time.Sleep(59 * time.Second)
		require.Empty(t, out.delivered())
		time.Sleep(time.Hour)
		got, at := out.take()
		require.Equal(t, []string{queue + "  hello", queue + "  hello"}, got)
		require.Equal(t, []time.Time{start.Add(time.Minute), start.Add(90 * time.Second)}, at)
		require.False(t, exists(t, s, "gone"))
		require.True(t, exists(t, s, "kept"))
	})
}

func TestAt_IsReadInItsTimeZone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := service(t)
		in := once("a", 0)
		zone, err := time.LoadLocation("Asia/Tokyo")
		if err != nil {
			t.Skipf("no time zones here: %v", err)
		}
		in.ScheduleExpression = aws.String(time.Now().Add(time.Minute).In(zone).Format("at(2006-01-02T15:04:05)"))
		in.ScheduleExpressionTimezone = aws.String("Asia/Tokyo")
		_, err = s.CreateSchedule(t.Context(), in)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		require.Len(t, out.delivered(), 1)
	})
}

func TestRate_FiresUntilItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := service(t)
		in := once("a", 0)
		in.ScheduleExpression = aws.String("rate(1 minute)")
		in.EndDate = aws.Time(time.Now().Add(3*time.Minute + time.Second))
		in.Target.Input = nil
		in.Target.Arn, in.Target.SqsParameters = aws.String(queue+".fifo"), &types.SqsParameters{MessageGroupId: aws.String("g")}
		_, err := s.CreateSchedule(t.Context(), in)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		got := out.delivered()
		require.Len(t, got, 3)
		require.Contains(t, got[0], queue+".fifo g {")
		require.Contains(t, got[0], `"resources":["arn:aws:scheduler:us-east-1:123456789012:schedule/default/a"]`)
	})
}

func TestUpdate_MovesTheTimeAndDeleteCancelsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := service(t)
		in := once("a", time.Minute)
		_, err := s.CreateSchedule(t.Context(), in)
		require.NoError(t, err)
		later := once("a", time.Hour)
		update := &awsscheduler.UpdateScheduleInput{
			Name: later.Name, ScheduleExpression: later.ScheduleExpression, FlexibleTimeWindow: later.FlexibleTimeWindow, Target: later.Target,
		}
		_, err = s.UpdateSchedule(t.Context(), update)
		require.NoError(t, err)
		time.Sleep(59 * time.Minute)
		require.Empty(t, out.delivered())
		update.State = types.ScheduleStateDisabled
		_, err = s.UpdateSchedule(t.Context(), update)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Empty(t, out.delivered())

		_, err = s.CreateSchedule(t.Context(), once("b", time.Minute))
		require.NoError(t, err)
		_, err = s.DeleteSchedule(t.Context(), &awsscheduler.DeleteScheduleInput{Name: aws.String("b")})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Empty(t, out.delivered())
	})
}

func TestDelivery_IsTriedAgainAndThenGoesToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := service(t)
		out.fail(2)
		in := once("a", time.Minute)
		in.Target.Input = aws.String("try <aws.scheduler.attempt-number> of <aws.scheduler.schedule-arn>")
		_, err := s.CreateSchedule(t.Context(), in)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, []string{queue + "  try 3 of arn:aws:scheduler:us-east-1:123456789012:schedule/default/a"}, out.delivered())
		out.fail(4)
		in = once("b", time.Minute)
		in.Target.DeadLetterConfig = &types.DeadLetterConfig{Arn: aws.String(queue + "-dead")}
		_, err = s.CreateSchedule(t.Context(), in)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, []string{queue + "-dead  hello"}, out.delivered())
	})
}

func TestCreate_IsIdempotentByToken(t *testing.T) {
	t.Parallel()
	s, _ := service(t)
	in := once("a", time.Hour)
	in.ClientToken = aws.String("token")
	first, err := s.CreateSchedule(t.Context(), in)
	require.NoError(t, err)
	again, err := s.CreateSchedule(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, *first.ScheduleArn, *again.ScheduleArn)
	in = once("a", time.Hour)
	in.ClientToken = aws.String("another")
	_, err = s.CreateSchedule(t.Context(), in)
	_, ok := errors.AsType[*types.ConflictException](err)
	require.True(t, ok, "%v", err)
}

func TestCreate_RefusesWhatSchedulerRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*awsscheduler.CreateScheduleInput){
		"a name with a slash": func(in *awsscheduler.CreateScheduleInput) { in.Name = aws.String("a/b") },
		"a time in the past": func(in *awsscheduler.CreateScheduleInput) {
			in.ScheduleExpression = once("x", -2*time.Minute).ScheduleExpression
		},
		"a time that is none": func(in *awsscheduler.CreateScheduleInput) {
			in.ScheduleExpression = aws.String("at(2030-13-01T00:00:00)")
		},
		"a rate in seconds":          func(in *awsscheduler.CreateScheduleInput) { in.ScheduleExpression = aws.String("rate(10 seconds)") },
		"an unknown time zone":       func(in *awsscheduler.CreateScheduleInput) { in.ScheduleExpressionTimezone = aws.String("Moon/Sea") },
		"no window":                  func(in *awsscheduler.CreateScheduleInput) { in.FlexibleTimeWindow = nil },
		"no target":                  func(in *awsscheduler.CreateScheduleInput) { in.Target = nil },
		"no role":                    func(in *awsscheduler.CreateScheduleInput) { in.Target.RoleArn = nil },
		"a FIFO queue without group": func(in *awsscheduler.CreateScheduleInput) { in.Target.Arn = aws.String(queue + ".fifo") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := service(t)
			in := once("a", time.Hour)
			change(in)
			_, err := s.CreateSchedule(t.Context(), in)
			_, ok := errors.AsType[*types.ValidationException](err)
			require.True(t, ok, "%v", err)
		})
	}
}

func TestGroups_HoldSchedules(t *testing.T) {
	t.Parallel()
	s, _ := service(t)
	in := once("a", time.Hour)
	in.GroupName = aws.String("g")
	_, err := s.CreateSchedule(t.Context(), in)
	_, ok := errors.AsType[*types.ResourceNotFoundException](err)
	require.True(t, ok, "%v", err)
	_, err = s.CreateScheduleGroup(t.Context(), &awsscheduler.CreateScheduleGroupInput{Name: aws.String("g")})
	require.NoError(t, err)
	_, err = s.CreateScheduleGroup(t.Context(), &awsscheduler.CreateScheduleGroupInput{Name: aws.String("g")})
	_, ok = errors.AsType[*types.ConflictException](err)
	require.True(t, ok, "%v", err)
	for i := range 3 {
		in.Name = aws.String("s" + strconv.Itoa(i))
		_, err = s.CreateSchedule(t.Context(), in)
		require.NoError(t, err)
	}
	_, err = s.CreateSchedule(t.Context(), once("s", time.Hour))
	require.NoError(t, err)
	var names []string
	pages := awsscheduler.NewListSchedulesPaginator(s, &awsscheduler.ListSchedulesInput{GroupName: aws.String("g"), MaxResults: aws.Int32(2)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, sc := range page.Schedules {
			names = append(names, *sc.Name)
		}
	}
	require.Equal(t, []string{"s0", "s1", "s2"}, names)
	_, err = s.DeleteScheduleGroup(t.Context(), &awsscheduler.DeleteScheduleGroupInput{Name: aws.String("g")})
	require.NoError(t, err)
	all, err := s.ListSchedules(t.Context(), &awsscheduler.ListSchedulesInput{})
	require.NoError(t, err)
	require.Len(t, all.Schedules, 1)
	groups, err := s.ListScheduleGroups(t.Context(), &awsscheduler.ListScheduleGroupsInput{})
	require.NoError(t, err)
	require.Len(t, groups.ScheduleGroups, 1)
	_, err = s.DeleteScheduleGroup(t.Context(), &awsscheduler.DeleteScheduleGroupInput{Name: aws.String("default")})
	require.Error(t, err)
}
