package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"treadle/shared/apply"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/notice"
	"treadle/shared/plan"
	"treadle/shared/store"
)

// tries is how often a decision is made anew because something in the cluster changed under it.
const tries = 3

var (
	errUnrecorded = errors.New("the instance's launch is not written down yet")
	errChanging   = errors.New("the cluster changed under each decision")
)

// Mirror is a copy of a cluster's state.
type Mirror interface {
	Sync(ctx context.Context) error
	Snapshot(nowUnix int64) cluster.Snapshot
}

// Instances looks at instances of the account, whoever owns them. Those that EC2 does not know are absent.
type Instances interface {
	Describe(ctx context.Context, ids ...cluster.InstanceID) ([]cluster.Instance, error)
	// In returns the instances that run in a capacity reservation.
	In(ctx context.Context, reservation string) ([]cluster.Instance, error)
}

// Waker asks for a look at a cluster.
type Waker interface {
	Wake(ctx context.Context, w notice.Wake) error
}

// Keeper sets aside a body that nobody can read.
type Keeper interface {
	Keep(ctx context.Context, body string) error
}

// Counter counts what happened.
type Counter interface {
	Count(name, function, cluster string, n int)
}

// Site is one cluster.
type Site struct {
	Name   string
	Kube   apply.Objects
	Mirror Mirror
}

// Handler acts on what EC2 and Health announce.
type Handler struct {
	// Open returns the site of a cluster. store.ErrNotFound: it is not served.
	Open      func(ctx context.Context, name string) (*Site, error)
	Instances Instances
	// Provision and Lifecycle wake the functions that replace a leaving node and see it through.
	Provision, Lifecycle Waker
	Keeper               Keeper
	Counter              Counter
	Log                  *slog.Logger
	NowUnix              func() int64
}

// hit is what one record says about one instance.
type hit struct {
	record   int
	instance cluster.Instance
	disruption.Interruption
}

// failures says which records have to be delivered again, and why.
type failures map[int]error

func (f failures) add(record int, err error) { f[record] = errors.Join(f[record], err) }

// Handle decodes a batch of events, finds out whose instances they are about, and has each cluster act on its own. The queue is
// the whole account's: instances that no served cluster owns are counted and acknowledged. A body that cannot be read is set
// aside; whatever else fails brings back the records that it concerns and no others.
func (h *Handler) Handle(ctx context.Context, event events.SQSEvent) events.SQSEventResponse {
	failed := failures{}
	notices := h.decode(ctx, event, failed)
	h.visit(ctx, h.owned(ctx, notices, failed), failed)
	var res events.SQSEventResponse
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		id := event.Records[i].MessageId
		h.Log.ErrorContext(ctx, "event failed, will be delivered again", "event_id", id, "error", failed[i])
		res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
	}
	return res
}

// decode returns what the records say, by their places in the batch, less what means nothing here.
func (h *Handler) decode(ctx context.Context, event events.SQSEvent, failed failures) map[int]notice.Notice {
	out := map[int]notice.Notice{}
	for i, rec := range event.Records {
		n, err := notice.DecodeEvent([]byte(rec.Body))
		if err != nil {
			if keepErr := h.Keeper.Keep(ctx, rec.Body); keepErr != nil {
				failed.add(i, errors.Join(err, keepErr))
				continue
			}
			h.Log.WarnContext(ctx, "malformed message set aside", "event_id", rec.MessageId, "error", err)
			h.Counter.Count("Quarantined", "interruption", "", 1)
			continue
		}
		if n.Kind == notice.Ignored {
			h.Log.DebugContext(ctx, "event ignored", "event_id", n.ID, "reason", n.Detail)
			h.Counter.Count("EventsIgnored", "interruption", "", 1)
			continue
		}
		out[i] = n
	}
	return out
}

// owned looks at the instances of all notices in one call and returns what concerns each cluster, by its name.
func (h *Handler) owned(ctx context.Context, notices map[int]notice.Notice, failed failures) map[string][]hit {
	ids := map[cluster.InstanceID]bool{}
	for _, n := range notices {
		for _, id := range n.Instances {
			ids[id] = true
		}
	}
	known := map[cluster.InstanceID]cluster.Instance{}
	if len(ids) > 0 {
		found, err := h.Instances.Describe(ctx, slices.Sorted(maps.Keys(ids))...)
		if err != nil {
			for i, n := range notices {
				if len(n.Instances) > 0 {
					failed.add(i, err)
				}
			}
			notices = maps.Clone(notices)
			maps.DeleteFunc(notices, func(_ int, n notice.Notice) bool { return len(n.Instances) > 0 })
		}
		for _, one := range found {
			known[one.ID] = one
		}
	}
	out := map[string][]hit{}
	for _, i := range slices.Sorted(maps.Keys(notices)) {
		instances, err := h.about(ctx, notices[i], known)
		if err != nil {
			failed.add(i, err)
			continue
		}
		for _, one := range instances {
			name := owner(one)
			out[name] = append(out[name], hit{i, one, disruption.Interruption{Instance: one.ID, Kind: notices[i].Kind, Detail: because(notices[i].Detail, one)}})
		}
	}
	return out
}

// because adds to what a notice says the reason that EC2 has for an instance that is going: what killed it is what its owner wants to
// know (R31).
func because(detail string, one cluster.Instance) string {
	switch {
	case one.StateReason == "":
		return detail
	case detail == "":
		return one.StateReason
	default:
		return detail + ": " + one.StateReason
	}
}

// about returns the instances that a notice is about. One that EC2 does not know has no tags, and so belongs to nobody.
func (h *Handler) about(ctx context.Context, n notice.Notice, known map[cluster.InstanceID]cluster.Instance) ([]cluster.Instance, error) {
	if n.Kind == notice.BlockExpiring {
		return h.Instances.In(ctx, n.Reservation)
	}
	out := make([]cluster.Instance, 0, len(n.Instances))
	for _, id := range n.Instances {
		out = append(out, known[id])
	}
	return out, nil
}

// owner returns the cluster that Treadle launched an instance for, "" if it did not launch it.
func owner(one cluster.Instance) string {
	if one.Tags[cluster.LabelNodePool] == "" {
		return ""
	}
	for key, value := range one.Tags {
		if name, ok := strings.CutPrefix(key, "kubernetes.io/cluster/"); ok && value == "owned" {
			return name
		}
	}
	return ""
}

// visit has each cluster act. One in trouble does not hold up the others.
func (h *Handler) visit(ctx context.Context, byCluster map[string][]hit, failed failures) {
	if foreign := byCluster[""]; len(foreign) > 0 {
		h.foreign(ctx, "", foreign)
		delete(byCluster, "")
	}
	names := slices.Sorted(maps.Keys(byCluster))
	results := make([]failures, len(names))
	apply.Each(len(names), func(i int) { results[i] = h.cluster(ctx, names[i], byCluster[names[i]]) })
	for _, one := range results {
		for record, err := range one {
			failed.add(record, err)
		}
	}
}

func (h *Handler) foreign(ctx context.Context, name string, hits []hit) {
	h.Log.InfoContext(ctx, "events about instances of others", "cluster", name, "instances", len(hits))
	h.Counter.Count("EventsForeign", "interruption", "", len(hits))
}

// cluster observes, decides and applies, and wakes those who replace the nodes without waiting for their drain.
func (h *Handler) cluster(ctx context.Context, name string, hits []hit) failures {
	site, err := h.Open(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		h.foreign(ctx, name, hits)
		return nil
	}
	failed := failures{}
	all := func(err error) failures {
		for _, one := range hits {
			failed.add(one.record, fmt.Errorf("cluster %q: %w", name, err))
		}
		return failed
	}
	if err != nil {
		return all(err)
	}
	mover := apply.Mover{Cluster: name, Kube: site.Kube, Log: h.Log}
	for range tries {
		if err := site.Mirror.Sync(ctx); err != nil {
			return all(err)
		}
		snap := site.Mirror.Snapshot(h.NowUnix())
		d := disruption.Interrupt(&snap, h.recorded(&snap, hits, failed))
		done, err := mover.Move(ctx, d.Moves)
		if err != nil {
			return all(err)
		}
		h.wake(ctx, name, d)
		if done {
			h.report(ctx, name, d)
			return failed
		}
	}
	return all(errChanging)
}

// recorded returns what is to be decided about. An instance whose launch has not written down its id belongs to no claim yet: its
// records come again when it has.
func (h *Handler) recorded(snap *cluster.Snapshot, hits []hit, failed failures) []disruption.Interruption {
	clear(failed)
	unfinished := map[string]bool{}
	for _, group := range plan.Groups(snap.NodeClaims) {
		unfinished[group.Token] = len(group.Open()) > 0
	}
	claimed := map[cluster.InstanceID]bool{}
	for i := range snap.NodeClaims {
		claimed[cluster.InstanceOf(snap.NodeClaims[i].ProviderID)] = true
	}
	var out []disruption.Interruption
	for _, one := range hits {
		if !claimed[one.Instance] && unfinished[one.instance.Tags[cluster.TagLaunch]] {
			failed.add(one.record, fmt.Errorf("instance %s: %w", one.Instance, errUnrecorded))
			continue
		}
		out = append(out, one.Interruption)
	}
	return out
}

// wake asks for the replacement at once: pods of a node that is being deleted are planned like pending ones. It does so also where the
// claim was being deleted already, because the one who deleted it may have been stopped before this.
func (h *Handler) wake(ctx context.Context, name string, d plan.Decision) {
	if !d.Waiting {
		return
	}
	for _, waker := range []Waker{h.Provision, h.Lifecycle} {
		if err := waker.Wake(ctx, notice.Wake{Cluster: name, Why: "interruption"}); err != nil {
			h.Log.ErrorContext(ctx, "wake-up lost, the sweep will find it", "cluster", name, "error", err)
		}
	}
}

func (h *Handler) report(ctx context.Context, name string, d plan.Decision) {
	leaving := 0
	for _, m := range d.Moves {
		if m.DeleteClaim {
			leaving++
		}
	}
	h.Counter.Count("NodeClaimsInterrupted", "interruption", name, leaving)
	h.Log.InfoContext(ctx, "events dealt with", "cluster", name, "claims", leaving, "moves", len(d.Moves))
}
