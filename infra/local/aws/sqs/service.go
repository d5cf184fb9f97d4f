package sqs

import (
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"treadle/infra/local/aws/rpc"
)

// Options say where a Service stands.
type Options struct {
	Region  string // us-east-1 when empty
	Account string // 123456789012 when empty
	URL     string // what queue URLs begin with, without a slash at the end; https://sqs.REGION.amazonaws.com when empty
}

// Service holds the queues of one account and region. Safe for concurrent use.
type Service struct {
	region, account, url string

	mu     sync.Mutex
	queues map[string]*queue
}

// New returns a service without queues.
func New(o Options) *Service {
	s := &Service{region: o.Region, account: o.Account, url: o.URL, queues: map[string]*queue{}}
	if s.region == "" {
		s.region = "us-east-1"
	}
	if s.account == "" {
		s.account = "123456789012"
	}
	if s.url == "" {
		s.url = "https://sqs." + s.region + ".amazonaws.com"
	}
	return s
}

// Handler serves the queues over AWS JSON 1.0.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return rpc.JSON(rpc.Service{
		Name:   "sqs",
		Errors: sqs.TypeRegistry,
		Hooks:  h,
		Actions: map[string]rpc.Action{
			"ChangeMessageVisibility":      rpc.Bind(s.ChangeMessageVisibility),
			"ChangeMessageVisibilityBatch": rpc.Bind(s.ChangeMessageVisibilityBatch),
			"CreateQueue":                  rpc.Bind(s.CreateQueue),
			"DeleteMessage":                rpc.Bind(s.DeleteMessage),
			"DeleteMessageBatch":           rpc.Bind(s.DeleteMessageBatch),
			"DeleteQueue":                  rpc.Bind(s.DeleteQueue),
			"GetQueueAttributes":           rpc.Bind(s.GetQueueAttributes),
			"GetQueueUrl":                  rpc.Bind(s.GetQueueUrl),
			"ListQueues":                   rpc.Bind(s.ListQueues),
			"PurgeQueue":                   rpc.Bind(s.PurgeQueue),
			"ReceiveMessage":               rpc.Bind(s.ReceiveMessage),
			"SendMessage":                  rpc.Bind(s.SendMessage),
			"SendMessageBatch":             rpc.Bind(s.SendMessageBatch),
			"SetQueueAttributes":           rpc.Bind(s.SetQueueAttributes),
		},
	}, "1.0")
}

// queue finds a queue by its URL, of which only the last segment counts. The lock must be held.
func (s *Service) queue(url *string) (*queue, error) {
	if aws.ToString(url) == "" {
		return nil, missing("QueueUrl")
	}
	name := (*url)[strings.LastIndexByte(*url, '/')+1:]
	q, ok := s.queues[name]
	if !ok {
		return nil, &types.QueueDoesNotExist{Message: aws.String("The specified queue does not exist.")}
	}
	return q, nil
}

var (
	queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	fifoName  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,75}\.fifo$`)
)

// CreateQueue makes a queue, or returns the one that has the same name and the same attributes.
func (s *Service) CreateQueue(_ context.Context, in *sqs.CreateQueueInput, _ ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := aws.ToString(in.QueueName)
	fifo := in.Attributes[string(types.QueueAttributeNameFifoQueue)] == "true"
	if fifo && !fifoName.MatchString(name) {
		return nil, invalid("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
	}
	if !fifo && !queueName.MatchString(name) {
		return nil, invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if old, ok := s.queues[name]; ok {
		for key, value := range in.Attributes {
			if old.attributes[key] != value {
				return nil, &types.QueueNameExists{Message: aws.String("A queue already exists with the same name and a different value for attribute " + key)}
			}
		}
		return &sqs.CreateQueueOutput{QueueUrl: aws.String(s.urlOf(old))}, nil
	}
	q := newQueue(name, s.arn(name), fifo)
	if err := s.setAttributes(q, in.Attributes); err != nil {
		return nil, err
	}
	s.queues[name] = q
	return &sqs.CreateQueueOutput{QueueUrl: aws.String(s.urlOf(q))}, nil
}

func (s *Service) arn(name string) string {
	return "arn:aws:sqs:" + s.region + ":" + s.account + ":" + name
}
func (s *Service) urlOf(q *queue) string   { return s.url + "/" + s.account + "/" + q.name }
func (s *Service) byARN(arn string) *queue { return s.queues[arn[strings.LastIndexByte(arn, ':')+1:]] }

// DeleteQueue deletes a queue with all that is in it.
func (s *Service) DeleteQueue(_ context.Context, in *sqs.DeleteQueueInput, _ ...func(*sqs.Options)) (*sqs.DeleteQueueOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	delete(s.queues, q.name)
	q.wake()
	return &sqs.DeleteQueueOutput{}, nil
}

// GetQueueUrl returns the URL of a queue.
func (s *Service) GetQueueUrl(_ context.Context, in *sqs.GetQueueUrlInput, _ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueName)
	if err != nil {
		return nil, err
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: aws.String(s.urlOf(q))}, nil
}

// ListQueues returns the URLs of the queues whose name has the prefix, by name. It never pages.
func (s *Service) ListQueues(_ context.Context, in *sqs.ListQueuesInput, _ ...func(*sqs.Options)) (*sqs.ListQueuesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &sqs.ListQueuesOutput{}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if strings.HasPrefix(name, aws.ToString(in.QueueNamePrefix)) {
			out.QueueUrls = append(out.QueueUrls, s.urlOf(s.queues[name]))
		}
	}
	return out, nil
}

// PurgeQueue drops all messages. Deduplication ids stay remembered.
func (s *Service) PurgeQueue(_ context.Context, in *sqs.PurgeQueueInput, _ ...func(*sqs.Options)) (*sqs.PurgeQueueOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	q.messages.Init()
	clear(q.byID)
	clear(q.inFlight)
	return &sqs.PurgeQueueOutput{}, nil
}

// GetQueueAttributes returns the attributes asked for, or all.
func (s *Service) GetQueueAttributes(_ context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	all := q.allAttributes(time.Now())
	out := map[string]string{}
	for _, name := range in.AttributeNames {
		if name == types.QueueAttributeNameAll {
			out = all
			break
		}
		value, ok := all[string(name)]
		if !ok && !slices.Contains(name.Values(), name) {
			return nil, unknownAttribute(string(name))
		}
		if ok {
			out[string(name)] = value
		}
	}
	return &sqs.GetQueueAttributesOutput{Attributes: out}, nil
}

// SetQueueAttributes changes attributes. They hold for messages sent or received from now on.
func (s *Service) SetQueueAttributes(_ context.Context, in *sqs.SetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.SetQueueAttributesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	if err := s.setAttributes(q, in.Attributes); err != nil {
		return nil, err
	}
	return &sqs.SetQueueAttributesOutput{}, nil
}

// Deliver sends an event to the queue with the ARN, as EventBridge and Scheduler do. A FIFO queue needs a group; it
// deduplicates by content if the queue does.
func (s *Service) Deliver(ctx context.Context, arn string, payload []byte, group string) error {
	in := &sqs.SendMessageInput{
		QueueUrl:    aws.String(arn[strings.LastIndexByte(arn, ':')+1:]),
		MessageBody: aws.String(string(payload)),
	}
	if group != "" {
		in.MessageGroupId = aws.String(group)
	}
	_, err := s.SendMessage(ctx, in)
	return err
}

func invalid(message string) error { return rpc.Errorf("InvalidParameterValue", "%s", message) }

func missing(name string) error {
	return rpc.Errorf("MissingParameter", "The request must contain the parameter %s.", name)
}
