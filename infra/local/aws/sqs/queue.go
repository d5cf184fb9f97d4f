package sqs

import (
	"container/list"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// dedupWindow is how long a deduplication id is remembered.
const dedupWindow = 5 * time.Minute

// message is one message of a queue.
type message struct {
	id, body     string
	attributes   map[string]types.MessageAttributeValue
	traceHeader  string
	group, dedup string // FIFO only
	sequence     string // FIFO only
	source       string // ARN of the queue that this one is the dead-letter queue of, after a move
	sent         time.Time
	firstReceive time.Time // zero until received
	receives     int
	visibleAt    time.Time // delayed or in flight until then
	handle       string    // of the latest receive
	at           *list.Element
}

// queue is one queue. The service's lock guards it.
type queue struct {
	name, arn  string
	fifo       bool
	created    time.Time
	attributes map[string]string // as they were set
	settings

	messages *list.List // of *message, in order of sending
	byID     map[string]*message
	inFlight map[*message]struct{} // received, and visibility was not seen to end
	sent     map[string]sentID     // by deduplication key
	order    []sentID              // the same, oldest first
	sequence uint64
	changed  chan struct{} // closed and replaced when a receive may find more than before
}

// sentID is a remembered deduplication id.
type sentID struct {
	key, messageID, sequence string
	at                       time.Time
}

func newQueue(name, arn string, fifo bool) *queue {
	return &queue{
		name: name, arn: arn, fifo: fifo,
		created:    time.Now(),
		attributes: map[string]string{},
		messages:   list.New(),
		byID:       map[string]*message{},
		inFlight:   map[*message]struct{}{},
		sent:       map[string]sentID{},
		changed:    make(chan struct{}),
	}
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *queue) push(m *message) {
	m.at = q.messages.PushBack(m)
	q.byID[m.id] = m
	q.wake()
}

func (q *queue) remove(m *message) {
	q.messages.Remove(m.at)
	delete(q.byID, m.id)
	delete(q.inFlight, m)
}

// duplicate returns what was sent with the deduplication key within the window.
func (q *queue) duplicate(key string, now time.Time) (sentID, bool) {
	for len(q.order) > 0 && now.Sub(q.order[0].at) >= dedupWindow {
		delete(q.sent, q.order[0].key)
		q.order = q.order[1:]
	}
	old, ok := q.sent[key]
	return old, ok
}

func (q *queue) remember(id sentID) {
	q.sent[id.key] = id
	q.order = append(q.order, id)
}

// receive takes up to limit messages that may be delivered now. If there is none, next is when there might be one
// without anybody doing anything; it is zero if never.
func (q *queue) receive(limit int, now time.Time, visibility time.Duration, deadLetter *queue) (got []*message, next time.Time) {
	// 1. The groups that are locked: any of their messages is in flight.
	locked := map[string]bool{}
	for m := range q.inFlight {
		if !m.visibleAt.After(now) {
			delete(q.inFlight, m)
		} else {
			locked[m.group] = true
		}
	}
	// 2. The oldest messages first. A message that must wait holds back its group.
	var after *list.Element
	for at := q.messages.Front(); at != nil && len(got) < limit; at = after {
		after = at.Next()
		m := at.Value.(*message)
		switch {
		case now.Sub(m.sent) >= q.retention:
			q.remove(m)
		case m.visibleAt.After(now):
			locked[m.group] = true
			if next.IsZero() || m.visibleAt.Before(next) {
				next = m.visibleAt
			}
		case q.fifo && locked[m.group]:
		case deadLetter != nil && m.receives >= q.maxReceives:
			q.remove(m)
			m.source, m.visibleAt = q.arn, now
			deadLetter.push(m)
		default:
			got = append(got, m)
		}
	}
	// 3. What is delivered is in flight.
	for _, m := range got {
		m.receives++
		if m.firstReceive.IsZero() {
			m.firstReceive = now
		}
		m.visibleAt = now.Add(visibility)
		m.handle = newHandle(m.id)
		if visibility > 0 {
			q.inFlight[m] = struct{}{}
		}
	}
	return got, next
}

func (q *queue) count(now time.Time) (visible, hidden, delayed int) {
	for at := q.messages.Front(); at != nil; at = at.Next() {
		m := at.Value.(*message)
		_, flying := q.inFlight[m]
		switch {
		case now.Sub(m.sent) >= q.retention:
		case !m.visibleAt.After(now):
			visible++
		case flying:
			hidden++
		default:
			delayed++
		}
	}
	return visible, hidden, delayed
}

func newHandle(messageID string) string {
	return base64.StdEncoding.EncodeToString([]byte(messageID + " " + rand.Text()))
}

// messageID returns the id that a receipt handle was made for.
func messageID(handle string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(handle)
	if err != nil {
		return "", fmt.Errorf("decode receipt handle: %w", err)
	}
	id, _, ok := strings.Cut(string(raw), " ")
	if !ok {
		return "", fmt.Errorf("receipt handle without message id")
	}
	return id, nil
}
