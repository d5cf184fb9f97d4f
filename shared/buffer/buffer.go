package buffer

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// most is for how many pods of one buffer room is kept; a typing error then costs no more than that.
const most = 10_000

// Fill adds the pods that the buffers of snap stand for to its pods. They are pending, and marked by their UIDs (cluster.Virtual). What they
// are like is what the buffer's template says, less volumes (S-281).
func Fill(snap *cluster.Snapshot) {
	for i := range snap.Buffers {
		b := &snap.Buffers[i]
		t, _, _ := resolve(snap, b)
		if t == nil {
			continue
		}
		spec := *t.Spec
		spec.Claims, spec.Gated = nil, false
		for n := range min(replicas(b, t), most) {
			name := strconv.FormatInt(n, 10)
			snap.Pods = append(snap.Pods, cluster.Pod{
				PodRef: cluster.PodRef{Namespace: b.Namespace, Name: b.Name + "-" + name, UID: cluster.VirtualUID(b.UID, name)},
				Labels: t.Labels, Spec: &spec, Phase: cluster.PodPending, Unschedulable: true, CreatedUnix: b.CreatedUnix,
			})
		}
	}
}

// Grows reports whether a plan makes nodes for pods that do not exist.
func Grows(p plan.Plan) bool {
	return slices.ContainsFunc(p.Claims, func(c plan.Claim) bool {
		return slices.ContainsFunc(c.Pods, func(pod cluster.PodRef) bool { return cluster.Virtual(pod.UID) })
	})
}

// Statuses returns the buffers of snap, in their order, with the status that they should have by a plan of it (S-283).
func Statuses(snap *cluster.Snapshot, p plan.Plan) []cluster.CapacityBuffer {
	counts := count(p)
	out := slices.Clone(snap.Buffers)
	for i := range out {
		b := &out[i]
		if !active(b) || b.DeletionUnix != 0 {
			continue
		}
		t, reason, message := resolve(snap, b)
		b.Status.Strategy = b.Strategy
		b.Status.PodTemplate, b.Status.PodTemplateGeneration = "", nil
		ready := condition(b, snap.NowUnix, cluster.ConditionReadyForProvisioning, t != nil, reason, message)
		if t != nil {
			n := replicas(b, t)
			b.Status.Replicas = &n
			if t.Kind == cluster.KindPodTemplate {
				b.Status.PodTemplate, b.Status.PodTemplateGeneration = t.Name, &t.Generation
			}
		}
		b.Status.Conditions = b.Status.Conditions.With(ready).With(provisioning(b, snap.NowUnix, t != nil, counts[b.UID]))
	}
	return out
}

func active(b *cluster.CapacityBuffer) bool {
	return b.Strategy == "" || b.Strategy == cluster.ActiveCapacity
}

// resolve returns the template of a buffer that is to have pods, and the reason for which it has one or has none.
func resolve(snap *cluster.Snapshot, b *cluster.CapacityBuffer) (t *cluster.PodTemplate, reason, message string) {
	switch {
	case !active(b) || b.DeletionUnix != 0:
		return nil, "", ""
	case b.Invalid != "":
		return nil, "ResolutionFailed", "the buffer cannot be understood: " + b.Invalid
	case b.Template == cluster.TemplateRef{}:
		return nil, "ResolutionFailed", "neither podTemplateRef nor scalableRef is set"
	}
	at := slices.IndexFunc(snap.Templates, func(t cluster.PodTemplate) bool { return t.TemplateRef == b.Template })
	if at < 0 {
		return nil, "ResolutionFailed", fmt.Sprintf("%s %s has not been read yet", b.Template.Kind, b.Template.Name)
	}
	t = &snap.Templates[at]
	switch {
	case t.Absent && t.Kind == cluster.KindPodTemplate:
		return nil, "PodTemplateNotFound", t.Fault
	case t.Absent:
		return nil, "ScalableRefNotFound", t.Fault
	case t.Spec == nil:
		return nil, "ResolutionFailed", t.Fault
	}
	return t, "Resolved", "room is kept for pods like those of " + t.Kind + " " + t.Name
}

// replicas is for how many pods a buffer asks for room: the larger of its number and its share of a workload, and no more than its limits
// hold; where it names neither, as many as those hold (S-279).
func replicas(b *cluster.CapacityBuffer, t *cluster.PodTemplate) int64 {
	n, sized := int64(0), false
	if b.Replicas != nil {
		n, sized = *b.Replicas, true
	}
	if b.Percentage != nil && *b.Percentage > 0 && t.Kind != cluster.KindPodTemplate && t.Replicas > 0 {
		n, sized = max(n, int64(math.Ceil(float64(t.Replicas)*float64(*b.Percentage)/100))), true
	}
	fit, limited := int64(math.MaxInt64), false
	for name, limit := range b.Limits {
		if each := t.Spec.Requests.Get(name); each > 0 {
			fit, limited = min(fit, limit/each), true
		}
	}
	if limited && (!sized || fit < n) {
		n = fit
	}
	return max(n, 0)
}

// counted says where the pods of a buffer are in a plan.
type counted struct{ held, new, failed int }

func count(p plan.Plan) map[string]counted {
	out := map[string]counted{}
	add := func(pod cluster.PodRef, one counted) {
		if uid, ok := cluster.BufferOf(pod.UID); ok {
			of := out[uid]
			out[uid] = counted{of.held + one.held, of.new + one.new, of.failed + one.failed}
		}
	}
	for _, at := range p.Placed {
		add(at.Pod, counted{held: 1})
	}
	for _, c := range p.Claims {
		for _, pod := range c.Pods {
			add(pod, counted{new: 1})
		}
	}
	for _, u := range p.Unplaced {
		add(u.Pod, counted{failed: 1})
	}
	return out
}

func provisioning(b *cluster.CapacityBuffer, now int64, ready bool, c counted) cluster.Condition {
	one := func(ok bool, reason, message string) cluster.Condition {
		return condition(b, now, cluster.ConditionProvisioning, ok, reason, message)
	}
	wanted := int64(0)
	if ready {
		wanted = *b.Status.Replicas
	}
	switch {
	case !ready:
		return one(false, "NotReadyForProvisioning", "the buffer's template cannot be used")
	case wanted == 0:
		return one(false, "BufferEmpty", "the buffer asks for room for no pod")
	case int64(c.held) == wanted:
		return one(true, "FitsExistingCapacity", fmt.Sprintf("there is room for all %d pods", wanted))
	}
	message := fmt.Sprintf("of %d pods, %d have room, %d wait for new nodes and %d can have none", wanted, c.held, c.new, int64(c.failed)+max(0, wanted-most))
	return one(false, "RequiresNewCapacity", message)
}

func condition(b *cluster.CapacityBuffer, now int64, kind string, ok bool, reason, message string) cluster.Condition {
	status := "False"
	if ok {
		status = "True"
	}
	return cluster.Condition{Type: kind, Status: status, Reason: reason, Message: message, TransitionUnix: now, ObservedGeneration: b.Generation}
}
