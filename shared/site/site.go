package site

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"treadle/shared/kube"
	"treadle/shared/store"
)

const (
	// configurationTTL is how long a cluster's configuration is used before it is read again.
	configurationTTL = time.Minute
	// keep is how many clusters a warm function remembers: a mirror of a big one takes a hundred megabytes.
	keep = 4
)

// Configuration tells how clusters are reached. store.ErrNotFound: the cluster is not served.
type Configuration interface {
	Cluster(ctx context.Context, name string) (store.Cluster, error)
}

// Site is a cluster that can be talked to. It belongs to one invocation at a time.
type Site struct {
	store.Cluster
	Kube   *kube.Client
	Mirror *kube.Mirror

	readAt, usedAt time.Time
}

// Book opens sites and remembers the last few. It is safe for concurrent use.
type Book struct {
	Configuration Configuration
	AWS           aws.Config
	// Function is the user agent; Kinds is what the mirrors hold.
	Function string
	Kinds    kube.Kind
	Now      func() time.Time

	mu    sync.Mutex
	sites map[string]*Site
}

// Open returns the site of the cluster called name. It dials nothing but the store. store.ErrNotFound: Treadle does not serve that
// cluster.
func (b *Book) Open(ctx context.Context, name string) (*Site, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now()
	site := b.sites[name]
	if site != nil && now.Before(site.readAt.Add(configurationTTL)) {
		site.usedAt = now
		return site, nil
	}
	config, err := b.Configuration.Cluster(ctx, name)
	if err != nil {
		delete(b.sites, name)
		return nil, err
	}
	if site == nil || site.Endpoint != config.Endpoint || site.CA != config.CA {
		client, err := kube.New(kube.Config{
			Cluster:   name,
			Endpoint:  config.Endpoint,
			CA:        []byte(config.CA),
			Token:     kube.NewEKSToken(name, b.AWS.Region, b.AWS.Credentials, b.Now, ""),
			UserAgent: "treadle-" + b.Function,
		})
		if err != nil {
			return nil, fmt.Errorf("open cluster %q: %w", name, err)
		}
		site = &Site{Kube: client, Mirror: kube.NewMirror(client, b.Kinds)}
	}
	site.Cluster, site.readAt, site.usedAt = config, now, now
	if b.sites == nil {
		b.sites = map[string]*Site{}
	}
	b.sites[name] = site
	b.shrink()
	return site, nil
}

// shrink forgets the sites that were used longest ago.
func (b *Book) shrink() {
	for len(b.sites) > keep {
		oldest := ""
		for name, s := range b.sites {
			if oldest == "" || s.usedAt.Before(b.sites[oldest].usedAt) {
				oldest = name
			}
		}
		b.sites[oldest].Rest()
		delete(b.sites, oldest)
	}
}

// Rest lets every site rest.
func (b *Book) Rest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sites {
		s.Rest()
	}
}

// Rest closes streams and connections before the function is frozen: a frozen process cannot answer, and the API server would
// wait for it.
func (s *Site) Rest() {
	s.Mirror.Pause()
	s.Kube.Close()
}
