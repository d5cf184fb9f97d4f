package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"treadle/shared/cluster"
)

// Kind is a set of kinds of objects that a Mirror copies.
type Kind uint16

// The kinds, to be joined with |. Daemons are DaemonSets, Budgets are PodDisruptionBudgets, Volumes and VolumeClaims are
// persistent ones.
const (
	Pods Kind = 1 << iota
	Nodes
	NodeClaims
	NodePools
	NodeClasses
	Daemons
	CSINodes
	Namespaces
	Budgets
	VolumeClaims
	Volumes
	StorageClasses

	AllKinds = StorageClasses<<1 - 1

	// Buffers are CapacityBuffers and the pod templates that they name, which are read one by one. They are no part of AllKinds:
	// few clusters know the kind.
	Buffers Kind = StorageClasses << 1
	// Overlays are NodeOverlays, which are no part of AllKinds either.
	Overlays = Buffers << 1
)

// With returns k with more kinds where they are wanted.
func (k Kind) With(more Kind, wanted bool) Kind {
	if wanted {
		return k | more
	}
	return k
}

// Mirror is a copy of a cluster as planning sees it. It belongs to one goroutine at a time.
//
// Sync makes it current, Await keeps it so while the caller waits for something to happen, Pause ends its connections, and
// Snapshot prints it. A Mirror that lives on between invocations resumes where it stopped.
type Mirror struct {
	client *Client
	wake   chan struct{}

	pods        *collection[cluster.Pod]
	nodes       *collection[cluster.Node]
	claims      *collection[cluster.NodeClaim]
	pools       *collection[cluster.NodePool]
	classes     *collection[cluster.NodeClass]
	daemons     *collection[cluster.Daemon]
	csiNodes    *collection[csiNode]
	namespaces  *collection[namespace]
	budgets     *collection[cluster.PodDisruptionBudget]
	volClaims   *collection[cluster.VolumeClaim]
	volumes     *collection[cluster.Volume]
	storage     *collection[cluster.StorageClass]
	buffers     *collection[cluster.CapacityBuffer]
	overlays    *collection[cluster.NodeOverlay]
	collections []copied
	templates   []cluster.PodTemplate // that the buffers name
}

// NewMirror returns an empty copy of the given kinds. Kinds that are left out stay empty in snapshots.
func NewMirror(c *Client, kinds Kind) *Mirror {
	m := &Mirror{client: c, wake: make(chan struct{}, 1)}
	m.pods = copyOf(m, kinds&Pods != 0, podSource())
	m.nodes = copyOf(m, kinds&Nodes != 0, nodeSource())
	m.claims = copyOf(m, kinds&NodeClaims != 0, nodeClaimSource())
	m.pools = copyOf(m, kinds&NodePools != 0, nodePoolSource())
	m.classes = copyOf(m, kinds&NodeClasses != 0, nodeClassSource(c.authority))
	m.daemons = copyOf(m, kinds&Daemons != 0, daemonSource())
	m.csiNodes = copyOf(m, kinds&CSINodes != 0, csiNodeSource())
	m.namespaces = copyOf(m, kinds&Namespaces != 0, namespaceSource())
	m.budgets = copyOf(m, kinds&Budgets != 0, budgetSource())
	m.volClaims = copyOf(m, kinds&VolumeClaims != 0, volumeClaimSource())
	m.volumes = copyOf(m, kinds&Volumes != 0, volumeSource())
	m.storage = copyOf(m, kinds&StorageClasses != 0, storageClassSource())
	m.overlays = copyOf(m, kinds&Overlays != 0, overlaySource())
	m.buffers = copyOf(m, kinds&Buffers != 0, bufferSource())
	return m
}

func copyOf[T any](m *Mirror, wanted bool, r source[T]) *collection[T] {
	c := newCollection(m.client, m.wake, r)
	if wanted {
		m.collections = append(m.collections, c)
	}
	return c
}

// Sync makes the copy as new as the moment of the call: by LISTs the first time and for small kinds, by resuming a watch for
// large ones. A kind that the API does not have is empty. After an error the copy is what it was, kind by kind, and Sync
// may be called again.
func (m *Mirror) Sync(ctx context.Context) error {
	errs := make([]error, len(m.collections))
	var all sync.WaitGroup
	for i, c := range m.collections {
		all.Go(func() { errs[i] = c.sync(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sync cluster %s: %w", m.client.cluster, err)
	}
	m.readTemplates(ctx)
	return nil
}

// readTemplates reads what the buffers name. One that cannot be read is that buffer's trouble alone.
func (m *Mirror) readTemplates(ctx context.Context) {
	wanted := map[cluster.TemplateRef]bool{}
	for _, b := range m.buffers.items {
		wanted[b.Template] = true
	}
	refs := slices.Collect(maps.Keys(wanted))
	found := make([]cluster.PodTemplate, len(refs))
	var all sync.WaitGroup
	for i, ref := range refs {
		all.Go(func() { found[i] = m.client.podTemplate(ctx, ref) })
	}
	all.Wait()
	m.templates = found
}

// Await blocks until a noun differs from what the last Snapshot could show, and takes in all that has come by then.
// Heartbeats and other writes that no noun shows do not count. It keeps a watch open for each kind until Pause. It returns
// the context's error when ctx ends first, and needs a Sync before its first call.
func (m *Mirror) Await(ctx context.Context) error {
	for {
		changed := false
		for _, c := range m.collections {
			if err := c.follow(ctx); err != nil {
				return fmt.Errorf("await cluster %s: %w", m.client.cluster, err)
			}
			one, err := c.drain(ctx)
			if err != nil {
				return fmt.Errorf("await cluster %s: %w", m.client.cluster, err)
			}
			changed = changed || one
		}
		if changed {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.wake:
		}
	}
}

// Pause ends all watches and idle connections. The next Sync or Await resumes from what was seen.
func (m *Mirror) Pause() {
	for _, c := range m.collections {
		c.stop()
	}
	m.client.Close()
}

// Snapshot returns the copy as one value: every list sorted by namespace and name, equal for equal clusters. Types is left
// nil. Later changes of the mirror do not reach into it; what it holds is shared with other snapshots and is read-only.
func (m *Mirror) Snapshot(nowUnix int64) cluster.Snapshot {
	s := cluster.Snapshot{
		Cluster:        m.client.cluster,
		NowUnix:        nowUnix,
		Pods:           m.pods.sorted(),
		Nodes:          m.nodes.sorted(),
		NodeClaims:     m.claims.sorted(),
		NodePools:      m.pools.sorted(),
		NodeClasses:    m.classes.sorted(),
		Daemons:        m.daemons.sorted(),
		VolumeClaims:   m.volClaims.sorted(),
		Volumes:        m.volumes.sorted(),
		StorageClasses: m.storage.sorted(),
		Budgets:        m.budgets.sorted(),
		Buffers:        m.buffers.sorted(),
		Overlays:       m.overlays.sorted(),
	}
	s.Templates = slices.Clone(m.templates)
	slices.SortFunc(s.Templates, func(a, b cluster.PodTemplate) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Group, b.Group))
	})
	for i := range s.Nodes {
		s.Nodes[i].VolumeLimits = m.csiNodes.items[string(s.Nodes[i].Name)].limits
	}
	if len(m.namespaces.items) > 0 {
		s.Namespaces = make(map[string]map[string]string, len(m.namespaces.items))
		for name, n := range m.namespaces.items {
			s.Namespaces[name] = n.labels
		}
	}
	injected(s.Daemons, s.Pods)
	return s
}
