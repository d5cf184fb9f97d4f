package schedule_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/plan"
	"treadle/shared/schedule"
)

// service answers like Scheduler, two schedules a page.
type service struct {
	t *testing.T

	mu     sync.Mutex
	names  []string
	bodies []string
	calls  int
	fail   []int // statuses to answer first
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if !strings.Contains(r.Header.Get("Authorization"), "/us-east-1/scheduler/aws4_request") {
		http.Error(w, "{}", http.StatusForbidden)
		return
	}
	if len(s.fail) > 0 {
		status := s.fail[0]
		s.fail = s.fail[1:]
		w.Header().Set("X-Amzn-Errortype", "SomeException:http://internal/")
		http.Error(w, `{"message":"not now"}`, status)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/schedules/")
	at := slices.Index(s.names, name)
	switch {
	case r.Method == http.MethodGet:
		s.list(w, r)
	case r.Method == http.MethodPost && at >= 0:
		http.Error(w, "{}", http.StatusConflict)
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		s.names, s.bodies = append(s.names, name), append(s.bodies, string(body))
	case r.URL.Query().Get("groupName") != "treadle" || at < 0:
		http.Error(w, "{}", http.StatusNotFound)
	default:
		s.names = slices.Delete(s.names, at, at+1)
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	type one struct{ Name string }
	var page struct {
		Schedules []one
		NextToken string `json:",omitempty"`
	}
	for _, name := range slices.Sorted(slices.Values(s.names)) {
		if !strings.HasPrefix(name, r.URL.Query().Get("NamePrefix")) || name <= r.URL.Query().Get("NextToken") {
			continue
		}
		if len(page.Schedules) == 2 {
			page.NextToken = page.Schedules[1].Name
			break
		}
		page.Schedules = append(page.Schedules, one{name})
	}
	if err := json.NewEncoder(w).Encode(page); err != nil {
		s.t.Error(err)
	}
}

func newScheduler(t *testing.T) (*schedule.Scheduler, *service) {
	t.Helper()
	s := &service{t: t}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return schedule.New(aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL + "/"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "k", SecretAccessKey: "s"}, nil
		}),
	}, schedule.Settings{Group: "treadle", TargetARN: "arn:aws:lambda:us-east-1:123456789012:function:expiry", RoleARN: "arn:aws:iam::123456789012:role/r"}, time.Now), s
}

func TestScheduler_KeepsOneScheduleForEachClaim(t *testing.T) {
	t.Parallel()
	s, fake := newScheduler(t)
	sample, err := events.Samples.ReadFile("expiry.json")
	require.NoError(t, err)
	var e schedule.Expiry
	require.NoError(t, json.Unmarshal(sample, &e))
	for range 2 {
		require.NoError(t, s.Create(t.Context(), e, 1_796_117_412), "twice is once")
	}
	require.Len(t, fake.bodies, 1)
	var sent struct {
		GroupName, ScheduleExpression, ScheduleExpressionTimezone, ActionAfterCompletion string
		Target                                                                           struct{ Arn, RoleArn, Input string }
	}
	require.NoError(t, json.Unmarshal([]byte(fake.bodies[0]), &sent))
	require.Equal(t, "at(2026-12-01T09:30:12)", sent.ScheduleExpression)
	require.Equal(t, "UTC", sent.ScheduleExpressionTimezone)
	require.Equal(t, "DELETE", sent.ActionAfterCompletion)
	require.Equal(t, "treadle", sent.GroupName)
	require.JSONEq(t, string(sample), sent.Target.Input)

	for _, uid := range []string{"b", "c", "d", "e"} {
		require.NoError(t, s.Create(t.Context(), schedule.Expiry{Cluster: e.Cluster, NodeClaimUID: uid}, 1))
	}
	require.NoError(t, s.Create(t.Context(), schedule.Expiry{Cluster: strings.Repeat("another", 14), NodeClaimUID: e.NodeClaimUID}, 1))
	for _, name := range fake.names {
		require.LessOrEqual(t, len(name), 64, "Scheduler takes no longer names")
	}
	require.NoError(t, s.Delete(t.Context(), e.Cluster, "c"))
	require.NoError(t, s.Delete(t.Context(), e.Cluster, "c"), "one that is gone is no error")
	got, err := s.List(t.Context(), e.Cluster)
	require.NoError(t, err)
	require.Equal(t, []string{e.NodeClaimUID, "b", "d", "e"}, got)
}

func TestScheduler_SpeaksOfTroubleInWordsThatCallersMatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fail  []int
		want  error
		calls int
	}{
		"trouble of the service passes":    {[]int{500, 503}, nil, 3},
		"or does not":                      {[]int{500, 503, 500}, plan.ErrUnavailable, 3},
		"a throttle is not tried again":    {[]int{429}, plan.ErrThrottled, 1},
		"nor is what the caller may not":   {[]int{403}, plan.ErrDenied, 1},
		"nor what is wrong":                {[]int{400}, plan.ErrInvalid, 1},
		"nor a quota":                      {[]int{402}, plan.ErrQuota, 1},
		"a group that is missing is told":  {[]int{404}, plan.ErrNotFound, 1},
		"a schedule that is there is fine": {[]int{409}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, fake := newScheduler(t)
			fake.fail = tt.fail
			err := s.Create(t.Context(), schedule.Expiry{Cluster: "demo", NodeClaim: "c", NodeClaimUID: "u"}, 1)
			require.ErrorIs(t, err, tt.want)
			if tt.want != nil {
				require.ErrorContains(t, err, "schedule expiry of nodeclaim c")
				require.ErrorContains(t, err, "SomeException: not now")
			}
			require.Equal(t, tt.calls, fake.calls)
		})
	}
}
