package simtest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// CreateNodeClaim answers as apply.Claims asks for.
func (w *World) CreateNodeClaim(_ context.Context, c cluster.NodeClaim) (made cluster.NodeClaim, err error) {
	err = w.write("create nodeclaim "+c.Name, func() error {
		if w.Claims[c.Name] != nil {
			return fmt.Errorf("nodeclaim %s: %w", c.Name, plan.ErrExists)
		}
		kept := copyClaim(&c)
		kept.UID, kept.ResourceVersion, kept.CreatedUnix = w.uid(), w.version(), w.now
		w.Claims[c.Name] = &kept
		made = copyClaim(&kept)
		return nil
	})
	return made, err
}

// PatchNodeClaim answers as apply.Objects asks for, and so do the other methods of this file.
func (w *World) PatchNodeClaim(_ context.Context, old, new cluster.NodeClaim) (cluster.NodeClaim, error) {
	lists := !slices.Equal(old.Finalizers, new.Finalizers)
	if !lists && reflect.DeepEqual(old.Labels, new.Labels) && reflect.DeepEqual(old.Annotations, new.Annotations) {
		return new, nil
	}
	return w.patchClaim("patch nodeclaim "+old.Name, old, lists, func(c *cluster.NodeClaim) {
		c.Labels, c.Annotations = mergedMap(c.Labels, old.Labels, new.Labels), mergedMap(c.Annotations, old.Annotations, new.Annotations)
		if lists {
			c.Finalizers = slices.Clone(new.Finalizers)
		}
		if c.DeletionUnix != 0 && len(c.Finalizers) == 0 {
			delete(w.Claims, c.Name)
		}
	})
}

// PatchNodeClaimStatus writes the status fields that differ.
func (w *World) PatchNodeClaimStatus(_ context.Context, old, new cluster.NodeClaim) (cluster.NodeClaim, error) {
	status := func(c cluster.NodeClaim) cluster.NodeClaim {
		return cluster.NodeClaim{
			NodeName: c.NodeName, ProviderID: c.ProviderID, ImageID: c.ImageID, Capacity: c.Capacity, Allocatable: c.Allocatable,
			Conditions: c.Conditions, LastPodEventUnix: c.LastPodEventUnix,
		}
	}
	if reflect.DeepEqual(status(old), status(new)) {
		return new, nil
	}
	return w.patchClaim("patch status of nodeclaim "+old.Name, old, !slices.Equal(old.Conditions, new.Conditions), func(c *cluster.NodeClaim) {
		c.NodeName, c.ProviderID, c.ImageID, c.LastPodEventUnix = new.NodeName, new.ProviderID, new.ImageID, new.LastPodEventUnix
		c.Capacity, c.Allocatable, c.Conditions = new.Capacity, new.Allocatable, slices.Clone(new.Conditions)
	})
}

func (w *World) patchClaim(what string, old cluster.NodeClaim, lists bool, change func(*cluster.NodeClaim)) (now cluster.NodeClaim, err error) {
	err = w.write(what, func() error {
		c := w.Claims[old.Name]
		switch {
		case c == nil:
			return fmt.Errorf("nodeclaim %s: %w", old.Name, plan.ErrNotFound)
		case c.UID != old.UID, lists && old.ResourceVersion != "" && c.ResourceVersion != old.ResourceVersion:
			return fmt.Errorf("nodeclaim %s: %w", old.Name, plan.ErrConflict)
		}
		change(c)
		c.ResourceVersion = w.version()
		now = copyClaim(c)
		return nil
	})
	return now, err
}

// DeleteNodeClaim starts the deletion, which ends when no finalizer is left.
func (w *World) DeleteNodeClaim(_ context.Context, name, uid string) error {
	return w.write("delete nodeclaim "+name, func() error {
		c := w.Claims[name]
		switch {
		case c == nil:
			return fmt.Errorf("nodeclaim %s: %w", name, plan.ErrNotFound)
		case c.UID != uid:
			return fmt.Errorf("nodeclaim %s: %w", name, plan.ErrConflict)
		case len(c.Finalizers) == 0:
			delete(w.Claims, name)
		case c.DeletionUnix == 0:
			c.DeletionUnix, c.ResourceVersion = w.now, w.version()
		}
		return nil
	})
}

// PatchNode makes the change of each list on the list as it is.
func (w *World) PatchNode(_ context.Context, old, new cluster.Node) error {
	same := old
	same.ResourceVersion = new.ResourceVersion
	if reflect.DeepEqual(same, new) {
		return nil
	}
	return w.write("patch node "+string(old.Name), func() error {
		n := w.Nodes[old.Name]
		switch {
		case n == nil:
			return fmt.Errorf("node %s: %w", old.Name, plan.ErrNotFound)
		case n.UID != old.UID:
			return fmt.Errorf("node %s: %w", old.Name, plan.ErrConflict)
		case new.OwnedBy != old.OwnedBy && new.OwnedByName == "":
			return fmt.Errorf("node %s: %w: owner without a name", old.Name, plan.ErrInvalid)
		}
		n.Labels, n.Annotations = mergedMap(n.Labels, old.Labels, new.Labels), mergedMap(n.Annotations, old.Annotations, new.Annotations)
		n.Taints, n.Finalizers = mergedList(n.Taints, old.Taints, new.Taints), mergedList(n.Finalizers, old.Finalizers, new.Finalizers)
		n.OwnedBy, n.OwnedByName, n.Unschedulable = new.OwnedBy, new.OwnedByName, new.Unschedulable
		if n.DeletionUnix != 0 && len(n.Finalizers) == 0 {
			delete(w.Nodes, n.Name)
		}
		return nil
	})
}

// DeleteNode starts the deletion, which ends when no finalizer is left.
func (w *World) DeleteNode(_ context.Context, name cluster.NodeName, uid string) error {
	return w.write("delete node "+string(name), func() error {
		n := w.Nodes[name]
		switch {
		case n == nil:
			return fmt.Errorf("node %s: %w", name, plan.ErrNotFound)
		case n.UID != uid:
			return fmt.Errorf("node %s: %w", name, plan.ErrConflict)
		case len(n.Finalizers) == 0:
			delete(w.Nodes, name)
		case n.DeletionUnix == 0:
			n.DeletionUnix = w.now
		}
		return nil
	})
}

// Evict lets a pod end after its grace period, unless a budget holds it.
func (w *World) Evict(_ context.Context, pod cluster.PodRef) error {
	return w.write("evict pod "+pod.Name, func() error {
		if w.Budgeted[pod.UID] {
			return fmt.Errorf("pod %s: %w", pod.Name, plan.ErrBudget)
		}
		return w.end(pod, nil)
	})
}

// DeletePod lets a pod end after the given grace, or its own.
func (w *World) DeletePod(_ context.Context, pod cluster.PodRef, graceSeconds *int64) error {
	return w.write("delete pod "+pod.Name, func() error { return w.end(pod, graceSeconds) })
}

func (w *World) end(ref cluster.PodRef, grace *int64) error {
	p := w.Pods[ref.UID]
	if p == nil {
		return fmt.Errorf("pod %s: %w", ref.Name, plan.ErrNotFound)
	}
	until := w.now + p.Spec.GraceSeconds
	if grace != nil {
		until = w.now + *grace
	}
	if p.DeletionUnix == 0 || until < p.DeletionUnix { // a deletion may be hurried, never put off
		p.DeletionUnix = until
	}
	return nil
}

// Event keeps the Event. It is no write that anything depends on, but a dead function sends none.
func (w *World) Event(_ context.Context, e plan.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 {
		return ErrCrashed
	}
	w.Events = append(w.Events, e)
	return nil
}

// PatchNodePoolStatus replaces the pool's status.
func (w *World) PatchNodePoolStatus(_ context.Context, old, new cluster.NodePool) error {
	if reflect.DeepEqual(old, new) {
		return nil
	}
	return w.write("patch status of nodepool "+old.Name, func() error {
		for i := range w.Pools {
			if w.Pools[i].Name == old.Name {
				w.Pools[i].StatusResources, w.Pools[i].StatusNodes, w.Pools[i].Conditions = new.StatusResources, new.StatusNodes, new.Conditions
			}
		}
		return nil
	})
}

// PatchNodeClass replaces the class's finalizers.
func (w *World) PatchNodeClass(_ context.Context, old, new cluster.NodeClass) error {
	if slices.Equal(old.Finalizers, new.Finalizers) && maps.Equal(old.Annotations, new.Annotations) {
		return nil
	}
	return w.write("patch nodeclass "+old.Name, func() error {
		w.Classes = slices.DeleteFunc(w.Classes, func(c cluster.NodeClass) bool {
			return c.Name == old.Name && c.DeletionUnix != 0 && len(new.Finalizers) == 0
		})
		for i := range w.Classes {
			if w.Classes[i].Name == old.Name {
				w.Classes[i].Finalizers = slices.Clone(new.Finalizers)
				w.Classes[i].Annotations = maps.Clone(new.Annotations)
			}
		}
		return nil
	})
}

// PatchNodeClassStatus replaces the class's status.
func (w *World) PatchNodeClassStatus(_ context.Context, old, new cluster.NodeClass) error {
	if reflect.DeepEqual(old.Status, new.Status) {
		return nil
	}
	return w.write("patch status of nodeclass "+old.Name, func() error {
		for i := range w.Classes {
			if w.Classes[i].Name == old.Name {
				w.Classes[i].Status = new.Status
			}
		}
		return nil
	})
}

// PatchNodeOverlayStatus replaces the overlay's conditions.
func (w *World) PatchNodeOverlayStatus(_ context.Context, old, new cluster.NodeOverlay) error {
	if reflect.DeepEqual(old.Conditions, new.Conditions) {
		return nil
	}
	return w.write("patch status of nodeoverlay "+old.Name, func() error {
		for i := range w.Overlays {
			if w.Overlays[i].Name == old.Name {
				w.Overlays[i].Conditions = new.Conditions
			}
		}
		return nil
	})
}

// PatchCapacityBufferStatus replaces the buffer's status.
func (w *World) PatchCapacityBufferStatus(_ context.Context, old, new cluster.CapacityBuffer) error {
	if reflect.DeepEqual(old.Status, new.Status) {
		return nil
	}
	return w.write("patch status of capacitybuffer "+old.Name, func() error {
		for i := range w.Buffers {
			if w.Buffers[i].UID == old.UID {
				w.Buffers[i].Status = new.Status
			}
		}
		return nil
	})
}

// Decide gives the lease, unless it is held.
func (w *World) Decide(context.Context) (release func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Held {
		return nil, fmt.Errorf("lease: %w", plan.ErrHeld)
	}
	w.Held = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.Held = false
	}, nil
}

// Sync is there for the mirror that the world also is: its copies are always fresh.
func (w *World) Sync(ctx context.Context) error { return ctx.Err() }

// mergedMap returns now with the difference of two states made to it.
func mergedMap(now, old, new map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range now {
		if _, gone := old[k]; gone && new[k] == "" {
			if _, kept := new[k]; !kept {
				continue
			}
		}
		out[k] = v
	}
	for k, v := range new {
		if before, was := old[k]; !was || before != v {
			out[k] = v
		}
	}
	return out
}

// mergedList returns now with the difference of two states made to it.
func mergedList[T comparable](now, old, new []T) []T {
	out := slices.DeleteFunc(slices.Clone(now), func(x T) bool { return slices.Contains(old, x) && !slices.Contains(new, x) })
	for _, x := range new {
		if !slices.Contains(old, x) && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}
