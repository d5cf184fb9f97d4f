package market

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"treadle/shared/catalog"
	"treadle/shared/catalog/builtin"
	"treadle/shared/cluster"
	"treadle/shared/store"
)

const (
	// ttl is how long the catalogue is used before S3 is asked whether there is a newer one.
	ttl = 5 * time.Minute
	// views bounds how many classes' views are remembered: one of a region takes some megabytes.
	views = 8
)

// Objects reads objects of the store; a *store.Bucket does. store.ErrNotModified: the object is still the one that etag names.
type Objects interface {
	Get(ctx context.Context, key, etag string) ([]byte, string, error)
}

// Lessons is what nodes taught about instance types; a *ledger.Ledger knows.
type Lessons interface {
	// Lessons changes with the news.
	Lessons() int
	Memory(instanceType, image string) (bytes int64, known bool)
}

// Market is the catalogue that the function catalog keeps in S3, or the copy in the binary while there is none. It is safe
// for concurrent use.
type Market struct {
	Objects Objects
	Key     string // of the catalogue in the store
	Known   Lessons
	Log     *slog.Logger
	Now     func() time.Time

	mu     sync.Mutex
	etag   string // of what is held; empty for the copy in the binary
	readAt time.Time
	held   catalog.Catalog
	seen   []view // latest last
}

// view is the types of the catalogue as a class sees them, while nothing is refused.
type view struct {
	key   [sha256.Size]byte
	types []cluster.InstanceType
}

// InstanceTypes returns the types of the catalogue as class sees them, which the caller must not write to. It keeps what it has where
// S3 cannot be reached.
func (m *Market) InstanceTypes(ctx context.Context, class cluster.NodeClass, refused func(string, string, cluster.CapacityType) bool) ([]cluster.InstanceType, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.Now(); now.Sub(m.readAt) > ttl {
		if err := m.read(ctx); err != nil && m.held.Types == nil {
			return nil, err
		}
		m.readAt = now
	}
	types, err := m.view(class)
	if err != nil {
		return nil, err
	}
	return without(types, refused), nil
}

// read brings what is held up to date.
func (m *Market) read(ctx context.Context) error {
	body, etag, err := m.Objects.Get(ctx, m.Key, m.etag)
	if errors.Is(err, store.ErrNotModified) {
		return nil
	}
	var held catalog.Catalog
	if err == nil {
		held, err = catalog.Decode(body)
	}
	if err == nil {
		m.held, m.etag = held, etag
		return nil
	}
	err = fmt.Errorf("read catalogue: %w", err)
	if m.held.Types != nil {
		m.Log.WarnContext(ctx, "catalogue not read, keeping the one that is known", "error", err)
		return err
	}
	m.Log.WarnContext(ctx, "catalogue not read, using the copy that comes with this function", "error", err)
	if m.held, err = builtin.Catalog(); err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	return nil
}

// view returns the types as class sees them, and remembers them: nothing changes from one look to the next but what is refused.
func (m *Market) view(class cluster.NodeClass) ([]cluster.InstanceType, error) {
	subnets := slices.Clone(class.Status.Subnets)
	for i := range subnets {
		subnets[i].FreeIPs = 0 // changes all the time, and says nothing about types
	}
	text, err := json.Marshal([]any{
		m.etag, m.held.MadeUnix, m.Known.Lessons(), class.Spec, subnets, class.Status.AMIs, class.Status.Reservations,
	})
	if err != nil {
		return nil, fmt.Errorf("view of nodeclass %s: %w", class.Name, err)
	}
	key := sha256.Sum256(text)
	for _, v := range m.seen {
		if v.key == key {
			return v.types, nil
		}
	}
	types := catalog.InstanceTypes(m.held, class, catalog.Options{LearnedMemory: m.Known.Memory})
	if len(m.seen) == views {
		m.seen = m.seen[1:]
	}
	m.seen = append(m.seen, view{key, types})
	return types, nil
}

// without returns types with the offerings unavailable that were refused. What is given stays as it is.
func without(types []cluster.InstanceType, refused func(string, string, cluster.CapacityType) bool) []cluster.InstanceType {
	out := slices.Clone(types)
	for i := range out {
		t := &out[i]
		mine := false
		for n, o := range t.Offerings {
			if !o.Available || !refused(t.Name, o.Zone, o.CapacityType) && (o.ReservationID == "" || !refused(t.Name, o.ReservationID, o.CapacityType)) {
				continue
			}
			if !mine {
				t.Offerings, mine = slices.Clone(t.Offerings), true
			}
			t.Offerings[n].Available = false
		}
	}
	return out
}

// Types knows the instance types as a class sees them, less what was refused; a *Market does.
type Types interface {
	InstanceTypes(ctx context.Context, class cluster.NodeClass, refused func(instanceType, place string, capacityType cluster.CapacityType) bool) ([]cluster.InstanceType, error)
}

// Fill puts the instance types of each class that is ready into snap.
func Fill(ctx context.Context, types Types, snap *cluster.Snapshot, refused func(instanceType, place string, capacityType cluster.CapacityType) bool) error {
	snap.Types = make(map[string][]cluster.InstanceType, len(snap.NodeClasses))
	for _, class := range snap.NodeClasses {
		if !class.Status.Conditions.True(cluster.ConditionReady) {
			continue
		}
		found, err := types.InstanceTypes(ctx, class, refused)
		if err != nil {
			return fmt.Errorf("instance types for nodeclass %s: %w", class.Name, err)
		}
		snap.Types[class.Name] = found
	}
	return nil
}
