package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	sdksqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
)

// Bodies that nobody can read are set aside and counted, and hold up nobody.
func TestMalformedMessages(t *testing.T) {
	s := turn(t)
	counted := s.quarantined(t)
	bad := []string{
		"hello", "{", "[]", `{}`, `{"cluster":""}`, `{"cluster":7}`, `{"cluster":"demo","pods":3}`, `{"cluster":"demo"}{"cluster":"demo"}`,
	}
	looks := s.count(t, "provision", "plan applied")
	bodies := slices.Concat(bad[:4], []string{`{"cluster":"demo","why":"in the middle of a bad batch"}`}, bad[4:])
	for i, body := range bodies {
		_, err := s.AWS.SQS.SendMessage(t.Context(), &sdksqs.SendMessageInput{
			QueueUrl: s.queueURL(t, "treadle-provision.fifo"), MessageBody: &body,
			// One group, so that the good one has bad ones before and behind it.
			MessageGroupId: sdkaws.String("demo"), MessageDeduplicationId: sdkaws.String(fmt.Sprintf("malformed|%d|%d", time.Now().UnixNano(), i)),
		})
		require.NoError(t, err)
	}
	s.eventually(t, soon, "all messages are acknowledged", s.quiet)
	require.Greater(t, s.count(t, "provision", "plan applied"), looks, "the good one was heard")
	require.Equal(t, counted+len(bad), s.quarantined(t), "each is counted")
	require.Zero(t, s.queued(t, "treadle-provision-dlq.fifo"))

	var kept []string
	for range bad {
		out, err := s.AWS.SQS.ReceiveMessage(t.Context(), &sdksqs.ReceiveMessageInput{QueueUrl: s.queueURL(t, "treadle-quarantine"), MaxNumberOfMessages: 10})
		require.NoError(t, err)
		for _, m := range out.Messages {
			kept = append(kept, *m.Body)
			_, err := s.AWS.SQS.DeleteMessage(t.Context(), &sdksqs.DeleteMessageInput{
				QueueUrl: s.queueURL(t, "treadle-quarantine"), ReceiptHandle: m.ReceiptHandle,
			})
			require.NoError(t, err)
		}
	}
	require.ElementsMatch(t, bad, kept, "each is kept word for word")
}

// quarantined adds up the metric lines about messages set aside.
func (s *scene) quarantined(t testing.TB) int {
	t.Helper()
	n := 0
	for _, l := range s.log(t, "provision") {
		if strings.Contains(l.raw, `"CloudWatchMetrics"`) && strings.Contains(l.raw, `"Quarantined":1`) {
			n++
		}
	}
	return n
}
