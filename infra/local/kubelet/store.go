package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// podStore takes what the watch of all bound pods delivers. It keeps records, not pods. It holds the
// context of Run for logging, because a reflector passes none.
type podStore struct {
	ctx   context.Context
	fleet *Fleet
}

func (s podStore) Add(obj any) error    { return s.Update(obj) }
func (s podStore) Resync() error        { return nil }
func (s podStore) Update(obj any) error { s.fleet.observePod(s.ctx, obj.(*corev1.Pod)); return nil }
func (s podStore) Delete(obj any) error { s.fleet.forgetPod(obj.(*corev1.Pod).UID); return nil }

// Transformer lets a reflector drop the bulk of a pod before it collects a long list of them.
func (s podStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if p, ok := obj.(*corev1.Pod); ok {
			p.ManagedFields = nil
			p.Spec.Volumes = nil
			for i := range p.Spec.Containers {
				c := &p.Spec.Containers[i]
				c.Env, c.VolumeMounts, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil, nil, nil
			}
		}
		return obj, nil
	}
}

func (s podStore) Replace(list []any, _ string) error {
	listed := make(map[types.UID]bool, len(list))
	for _, obj := range list {
		p := obj.(*corev1.Pod)
		listed[p.UID] = true
		s.fleet.observePod(s.ctx, p)
	}
	s.fleet.keepPods(listed)
	return nil
}

func (f *Fleet) observePod(ctx context.Context, from *corev1.Pod) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	p, known := f.pods[from.UID]
	if !known {
		var err error
		if p, err = newPod(from); err != nil {
			f.log.WarnContext(ctx, "pod annotation ignored", "namespace", from.Namespace, "pod", from.Name, "error", err)
		}
		f.pods[p.uid] = p
		if f.podsOn[p.node] == nil {
			f.podsOn[p.node] = map[types.UID]*pod{}
		}
		f.podsOn[p.node][p.uid] = p
	}
	wake := !known
	if phase := from.Status.Phase; p.stage != removed && (phase == corev1.PodFailed || phase == corev1.PodSucceeded) {
		// Perhaps not by us: taint eviction and pod garbage collection fail pods too.
		p.stage = finished
		if n := f.byName[p.node]; n != nil {
			p.release(n)
		}
	}
	if from.DeletionTimestamp != nil {
		var grace time.Duration
		if s := from.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		stop, leaving := p.stopAt, p.leaving
		p.leave(grace, now)
		wake = wake || !leaving || !p.stopAt.Equal(stop)
	}
	if wake {
		f.podWork.at(p.uid, now)
	}
}

func (f *Fleet) forgetPod(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(uid)
}

func (f *Fleet) forget(uid types.UID) {
	p, ok := f.pods[uid]
	if !ok {
		return
	}
	if n := f.byName[p.node]; n != nil {
		p.release(n)
	}
	delete(f.pods, uid)
	delete(f.podsOn[p.node], uid)
	if len(f.podsOn[p.node]) == 0 {
		delete(f.podsOn, p.node)
	}
}

func (f *Fleet) keepPods(listed map[types.UID]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range f.pods {
		if !listed[uid] {
			f.forget(uid)
		}
	}
}
