package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"treadle/shared/notice"
)

// api is the part of SQS that wake-ups need.
type api interface {
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// Queue is a FIFO queue of wake-ups. It is safe for concurrent use.
type Queue struct {
	api api
	url string
	now func() time.Time
}

// New returns the queue at url. It dials nothing.
func New(cfg aws.Config, url string, now func() time.Time) *Queue {
	return &Queue{api: sqs.NewFromConfig(cfg), url: url, now: now}
}

// Wake asks for a look at the cluster. Asking again within the same second changes nothing.
func (q *Queue) Wake(ctx context.Context, w notice.Wake) error {
	_, err := q.api.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl:               aws.String(q.url),
		MessageBody:            aws.String(string(w.Encode())),
		MessageGroupId:         aws.String(w.Cluster),
		MessageDeduplicationId: aws.String(w.Cluster + "|" + strconv.FormatInt(q.now().Unix(), 10)),
	})
	if err != nil {
		return fmt.Errorf("wake cluster %q: %w", w.Cluster, err)
	}
	return nil
}

// Quarantine is a standard queue that keeps the bodies nobody could read. It is safe for concurrent use.
type Quarantine struct {
	api api
	url string
}

// NewQuarantine returns the quarantine at url. It dials nothing.
func NewQuarantine(cfg aws.Config, url string) *Quarantine {
	return &Quarantine{api: sqs.NewFromConfig(cfg), url: url}
}

// Keep sets a body aside.
func (q *Quarantine) Keep(ctx context.Context, body string) error {
	_, err := q.api.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String(q.url), MessageBody: aws.String(body)})
	if err != nil {
		return fmt.Errorf("set message aside: %w", err)
	}
	return nil
}
