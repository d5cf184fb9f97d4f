package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Queue is what an event source mapping asks of SQS; the SDK's client has it. Receive must return soon after its
// context ends.
type Queue interface {
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
}

const (
	maxBatch       = 10
	defaultPollers = 5
	longPoll       = 20 // seconds
	pollBackoff    = time.Second
)

// EventSource maps a queue to a function.
type EventSource struct {
	Queue                   Queue
	QueueURL, QueueARN      string
	Function                string
	BatchSize               int  // messages an invocation may get, 1 to 10; 10 when zero
	MaximumConcurrency      int  // batches under way at once; as many as the function has environments, at most 5, when zero
	ReportBatchItemFailures bool // the function names the messages that failed; otherwise all or none did
	Disabled                bool // start with Enable
}

// Mapping polls a queue for a function. A batch that fails stays in flight until its visibility ends; nothing else
// brings it back.
type Mapping struct {
	source  EventSource
	f       *function
	service *Service

	mu   sync.Mutex
	stop context.CancelFunc // nil while disabled
}

// Map creates an event source mapping, and enables it unless told otherwise.
func (s *Service) Map(source EventSource) (*Mapping, error) {
	f, err := s.function(source.Function)
	if err != nil {
		return nil, err
	}
	if source.BatchSize == 0 {
		source.BatchSize = maxBatch
	}
	if source.BatchSize < 1 || source.BatchSize > maxBatch {
		return nil, fmt.Errorf("map %s: batch size %d is not within 1 and %d", source.QueueURL, source.BatchSize, maxBatch)
	}
	if source.MaximumConcurrency == 0 {
		source.MaximumConcurrency = min(defaultPollers, f.Concurrency)
	}
	m := &Mapping{source: source, f: f, service: s}
	s.mu.Lock()
	s.mappings = append(s.mappings, m)
	s.mu.Unlock()
	if !source.Disabled {
		m.Enable()
	}
	return m, nil
}

// Enable begins to poll. It does nothing if the mapping is enabled.
func (m *Mapping) Enable() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	for range m.source.MaximumConcurrency {
		if !m.service.goes(func() { m.poll(ctx) }) {
			cancel()
			return
		}
	}
}

// Disable ends polling. Batches under way are finished.
func (m *Mapping) Disable() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		m.stop()
		m.stop = nil
	}
}

func (m *Mapping) poll(ctx context.Context) {
	for ctx.Err() == nil {
		out, err := m.source.Queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl:                    aws.String(m.source.QueueURL),
			MaxNumberOfMessages:         int32(m.source.BatchSize),
			WaitTimeSeconds:             longPoll,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			MessageAttributeNames:       []string{"All"},
		})
		if err != nil {
			if ctx.Err() == nil {
				m.service.options.Log.Warn("poll failed", "queue", m.source.QueueURL, "error", err.Error())
			}
			select {
			case <-time.After(pollBackoff):
			case <-ctx.Done():
			}
			continue
		}
		if len(out.Messages) == 0 {
			continue
		}
		if err := m.batch(out.Messages); err != nil {
			m.service.options.Log.Warn("batch failed", "queue", m.source.QueueURL, "function", m.source.Function, "error", err.Error())
		}
	}
}

// batch runs one invocation and deletes what it dealt with. It does not end with the mapping.
func (m *Mapping) batch(messages []types.Message) error {
	event, err := json.Marshal(m.event(messages))
	if err != nil {
		return fmt.Errorf("encode batch: %w", err)
	}
	ctx := context.Background()
	result, err := m.service.invoke(ctx, m.f, event, true)
	if err != nil {
		return fmt.Errorf("invoke: %w", err)
	}
	if result.FunctionError != "" {
		return fmt.Errorf("function error %s", result.Report.Error)
	}
	failed := map[string]bool{}
	if m.source.ReportBatchItemFailures {
		if failed, err = failures(result.Payload, messages); err != nil {
			return err
		}
	}
	var entries []types.DeleteMessageBatchRequestEntry
	for _, msg := range messages {
		if !failed[aws.ToString(msg.MessageId)] {
			entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: msg.MessageId, ReceiptHandle: msg.ReceiptHandle})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	out, err := m.source.Queue.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(m.source.QueueURL), Entries: entries})
	if err != nil {
		return fmt.Errorf("delete batch: %w", err)
	}
	var undeleted error
	for _, f := range out.Failed {
		undeleted = errors.Join(undeleted, fmt.Errorf("delete message %s: %s", aws.ToString(f.Id), aws.ToString(f.Message)))
	}
	return undeleted
}

// failures reads the message ids that a function gave back. An empty answer gives none back; an answer that is no such
// list, or names no message of the batch, fails the whole batch.
func failures(payload []byte, messages []types.Message) (map[string]bool, error) {
	var response events.SQSEventResponse
	if len(payload) > 0 {
		if err := json.Unmarshal(payload, &response); err != nil {
			return nil, fmt.Errorf("decode batch response: %w", err)
		}
	}
	known := map[string]bool{}
	for _, msg := range messages {
		known[aws.ToString(msg.MessageId)] = true
	}
	failed := map[string]bool{}
	for _, item := range response.BatchItemFailures {
		if !known[item.ItemIdentifier] {
			return nil, fmt.Errorf("batch response names %q, which is not in the batch", item.ItemIdentifier)
		}
		failed[item.ItemIdentifier] = true
	}
	return failed, nil
}

func (m *Mapping) event(messages []types.Message) events.SQSEvent {
	var event events.SQSEvent
	for _, msg := range messages {
		record := events.SQSMessage{
			MessageId:              aws.ToString(msg.MessageId),
			ReceiptHandle:          aws.ToString(msg.ReceiptHandle),
			Body:                   aws.ToString(msg.Body),
			Md5OfBody:              aws.ToString(msg.MD5OfBody),
			Md5OfMessageAttributes: aws.ToString(msg.MD5OfMessageAttributes),
			Attributes:             msg.Attributes,
			MessageAttributes:      map[string]events.SQSMessageAttribute{},
			EventSourceARN:         m.source.QueueARN,
			EventSource:            "aws:sqs",
			AWSRegion:              m.service.options.Region,
		}
		for name, a := range msg.MessageAttributes {
			record.MessageAttributes[name] = events.SQSMessageAttribute{
				StringValue:      a.StringValue,
				BinaryValue:      a.BinaryValue,
				StringListValues: []string{},
				BinaryListValues: [][]byte{},
				DataType:         aws.ToString(a.DataType),
			}
		}
		event.Records = append(event.Records, record)
	}
	return event
}
