package simtest

import (
	"context"
	"maps"

	"treadle/shared/cluster"
)

// PatchNodePool writes the annotations of a pool.
func (w *World) PatchNodePool(_ context.Context, old, new cluster.NodePool) error {
	if maps.Equal(old.Annotations, new.Annotations) {
		return nil
	}
	return w.write("patch nodepool "+old.Name, func() error {
		for i := range w.Pools {
			if w.Pools[i].Name == old.Name {
				w.Pools[i].Annotations = maps.Clone(new.Annotations)
			}
		}
		return nil
	})
}
