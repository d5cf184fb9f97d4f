package sqs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"treadle/infra/local/aws/rpc"
)

const maxVisibility = 12 * time.Hour

// SendMessage puts one message into a queue.
func (s *Service) SendMessage(_ context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	return q.send(in, time.Now())
}

func (q *queue) send(in *sqs.SendMessageInput, now time.Time) (*sqs.SendMessageOutput, error) {
	if err := q.check(in); err != nil {
		return nil, err
	}
	m := &message{
		id:         rpc.NewID(),
		body:       *in.MessageBody,
		attributes: in.MessageAttributes,
		group:      aws.ToString(in.MessageGroupId),
		dedup:      aws.ToString(in.MessageDeduplicationId),
		sent:       now,
		visibleAt:  now.Add(q.delay),
	}
	if trace, ok := in.MessageSystemAttributes["AWSTraceHeader"]; ok {
		m.traceHeader = aws.ToString(trace.StringValue)
	}
	if in.DelaySeconds > 0 {
		m.visibleAt = now.Add(time.Duration(in.DelaySeconds) * time.Second)
	}
	out := &sqs.SendMessageOutput{MD5OfMessageBody: aws.String(md5Of(m.body)), MessageId: &m.id}
	if len(m.attributes) > 0 {
		out.MD5OfMessageAttributes = aws.String(md5OfAttributes(m.attributes))
	}
	if q.fifo {
		if m.dedup == "" {
			sum := sha256.Sum256([]byte(m.body))
			m.dedup = hex.EncodeToString(sum[:])
		}
		key := m.dedup
		if q.dedupPerGroup {
			key = m.group + "\x00" + key
		}
		if old, ok := q.duplicate(key, now); ok {
			out.MessageId, out.SequenceNumber = aws.String(old.messageID), aws.String(old.sequence)
			return out, nil
		}
		q.sequence++
		m.sequence = fmt.Sprintf("188%017d", q.sequence)
		out.SequenceNumber = &m.sequence
		q.remember(sentID{key: key, messageID: m.id, sequence: m.sequence, at: now})
	}
	q.push(m)
	return out, nil
}

var (
	// allowed is what XML 1.0 can carry, which is still the rule for a body.
	allowed = regexp.MustCompile(`^[\x{9}\x{A}\x{D}\x{20}-\x{D7FF}\x{E000}-\x{FFFD}\x{10000}-\x{10FFFF}]*$`)
	fifoID  = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]{1,128}$")
)

func (q *queue) check(in *sqs.SendMessageInput) error {
	switch {
	case in.MessageBody == nil:
		return missing("MessageBody")
	case *in.MessageBody == "":
		return invalid("One or more parameters are invalid. Reason: Message must be at least one character.")
	case !allowed.MatchString(*in.MessageBody):
		return &types.InvalidMessageContents{Message: aws.String("Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")}
	case size(*in.MessageBody, in.MessageAttributes) > q.maxSize:
		return invalid(fmt.Sprintf("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.maxSize))
	case len(in.MessageAttributes) > 10:
		return invalid("Number of message attributes [" + strconv.Itoa(len(in.MessageAttributes)) + "] exceeds the allowed maximum [10].")
	case in.DelaySeconds < 0 || in.DelaySeconds > 900:
		return invalid(fmt.Sprintf("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.", in.DelaySeconds))
	case !q.fifo:
		if in.MessageDeduplicationId != nil {
			return invalid("The request includes a parameter that is not valid for this queue type. Reason: MessageDeduplicationId.")
		}
		return nil
	case in.MessageGroupId == nil:
		return missing("MessageGroupId")
	case in.DelaySeconds != 0:
		return invalid(fmt.Sprintf("Value %d for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.", in.DelaySeconds))
	case in.MessageDeduplicationId == nil && !q.contentDedup:
		return invalid("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	for name, id := range map[string]*string{"MessageGroupId": in.MessageGroupId, "MessageDeduplicationId": in.MessageDeduplicationId} {
		if id != nil && !fifoID.MatchString(*id) {
			return invalid("Value " + *id + " for parameter " + name + " is invalid. Reason: " + name + " can only include alphanumeric and punctuation characters. 1 to 128 in length.")
		}
	}
	return nil
}

// size is what counts against the limit: the body, and names, types and values of the attributes.
func size(body string, attributes map[string]types.MessageAttributeValue) int {
	n := len(body)
	for name, a := range attributes {
		n += len(name) + len(aws.ToString(a.DataType)) + len(aws.ToString(a.StringValue)) + len(a.BinaryValue)
	}
	return n
}

// SendMessageBatch sends up to ten messages, each of which may fail alone.
func (s *Service) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, e := range in.Entries {
		total += size(aws.ToString(e.MessageBody), e.MessageAttributes)
	}
	if total > 1<<20 {
		return nil, &types.BatchRequestTooLong{Message: aws.String(fmt.Sprintf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", 1<<20, total))}
	}
	out := &sqs.SendMessageBatchOutput{Successful: []types.SendMessageBatchResultEntry{}, Failed: []types.BatchResultErrorEntry{}}
	err = each(in.Entries, func(e types.SendMessageBatchRequestEntry) *string { return e.Id }, &out.Failed,
		func(e types.SendMessageBatchRequestEntry) error {
			sent, err := q.send(&sqs.SendMessageInput{
				MessageBody:             e.MessageBody,
				DelaySeconds:            e.DelaySeconds,
				MessageAttributes:       e.MessageAttributes,
				MessageSystemAttributes: e.MessageSystemAttributes,
				MessageGroupId:          e.MessageGroupId,
				MessageDeduplicationId:  e.MessageDeduplicationId,
			}, time.Now())
			if err != nil {
				return err
			}
			out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{
				Id:                     e.Id,
				MessageId:              sent.MessageId,
				MD5OfMessageBody:       sent.MD5OfMessageBody,
				MD5OfMessageAttributes: sent.MD5OfMessageAttributes,
				SequenceNumber:         sent.SequenceNumber,
			})
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

var batchID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// each runs do for the entries of a batch and collects what failed; the error is one of the batch as a whole.
func each[E any](entries []E, id func(E) *string, failed *[]types.BatchResultErrorEntry, do func(E) error) error {
	if len(entries) == 0 {
		return &types.EmptyBatchRequest{Message: aws.String("There should be at least one entry in the request.")}
	}
	if len(entries) > 10 {
		return &types.TooManyEntriesInBatchRequest{Message: aws.String(fmt.Sprintf("Maximum number of entries per request are 10. You have sent %d.", len(entries)))}
	}
	seen := map[string]bool{}
	for _, e := range entries {
		name := aws.ToString(id(e))
		if !batchID.MatchString(name) {
			return &types.InvalidBatchEntryId{Message: aws.String("A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")}
		}
		if seen[name] {
			return &types.BatchEntryIdsNotDistinct{Message: aws.String("Id " + name + " repeated.")}
		}
		seen[name] = true
	}
	for _, e := range entries {
		if err := do(e); err != nil {
			api, ok := errors.AsType[smithy.APIError](err)
			if !ok {
				return err
			}
			*failed = append(*failed, types.BatchResultErrorEntry{
				Id: id(e), Code: aws.String(api.ErrorCode()), Message: aws.String(api.ErrorMessage()), SenderFault: true,
			})
		}
	}
	return nil
}

// ReceiveMessage takes up to ten messages. It waits for the first one as long as the request or the queue says, or
// until ctx ends.
func (s *Service) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	limit := int(in.MaxNumberOfMessages)
	switch {
	case limit == 0:
		limit = 1
	case limit < 0 || limit > 10:
		return nil, invalid(fmt.Sprintf("Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.", limit))
	}
	if in.WaitTimeSeconds < 0 || in.WaitTimeSeconds > 20 {
		return nil, invalid(fmt.Sprintf("Value %d for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.", in.WaitTimeSeconds))
	}
	if in.VisibilityTimeout < 0 || in.VisibilityTimeout > int32(maxVisibility.Seconds()) {
		return nil, invalid(fmt.Sprintf("Value %d for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200.", in.VisibilityTimeout))
	}

	var deadline time.Time
	for {
		if err := ctx.Err(); err != nil {
			return nil, err // whoever went away must not take a message along
		}
		s.mu.Lock()
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		now := time.Now()
		if deadline.IsZero() {
			wait := time.Duration(in.WaitTimeSeconds) * time.Second
			if wait == 0 {
				wait = q.wait
			}
			deadline = now.Add(wait)
		}
		visibility := time.Duration(in.VisibilityTimeout) * time.Second
		if visibility == 0 {
			visibility = q.visibility
		}
		var deadLetter *queue
		if q.deadLetterARN != "" {
			deadLetter = s.byARN(q.deadLetterARN)
		}
		got, next := q.receive(limit, now, visibility, deadLetter)
		out := &sqs.ReceiveMessageOutput{}
		for _, m := range got {
			out.Messages = append(out.Messages, m.deliver(in))
		}
		changed := q.changed
		s.mu.Unlock()

		if len(got) > 0 || !now.Before(deadline) {
			return out, nil
		}
		until := deadline
		if !next.IsZero() && next.Before(until) {
			until = next
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// deliver returns the message as the receiver asked for it.
func (m *message) deliver(in *sqs.ReceiveMessageInput) types.Message {
	out := types.Message{
		MessageId:     aws.String(m.id),
		ReceiptHandle: aws.String(m.handle),
		Body:          aws.String(m.body),
		MD5OfBody:     aws.String(md5Of(m.body)),
		Attributes:    map[string]string{},
	}
	asked := func(name types.MessageSystemAttributeName) bool {
		return slices.Contains(in.MessageSystemAttributeNames, name) ||
			slices.Contains(in.MessageSystemAttributeNames, types.MessageSystemAttributeNameAll) ||
			slices.Contains(in.AttributeNames, types.QueueAttributeName(name)) ||
			slices.Contains(in.AttributeNames, types.QueueAttributeNameAll)
	}
	for name, value := range map[types.MessageSystemAttributeName]string{
		types.MessageSystemAttributeNameSenderId:                         "AIDALOCAL",
		types.MessageSystemAttributeNameSentTimestamp:                    strconv.FormatInt(m.sent.UnixMilli(), 10),
		types.MessageSystemAttributeNameApproximateReceiveCount:          strconv.Itoa(m.receives),
		types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp: strconv.FormatInt(m.firstReceive.UnixMilli(), 10),
		types.MessageSystemAttributeNameMessageGroupId:                   m.group,
		types.MessageSystemAttributeNameMessageDeduplicationId:           m.dedup,
		types.MessageSystemAttributeNameSequenceNumber:                   m.sequence,
		types.MessageSystemAttributeNameAWSTraceHeader:                   m.traceHeader,
		types.MessageSystemAttributeNameDeadLetterQueueSourceArn:         m.source,
	} {
		if value != "" && asked(name) {
			out.Attributes[string(name)] = value
		}
	}
	for name, a := range m.attributes {
		if wanted(in.MessageAttributeNames, name) {
			if out.MessageAttributes == nil {
				out.MessageAttributes = map[string]types.MessageAttributeValue{}
			}
			out.MessageAttributes[name] = a
		}
	}
	if len(out.MessageAttributes) > 0 {
		out.MD5OfMessageAttributes = aws.String(md5OfAttributes(out.MessageAttributes))
	}
	return out
}

// DeleteMessage deletes a message that was received. Deleting twice is no error.
func (s *Service) DeleteMessage(_ context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	if err := q.deleteByHandle(aws.ToString(in.ReceiptHandle), time.Now()); err != nil {
		return nil, err
	}
	return &sqs.DeleteMessageOutput{}, nil
}

func (q *queue) deleteByHandle(handle string, now time.Time) error {
	id, err := messageID(handle)
	if err != nil {
		return badHandle(handle)
	}
	m, ok := q.byID[id]
	if !ok {
		return nil
	}
	if q.fifo && (m.handle != handle || !m.visibleAt.After(now)) {
		return expiredHandle(handle)
	}
	if m.handle == handle { // a standard queue shrugs at an older handle
		q.remove(m)
		q.wake()
	}
	return nil
}

func badHandle(handle string) error {
	return &types.ReceiptHandleIsInvalid{Message: aws.String(fmt.Sprintf("The input receipt handle %q is not a valid receipt handle.", handle))}
}

func expiredHandle(handle string) error {
	return invalid("Value " + handle + " for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
}

// DeleteMessageBatch deletes up to ten messages, each of which may fail alone.
func (s *Service) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	out := &sqs.DeleteMessageBatchOutput{Successful: []types.DeleteMessageBatchResultEntry{}, Failed: []types.BatchResultErrorEntry{}}
	err = each(in.Entries, func(e types.DeleteMessageBatchRequestEntry) *string { return e.Id }, &out.Failed,
		func(e types.DeleteMessageBatchRequestEntry) error {
			if err := q.deleteByHandle(aws.ToString(e.ReceiptHandle), time.Now()); err != nil {
				return err
			}
			out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ChangeMessageVisibility sets when a message in flight becomes visible again, counted from now.
func (s *Service) ChangeMessageVisibility(_ context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	if err := q.changeVisibility(aws.ToString(in.ReceiptHandle), in.VisibilityTimeout, time.Now()); err != nil {
		return nil, err
	}
	return &sqs.ChangeMessageVisibilityOutput{}, nil
}

func (q *queue) changeVisibility(handle string, seconds int32, now time.Time) error {
	id, err := messageID(handle)
	if err != nil {
		return badHandle(handle)
	}
	timeout := time.Duration(seconds) * time.Second
	if timeout < 0 || timeout > maxVisibility {
		return invalid(fmt.Sprintf("Value %d for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200.", seconds))
	}
	m, ok := q.byID[id]
	if !ok || m.handle != handle || !m.visibleAt.After(now) {
		return &types.MessageNotInflight{Message: aws.String("The specified message isn't in flight.")}
	}
	m.visibleAt = now.Add(timeout)
	q.wake()
	return nil
}

// ChangeMessageVisibilityBatch changes up to ten messages, each of which may fail alone.
func (s *Service) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	out := &sqs.ChangeMessageVisibilityBatchOutput{Successful: []types.ChangeMessageVisibilityBatchResultEntry{}, Failed: []types.BatchResultErrorEntry{}}
	err = each(in.Entries, func(e types.ChangeMessageVisibilityBatchRequestEntry) *string { return e.Id }, &out.Failed,
		func(e types.ChangeMessageVisibilityBatchRequestEntry) error {
			if err := q.changeVisibility(aws.ToString(e.ReceiptHandle), e.VisibilityTimeout, time.Now()); err != nil {
				return err
			}
			out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}
