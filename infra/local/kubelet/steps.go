package kubelet

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 7 * time.Second
	podRetry     = time.Second

	// A control plane on two cores takes some 500 lease writes a second. The longest pause leaves
	// a lease of 40 s and the node controller's grace of 50 s a margin.
	maxLeasesPerSecond = 300
	longestLeasePause  = 25 * time.Second
)

// stepNode brings one node a step further in its life: boot, register, report.
func (f *Fleet) stepNode(ctx context.Context, id string) time.Time {
	f.mu.Lock()
	n, ok := f.nodes[id]
	if !ok {
		f.mu.Unlock()
		return time.Time{}
	}
	state, bootAt := n.state, n.bootAt
	f.mu.Unlock()

	switch state {
	case Booting:
		if time.Now().Before(bootAt) {
			return bootAt
		}
		if err := f.start(n); err != nil {
			f.log.WarnContext(ctx, "node never registers", "instance", id, "type", n.Type, "error", err)
			return time.Time{}
		}
		return f.register(ctx, n)
	case Registering:
		return f.register(ctx, n)
	case NotReady, Ready:
		return f.report(ctx, n)
	case Refused, Removed:
	}
	return time.Time{}
}

// start reads the user data. An error is final.
func (f *Fleet) start(n *node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.configure(n)
	if err != nil {
		n.state, n.reason = Refused, err.Error()
		return err
	}
	n.state = Registering
	return nil
}

func (f *Fleet) configure(n *node) error {
	if n.Fault.NeverRegister {
		return errNeverRegisters
	}
	t, ok := f.opts.Lookup(n.Type)
	if !ok {
		return errUnknownType
	}
	n.hardware = t
	return n.configure(f.opts.Cluster)
}

// register creates the Node and what belongs to it, and retries for ever as kubelet does.
func (f *Fleet) register(ctx context.Context, n *node) time.Time {
	f.mu.Lock()
	object := n.object(time.Now())
	f.mu.Unlock()

	created, err := f.api.createNode(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		// A kubelet takes over the Node it finds under its name, even a dead instance's.
		created, err = f.api.getNode(ctx, object.Name)
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes[n.InstanceID] != n {
		return time.Time{} // halted meanwhile
	}
	if err != nil {
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			f.log.WarnContext(ctx, "node refused by the API server", "instance", n.InstanceID, "node", n.name, "error", err)
		}
		n.reason = err.Error()
		pause := min(firstRetry<<min(n.attempts, 10), longestRetry)
		n.attempts++
		return now.Add(pause)
	}
	n.uid, n.state, n.reason = created.UID, NotReady, ""
	n.readyAt = now.Add(f.opts.ReadyDelay)
	n.devicesAt = n.readyAt.Add(f.opts.DeviceDelay)
	f.byName[n.name] = n
	f.leaseWork.at(n.InstanceID, now)
	f.wakePods(n)
	f.log.DebugContext(ctx, "node registered", "instance", n.InstanceID, "node", n.name)
	return now
}

// report writes the node's status if there is news, or if the last report is old.
func (f *Fleet) report(ctx context.Context, n *node) time.Time {
	now := time.Now()
	f.mu.Lock()
	if n.Fault.Silent {
		f.mu.Unlock()
		return time.Time{}
	}
	first := n.reportAt.IsZero()
	ready := !now.Before(n.readyAt) && !n.Fault.NotReady
	due := n.observe(now, ready) || !now.Before(n.reportAt)
	plug := !n.devices && ready && len(n.hardware.Devices) > 0 && !n.Fault.NoDevices && !now.Before(n.devicesAt)
	if plug {
		n.plugDevices()
		due = true
	}
	report := nodeReport{Conditions: n.conditions}
	if plug || first {
		report.Capacity, report.Allocatable = n.offer.capacity, n.offer.allocatable
	}
	csi := n.csiNode()
	f.mu.Unlock()

	if first {
		if err := f.api.createCSINode(ctx, csi); err != nil && !apierrors.IsAlreadyExists(err) {
			f.log.WarnContext(ctx, "create CSINode", "node", n.name, "error", err)
		}
	}
	var err error
	if due {
		err = f.api.patchNodeStatus(ctx, n.name, report)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes[n.InstanceID] != n {
		return time.Time{}
	}
	switch {
	case apierrors.IsNotFound(err):
		n.state = Removed
		return time.Time{}
	case err != nil:
		n.reason, n.reportAt = err.Error(), time.Time{}
		return now.Add(podRetry)
	}
	was := n.state
	n.state, n.reason = NotReady, ""
	if ready {
		n.state = Ready
	}
	if was != n.state {
		f.wakePods(n)
	}
	if due {
		n.reportAt = now.Add(f.opts.ReportEvery)
	}
	next := n.reportAt
	for _, at := range []time.Time{n.readyAt, n.devicesAt} {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}
	return next
}

// stepLease renews the lease of one node.
func (f *Fleet) stepLease(ctx context.Context, id string) time.Time {
	now := time.Now()
	f.mu.Lock()
	n, ok := f.nodes[id]
	if !ok || !n.registered() || n.Fault.Silent {
		f.mu.Unlock()
		return time.Time{}
	}
	pause := f.leasePause()
	late := n.lease != nil && now.Sub(n.lease.Spec.RenewTime.Time) > 2*pause
	lease := n.renewed(now)
	f.mu.Unlock()

	written, err := f.api.putLease(ctx, lease)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		if written, err = f.api.getLease(ctx, n.name); err == nil {
			err = errLeaseMoved
		}
	}
	gone := false
	if apierrors.IsNotFound(err) {
		// The lease goes with its Node, or the namespace is not there yet.
		_, nodeErr := f.api.getNode(ctx, n.name)
		gone = apierrors.IsNotFound(nodeErr)
		written = nil
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case gone:
		n.state = Removed
		return time.Time{}
	case err == nil:
		n.lease = written
	case errors.Is(err, errLeaseMoved):
		n.lease = written
		return now
	case apierrors.IsNotFound(err):
		n.lease = nil
		return now.Add(podRetry)
	default:
		return now.Add(podRetry)
	}
	if late {
		// The node may have been taken for dead meanwhile; say that it is not.
		n.reportAt = time.Time{}
		f.nodeWork.at(id, now)
	}
	return now.Add(pause)
}

// leasePause is the time between two renewals: what the options say, or what a big fleet can keep up
// with. The caller holds the mutex.
func (f *Fleet) leasePause() time.Duration {
	kept := time.Duration(len(f.nodes)) * time.Second / maxLeasesPerSecond
	return max(f.opts.LeaseEvery, min(kept, longestLeasePause))
}

// stepPod brings one pod a step further in its life.
func (f *Fleet) stepPod(ctx context.Context, uid types.UID) time.Time {
	now := time.Now()
	f.mu.Lock()
	p, ok := f.pods[uid]
	if !ok {
		f.mu.Unlock()
		return time.Time{}
	}
	n := f.byName[p.node]
	if n == nil || !n.runsPods() {
		f.mu.Unlock()
		return time.Time{} // the node wakes its pods
	}
	if p.ip == "" {
		p.ip = n.PrivateIP
		if !p.hostNetwork {
			p.ip = f.nextIP()
		}
	}
	a := p.next(n, f.podsOn[p.node], f.opts.PodStartDelay, now)
	f.mu.Unlock()

	var err error
	switch {
	case a.status != nil:
		if a.status.Phase == corev1.PodFailed && a.status.Reason != "" {
			f.log.WarnContext(ctx, "pod rejected", "node", n.name, "namespace", p.namespace, "pod", p.name,
				"reason", a.status.Reason, "message", a.status.Message)
		}
		err = f.api.patchPodStatus(ctx, n.name, p.podRef, a.status)
	case a.remove:
		err = f.api.deletePod(ctx, n.name, p.podRef)
	default:
		return a.again
	}
	if err != nil {
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			f.log.WarnContext(ctx, "write pod", "node", n.name, "namespace", p.namespace, "pod", p.name, "error", err)
		}
		return now.Add(podRetry) // until the watch tells that the pod is gone
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.stage < finished || a.then > p.stage { // the watch may have told the end first
		p.stage = a.then
	}
	return now
}
