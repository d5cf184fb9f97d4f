package disruption

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

const (
	// annotationPods of a NodeClaim is a hash of the pods that were last seen on its node. Whoever looks next can tell by it that pods
	// came or went in between, which no single look at a cluster shows.
	annotationPods = "treadle.sh/pods"
	// typeMissingSeconds is how old a claim must be for a type that is no longer offered to count (D-061).
	typeMissingSeconds = 60 * 60
)

// Observe says what there is to write down about claims that nobody deletes: whether they are no longer what their pool and class ask
// for (Drifted, D-059 to D-072), whether their pods have been the same for long enough (Consolidatable, D-024 to D-027), and the
// current hashes for those whose hashes are of an older version (N-034). sights holds what EC2 says about instances, as far as it was
// asked; snap.Types is needed only to tell types that are no longer offered.
func Observe(snap *cluster.Snapshot, sights cluster.Sights) plan.Decision {
	var d plan.Decision
	for _, m := range snap.Members() {
		if m.Claim != nil && m.Claim.DeletionUnix == 0 && m.Claim.Conditions.True(cluster.ConditionLaunched) {
			observe(&d, snap, m, sights)
		}
	}
	return d
}

func observe(d *plan.Decision, snap *cluster.Snapshot, m cluster.Member, sights cluster.Sights) {
	claim := *m.Claim
	claim.Annotations = maps.Clone(claim.Annotations)
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	pool, class := snap.Pool(claim.NodePool()), snap.Class(claim.NodeClass)
	rehash(&claim, pool, class)
	reason := drift(snap, &claim, pool, class, sights)
	switch old := claim.Conditions.Get(cluster.ConditionDrifted); {
	case reason == "" && old.Type != "":
		claim.Conditions = claim.Conditions.Without(cluster.ConditionDrifted)
	case reason != "" && (old.Status != "True" || old.Reason != reason):
		claim.Conditions = claim.Conditions.With(cluster.Condition{
			Type: cluster.ConditionDrifted, Status: "True", Reason: reason, Message: reason, TransitionUnix: snap.NowUnix,
		})
	}
	rest(d, snap.NowUnix, pool, m, &claim)
	if !slices.Equal(claim.Conditions, m.Claim.Conditions) || !maps.Equal(claim.Annotations, m.Claim.Annotations) ||
		claim.LastPodEventUnix != m.Claim.LastPodEventUnix {
		d.Moves = append(d.Moves, plan.Move{Reason: "observe", Claim: m.Claim, Node: m.Node, WantClaim: &claim})
	}
}

// rehash replaces hashes of another version, which say nothing, by the current ones. A claim that has drifted already keeps its own
// and stays drifted.
func rehash(claim *cluster.NodeClaim, pool *cluster.NodePool, class *cluster.NodeClass) {
	set := func(hash, version, current, ours string) {
		if current == "" || claim.Annotations[version] == ours {
			return
		}
		claim.Annotations[version] = ours
		if !claim.Conditions.True(cluster.ConditionDrifted) || claim.Annotations[hash] == "" {
			claim.Annotations[hash] = current
		}
	}
	if pool != nil {
		set(cluster.AnnotationNodePoolHash, cluster.AnnotationNodePoolHashVersion, pool.Hash, cluster.HashVersionNodePool)
	}
	if class != nil {
		set(cluster.AnnotationNodeClassHash, cluster.AnnotationNodeClassHashVersion, class.Hash, cluster.HashVersionNodeClass)
	}
}

// drift returns the first reason for which a claim is not what it would be if it were made now, "" if there is none. Without its pool
// or its class nothing can be said (D-069).
func drift(snap *cluster.Snapshot, claim *cluster.NodeClaim, pool *cluster.NodePool, class *cluster.NodeClass, sights cluster.Sights) string {
	if pool == nil || class == nil || pool.Invalid != "" || class.Invalid != "" {
		return ""
	}
	wants := cluster.NewRequirements(nil, pool.Template.Requirements...)
	if pool.Hash != "" && claim.Annotations[cluster.AnnotationNodePoolHash] != pool.Hash {
		return "NodePoolDrifted"
	}
	if _, meets := wants.MeetsLabels(claim.Labels); !meets {
		return "RequirementsDrifted"
	}
	if snap.NowUnix-claim.CreatedUnix > typeMissingSeconds && !offered(snap.Types[class.Name], claim.Labels, wants) {
		return "InstanceTypeNotFound"
	}
	if class.Hash != "" && claim.Annotations[cluster.AnnotationNodeClassHash] != class.Hash {
		return "NodeClassDrift"
	}
	return classDrift(claim, &class.Status, sights)
}

// offered reports whether the type of a node with these labels is offered in a way that the pool accepts; also where no types are known.
func offered(types []cluster.InstanceType, labels map[string]string, wants cluster.Requirements) bool {
	if types == nil {
		return true
	}
	at := slices.IndexFunc(types, func(t cluster.InstanceType) bool { return t.Name == labels[cluster.LabelInstanceType] })
	return at >= 0 && slices.ContainsFunc(types[at].Offerings, func(o cluster.Offering) bool {
		return wants.Allows(cluster.LabelZone, o.Zone) && wants.Allows(cluster.LabelCapacityType, string(o.CapacityType))
	})
}

// classDrift compares an instance with what its class selects now (D-063 to D-066, in the order of D-068).
func classDrift(claim *cluster.NodeClaim, status *cluster.NodeClassStatus, sights cluster.Sights) string {
	if image, known := imageFor(status.AMIs, claim.Labels); known && claim.ImageID != "" && image != claim.ImageID {
		return "AMIDrift"
	}
	if sight := sights[cluster.InstanceOf(claim.ProviderID)]; sight.Found {
		if len(status.SecurityGroups) > 0 && !sameGroups(status.SecurityGroups, sight.Instance.SecurityGroups) {
			return "SecurityGroupDrift"
		}
		elsewhere := !slices.ContainsFunc(status.Subnets, func(s cluster.Subnet) bool { return s.ID == sight.Instance.SubnetID })
		if len(status.Subnets) > 0 && elsewhere && sight.Instance.SubnetID != "" {
			return "SubnetDrift"
		}
	}
	id := claim.Labels[cluster.LabelReservationID]
	if claim.Labels[cluster.LabelCapacityType] == string(cluster.Reserved) && id != "" &&
		!slices.ContainsFunc(status.Reservations, func(r cluster.Reservation) bool { return r.ID == id }) {
		return "CapacityReservationDrift"
	}
	return ""
}

// imageFor returns the image that a node with these labels would get now: the first one that is for its type. known is false where the
// class has none for it, which is no reason to replace what works.
func imageFor(images []cluster.AMI, labels map[string]string) (id string, known bool) {
	for _, image := range images {
		if _, meets := cluster.NewRequirements(nil, image.Requirements...).MeetsLabels(labels); meets {
			return image.ID, true
		}
	}
	return "", false
}

func sameGroups(want []cluster.SecurityGroup, have []string) bool {
	if len(have) == 0 {
		return true // EC2 has not said
	}
	ids := make([]string, 0, len(want))
	for _, g := range want {
		ids = append(ids, g.ID)
	}
	slices.Sort(ids)
	return slices.Equal(slices.Compact(ids), slices.Compact(slices.Sorted(slices.Values(have))))
}

// rest notes when pods last came or went, and keeps the condition Consolidatable.
func rest(d *plan.Decision, now int64, pool *cluster.NodePool, m cluster.Member, claim *cluster.NodeClaim) {
	if pool == nil || pool.Replicas != nil || pool.ConsolidateAfterSeconds == nil || m.Node == nil || !claim.Conditions.True(cluster.ConditionInitialized) {
		claim.Conditions = claim.Conditions.Without(cluster.ConditionConsolidatable)
		return
	}
	after := *pool.ConsolidateAfterSeconds
	if seen := podsHash(m.Pods); after > 0 && claim.Annotations[annotationPods] != seen {
		claim.Annotations[annotationPods] = seen
		claim.LastPodEventUnix = now
	}
	due := max(claim.LastPodEventUnix, claim.Conditions.Get(cluster.ConditionInitialized).TransitionUnix) + after
	switch {
	case now < due:
		claim.Conditions = claim.Conditions.Without(cluster.ConditionConsolidatable)
		d.Again(due)
	case !claim.Conditions.True(cluster.ConditionConsolidatable):
		claim.Conditions = claim.Conditions.With(cluster.Condition{
			Type: cluster.ConditionConsolidatable, Status: "True", Reason: "Consolidatable", TransitionUnix: now,
		})
	}
}

// podsHash is the same for as long as the pods of a node are the same, daemons and what has ended left aside (D-026).
func podsHash(pods []*cluster.Pod) string {
	var ids []string
	for _, p := range pods {
		if !p.Daemon() && !p.Static() && !p.Terminal() && p.DeletionUnix == 0 {
			ids = append(ids, string(p.UID))
		}
	}
	slices.SortFunc(ids, cmp.Compare[string])
	h := fnv.New64a()
	for _, id := range ids {
		_, _ = h.Write([]byte(id + "\n")) // a hash cannot fail
	}
	return strconv.FormatUint(h.Sum64(), 36)
}
