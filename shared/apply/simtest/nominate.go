package simtest

import (
	"context"
	"fmt"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Nominate notes in the pod on which node it is expected.
func (w *World) Nominate(_ context.Context, pod cluster.PodRef, node cluster.NodeName) error {
	return w.write("nominate node for pod "+pod.Name, func() error {
		p := w.Pods[pod.UID]
		if p == nil {
			return fmt.Errorf("pod %s: %w", pod.Name, plan.ErrNotFound)
		}
		p.NominatedNode = node
		return nil
	})
}
