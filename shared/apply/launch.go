package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Fleet launches instances. Repeating a request with its token starts no second instance and answers as the first time. Beside an
// error the result may hold refusals. Errors: plan.ErrNoCapacity and plan.ErrQuota where other offerings may do, plan.ErrThrottled
// where nothing was tried, plan.ErrDenied and plan.ErrInvalid where a person has to act, plan.ErrNotFound where the launch template is
// gone, plan.ErrMismatch; any other: the outcome is not known.
type Fleet interface {
	Launch(ctx context.Context, r plan.Request) (plan.Result, error)
}

// Launcher brings launches to their end.
type Launcher struct {
	Cluster string
	Kube    Objects
	Fleet   Fleet
	Log     *slog.Logger
	Now     func() time.Time
}

// Order is a launch and what has to be known to record it.
type Order struct {
	plan.Group
	Tags    map[string]string
	Context string
	// InstanceProfile is the profile in the launch templates.
	InstanceProfile string
	// Type returns the instance type called name as the class sees it, nil if the catalogue lacks it.
	Type func(name string) *cluster.InstanceType
}

// unknownOutcomeTries is how often a launch whose answer was lost is repeated, with the same token, before the next look does it.
const unknownOutcomeTries = 3

// Launch makes the call of the group and writes the outcome into its claims: provider id, labels, capacity and Launched where an
// instance was given; where none was, Launched=False, an Event, a deletion, and the finalizer gone. Claims that have their
// instance already are left alone, so finishing an interrupted launch is the same as making it.
//
// It returns what EC2 answered. Errors: plan.ErrThrottled and those of an unknown outcome mean that the claims stand and the launch
// has to be repeated. Others are in the claims too.
func (l *Launcher) Launch(ctx context.Context, o Order) (plan.Result, error) {
	log := l.Log.With("cluster", l.Cluster, "group", o.Launch.Group, "nodepool", o.Claims[0].NodePool())
	log.InfoContext(ctx, "launching instances", "count", len(o.Claims), "capacity_type", o.Launch.CapacityType, "client_token", o.Token)
	res, err := l.call(ctx, o)
	log.InfoContext(ctx, "instances launched", "count", len(res.Instances), "refusals", len(res.Refusals), "error", text(err))
	switch {
	case err == nil, errors.Is(err, plan.ErrNoCapacity), errors.Is(err, plan.ErrQuota):
		return res, l.record(ctx, o, res)
	case errors.Is(err, plan.ErrNotFound), errors.Is(err, plan.ErrMismatch):
		// The request can never succeed again: fail its claims, so that the next plan makes a fresh one.
		return res, errors.Join(err, l.Refuse(ctx, o.Open(), "LaunchFailed", err.Error()))
	case errors.Is(err, plan.ErrDenied), errors.Is(err, plan.ErrInvalid):
		if unwanted(o.Open()) {
			// Nobody waits for this launch to be mended, and its claims would wait for ever. Should an earlier try have launched
			// after all, its instances are orphans, which are found.
			return res, errors.Join(err, l.Refuse(ctx, o.Open(), "LaunchFailed", err.Error()))
		}
		return res, errors.Join(err, l.explain(ctx, o.Open(), err))
	default:
		return res, err
	}
}

// unwanted reports whether all claims are being deleted.
func unwanted(claims []*cluster.NodeClaim) bool {
	return !slices.ContainsFunc(claims, func(c *cluster.NodeClaim) bool { return c.DeletionUnix == 0 })
}

func (l *Launcher) call(ctx context.Context, o Order) (plan.Result, error) {
	req := plan.Request{Token: o.Token, Count: len(o.Claims), Launch: o.Launch, Tags: o.Tags, Context: o.Context}
	for try := 1; ; try++ {
		res, err := l.Fleet.Launch(ctx, req)
		if err == nil || known(err) || try == unknownOutcomeTries || ctx.Err() != nil {
			return res, err
		}
		l.Log.WarnContext(ctx, "launch with unknown outcome, repeating it", "cluster", l.Cluster, "group", o.Launch.Group, "error", err)
	}
}

func known(err error) bool {
	for _, one := range []error{plan.ErrNoCapacity, plan.ErrQuota, plan.ErrThrottled, plan.ErrDenied, plan.ErrInvalid, plan.ErrNotFound, plan.ErrMismatch} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// record hands the instances out to the claims that have none, in a fixed order, so that a repeated answer is handed out the same
// way.
func (l *Launcher) record(ctx context.Context, o Order, res plan.Result) error {
	taken := map[cluster.InstanceID]bool{}
	for _, claim := range o.Claims {
		taken[cluster.InstanceOf(claim.ProviderID)] = true
	}
	instances := slices.DeleteFunc(slices.Clone(res.Instances), func(i cluster.Instance) bool { return taken[i.ID] })
	slices.SortFunc(instances, func(a, b cluster.Instance) int { return cmp.Compare(a.ID, b.ID) })
	open := o.Open()
	slices.SortFunc(open, func(a, b *cluster.NodeClaim) int { return cmp.Compare(a.Name, b.Name) })

	served := min(len(open), len(instances))
	errs := make([]error, served)
	Each(served, func(i int) { errs[i] = l.launched(ctx, o, open[i], instances[i]) })
	if extra := instances[served:]; len(extra) > 0 {
		l.Log.WarnContext(ctx, "more instances than claims, the sweep will end the rest", "cluster", l.Cluster, "group", o.Launch.Group, "extra", len(extra))
	}
	if err := errors.Join(errs...); err != nil || served == len(open) {
		return err // nobody goes before every instance is recorded: the token of a repetition is made from all claims
	}
	return l.Refuse(ctx, open[served:], "InsufficientCapacity", why(res.Refusals))
}

// launched writes labels and annotations first and the status, with the provider id, last: a claim with a provider id is complete.
func (l *Launcher) launched(ctx context.Context, o Order, claim *cluster.NodeClaim, instance cluster.Instance) error {
	want := *claim
	want.Labels = maps.Clone(claim.Labels)
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	want.Annotations = maps.Clone(claim.Annotations)
	kind := o.Type(instance.Type)
	if kind != nil {
		maps.Copy(want.Labels, kind.Labels)
		want.Capacity, want.Allocatable = kind.Capacity, kind.Allocatable
		for _, offering := range kind.Offerings {
			if offering.Zone == instance.Zone && offering.ZoneID != "" {
				want.Labels[cluster.LabelZoneID] = offering.ZoneID
			}
		}
	}
	want.Labels[cluster.LabelInstanceType] = instance.Type
	want.Labels[cluster.LabelZone] = instance.Zone
	want.Labels[cluster.LabelCapacityType] = string(instance.CapacityType)
	if o.InstanceProfile != "" {
		want.Annotations[cluster.AnnotationInstanceProfile] = o.InstanceProfile
	}
	now, err := l.Kube.PatchNodeClaim(ctx, *claim, want)
	if err != nil {
		return fmt.Errorf("label nodeclaim %s: %w", claim.Name, err)
	}
	want.ResourceVersion = now.ResourceVersion
	old := want
	old.Capacity, old.Allocatable = claim.Capacity, claim.Allocatable
	want.ProviderID = cluster.ProviderID(instance.Zone, instance.ID)
	want.ImageID = instance.ImageID
	at := l.Now().Unix()
	want.Conditions = claim.Conditions.
		With(cluster.Condition{Type: cluster.ConditionLaunched, Status: "True", Reason: "Launched", TransitionUnix: at}).
		With(pending(cluster.ConditionRegistered, "NodeNotFound", "no node with this provider id has joined yet", at)).
		With(pending(cluster.ConditionInitialized, "NodeNotFound", "no node with this provider id has joined yet", at)).
		WithReady(at, cluster.ConditionLaunched, cluster.ConditionRegistered, cluster.ConditionInitialized)
	if _, err := l.Kube.PatchNodeClaimStatus(ctx, old, want); err != nil {
		return fmt.Errorf("record instance %s in nodeclaim %s: %w", instance.ID, claim.Name, err)
	}
	l.Log.InfoContext(ctx, "nodeclaim launched", "cluster", l.Cluster, "nodeclaim", claim.Name, "nodepool", claim.NodePool(),
		"instance", instance.ID, "instance_type", instance.Type, "zone", instance.Zone, "capacity_type", instance.CapacityType)
	return nil
}

func pending(kind, reason, message string, at int64) cluster.Condition {
	return cluster.Condition{Type: kind, Status: "Unknown", Reason: reason, Message: message, TransitionUnix: at}
}

// Refuse ends claims that stand for no instance, with the reason in a condition and an Event. All are marked before the first one goes: the condition tells the next look that
// nothing was launched, and while one of them is unmarked the launch may be repeated, with a token made from all claims.
func (l *Launcher) Refuse(ctx context.Context, claims []*cluster.NodeClaim, reason, message string) error {
	marked := make([]cluster.NodeClaim, len(claims))
	errs := make([]error, len(claims))
	Each(len(claims), func(i int) { marked[i], errs[i] = l.mark(ctx, claims[i], reason, message) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	Each(len(claims), func(i int) { errs[i] = l.end(ctx, marked[i], reason, message) })
	return errors.Join(errs...)
}

func (l *Launcher) mark(ctx context.Context, claim *cluster.NodeClaim, reason, message string) (cluster.NodeClaim, error) {
	l.Log.WarnContext(ctx, "nodeclaim failed", "cluster", l.Cluster, "nodeclaim", claim.Name, "nodepool", claim.NodePool(), "reason", reason, "message", message)
	want := *claim
	at := l.Now().Unix()
	want.Conditions = claim.Conditions.
		With(cluster.Condition{Type: cluster.ConditionLaunched, Status: "False", Reason: reason, Message: message, TransitionUnix: at}).
		WithReady(at, cluster.ConditionLaunched)
	now, err := l.Kube.PatchNodeClaimStatus(ctx, *claim, want)
	if err != nil {
		return cluster.NodeClaim{}, fmt.Errorf("record failed launch of nodeclaim %s: %w", claim.Name, err)
	}
	return now, nil
}

func (l *Launcher) end(ctx context.Context, claim cluster.NodeClaim, reason, message string) error {
	event := "InsufficientCapacityError"
	if reason != "InsufficientCapacity" {
		event = reason
	}
	_ = l.Kube.Event(ctx, plan.ClaimEvent(&claim, event, true, message))
	if err := l.Kube.DeleteNodeClaim(ctx, claim.Name, claim.UID); err != nil && !errors.Is(err, plan.ErrNotFound) {
		return fmt.Errorf("delete nodeclaim %s: %w", claim.Name, err)
	}
	free := claim
	free.Finalizers = without(claim.Finalizers)
	claim.ResourceVersion, free.ResourceVersion = "", "" // the deletion changed it
	if _, err := l.Kube.PatchNodeClaim(ctx, claim, free); err != nil && !errors.Is(err, plan.ErrNotFound) {
		return fmt.Errorf("release nodeclaim %s: %w", claim.Name, err)
	}
	return nil
}

// explain says in the claims why they are not launched; they stand, and the launch is tried again until its deadline (L-060).
func (l *Launcher) explain(ctx context.Context, claims []*cluster.NodeClaim, cause error) error {
	errs := make([]error, len(claims))
	Each(len(claims), func(i int) {
		claim, want := claims[i], *claims[i]
		at := l.Now().Unix()
		want.Conditions = claim.Conditions.
			With(cluster.Condition{Type: cluster.ConditionLaunched, Status: "Unknown", Reason: "LaunchFailed", Message: cause.Error(), TransitionUnix: at}).
			WithReady(at, cluster.ConditionLaunched)
		if _, err := l.Kube.PatchNodeClaimStatus(ctx, *claim, want); err != nil {
			errs[i] = fmt.Errorf("record failed launch of nodeclaim %s: %w", claim.Name, err)
		}
		_ = l.Kube.Event(ctx, plan.ClaimEvent(claim, "LaunchFailed", true, cause.Error()))
	})
	return errors.Join(errs...)
}

// why names each refusal once, in a fixed order.
func why(refusals []plan.Refusal) string {
	seen := map[string]int{}
	for _, r := range refusals {
		seen[strings.TrimSuffix(r.Code+": "+r.Message, ": ")]++
	}
	if len(seen) == 0 {
		return "EC2 gave fewer instances than asked for and no reason"
	}
	parts := make([]string, 0, len(seen))
	for _, one := range slices.Sorted(maps.Keys(seen)) {
		if n := seen[one]; n > 1 {
			one = fmt.Sprintf("%s (%d offerings)", one, n)
		}
		parts = append(parts, one)
	}
	const shown = 5
	if len(parts) > shown {
		parts = append(parts[:shown], fmt.Sprintf("and %d more", len(parts)-shown))
	}
	return strings.Join(parts, "; ")
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
