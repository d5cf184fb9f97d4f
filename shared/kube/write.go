package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"

	"treadle/shared/cluster"
)

// CreateNodeClaim writes a claim with its spec, labels, annotations, finalizers and owner, and returns it as the server keeps it, UID
// included. Status is not part of it. ErrExists: there is a claim of that name. ErrInvalid: the schema refuses it.
func (c *Client) CreateNodeClaim(ctx context.Context, claim cluster.NodeClaim) (cluster.NodeClaim, error) {
	w := wireNodeClaim{
		typeMeta: typeMeta{apiVersion, kindNodeClaim},
		Metadata: objectMeta{
			Name: claim.Name, Labels: claim.Labels, Annotations: claim.Annotations, Finalizers: claim.Finalizers,
		},
		Spec: wireClaimSpec{wireNodeSpec: wireNodeSpec{
			Requirements:  toRequirements(claim.Requirements),
			Taints:        toTaints(claim.Taints),
			StartupTaints: toTaints(claim.StartupTaints),
			NodeClassRef:  wireClassRef{classGroup, kindNodeClass, claim.NodeClass},
			ExpireAfter:   never,
		}},
	}
	if o := claim.OwnerPool; o.UID != "" {
		w.Metadata.OwnerReferences = []ownerReference{{
			APIVersion: apiVersion, Kind: kindNodePool, Name: o.Name, UID: o.UID, BlockOwnerDeletion: true,
		}}
	}
	if claim.ExpireAfterSeconds > 0 {
		w.Spec.ExpireAfter = seconds(claim.ExpireAfterSeconds)
	}
	if grace := claim.TerminationGracePeriodSeconds; grace != nil {
		w.Spec.TerminationGracePeriod = seconds(*grace)
	}
	w.Spec.Resources.Requests = toNumbers(claim.Requests)
	var raw json.RawMessage
	body := asDocument(w)
	delete(body, "status")
	err := c.do(ctx, request{method: http.MethodPost, path: claimsPath}, body, &raw)
	if err != nil {
		return cluster.NodeClaim{}, wrap(err, "create", kindNodeClaim, claim.Name)
	}
	_, created, err := decodeNodeClaim(raw)
	return created, wrap(err, "create", kindNodeClaim, claim.Name)
}

// PatchNodeClaim writes the labels, annotations and finalizers in which next differs from old, and returns the claim as the server
// keeps it, or next where nothing differs. ErrConflict: it is another claim by now, or its finalizers changed under our hands.
func (c *Client) PatchNodeClaim(ctx context.Context, old, next cluster.NodeClaim) (cluster.NodeClaim, error) {
	part := func(n *cluster.NodeClaim) any {
		return ownMeta(n.Labels, n.Annotations, n.Finalizers)
	}
	return c.patchClaim(ctx, claimsPath+"/"+old.Name, old, next, part)
}

// PatchNodeClaimStatus writes the status fields in which next differs from old, and returns the claim as the server keeps it, or next
// where nothing differs. ErrConflict: it is another claim by now, or somebody else wrote to it.
func (c *Client) PatchNodeClaimStatus(ctx context.Context, old, next cluster.NodeClaim) (cluster.NodeClaim, error) {
	part := func(n *cluster.NodeClaim) any {
		return statusOnly{wireClaimStatus{
			NodeName:         string(n.NodeName),
			ProviderID:       n.ProviderID,
			ImageID:          n.ImageID,
			Capacity:         toNumbers(n.Capacity),
			Allocatable:      toNumbers(n.Allocatable),
			Conditions:       toConditions(n.Conditions),
			LastPodEventTime: toTime(n.LastPodEventUnix),
		}}
	}
	return c.patchClaim(ctx, claimsPath+"/"+old.Name+"/status", old, next, part)
}

func (c *Client) patchClaim(ctx context.Context, path string, old, next cluster.NodeClaim, part func(*cluster.NodeClaim) any) (cluster.NodeClaim, error) {
	var raw json.RawMessage
	sent, err := c.patch(ctx, target{path, old.UID, old.ResourceVersion}, part(&old), part(&next), &raw)
	if err != nil || !sent {
		return next, wrap(err, "patch", kindNodeClaim, old.Name)
	}
	_, now, err := decodeNodeClaim(raw)
	return now, wrap(err, "patch", kindNodeClaim, old.Name)
}

// DeleteNodeClaim asks for the claim to go; its finalizers decide when it does. ErrNotFound: it is gone. ErrConflict: the
// name now belongs to another one.
func (c *Client) DeleteNodeClaim(ctx context.Context, name, uid string) error {
	return wrap(c.remove(ctx, claimsPath+"/"+name, uid, nil), "delete", kindNodeClaim, name)
}

// DeleteNode asks for the node to go; errors as for DeleteNodeClaim.
func (c *Client) DeleteNode(ctx context.Context, name cluster.NodeName, uid string) error {
	return wrap(c.remove(ctx, nodePath(name), uid, nil), "delete", "Node", string(name))
}

// PatchNodePool writes the annotations in which next differs from old.
func (c *Client) PatchNodePool(ctx context.Context, old, next cluster.NodePool) error {
	_, err := c.patch(ctx, target{poolsPath + "/" + old.Name, old.UID, old.ResourceVersion},
		ownMeta(nil, old.Annotations, nil), ownMeta(nil, next.Annotations, nil), nil)
	return wrap(err, "patch", kindNodePool, old.Name)
}

// PatchNodePoolStatus writes the resources, the number of nodes and the conditions in which next differs from old. ErrConflict: somebody
// else wrote to the pool.
func (c *Client) PatchNodePoolStatus(ctx context.Context, old, next cluster.NodePool) error {
	part := func(p *cluster.NodePool) any {
		return statusOnly{wirePoolStatus{
			Resources:  poolResources(p),
			Nodes:      p.StatusNodes,
			Conditions: toConditions(p.Conditions),
		}}
	}
	was := part(&old)
	if len(old.Conditions) == 0 && len(next.Conditions) > 0 {
		was = statusOnly{wirePoolStatus{}} // nobody has written this status yet, not even its zeros
	}
	_, err := c.patch(ctx, target{poolsPath + "/" + old.Name + "/status", old.UID, old.ResourceVersion}, was, part(&next), nil)
	return wrap(err, "patch status of", kindNodePool, old.Name)
}

// poolResources shows the four resources that everybody has even where there is nothing of them, as kubectl's columns expect (N-022).
func poolResources(p *cluster.NodePool) map[string]number {
	out := map[string]number{}
	for _, name := range []string{"cpu", "memory", "ephemeral-storage", "pods", "nodes"} {
		out[name] = number(quantity(name, p.StatusResources.Get(name)))
	}
	maps.Copy(out, toNumbers(p.StatusResources))
	return out
}

// PatchNodeClass writes the annotations and finalizers in which next differs from old. ErrConflict: the finalizers changed under our
// hands.
func (c *Client) PatchNodeClass(ctx context.Context, old, next cluster.NodeClass) error {
	_, err := c.patch(ctx, target{classesPath + "/" + old.Name, old.UID, old.ResourceVersion},
		ownMeta(nil, old.Annotations, old.Finalizers), ownMeta(nil, next.Annotations, next.Finalizers), nil)
	return wrap(err, "patch", kindNodeClass, old.Name)
}

// PatchNodeClassStatus writes the status fields in which next differs from old. ErrConflict: somebody else wrote to the class.
func (c *Client) PatchNodeClassStatus(ctx context.Context, old, next cluster.NodeClass) error {
	_, err := c.patch(ctx, target{classesPath + "/" + old.Name + "/status", old.UID, old.ResourceVersion},
		statusOnly{toClassStatus(&old.Status)}, statusOnly{toClassStatus(&next.Status)}, nil)
	return wrap(err, "patch status of", kindNodeClass, old.Name)
}

type statusOnly struct {
	Status any `json:"status"`
}

type metaOnly struct {
	Metadata objectMeta `json:"metadata"`
}

func ownMeta(labels, annotations map[string]string, finalizers []string) metaOnly {
	return metaOnly{objectMeta{Labels: labels, Annotations: annotations, Finalizers: finalizers}}
}

// Evict asks for the pod to leave its node the polite way. ErrTooManyRequests: a budget says not now. ErrNotFound and ErrConflict: that
// pod is gone already.
func (c *Client) Evict(ctx context.Context, pod cluster.PodRef) error {
	body := document{
		"apiVersion":    "policy/v1",
		"kind":          "Eviction",
		"metadata":      document{"name": pod.Name, "namespace": pod.Namespace},
		"deleteOptions": document{"preconditions": document{"uid": pod.UID}},
	}
	err := c.do(ctx, request{method: http.MethodPost, path: podPath(pod) + "/eviction"}, body, nil)
	return wrap(err, "evict", "Pod", pod.Namespace+"/"+pod.Name)
}

// DeletePod deletes the pod whatever budgets say, with the given grace, or with what remains of its own if that is nil.
// ErrNotFound and ErrConflict: that pod is gone already.
func (c *Client) DeletePod(ctx context.Context, pod cluster.PodRef, graceSeconds *int64) error {
	return wrap(c.remove(ctx, podPath(pod), string(pod.UID), graceSeconds), "delete", "Pod", pod.Namespace+"/"+pod.Name)
}

func podPath(pod cluster.PodRef) string {
	return "/api/v1/namespaces/" + url.PathEscape(pod.Namespace) + "/pods/" + url.PathEscape(pod.Name)
}

func nodePath(name cluster.NodeName) string { return "/api/v1/nodes/" + url.PathEscape(string(name)) }

// liveNode is what of a Node a change of its lists needs to see. Taints and owners keep all their fields.
type liveNode struct {
	Metadata liveMeta     `json:"metadata"`
	Spec     liveNodeSpec `json:"spec"`
}

type liveMeta struct {
	ResourceVersion string     `json:"resourceVersion"`
	UID             string     `json:"uid"`
	Finalizers      []string   `json:"finalizers"`
	OwnerReferences []document `json:"ownerReferences"`
}

type liveNodeSpec struct {
	Taints []document `json:"taints"`
}

// PatchNode writes the labels, annotations, finalizers, taints, owner and schedulability in which next differs from old. Kubelets and
// controllers write to Nodes all the time, so changes of lists are made on the Node as it is: what others added to them stays.
// ErrNotFound: it is gone. ErrConflict: it is another Node by now.
func (c *Client) PatchNode(ctx context.Context, old, next cluster.Node) error {
	if next.OwnedBy != old.OwnedBy && next.OwnedBy != "" && next.OwnedByName == "" {
		return fmt.Errorf("patch Node %s: %w: owner %s has no name", old.Name, ErrInvalid, next.OwnedBy)
	}
	diff, _ := difference(asDocument(nodeFields(old)), asDocument(nodeFields(next)))
	for try := 1; ; try++ {
		err := c.patchNode(ctx, old, next, diff)
		if !errors.Is(err, ErrConflict) || errors.Is(err, errOther) || try == tries {
			return wrap(err, "patch", "Node", string(old.Name))
		}
	}
}

// errOther is a conflict that no repetition solves.
var errOther = errors.New("another object has the name")

// nodeFields are the fields of a Node that a merge patch can change one by one.
func nodeFields(n cluster.Node) document {
	meta, spec := document{}, document{}
	if len(n.Labels) > 0 {
		meta["labels"] = n.Labels
	}
	if len(n.Annotations) > 0 {
		meta["annotations"] = n.Annotations
	}
	if n.Unschedulable {
		spec["unschedulable"] = true
	}
	return document{"metadata": meta, "spec": spec}
}

func (c *Client) patchNode(ctx context.Context, old, next cluster.Node, fields document) error {
	path := nodePath(old.Name)
	send := func(meta, spec document) error {
		meta["uid"] = old.UID
		body := document{"metadata": merge(fields["metadata"], meta), "spec": merge(fields["spec"], spec)}
		return c.do(ctx, request{method: http.MethodPatch, path: path, contentType: mimeMergePatch}, body, nil)
	}
	if !listsDiffer(old, next) {
		if fields == nil {
			return nil
		}
		return send(document{}, document{})
	}
	var live liveNode
	if err := c.do(ctx, request{method: http.MethodGet, path: path}, nil, &live); err != nil {
		return err
	}
	if live.Metadata.UID != old.UID {
		return fmt.Errorf("%w: %w", ErrConflict, errOther)
	}
	before := asDocument(live)
	live.Metadata.Finalizers = edited(live.Metadata.Finalizers, old.Finalizers, next.Finalizers, func(s string) string { return s })
	live.Metadata.OwnerReferences = edited(live.Metadata.OwnerReferences, owners(old), owners(next), ownerKey)
	live.Spec.Taints = edited(live.Spec.Taints, taintDocuments(old.Taints), taintDocuments(next.Taints), taintKey)
	diff, lists := difference(before, asDocument(live))
	if !lists && fields == nil {
		return nil // somebody has done it already
	}
	meta := merge(diff["metadata"], document{"resourceVersion": live.Metadata.ResourceVersion})
	return send(meta, merge(diff["spec"], nil))
}

func listsDiffer(old, next cluster.Node) bool {
	same := func(a, b any) bool { return string(encode(a)) == string(encode(b)) }
	return old.OwnedBy != next.OwnedBy || !same(old.Finalizers, next.Finalizers) || !same(old.Taints, next.Taints)
}

// edited makes in live the changes that lead from old to next: what was taken out goes, what was put in comes last, what only live has
// stays.
func edited[T any](live, old, next []T, key func(T) string) []T {
	keys := func(list []T) map[string]bool {
		out := map[string]bool{}
		for _, v := range list {
			out[key(v)] = true
		}
		return out
	}
	was, will, is := keys(old), keys(next), map[string]bool{}
	var out []T
	for _, v := range live {
		if k := key(v); !was[k] || will[k] {
			out = append(out, v)
			is[k] = true
		}
	}
	for _, v := range next {
		if k := key(v); !is[k] && !was[k] {
			out = append(out, v)
		}
	}
	return out
}

func owners(n cluster.Node) []document {
	if n.OwnedBy == "" {
		return nil
	}
	return []document{{
		"apiVersion": apiVersion, "kind": kindNodeClaim, "name": n.OwnedByName, "uid": n.OwnedBy, "blockOwnerDeletion": true,
	}}
}

func ownerKey(owner document) string { return fmt.Sprint(owner["uid"]) }

func taintDocuments(taints []cluster.Taint) []document {
	var out []document
	for _, t := range toTaints(taints) {
		out = append(out, asDocument(t))
	}
	return out
}

// taintKey tells taints apart by value too, so that a changed value is one taint taken out and another put in.
func taintKey(t document) string {
	return fmt.Sprintf("%v=%v:%v", t["key"], orNothing(t["value"]), t["effect"])
}

func orNothing(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// merge joins two objects, the second winning; the first may be absent.
func merge(a any, b document) document {
	out := document{}
	if a, ok := a.(document); ok {
		maps.Copy(out, a)
	}
	maps.Copy(out, b)
	return out
}
