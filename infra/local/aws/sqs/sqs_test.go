package sqs_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/sqs"
)

// queue is one queue under test, with the shortest calls that tell a story.
type queue struct {
	*sqs.Service
	t   *testing.T
	url string
}

func create(t *testing.T, s *sqs.Service, name string, attributes ...string) queue {
	t.Helper()
	in := &awssqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{}}
	for i := 0; i < len(attributes); i += 2 {
		in.Attributes[attributes[i]] = attributes[i+1]
	}
	out, err := s.CreateQueue(t.Context(), in)
	require.NoError(t, err)
	return queue{s, t, *out.QueueUrl}
}

func fifo(t *testing.T, attributes ...string) queue {
	t.Helper()
	return create(t, sqs.New(sqs.Options{}), "q.fifo", append(attributes, "FifoQueue", "true")...)
}

// send puts body into group (none when empty) under the deduplication id dedup.
func (q queue) send(body, group, dedup string) *awssqs.SendMessageOutput {
	q.t.Helper()
	in := &awssqs.SendMessageInput{QueueUrl: &q.url, MessageBody: &body}
	if group != "" {
		in.MessageGroupId = &group
	}
	if dedup != "" {
		in.MessageDeduplicationId = &dedup
	}
	out, err := q.SendMessage(q.t.Context(), in)
	require.NoError(q.t, err)
	return out
}

func (q queue) receive(limit, wait int32) []types.Message {
	q.t.Helper()
	out, err := q.ReceiveMessage(q.t.Context(), &awssqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: limit, WaitTimeSeconds: wait, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	require.NoError(q.t, err)
	return out.Messages
}

func (q queue) delete(m types.Message) error {
	_, err := q.DeleteMessage(q.t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &q.url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (q queue) visibility(m types.Message, seconds int32) error {
	_, err := q.ChangeMessageVisibility(q.t.Context(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &q.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds})
	return err
}

func (q queue) count() string {
	q.t.Helper()
	out, err := q.GetQueueAttributes(q.t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{"All"}})
	require.NoError(q.t, err)
	a := out.Attributes
	return a["ApproximateNumberOfMessages"] + " " + a["ApproximateNumberOfMessagesNotVisible"] + " " + a["ApproximateNumberOfMessagesDelayed"]
}

func bodies(messages []types.Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, *m.Body)
	}
	return strings.Join(all, " ")
}

func code(t *testing.T, err error) string {
	t.Helper()
	api, ok := errors.AsType[smithy.APIError](err)
	require.True(t, ok, "%v", err)
	return api.ErrorCode()
}

func TestFIFO_LocksAGroupWhileAnyOfItIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fifo(t, "ContentBasedDeduplication", "true", "VisibilityTimeout", "30")
		for _, body := range []string{"a1", "a2", "a3", "b1"} {
			q.send(body, body[:1], "")
		}
		first := q.receive(2, 0)
		require.Equal(t, "a1 a2", bodies(first))
		require.Equal(t, "b1", bodies(q.receive(10, 0)), "a3 is held back by a1 and a2")
		require.NoError(t, q.delete(first[0]))
		require.Empty(t, q.receive(10, 0), "a2 still holds it back")
		require.NoError(t, q.delete(first[1]))
		require.Equal(t, "a3", bodies(q.receive(10, 0)))
	})
}

func TestFIFO_RedeliversInOrderWhenTheVisibilityEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fifo(t, "ContentBasedDeduplication", "true", "VisibilityTimeout", "30")
		for _, body := range []string{"a1", "a2", "a3"} {
			q.send(body, "a", "")
		}
		batch := q.receive(2, 0)
		require.NoError(t, q.visibility(batch[0], 0))
		require.Empty(t, q.receive(10, 0), "a1 is back, but a2 is in flight: the group stays locked")
		require.NoError(t, q.visibility(batch[1], 5))
		time.Sleep(5 * time.Second)
		again := q.receive(10, 0)
		require.Equal(t, "a1 a2 a3", bodies(again))
		require.Equal(t, "2", again[0].Attributes["ApproximateReceiveCount"])
		require.Equal(t, "1", again[2].Attributes["ApproximateReceiveCount"])
	})
}

func TestFIFO_RefusesAHandleWhoseVisibilityEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fifo(t, "ContentBasedDeduplication", "true", "VisibilityTimeout", "1")
		q.send("a", "g", "")
		m := q.receive(1, 0)[0]
		time.Sleep(time.Second)
		require.Equal(t, "InvalidParameterValue", code(t, q.delete(m)))
		require.Equal(t, "MessageNotInflight", code(t, q.visibility(m, 1)))
		require.NoError(t, q.delete(q.receive(1, 0)[0]))
		require.NoError(t, q.delete(m), "what is gone is gone")
	})
}

func TestFIFO_RemembersADeduplicationIDForFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fifo(t)
		first := q.send("a", "g", "d")
		require.NoError(t, q.delete(q.receive(1, 0)[0]))
		time.Sleep(5*time.Minute - time.Second)
		again := q.send("a", "other", "d")
		require.Equal(t, *first.MessageId, *again.MessageId)
		require.Equal(t, *first.SequenceNumber, *again.SequenceNumber)
		require.Equal(t, "0 0 0", q.count(), "it was deleted, and is remembered all the same")
		time.Sleep(time.Second)
		require.NotEqual(t, *first.MessageId, *q.send("a", "g", "d").MessageId)
		require.Equal(t, "a", bodies(q.receive(1, 0)))
	})
}

func TestFIFO_DeduplicatesPerGroupIfTold(t *testing.T) {
	t.Parallel()
	q := fifo(t, "DeduplicationScope", "messageGroup")
	q.send("a", "g", "d")
	q.send("b", "h", "d")
	q.send("c", "h", "d")
	require.Equal(t, "a b", bodies(q.receive(10, 0)))
}

func TestFIFO_DelaysByTheQueueAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fifo(t, "DelaySeconds", "1", "ContentBasedDeduplication", "true")
		q.send("a", "g", "")
		require.Equal(t, "0 0 1", q.count())
		start := time.Now()
		require.Equal(t, "a", bodies(q.receive(1, 20)))
		require.Equal(t, time.Second, time.Since(start))
		_, err := q.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g"), DelaySeconds: 2})
		require.Equal(t, "InvalidParameterValue", code(t, err))
	})
}

func TestStandard_DelaysEachMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := create(t, sqs.New(sqs.Options{}), "q")
		_, err := q.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String("late"), DelaySeconds: 900})
		require.NoError(t, err)
		q.send("now", "", "")
		require.Equal(t, "now", bodies(q.receive(10, 0)))
		time.Sleep(900 * time.Second)
		require.Equal(t, "late", bodies(q.receive(1, 0)))
	})
}

func TestReceive_WaitsForTheFirstMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := create(t, sqs.New(sqs.Options{}), "q", "VisibilityTimeout", "7")
		start := time.Now()
		require.Empty(t, q.receive(1, 20))
		require.Equal(t, 20*time.Second, time.Since(start))

		time.AfterFunc(3*time.Second, func() { q.send("a", "", "") })
		start = time.Now()
		require.Equal(t, "a", bodies(q.receive(1, 20)))
		require.Equal(t, 3*time.Second, time.Since(start))

		start = time.Now()
		require.Equal(t, "a", bodies(q.receive(1, 20)), "it comes back by itself")
		require.Equal(t, 7*time.Second, time.Since(start))
	})
}

func TestReceive_TakesNothingAlongWhenTheReceiverLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := create(t, sqs.New(sqs.Options{}), "q")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &q.url, WaitTimeSeconds: 20})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		q.send("a", "", "")
		_, err = q.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &q.url})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "1 0 0", q.count())
	})
}

func TestRedrive_MovesWhatWasReceivedTooOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sqs.New(sqs.Options{})
		dead := create(t, s, "dead.fifo", "FifoQueue", "true")
		q := create(t, s, "q.fifo", "FifoQueue", "true", "ContentBasedDeduplication", "true", "VisibilityTimeout", "1", "RedrivePolicy",
			`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:dead.fifo","maxReceiveCount":"2"}`)
		sent := q.send("poison", "g", "")
		q.send("good", "g", "")
		for range 2 {
			require.Equal(t, "poison", bodies(q.receive(1, 20)))
		}
		require.Equal(t, "good", bodies(q.receive(1, 20)))
		moved := dead.receive(1, 0)
		require.Equal(t, "poison", bodies(moved))
		require.Equal(t, *sent.MessageId, *moved[0].MessageId)
		require.Equal(t, "g", moved[0].Attributes["MessageGroupId"])
		require.Equal(t, "arn:aws:sqs:us-east-1:123456789012:q.fifo", moved[0].Attributes["DeadLetterQueueSourceArn"])
	})
}

func TestRetention_DropsOldMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := create(t, sqs.New(sqs.Options{}), "q", "MessageRetentionPeriod", "60")
		q.send("a", "", "")
		time.Sleep(time.Minute)
		require.Empty(t, q.receive(1, 0))
		require.Equal(t, "0 0 0", q.count())
	})
}

func TestStandard_TakesTheLatestHandleOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := create(t, sqs.New(sqs.Options{}), "q", "VisibilityTimeout", "1")
		q.send("a", "", "")
		old := q.receive(1, 0)[0]
		time.Sleep(time.Second)
		latest := q.receive(1, 0)[0]
		require.NoError(t, q.delete(old))
		require.Equal(t, "0 1 0", q.count(), "an older handle deletes nothing")
		time.Sleep(time.Second)
		require.NoError(t, q.delete(latest), "the latest does, even after its visibility ended")
		require.Equal(t, "0 0 0", q.count())
		require.Equal(t, "ReceiptHandleIsInvalid", code(t, q.delete(types.Message{ReceiptHandle: aws.String("x")})))
	})
}

func TestSend_RefusesWhatSQSRefuses(t *testing.T) {
	t.Parallel()
	s := sqs.New(sqs.Options{})
	standard := create(t, s, "standard")
	ordered := create(t, s, "ordered.fifo", "FifoQueue", "true")
	for name, row := range map[string]struct {
		in   awssqs.SendMessageInput
		code string
	}{
		"no queue":                             {awssqs.SendMessageInput{MessageBody: aws.String("b")}, "MissingParameter"},
		"a queue that does not exist":          {awssqs.SendMessageInput{QueueUrl: aws.String("x/none"), MessageBody: aws.String("b")}, "QueueDoesNotExist"},
		"no body":                              {awssqs.SendMessageInput{QueueUrl: &standard.url}, "MissingParameter"},
		"an empty body":                        {awssqs.SendMessageInput{QueueUrl: &standard.url, MessageBody: aws.String("")}, "InvalidParameterValue"},
		"a control character":                  {awssqs.SendMessageInput{QueueUrl: &standard.url, MessageBody: aws.String("\x01")}, "InvalidMessageContents"},
		"a byte more than a mebibyte":          {awssqs.SendMessageInput{QueueUrl: &standard.url, MessageBody: aws.String(strings.Repeat("x", 1<<20+1))}, "InvalidParameterValue"},
		"a delay above 900 seconds":            {awssqs.SendMessageInput{QueueUrl: &standard.url, MessageBody: aws.String("b"), DelaySeconds: 901}, "InvalidParameterValue"},
		"a deduplication id without order":     {awssqs.SendMessageInput{QueueUrl: &standard.url, MessageBody: aws.String("b"), MessageDeduplicationId: aws.String("d")}, "InvalidParameterValue"},
		"order without a group":                {awssqs.SendMessageInput{QueueUrl: &ordered.url, MessageBody: aws.String("b"), MessageDeduplicationId: aws.String("d")}, "MissingParameter"},
		"order without a deduplication id":     {awssqs.SendMessageInput{QueueUrl: &ordered.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g")}, "InvalidParameterValue"},
		"a group with a space":                 {awssqs.SendMessageInput{QueueUrl: &ordered.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g g"), MessageDeduplicationId: aws.String("d")}, "InvalidParameterValue"},
		"a deduplication id of 129 characters": {awssqs.SendMessageInput{QueueUrl: &ordered.url, MessageBody: aws.String("b"), MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String(strings.Repeat("d", 129))}, "InvalidParameterValue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := s.SendMessage(t.Context(), &row.in)
			require.Equal(t, row.code, code(t, err))
		})
	}
	standard.send(strings.Repeat("x", 1<<20), "", "")
}

func TestCreate_RefusesWhatSQSRefuses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ queue, attribute, value, code string }{
		"a name with a dot":                     {"a.b", "", "", "InvalidParameterValue"},
		"order under a plain name":              {"a", "FifoQueue", "true", "InvalidParameterValue"},
		"a plain queue under a name of order":   {"a.fifo", "DelaySeconds", "1", "InvalidParameterValue"},
		"an attribute that there is not":        {"a", "Colour", "red", "InvalidAttributeName"},
		"a value out of range":                  {"a", "DelaySeconds", "901", "InvalidAttributeValue"},
		"other attributes under a known name":   {"known", "DelaySeconds", "5", "QueueNameExists"},
		"a dead-letter queue that is not there": {"a", "RedrivePolicy", `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:none","maxReceiveCount":2}`, "InvalidParameterValue"},
		"a dead-letter queue of another kind":   {"a", "RedrivePolicy", `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:known.fifo","maxReceiveCount":2}`, "InvalidParameterValue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqs.New(sqs.Options{})
			create(t, s, "known")
			create(t, s, "known.fifo", "FifoQueue", "true")
			in := &awssqs.CreateQueueInput{QueueName: &row.queue, Attributes: map[string]string{}}
			if row.attribute != "" {
				in.Attributes[row.attribute] = row.value
			}
			_, err := s.CreateQueue(t.Context(), in)
			require.Equal(t, row.code, code(t, err))
		})
	}
}

func TestBatch_FailsEntriesAlone(t *testing.T) {
	t.Parallel()
	q := create(t, sqs.New(sqs.Options{}), "q")
	entry := func(id, body string) types.SendMessageBatchRequestEntry {
		return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
	}
	out, err := q.SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: []types.SendMessageBatchRequestEntry{entry("1", "a"), entry("2", ""), entry("3", "c")}})
	require.NoError(t, err)
	require.Len(t, out.Successful, 2)
	require.Equal(t, "2", *out.Failed[0].Id)
	require.True(t, out.Failed[0].SenderFault)
	require.Equal(t, "a c", bodies(q.receive(10, 0)))

	var eleven []types.SendMessageBatchRequestEntry
	for i := range 11 {
		eleven = append(eleven, entry(strconv.Itoa(i), "x"))
	}
	for want, entries := range map[string][]types.SendMessageBatchRequestEntry{
		"EmptyBatchRequest":            nil,
		"TooManyEntriesInBatchRequest": eleven,
		"BatchEntryIdsNotDistinct":     {entry("1", "a"), entry("1", "b")},
		"InvalidBatchEntryId":          {entry("?", "a")},
		"BatchRequestTooLong":          {entry("1", strings.Repeat("x", 1<<19)), entry("2", strings.Repeat("x", 1<<19+1))},
	} {
		_, err := q.SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries})
		require.Equal(t, want, code(t, err))
	}
}

func TestDeliver_SendsByARN(t *testing.T) {
	t.Parallel()
	q := fifo(t, "ContentBasedDeduplication", "true")
	require.NoError(t, q.Deliver(t.Context(), "arn:aws:sqs:us-east-1:123456789012:q.fifo", []byte(`{"a":1}`), "g"))
	require.Equal(t, `{"a":1}`, bodies(q.receive(1, 0)))
	require.Error(t, q.Deliver(t.Context(), "arn:aws:sqs:us-east-1:123456789012:none", []byte("x"), ""))
}

// BenchmarkFIFO drains ten thousand messages of a thousand groups.
func BenchmarkFIFO(b *testing.B) {
	for b.Loop() {
		s := sqs.New(sqs.Options{})
		out, err := s.CreateQueue(b.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("q.fifo"), Attributes: map[string]string{"FifoQueue": "true"}})
		require.NoError(b, err)
		for i := range 10_000 {
			_, err := s.SendMessage(b.Context(), &awssqs.SendMessageInput{QueueUrl: out.QueueUrl, MessageBody: aws.String("x"),
				MessageGroupId: aws.String(strconv.Itoa(i % 1000)), MessageDeduplicationId: aws.String(strconv.Itoa(i))})
			require.NoError(b, err)
		}
		for left := 10_000; left > 0; {
			got, err := s.ReceiveMessage(b.Context(), &awssqs.ReceiveMessageInput{QueueUrl: out.QueueUrl, MaxNumberOfMessages: 10})
			require.NoError(b, err)
			left -= len(got.Messages)
			for _, m := range got.Messages {
				_, err := s.DeleteMessage(b.Context(), &awssqs.DeleteMessageInput{QueueUrl: out.QueueUrl, ReceiptHandle: m.ReceiptHandle})
				require.NoError(b, err)
			}
		}
	}
}
