package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"treadle/shared/apply"
	"treadle/shared/notice"
	"treadle/shared/store"
)

// Cluster answers whether a cluster has anything to do, by reading one object at most.
type Cluster interface {
	HasPendingPods(ctx context.Context) (bool, error)
	HasNodeClaims(ctx context.Context) (bool, error)
	HasCapacityBuffers(ctx context.Context) (bool, error)
}

// Clusters lists the clusters that are served and opens them.
type Clusters interface {
	Clusters(ctx context.Context) ([]string, error)
	// Open returns a cluster's API. store.ErrNotFound: it is not served any more.
	Open(ctx context.Context, name string) (Cluster, error)
}

// Waker asks for a look at a cluster.
type Waker interface {
	Wake(ctx context.Context, w notice.Wake) error
}

// Handler wakes every cluster that has anything to do: the guarantee behind the hints of the webhook.
type Handler struct {
	Clusters                         Clusters
	Provision, Lifecycle, Disruption Waker
	// Buffers has CapacityBuffers count as work: pods that take the room they keep call nobody.
	Buffers bool
	Log     *slog.Logger
	Now     func() time.Time
}

// fullEvery is how often, in minutes, every cluster is woken whatever it holds: an instance that belongs to nobody, or the status
// of a pool that changed while the webhook was away, shows in nothing that a sweep can ask for cheaply.
const fullEvery = 10

// Event is what the clock sends; nothing in it decides anything.
type Event struct {
	Source string `json:"source"`
}

// Summary is what a sweep found.
type Summary struct {
	Clusters  int `json:"clusters"`
	Provision int `json:"provision"` // woken for pending pods
	Lifecycle int `json:"lifecycle"` // woken for nodes
}

// Sweep looks at every cluster. A cluster in trouble does not hold up the others; the error names all of them.
func (h *Handler) Sweep(ctx context.Context, _ Event) (Summary, error) {
	names, err := h.Clusters.Clusters(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("list clusters: %w", err)
	}
	found := make([]Summary, len(names))
	errs := make([]error, len(names))
	apply.Each(len(names), func(i int) {
		found[i], errs[i] = h.one(ctx, names[i])
		if errs[i] != nil {
			h.Log.ErrorContext(ctx, "cluster not swept", "cluster", names[i], "error", errs[i])
		}
	})
	total := Summary{Clusters: len(names)}
	for _, one := range found {
		total.Provision += one.Provision
		total.Lifecycle += one.Lifecycle
	}
	h.Log.InfoContext(ctx, "sweep done", "clusters", total.Clusters, "provision", total.Provision, "lifecycle", total.Lifecycle)
	return total, errors.Join(errs...)
}

func (h *Handler) one(ctx context.Context, name string) (Summary, error) {
	cluster, err := h.Clusters.Open(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return Summary{}, nil
	}
	if err != nil {
		return Summary{}, fmt.Errorf("open cluster %q: %w", name, err)
	}
	var out Summary
	pods, podsErr := cluster.HasPendingPods(ctx)
	claims, claimsErr := cluster.HasNodeClaims(ctx)
	errs := []error{podsErr, claimsErr}
	buffers := false
	if h.Buffers {
		var err error
		buffers, err = cluster.HasCapacityBuffers(ctx)
		buffers = buffers || err != nil
		errs = append(errs, err)
	}
	// What could not be found out counts as work: an unneeded look is cheaper than a missed one.
	full := h.Now().Minute()%fullEvery == 0
	if pods || buffers || full || podsErr != nil {
		errs = append(errs, h.Provision.Wake(ctx, notice.Wake{Cluster: name, Why: "sweep"}))
		out.Provision++
	}
	if claims || full || claimsErr != nil {
		errs = append(errs, h.Lifecycle.Wake(ctx, notice.Wake{Cluster: name, Why: "sweep"}))
		errs = append(errs, h.Disruption.Wake(ctx, notice.Wake{Cluster: name, Why: "sweep"}))
		out.Lifecycle++
	}
	return out, errors.Join(errs...)
}
