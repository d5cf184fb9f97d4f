package main

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
	// catalogueTTL is how long the catalogue is used before S3 is asked whether there is a newer one.
	catalogueTTL = 5 * time.Minute
	// views bounds how many classes' views are remembered: one of a region takes some megabytes.
	views = 8
)

// objects reads objects of the store.
type objects interface {
	Get(ctx context.Context, key, etag string) ([]byte, string, error)
}

// lessons is what nodes taught about instance types.
type lessons interface {
	// Lessons changes with the news.
	Lessons() int
	Memory(instanceType, image string) (bytes int64, known bool)
}

// storedCatalogue is the catalogue that the function catalog keeps in S3, or the copy in the binary while there is none. It is safe
// for concurrent use.
type storedCatalogue struct {
	objects objects
	key     string
	known   lessons
	log     *slog.Logger
	now     func() time.Time

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
func (s *storedCatalogue) InstanceTypes(ctx context.Context, class cluster.NodeClass, refused func(string, string, cluster.CapacityType) bool) ([]cluster.InstanceType, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.readAt) > catalogueTTL {
		if err := s.read(ctx); err != nil && s.held.Types == nil {
			return nil, err
		}
		s.readAt = now
	}
	types, err := s.view(class)
	if err != nil {
		return nil, err
	}
	return without(types, refused), nil
}

// read brings what is held up to date.
func (s *storedCatalogue) read(ctx context.Context) error {
	body, etag, err := s.objects.Get(ctx, s.key, s.etag)
	if errors.Is(err, store.ErrNotModified) {
		return nil
	}
	var held catalog.Catalog
	if err == nil {
		held, err = catalog.Decode(body)
	}
	if err == nil {
		s.held, s.etag = held, etag
		return nil
	}
	err = fmt.Errorf("read catalogue: %w", err)
	if s.held.Types != nil {
		s.log.WarnContext(ctx, "catalogue not read, keeping the one that is known", "error", err)
		return err
	}
	s.log.WarnContext(ctx, "catalogue not read, using the copy that comes with this function", "error", err)
	if s.held, err = builtin.Catalog(); err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	return nil
}

// view returns the types as class sees them, and remembers them: nothing changes from one look to the next but what is refused.
func (s *storedCatalogue) view(class cluster.NodeClass) ([]cluster.InstanceType, error) {
	subnets := slices.Clone(class.Status.Subnets)
	for i := range subnets {
		subnets[i].FreeIPs = 0 // changes all the time, and says nothing about types
	}
	text, err := json.Marshal([]any{
		s.etag, s.held.MadeUnix, s.known.Lessons(), class.Spec, subnets, class.Status.AMIs, class.Status.Reservations,
	})
	if err != nil {
		return nil, fmt.Errorf("view of nodeclass %s: %w", class.Name, err)
	}
	key := sha256.Sum256(text)
	for _, v := range s.seen {
		if v.key == key {
			return v.types, nil
		}
	}
	types := catalog.InstanceTypes(s.held, class, catalog.Options{LearnedMemory: s.known.Memory})
	if len(s.seen) == views {
		s.seen = s.seen[1:]
	}
	s.seen = append(s.seen, view{key, types})
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
