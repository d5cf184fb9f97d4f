package queue

import (
	"context"
	"errors"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"

	"treadle/shared/notice"
)

// Keeper sets aside a body that nobody can read. Keeping one twice is harmless.
type Keeper interface {
	Keep(ctx context.Context, body string) error
}

// Counter counts what happened, by function and cluster.
type Counter interface {
	Count(name, function, cluster string, n int)
}

// Batch takes a batch of wake-ups apart.
type Batch struct {
	Function string
	Keeper   Keeper
	Counter  Counter
	Log      *slog.Logger
}

// Handle calls work once for each cluster that the records wake, in the order of their first records, and returns the records to
// deliver again: all records of a cluster whose work failed. A record that cannot be read is set aside, counted and
// acknowledged; if setting it aside fails it is delivered again. Handle itself never fails, because an error would return
// the records of every cluster.
//
// Work is once per cluster, not per record: each call looks at the whole cluster, so a second would find nothing to do. On a
// FIFO queue the records of a cluster are one message group, so returning all of them keeps their order.
func (b *Batch) Handle(ctx context.Context, event events.SQSEvent, work func(context.Context, notice.Wake) error) events.SQSEventResponse {
	var res events.SQSEventResponse
	fail := func(id string) {
		res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
	}
	type visit struct {
		wake notice.Wake
		ids  []string
	}
	var visits []*visit
	byCluster := map[string]*visit{}
	for _, rec := range event.Records {
		wake, err := notice.DecodeWake([]byte(rec.Body))
		if err != nil {
			if !b.setAside(ctx, rec, err) {
				fail(rec.MessageId)
			}
			continue
		}
		v := byCluster[wake.Cluster]
		if v == nil {
			v = &visit{wake: wake}
			byCluster[wake.Cluster] = v
			visits = append(visits, v)
		}
		v.ids = append(v.ids, rec.MessageId)
	}
	for _, v := range visits {
		err := work(ctx, v.wake)
		if err == nil {
			continue
		}
		b.Log.ErrorContext(ctx, "wake-up failed, will be delivered again", "cluster", v.wake.Cluster, "why", v.wake.Why, "error", err)
		for _, id := range v.ids {
			fail(id)
		}
	}
	return res
}

func (b *Batch) setAside(ctx context.Context, rec events.SQSMessage, cause error) bool {
	if err := b.Keeper.Keep(ctx, rec.Body); err != nil {
		b.Log.ErrorContext(ctx, "malformed message could not be set aside", "event_id", rec.MessageId, "error", errors.Join(cause, err))
		return false
	}
	b.Log.WarnContext(ctx, "malformed message set aside", "event_id", rec.MessageId, "error", cause)
	b.Counter.Count("Quarantined", b.Function, "", 1)
	return true
}
