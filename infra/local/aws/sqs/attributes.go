package sqs

import (
	"encoding/json"
	"maps"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// rangeOf is what a numeric attribute may be.
type rangeOf struct{ low, high, unset int }

var numeric = map[types.QueueAttributeName]rangeOf{
	types.QueueAttributeNameDelaySeconds:                  {0, 900, 0},
	types.QueueAttributeNameMaximumMessageSize:            {1024, 1 << 20, 1 << 20},
	types.QueueAttributeNameMessageRetentionPeriod:        {60, 1209600, 345600},
	types.QueueAttributeNameReceiveMessageWaitTimeSeconds: {0, 20, 0},
	types.QueueAttributeNameVisibilityTimeout:             {0, 43200, 30},
}

// settings are the attributes that decide what a queue does.
type settings struct {
	delay, retention, wait, visibility time.Duration
	maxSize                            int
	contentDedup                       bool
	dedupPerGroup                      bool
	deadLetterARN                      string
	maxReceives                        int
}

// setAttributes checks and merges attributes; nothing is changed if one is refused. The lock must be held.
func (s *Service) setAttributes(q *queue, changes map[string]string) error {
	merged := maps.Clone(q.attributes)
	maps.Copy(merged, changes)
	for key, value := range changes {
		if err := s.checkAttribute(q, types.QueueAttributeName(key), value); err != nil {
			return err
		}
		if value == "" {
			delete(merged, key) // an empty policy removes it
		}
	}
	q.attributes = merged
	q.settings = parse(merged)
	q.wake()
	return nil
}

func (s *Service) checkAttribute(q *queue, name types.QueueAttributeName, value string) error {
	bad := &types.InvalidAttributeValue{Message: aws.String("Invalid value for the parameter " + string(name) + ".")}
	if r, ok := numeric[name]; ok {
		n, err := strconv.Atoi(value)
		if err != nil || n < r.low || n > r.high {
			return bad
		}
		return nil
	}
	switch name {
	case types.QueueAttributeNameFifoQueue:
		if (value == "true") != q.fifo {
			return bad
		}
	case types.QueueAttributeNameContentBasedDeduplication, types.QueueAttributeNameSqsManagedSseEnabled:
		if _, err := strconv.ParseBool(value); err != nil {
			return bad
		}
	case types.QueueAttributeNameDeduplicationScope:
		if value != "queue" && value != "messageGroup" {
			return bad
		}
	case types.QueueAttributeNameFifoThroughputLimit:
		if value != "perQueue" && value != "perMessageGroupId" {
			return bad
		}
	case types.QueueAttributeNameRedrivePolicy:
		return s.checkRedrive(q, value)
	case types.QueueAttributeNamePolicy, types.QueueAttributeNameRedriveAllowPolicy,
		types.QueueAttributeNameKmsMasterKeyId, types.QueueAttributeNameKmsDataKeyReusePeriodSeconds:
	default:
		return unknownAttribute(string(name))
	}
	return nil
}

func (s *Service) checkRedrive(q *queue, policy string) error {
	if policy == "" {
		return nil
	}
	r, err := parseRedrive(policy)
	if err != nil || r.MaxReceiveCount < 1 || r.MaxReceiveCount > 1000 {
		return invalid("Value " + policy + " for parameter RedrivePolicy is invalid. Reason: Invalid value for maxReceiveCount or not a JSON object.")
	}
	target := s.byARN(r.DeadLetterTargetARN)
	if target == nil {
		return invalid("Value " + policy + " for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist.")
	}
	if target.fifo != q.fifo {
		return invalid("Value " + policy + " for parameter RedrivePolicy is invalid. Reason: Dead-letter queue must be same type of queue as the source.")
	}
	return nil
}

type redrive struct {
	DeadLetterTargetARN string `json:"deadLetterTargetArn"`
	MaxReceiveCount     int    `json:"-"`
}

// parseRedrive takes the count as a number or as text, as the service does.
func parseRedrive(policy string) (redrive, error) {
	var raw struct {
		redrive
		Count json.RawMessage `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal([]byte(policy), &raw); err != nil {
		return redrive{}, err
	}
	text := string(raw.Count)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	n, err := strconv.Atoi(text)
	raw.MaxReceiveCount = n
	return raw.redrive, err
}

// parse reads attributes that were checked.
func parse(attributes map[string]string) settings {
	number := func(name types.QueueAttributeName) int {
		if n, err := strconv.Atoi(attributes[string(name)]); err == nil {
			return n
		}
		return numeric[name].unset
	}
	seconds := func(name types.QueueAttributeName) time.Duration { return time.Duration(number(name)) * time.Second }
	out := settings{
		delay:         seconds(types.QueueAttributeNameDelaySeconds),
		retention:     seconds(types.QueueAttributeNameMessageRetentionPeriod),
		wait:          seconds(types.QueueAttributeNameReceiveMessageWaitTimeSeconds),
		visibility:    seconds(types.QueueAttributeNameVisibilityTimeout),
		maxSize:       number(types.QueueAttributeNameMaximumMessageSize),
		contentDedup:  attributes[string(types.QueueAttributeNameContentBasedDeduplication)] == "true",
		dedupPerGroup: attributes[string(types.QueueAttributeNameDeduplicationScope)] == "messageGroup",
	}
	if r, err := parseRedrive(attributes[string(types.QueueAttributeNameRedrivePolicy)]); err == nil {
		out.deadLetterARN, out.maxReceives = r.DeadLetterTargetARN, r.MaxReceiveCount
	}
	return out
}

// allAttributes returns what was set, the defaults, and the counts.
func (q *queue) allAttributes(now time.Time) map[string]string {
	out := map[string]string{
		string(types.QueueAttributeNameQueueArn):         q.arn,
		string(types.QueueAttributeNameCreatedTimestamp): strconv.FormatInt(q.created.Unix(), 10),
	}
	for name, r := range numeric {
		out[string(name)] = strconv.Itoa(r.unset)
	}
	if q.fifo {
		out[string(types.QueueAttributeNameFifoQueue)] = "true"
		out[string(types.QueueAttributeNameContentBasedDeduplication)] = "false"
		out[string(types.QueueAttributeNameDeduplicationScope)] = "queue"
		out[string(types.QueueAttributeNameFifoThroughputLimit)] = "perQueue"
	}
	maps.Copy(out, q.attributes)
	visible, hidden, delayed := q.count(now)
	out[string(types.QueueAttributeNameApproximateNumberOfMessages)] = strconv.Itoa(visible)
	out[string(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible)] = strconv.Itoa(hidden)
	out[string(types.QueueAttributeNameApproximateNumberOfMessagesDelayed)] = strconv.Itoa(delayed)
	return out
}

func unknownAttribute(name string) error {
	return &types.InvalidAttributeName{Message: aws.String("Unknown Attribute " + name + ".")}
}
