package queue

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"treadle/shared/notice"
)

type fakeSQS struct {
	sent []*sqs.SendMessageInput
	err  error
}

func (f *fakeSQS) SendMessage(_ context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	f.sent = append(f.sent, in)
	return &sqs.SendMessageOutput{}, f.err
}

func TestWake_IsOneMessagePerClusterAndSecond(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1796075586_100)
	fake := &fakeSQS{}
	q := &Queue{api: fake, url: "u", now: func() time.Time { return now }}
	require.NoError(t, q.Wake(t.Context(), notice.Wake{Cluster: "a"}))
	now = time.UnixMilli(1796075586_999)
	require.NoError(t, q.Wake(t.Context(), notice.Wake{Cluster: "a"}))
	now = time.UnixMilli(1796075587_000)
	require.NoError(t, q.Wake(t.Context(), notice.Wake{Cluster: "a"}))
	require.NoError(t, q.Wake(t.Context(), notice.Wake{Cluster: "b"}))

	var ids []string
	for _, in := range fake.sent {
		ids = append(ids, *in.MessageDeduplicationId)
		require.Equal(t, "u", *in.QueueUrl)
	}
	require.Equal(t, []string{"a|1796075586", "a|1796075586", "a|1796075587", "b|1796075587"}, ids)
	require.Equal(t, "b", *fake.sent[3].MessageGroupId)

	fake.err = errors.New("throttled")
	require.ErrorContains(t, q.Wake(t.Context(), notice.Wake{Cluster: "a"}), `wake cluster "a": throttled`)
}

type keeper struct {
	kept []string
	err  error
}

func (k *keeper) Keep(_ context.Context, body string) error {
	if k.err == nil {
		k.kept = append(k.kept, body)
	}
	return k.err
}

type counter map[string]int

func (c counter) Count(name, _, _ string, n int) { c[name] += n }

func record(id, body string) events.SQSMessage { return events.SQSMessage{MessageId: id, Body: body} }

func TestHandle(t *testing.T) {
	t.Parallel()
	const a, b, bad = `{"cluster":"a"}`, `{"cluster":"b"}`, `abcd`
	for name, tt := range map[string]struct {
		records []events.SQSMessage
		broken  map[string]bool
		keepErr error
		visited []string
		failed  []string
		counted int
	}{
		"an empty batch does nothing": {},
		"each cluster is visited once however often it is named": {
			records: []events.SQSMessage{record("1", a), record("2", b), record("3", a)},
			visited: []string{"a", "b"},
		},
		"all records of a cluster that failed come back, those of others do not": {
			records: []events.SQSMessage{record("1", a), record("2", b), record("3", a)},
			broken:  map[string]bool{"a": true},
			visited: []string{"a", "b"}, failed: []string{"1", "3"},
		},
		"a body that cannot be read is set aside and the rest goes on": {
			records: []events.SQSMessage{record("1", bad), record("2", b)},
			visited: []string{"b"}, counted: 1,
		},
		"a body that cannot be set aside comes back": {
			records: []events.SQSMessage{record("1", bad), record("2", b)},
			keepErr: errors.New("no queue"),
			visited: []string{"b"}, failed: []string{"1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, c := &keeper{err: tt.keepErr}, counter{}
			batch := Batch{Function: "provision", Keeper: k, Counter: c, Log: slog.New(slog.DiscardHandler)}
			var visited []string
			res := batch.Handle(t.Context(), events.SQSEvent{Records: tt.records}, func(_ context.Context, w notice.Wake) error {
				visited = append(visited, w.Cluster)
				if tt.broken[w.Cluster] {
					return errors.New("API server is away")
				}
				return nil
			})
			require.Equal(t, tt.visited, visited)
			var failed []string
			for _, f := range res.BatchItemFailures {
				failed = append(failed, f.ItemIdentifier)
			}
			require.Equal(t, tt.failed, failed)
			require.Equal(t, tt.counted, c["Quarantined"])
			require.Len(t, k.kept, tt.counted)
		})
	}
}
