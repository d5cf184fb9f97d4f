package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"treadle/shared/catalog"
	"treadle/shared/cluster"
	"treadle/shared/store"
)

// catalogueTTL is how long the catalogue is used before S3 is asked whether there is a newer one.
const catalogueTTL = 5 * time.Minute

// objects reads objects of the store.
type objects interface {
	Get(ctx context.Context, key, etag string) ([]byte, string, error)
}

// storedCatalogue is the catalogue that the function catalog keeps in S3. It is safe for concurrent use.
type storedCatalogue struct {
	objects objects
	key     string
	now     func() time.Time

	mu     sync.Mutex
	etag   string
	readAt time.Time
	held   catalog.Catalog
}

// InstanceTypes returns the types of the catalogue as class sees them. It keeps what it has where S3 cannot be reached.
func (s *storedCatalogue) InstanceTypes(ctx context.Context, class cluster.NodeClass, refused func(string, string, cluster.CapacityType) bool) ([]cluster.InstanceType, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); s.etag == "" || now.Sub(s.readAt) > catalogueTTL {
		if err := s.read(ctx); err != nil && s.etag == "" {
			return nil, err
		}
		s.readAt = now
	}
	return catalog.InstanceTypes(s.held, class, catalog.Options{Refused: refused}), nil
}

func (s *storedCatalogue) read(ctx context.Context) error {
	body, etag, err := s.objects.Get(ctx, s.key, s.etag)
	if errors.Is(err, store.ErrNotModified) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	held, err := catalog.Decode(body)
	if err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	s.held, s.etag = held, etag
	return nil
}
