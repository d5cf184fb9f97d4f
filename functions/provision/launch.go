package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"treadle/shared/apply"
	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/nodeclass"
	"treadle/shared/plan"
)

// maxGroup is how many claims share one CreateFleet call: a refused call then costs that many, and the token of a group is made
// from every claim in it.
const maxGroup = 50

// resume brings launches to their end that a crash, a throttle or a lost answer interrupted. It must come before packing: whether
// their instances exist is not known. resumed says that the cluster has changed, so that the snapshot is out of date.
func (h *Handler) resume(ctx context.Context, site *Site, snap *cluster.Snapshot) (resumed bool, err error) {
	var errs []error
	for _, group := range plan.Groups(snap.NodeClaims) {
		if len(group.Open()) == 0 {
			continue
		}
		h.Log.InfoContext(ctx, "finishing an interrupted launch", "cluster", site.Name, "group", group.Launch.Group, "open", len(group.Open()))
		out, err := h.call(ctx, site, snap, group)
		if err != nil {
			errs = append(errs, err)
		}
		resumed = resumed || out.ended
	}
	return resumed, errors.Join(errs...)
}

// outcome is what came of launches.
type outcome struct {
	claims  int  // written
	refused int  // by EC2
	ended   bool // the claims of a call have instances now, or are gone
	// instances are those that a call launched.
	instances []cluster.Instance
}

// launch turns the claims of a plan into NodeClaims and instances. Trouble of one group does not hold up the others, except for a
// throttle, which would meet them too.
func (h *Handler) launch(ctx context.Context, site *Site, snap *cluster.Snapshot, p plan.Plan) (outcome, error) {
	var total outcome
	var errs []error
	for n, alike := range groupClaims(p.Claims) {
		for part := 0; len(alike) > 0; part++ {
			size := min(len(alike), maxGroup)
			took, out, err := h.launchGroup(ctx, site, snap, groupID(p.ID, snap.NowUnix, n, part), alike[:size])
			total.claims += out.claims
			total.refused += out.refused
			if errors.Is(err, plan.ErrThrottled) {
				return total, errors.Join(append(errs, err)...)
			}
			if err != nil {
				errs = append(errs, err)
				break
			}
			alike = alike[took:]
		}
	}
	return total, errors.Join(errs...)
}

// launchGroup launches as many of the claims as there are addresses for and returns how many it has dealt with: at least one,
// unless it fails. Claims that cannot be launched as things are have been dealt with once their pods are told.
func (h *Handler) launchGroup(ctx context.Context, site *Site, snap *cluster.Snapshot, group string, claims []plan.Claim) (took int, out outcome, err error) {
	pool := snap.Pool(claims[0].NodePool)
	class := snap.Class(pool.Template.NodeClass)
	facts := site.Facts
	facts.NowUnix = snap.NowUnix
	ready, err := h.Templates.Prepare(ctx, nodeclass.Order{
		Facts: facts, Class: *class, Pool: *pool, Claim: claims[0], Count: len(claims),
		Types: snap.TypesOf(pool.Name, class.Name), Addresses: site.Addresses,
	})
	if errors.Is(err, nodeclass.ErrNoAddresses) || errors.Is(err, nodeclass.ErrInvalid) || errors.Is(err, nodeclass.ErrDenied) {
		h.Log.ErrorContext(ctx, "launch not possible", "cluster", site.Name, "nodepool", pool.Name, "claims", len(claims), "error", err)
		h.blame(ctx, site, claims, err)
		return len(claims), outcome{}, nil
	}
	if err != nil {
		return 0, outcome{}, err
	}
	claims = claims[:ready.Count]
	launch := plan.NewLaunch(group, claims[0].Options, ready.Configs)
	wants := make([]cluster.NodeClaim, 0, len(claims))
	for _, c := range claims {
		wants = append(wants, apply.NodeClaim(pool, class, c, launch))
	}
	made, err := apply.Create(ctx, site.Kube, group, wants)
	if err != nil {
		return 0, outcome{claims: len(made)}, err // those that were written are launched by the next look
	}
	out, err = h.call(ctx, site, snap, plan.Groups(made)[0])
	ready.Settle(site.Addresses, out.instances)
	out.claims = len(made)
	return len(claims), out, err
}

// call makes the CreateFleet call of a group and remembers what was refused. An error that a person has to see to is in the claims
// and the log, and not returned: repeating the wake-up would not help.
func (h *Handler) call(ctx context.Context, site *Site, snap *cluster.Snapshot, group plan.Group) (outcome, error) {
	class := snap.Class(group.Claims[0].NodeClass)
	if class == nil {
		class = &cluster.NodeClass{Name: group.Claims[0].NodeClass} // gone since; the launch may have been made all the same
	}
	launcher := apply.Launcher{Cluster: site.Name, Kube: site.Kube, Fleet: site.Fleet, Log: h.Log, Now: h.Now}
	res, err := launcher.Launch(ctx, apply.Order{
		Group:           group,
		Tags:            fleet.Tags(site.Name, group.Claims[0].NodePool(), *class),
		Context:         class.Spec.Context,
		InstanceProfile: class.Status.InstanceProfile,
		Type:            typeNamed(snap.TypesOf(group.Claims[0].NodePool(), class.Name)),
	})
	h.Ledger.Add(h.Now(), group.Launch, res.Refusals)
	h.Ledger.Write(ctx, h.Now())
	h.Counter.Count("OfferingsRefused", "provision", site.Name, len(res.Refusals))
	for _, r := range res.Refusals {
		h.Log.WarnContext(ctx, "offering refused", "cluster", site.Name, "instance_type", r.InstanceType, "zone", r.Zone,
			"capacity_type", r.CapacityType, "reason", r.Code)
	}
	out := outcome{refused: len(res.Refusals), ended: err == nil, instances: res.Instances}
	switch {
	case errors.Is(err, plan.ErrNotFound), errors.Is(err, plan.ErrMismatch):
		for _, c := range group.Launch.Configs {
			h.Templates.Forget(c.Template)
		}
		out.ended, out.refused = true, out.refused+1 // the claims are gone: plan again
	case errors.Is(err, plan.ErrDenied), errors.Is(err, plan.ErrInvalid):
	default:
		return out, err
	}
	h.Log.ErrorContext(ctx, "launch failed", "cluster", site.Name, "group", group.Launch.Group, "error", err)
	return out, nil
}

func typeNamed(types []cluster.InstanceType) func(string) *cluster.InstanceType {
	return func(name string) *cluster.InstanceType {
		for i := range types {
			if types[i].Name == name {
				return &types[i]
			}
		}
		return nil
	}
}

// groupClaims returns the claims that one call can launch together: those of one pool with the same options. Order is kept.
func groupClaims(claims []plan.Claim) [][]plan.Claim {
	var groups [][]plan.Claim
	at := map[string]int{}
	for _, c := range claims {
		key := fmt.Sprint(c.NodePool, c.Options, c.Requests.Extended)
		n, seen := at[key]
		if !seen {
			n = len(groups)
			at[key] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], c)
	}
	return groups
}

// groupID is unique to one group of one plan at one instant: a plan that is made again later is another launch.
func groupID(planID string, nowUnix int64, n, part int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%d/%d", planID, nowUnix, n, part))
	return hex.EncodeToString(sum[:8])
}

// blame tells the pods of claims that could not be launched why.
func (h *Handler) blame(ctx context.Context, site *Site, claims []plan.Claim, cause error) {
	for _, c := range claims {
		for _, pod := range c.Pods {
			if cluster.Virtual(pod.UID) {
				continue
			}
			_ = site.Kube.Event(ctx, plan.PodEvent(pod, "FailedScheduling", true, "nodepool "+c.NodePool+": "+cause.Error()))
		}
	}
}

// maxNominated bounds the Events about pods that fit: they are news for one or two readers, not for a thousand.
const maxNominated = 10

// explain tells the pods what the plan has for them.
func (h *Handler) explain(ctx context.Context, site *Site, p plan.Plan) {
	apply.Each(len(p.Unplaced), func(i int) {
		one := p.Unplaced[i]
		if cluster.Virtual(one.Pod.UID) {
			return // its buffer says so
		}
		note := reasons(one.Reasons)
		if err := site.Kube.Event(ctx, plan.PodEvent(one.Pod, "FailedScheduling", true, note)); err != nil {
			h.Log.WarnContext(ctx, "event not written", "cluster", site.Name, "pod", one.Pod.Name, "error", err)
		}
		h.Log.DebugContext(ctx, "pod unplaced", "cluster", site.Name, "namespace", one.Pod.Namespace, "pod", one.Pod.Name, "reason", note)
	})
	told := 0
	for _, one := range p.Placed {
		if cluster.Virtual(one.Pod.UID) {
			continue // S-233
		}
		if told++; told > maxNominated {
			return
		}
		where := "node " + string(one.Node)
		if one.NodeClaim != "" {
			where = "nodeclaim " + one.NodeClaim
		}
		_ = site.Kube.Event(ctx, plan.PodEvent(one.Pod, "Nominated", false, "the pod should fit on "+where))
	}
}

// reasons writes one line for each pool that was tried.
func reasons(all []plan.Reason) string {
	lines := make([]string, 0, len(all))
	for _, r := range all {
		line := r.Detail
		if r.NodePool != "" {
			line = "nodepool " + r.NodePool + ": " + r.Detail
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return "no NodePool exists"
	}
	return strings.Join(lines, "\n")
}
