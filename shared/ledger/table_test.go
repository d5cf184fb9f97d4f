package ledger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/ledger"
	"treadle/shared/plan"
)

// desk answers calls of DynamoDB with what it is told to and keeps the requests.
type desk struct {
	mu     sync.Mutex
	answer func(action string, in map[string]any) (status int, body string)
	calls  []string
	signed []string
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, _ := io.ReadAll(r.Body)
	var in map[string]any
	_ = json.Unmarshal(body, &in)
	d.calls = append(d.calls, action)
	d.signed = append(d.signed, r.Header.Get("Authorization"))
	status, answer := d.answer(action, in)
	w.WriteHeader(status)
	fmt.Fprint(w, answer)
}

// asked returns how many calls came since the last time.
func (d *desk) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.calls)
	d.calls = nil
	return n
}

type setting struct {
	desk *desk
	log  *bytes.Buffer
	now  time.Time
	*ledger.Table
}

func newSetting(t *testing.T, answer func(string, map[string]any) (int, string)) *setting {
	t.Helper()
	s := &setting{desk: &desk{answer: answer}, log: &bytes.Buffer{}, now: time.Unix(1_796_000_000, 0)}
	server := httptest.NewServer(s.desk)
	t.Cleanup(server.Close)
	s.Table = ledger.NewTable(aws.Config{
		Region: "eu-west-1", BaseEndpoint: &server.URL,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "secret"}, nil
		}),
	}, "treadle", func() time.Time { return s.now }, slog.New(slog.NewJSONHandler(s.log, nil)))
	return s
}

func soldOut(zone string) []plan.Refusal {
	return []plan.Refusal{{InstanceType: "m5.large", Zone: zone, Kind: plan.RefusedCapacity}}
}

func TestRead_TakesOverEveryPage(t *testing.T) {
	t.Parallel()
	s := newSetting(t, func(action string, in map[string]any) (int, string) {
		scope := in["ExpressionAttributeValues"].(map[string]any)[":scope"].(map[string]any)["S"]
		switch {
		case scope == "memory":
			return 200, `{"Items":[{"scope":{"S":"memory"},"id":{"S":"m5.large/ami-1"},"capacity_bytes":{"N":"8000"},"forget_at":{"N":"9"}}]}`
		case in["ExclusiveStartKey"] == nil:
			return 200, `{"Items":[{"id":{"S":"offering/spot/a/m5.large"},"refused_until":{"N":"1796000100"},"refused_for":{"N":"180"}}],"LastEvaluatedKey":{"id":{"S":"x"}}}`
		default:
			return 200, `{"Items":[{"id":{"S":"subnet///subnet-1"},"refused_until":{"N":"1796000100"},"refused_for":{"N":"180"}},{"id":{"S":"of another version"}}]}`
		}
	})
	l := ledger.New(s.Table)
	l.Read(t.Context(), s.now)
	require.True(t, l.Refused(s.now, "m5.large", "a", cluster.Spot))
	require.True(t, l.Full(s.now, "subnet-1"))
	bytes, known := l.Memory("m5.large", "ami-1")
	require.True(t, known)
	require.Equal(t, int64(8000), bytes)
	require.Equal(t, 3, s.desk.asked())
	require.Contains(t, s.desk.signed[0], "/eu-west-1/dynamodb/aws4_request")

	l.Read(t.Context(), s.now.Add(time.Minute))
	require.Equal(t, 2, s.desk.asked(), "what nodes are like is not asked for each time")
}

func TestWrite_TellsNewsOnce(t *testing.T) {
	t.Parallel()
	var values map[string]any
	s := newSetting(t, func(_ string, in map[string]any) (int, string) {
		values = in["ExpressionAttributeValues"].(map[string]any)
		return 200, `{"Attributes":{}}`
	})
	l := ledger.New(s.Table)
	l.Add(s.now, launch(), soldOut("a"))
	l.Add(s.now, launch(), soldOut("a"))
	l.Write(t.Context(), s.now)
	require.Equal(t, 1, s.desk.asked())
	number := func(n int64) map[string]any { return map[string]any{"N": fmt.Sprint(n)} }
	require.Equal(t, map[string]any{":until": number(1_796_000_180), ":length": number(180), ":forget": number(1_796_000_360)}, values)
	l.Write(t.Context(), s.now)
	require.Zero(t, s.desk.asked())
}

func TestWrite_LeavesWhatIsKnownBetter(t *testing.T) {
	t.Parallel()
	s := newSetting(t, func(string, map[string]any) (int, string) {
		return 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}`
	})
	l := ledger.New(s.Table)
	l.Add(s.now, launch(), soldOut("a"))
	l.Write(t.Context(), s.now)
	require.Equal(t, 1, s.desk.asked())
	l.Write(t.Context(), s.now)
	require.Zero(t, s.desk.asked(), "it is not tried again")
	require.Empty(t, s.log.String(), "and is no trouble")
}

func TestTable_OutOfReachIsNoReasonToStop(t *testing.T) {
	t.Parallel()
	away := true
	s := newSetting(t, func(string, map[string]any) (int, string) {
		if away {
			return 500, "<html>"
		}
		return 200, `{}`
	})
	l := ledger.New(s.Table)
	b := ledger.NewBudget(s.Table, map[string]ledger.Rate{"CreateFleet": {Burst: 2, PerSecond: 1}}, func() time.Time { return s.now })
	l.Read(t.Context(), s.now)
	l.Add(s.now, launch(), soldOut("a"))
	l.Write(t.Context(), s.now)
	require.True(t, l.Refused(s.now, "m5.large", "a", cluster.Spot), "what this function learned counts")
	require.True(t, b.Take(t.Context(), "CreateFleet"))
	require.True(t, b.Take(t.Context(), "CreateFleet"))
	require.False(t, b.Take(t.Context(), "CreateFleet"), "it counts by itself")
	require.Equal(t, 1, s.desk.asked(), "a table that failed is left alone for a while")
	require.Equal(t, 1, strings.Count(s.log.String(), `"level":"WARN"`), s.log.String())

	away = false
	s.now = s.now.Add(31 * time.Second)
	l.Write(t.Context(), s.now)
	require.Equal(t, 1, s.desk.asked(), "what could not be written is written later")
	require.Contains(t, s.log.String(), "in reach again")
}

func TestNewTable_WithoutANameThereIsNone(t *testing.T) {
	t.Parallel()
	table := ledger.NewTable(aws.Config{}, "", time.Now, slog.New(slog.DiscardHandler))
	require.Nil(t, table)
	now := time.Unix(1_796_000_000, 0)
	l := ledger.New(table)
	l.Add(now, launch(), soldOut("a"))
	l.Write(t.Context(), now)
	l.Read(t.Context(), now)
	require.True(t, l.Refused(now, "m5.large", "a", cluster.Spot))
	l.Read(t.Context(), now.Add(time.Hour))
	require.False(t, l.Refused(now, "m5.large", "a", cluster.Spot), "and is forgotten")
}

func TestBudget_Exhausted(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_796_000_000, 0)
	b := ledger.NewBudget(nil, ledger.Rates(), func() time.Time { return now })
	require.True(t, b.Take(t.Context(), "CreateFleet"))
	require.True(t, b.Take(t.Context(), "CreateTags"), "what has no rate is not counted")
	b.Exhaust(t.Context(), "CreateFleet")
	b.Exhaust(t.Context(), "CreateTags")
	require.False(t, b.Take(t.Context(), "CreateFleet"), "EC2 said that there is nothing left")
	now = now.Add(500 * time.Millisecond)
	require.True(t, b.Take(t.Context(), "CreateFleet"))
	require.False(t, b.Take(t.Context(), "CreateFleet"))
}
