package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
)

const claimJSON = `{"metadata":{"name":"c1","uid":"u1","resourceVersion":"12","generation":1,"finalizers":["karpenter.sh/termination"],
	"ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodePool","name":"default","uid":"p1"}]},
	"spec":{"nodeClassRef":{"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"al"},"expireAfter":"720h0m0s","requirements":[]},
	"status":{"conditions":[{"type":"Launched","status":"True","reason":"Launched","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`

func claim() cluster.NodeClaim {
	return cluster.NodeClaim{
		Name: "c1", UID: "u1", ResourceVersion: "11",
		Labels:      map[string]string{"karpenter.sh/nodepool": "default"},
		Annotations: map[string]string{"a": "1", "b": "2"},
		Finalizers:  []string{"karpenter.sh/termination"},
	}
}

func TestCreateNodeClaim_WritesTheWholeSpec(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.on("POST", "/apis/karpenter.sh/v1/nodeclaims", answer(claimJSON))
	c := claim()
	c.UID, c.ResourceVersion = "", ""
	c.OwnerPool = cluster.Owner{Kind: "NodePool", Name: "default", UID: "p1"}
	c.Requirements = []cluster.Expression{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"arm64"}, MinValues: 1}}
	c.Requests = cluster.Resources{MilliCPU: 1500, MemoryBytes: 3 << 30, Pods: 4, Extended: map[string]int64{"nvidia.com/gpu": 1, "none": 0}}
	c.Taints = []cluster.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}
	c.StartupTaints = []cluster.Taint{{Key: "boot", Effect: "NoExecute"}}
	c.NodeClass = "al"
	c.ExpireAfterSeconds = 720 * 3600
	c.TerminationGracePeriodSeconds = new(int64(90))
	got, err := a.client().CreateNodeClaim(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, "u1", got.UID)
	require.Equal(t, "12", got.ResourceVersion)
	require.Equal(t, int64(720*3600), got.ExpireAfterSeconds)
	require.Equal(t, cluster.Owner{Kind: "NodePool", Name: "default", UID: "p1"}, got.OwnerPool)
	require.True(t, got.Conditions.True(cluster.ConditionLaunched))
	require.Empty(t, got.Invalid)

	type object = map[string]any
	require.Equal(t, object{
		"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
		"metadata": object{
			"name": "c1", "labels": object{"karpenter.sh/nodepool": "default"}, "annotations": object{"a": "1", "b": "2"},
			"finalizers": []any{"karpenter.sh/termination"},
			"ownerReferences": []any{object{
				"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "p1", "blockOwnerDeletion": true,
			}},
		},
		"spec": object{
			"requirements":           []any{object{"key": "kubernetes.io/arch", "operator": "In", "values": []any{"arm64"}, "minValues": 1.0}},
			"resources":              object{"requests": object{"cpu": "1500m", "memory": "3Gi", "pods": "4", "nvidia.com/gpu": "1"}},
			"taints":                 []any{object{"key": "gpu", "value": "yes", "effect": "NoSchedule"}},
			"startupTaints":          []any{object{"key": "boot", "effect": "NoExecute"}},
			"nodeClassRef":           object{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "al"},
			"expireAfter":            "720h0m0s",
			"terminationGracePeriod": "1m30s",
		},
	}, a.writes()[0].Body)
}

func TestPatch_SendsOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	cases := map[string]struct {
		do    func(ctx context.Context, c *Client) error
		path  string
		wants object // nil: no call
	}{
		"an equal claim makes no call": {
			do: func(ctx context.Context, c *Client) error {
				_, err := c.PatchNodeClaim(ctx, claim(), claim())
				return err
			},
		},
		"an annotation changes without a precondition on the version": {
			do: func(ctx context.Context, c *Client) error {
				next := claim()
				next.Annotations = map[string]string{"a": "1", "c": "3"}
				_, err := c.PatchNodeClaim(ctx, claim(), next)
				return err
			},
			path:  "/apis/karpenter.sh/v1/nodeclaims/c1",
			wants: object{"metadata": object{"uid": "u1", "annotations": object{"b": nil, "c": "3"}}},
		},
		"the last annotation goes alone": {
			do: func(ctx context.Context, c *Client) error {
				next := claim()
				next.Annotations = nil
				_, err := c.PatchNodeClaim(ctx, claim(), next)
				return err
			},
			path:  "/apis/karpenter.sh/v1/nodeclaims/c1",
			wants: object{"metadata": object{"uid": "u1", "annotations": object{"a": nil, "b": nil}}},
		},
		"a finalizer goes at the version that was read": {
			do: func(ctx context.Context, c *Client) error {
				next := claim()
				next.Finalizers = nil
				_, err := c.PatchNodeClaim(ctx, claim(), next)
				return err
			},
			path:  "/apis/karpenter.sh/v1/nodeclaims/c1",
			wants: object{"metadata": object{"uid": "u1", "resourceVersion": "11", "finalizers": nil}},
		},
		"a condition is written with reason and instant": {
			do: func(ctx context.Context, c *Client) error {
				next := claim()
				next.ProviderID = "aws:///a/i-1"
				next.Capacity = cluster.Resources{MilliCPU: 2000}
				next.Conditions = next.Conditions.With(cluster.Condition{Type: "Launched", Status: "True", TransitionUnix: 60, ObservedGeneration: 2})
				_, err := c.PatchNodeClaimStatus(ctx, claim(), next)
				return err
			},
			path: "/apis/karpenter.sh/v1/nodeclaims/c1/status",
			wants: object{
				"metadata": object{"uid": "u1", "resourceVersion": "11"},
				"status": object{
					"providerID": "aws:///a/i-1",
					"capacity":   object{"cpu": "2"},
					"conditions": []any{object{
						"type": "Launched", "status": "True", "reason": "Launched", "message": "", "observedGeneration": 2.0,
						"lastTransitionTime": "1970-01-01T00:01:00Z",
					}},
				},
			},
		},
		"a pool's status shows what there is none of": {
			do: func(ctx context.Context, c *Client) error {
				old := cluster.NodePool{Name: "p", UID: "u", ResourceVersion: "3", StatusResources: cluster.Resources{MilliCPU: 4000}, StatusNodes: 1}
				return c.PatchNodePoolStatus(ctx, old, cluster.NodePool{})
			},
			path:  "/apis/karpenter.sh/v1/nodepools/p/status",
			wants: object{"metadata": object{"uid": "u"}, "status": object{"nodes": 0.0, "resources": object{"cpu": "0"}}},
		},
		"a class's status is written field by field": {
			do: func(ctx context.Context, c *Client) error {
				old := cluster.NodeClass{Name: "al", UID: "u", ResourceVersion: "3"}
				next := old
				next.Status.InstanceProfile = "p"
				return c.PatchNodeClassStatus(ctx, old, next)
			},
			path:  "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/al/status",
			wants: object{"metadata": object{"uid": "u"}, "status": object{"instanceProfile": "p"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.on("PATCH", c.path, answer(claimJSON))
			require.NoError(t, c.do(t.Context(), a.client()))
			if c.wants == nil {
				require.Empty(t, a.writes())
				return
			}
			require.Len(t, a.writes(), 1)
			require.Equal(t, c.wants, a.writes()[0].Body)
			require.Equal(t, "application/merge-patch+json", a.writes()[0].ContentType)
		})
	}
}

func TestPatchNode_ChangesListsOfTheLiveNode(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.on("GET", "/api/v1/nodes/n1", answer(`{"metadata":{"uid":"u1","resourceVersion":"50","finalizers":["theirs"],
		"ownerReferences":[{"apiVersion":"x/v1","kind":"X","name":"x","uid":"x1","controller":true}]},
		"spec":{"taints":[{"key":"karpenter.sh/unregistered","effect":"NoExecute"},{"key":"theirs","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"}]}}`))
	conflicts := 1
	a.on("PATCH", "/api/v1/nodes/n1", func(w http.ResponseWriter, _ *http.Request) {
		if conflicts--; conflicts >= 0 {
			refuse(w, http.StatusConflict, "Conflict")
		}
	})
	old := cluster.Node{Name: "n1", UID: "u1", Taints: []cluster.Taint{{Key: "karpenter.sh/unregistered", Effect: "NoExecute"}}}
	next := old
	next.Taints = []cluster.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}
	next.Finalizers = []string{"karpenter.sh/termination"}
	next.OwnedBy, next.OwnedByName = "c1", "claim"
	next.Labels = map[string]string{"karpenter.sh/registered": "true"}
	next.Unschedulable = true
	require.NoError(t, a.client().PatchNode(t.Context(), old, next))
	require.Len(t, a.writes(), 2, "a conflict is tried again on a fresh copy")
	type object = map[string]any
	require.Equal(t, object{
		"metadata": object{
			"uid": "u1", "resourceVersion": "50", "labels": object{"karpenter.sh/registered": "true"},
			"finalizers": []any{"theirs", "karpenter.sh/termination"},
			"ownerReferences": []any{
				object{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": "x1", "controller": true},
				object{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "claim", "uid": "c1", "blockOwnerDeletion": true},
			},
		},
		"spec": object{
			"unschedulable": true,
			"taints": []any{
				object{"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
				object{"key": "gpu", "value": "yes", "effect": "NoSchedule"},
			},
		},
	}, a.writes()[1].Body)

	require.NoError(t, a.client().PatchNode(t.Context(), next, next))
	require.Len(t, a.writes(), 2, "no difference, no call")

	other := old
	other.UID = "u2"
	next.UID = "u2"
	require.ErrorIs(t, a.client().PatchNode(t.Context(), other, next), ErrConflict)
	next.OwnedByName = ""
	require.ErrorIs(t, a.client().PatchNode(t.Context(), other, next), ErrInvalid)
}

func TestPods_LeaveByEvictionOrDeletion(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	c, ref := a.client(), cluster.PodRef{Namespace: "shop", Name: "web", UID: "u1"}
	a.on("POST", "/api/v1/namespaces/shop/pods/web/eviction", answer(`{}`))
	require.NoError(t, c.Evict(t.Context(), ref))
	a.on("DELETE", "/api/v1/namespaces/shop/pods/web", answer(`{}`))
	require.NoError(t, c.DeletePod(t.Context(), ref, new(int64(1))))
	type object = map[string]any
	require.Equal(t, object{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": "web", "namespace": "shop"},
		"deleteOptions": object{"preconditions": object{"uid": "u1"}},
	}, a.writes()[0].Body)
	require.Equal(t, object{
		"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": object{"uid": "u1"}, "gracePeriodSeconds": 1.0,
	}, a.writes()[1].Body)

	a.on("POST", "/api/v1/namespaces/shop/pods/web/eviction", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"message":"Cannot evict","reason":"TooManyRequests","code":429,"details":{"causes":[{"reason":"DisruptionBudget"}]}}`)
	})
	require.ErrorIs(t, c.Evict(t.Context(), ref), ErrTooManyRequests)
	require.Len(t, a.writes(), 3, "what a budget refuses is not tried again")
}

func TestErrors_SayWhatKindOfRefusalItWas(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		code   int
		reason string
		want   error
	}{
		"404 is not found":                 {404, "NotFound", ErrNotFound},
		"409 is a conflict":                {409, "Conflict", ErrConflict},
		"409 with AlreadyExists is exists": {409, "AlreadyExists", ErrExists},
		"410 is gone":                      {410, "Expired", ErrGone},
		"401 is forbidden":                 {401, "Unauthorized", ErrForbidden},
		"403 is forbidden":                 {403, "Forbidden", ErrForbidden},
		"400 is invalid":                   {400, "BadRequest", ErrInvalid},
		"422 is invalid":                   {422, "Invalid", ErrInvalid},
		"413 is invalid":                   {413, "RequestEntityTooLarge", ErrInvalid},
		"429 without a time is throttled":  {429, "TooManyRequests", ErrThrottled},
		"500 is unavailable":               {500, "InternalError", ErrUnavailable},
		"503 is unavailable":               {503, "ServiceUnavailable", ErrUnavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.on("DELETE", "/apis/karpenter.sh/v1/nodeclaims/x", func(w http.ResponseWriter, _ *http.Request) { refuse(w, c.code, c.reason) })
			err := a.client().DeleteNodeClaim(t.Context(), "x", "u")
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "delete NodeClaim x: DELETE /apis/karpenter.sh/v1/nodeclaims/x: "+fmt.Sprint(c.code))
			for _, other := range []error{ErrNotFound, ErrConflict, ErrExists, ErrGone, ErrForbidden, ErrInvalid, ErrTooManyRequests, ErrThrottled, ErrUnavailable} {
				if other != c.want { //nolint:errorlint // the sentinels themselves are compared
					require.NotErrorIs(t, err, other)
				}
			}
		})
	}
}

func TestErrors_OfTheConnectionAreUnavailable(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	c := a.client()
	a.server.Close()
	require.ErrorIs(t, c.DeleteNodeClaim(t.Context(), "x", "u"), ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.DeleteNodeClaim(ctx, "x", "u"), context.Canceled)
}

func TestRequests_AreRepeatedWhenTheServerShedsLoad(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	refusals := 2
	a.on("DELETE", "/apis/karpenter.sh/v1/nodeclaims/x", func(w http.ResponseWriter, _ *http.Request) {
		if refusals--; refusals >= 0 {
			w.Header().Set("Retry-After", "0")
			refuse(w, http.StatusTooManyRequests, "TooManyRequests")
		}
	})
	require.NoError(t, a.client().DeleteNodeClaim(t.Context(), "x", "u"))
	require.Len(t, a.writes(), 3)
}

func TestEvent_IsOneObjectForEqualEvents(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	c, at := a.client(), time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	a.on("POST", "/apis/events.k8s.io/v1/namespaces/default/events", answer(`{}`))
	e := Event{Regarding: Regarding{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "c1", UID: "u1"}, Warning: true, Reason: "Broken", Note: strings.Repeat("ä", 900), At: at}
	require.NoError(t, c.Event(t.Context(), e))
	e.At = at.Add(time.Minute)
	require.NoError(t, c.Event(t.Context(), e))
	require.Len(t, a.writes(), 1, "not again within two minutes")
	body := a.writes()[0].Body
	require.Equal(t, "2026-01-02T03:04:05.000006Z", body["eventTime"])
	require.Equal(t, "Warning", body["type"])
	require.Equal(t, "Broken", body["action"])
	require.LessOrEqual(t, len(body["note"].(string)), 1024)
	require.True(t, strings.HasSuffix(body["note"].(string), "ä…"))
	name := body["metadata"].(map[string]any)["name"].(string)
	require.Regexp(t, `^c1\.[0-9a-f]{16}$`, name)

	a.on("POST", "/apis/events.k8s.io/v1/namespaces/default/events", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 409, "AlreadyExists") })
	path := "/apis/events.k8s.io/v1/namespaces/default/events/" + name
	a.on("GET", path, answer(`{"series":{"count":4}}`))
	a.on("PATCH", path, answer(`{}`))
	e.At = at.Add(3 * time.Minute)
	require.NoError(t, c.Event(t.Context(), e))
	require.Equal(t, map[string]any{"series": map[string]any{"count": 5.0, "lastObservedTime": "2026-01-02T03:07:05.000006Z"}}, a.writes()[2].Body)

	a.on("PATCH", path, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "InternalError") })
	e.At = at.Add(6 * time.Minute)
	require.ErrorIs(t, c.Event(t.Context(), e), ErrUnavailable)
	require.ErrorIs(t, c.Event(t.Context(), e), ErrUnavailable, "what was not sent is sent again")
}

func TestAcquireLease(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := func(holder string, renewed time.Time) http.HandlerFunc {
		return answer(fmt.Sprintf(`{"metadata":{"name":"plan","resourceVersion":"7"},"spec":{"holderIdentity":%q,"leaseDurationSeconds":10,"renewTime":%q,"leaseTransitions":3}}`,
			holder, renewed.Format(microTime)))
	}
	cases := map[string]struct {
		get  http.HandlerFunc // nil: there is no such lease
		put  int              // status of the write, 0: 200
		want error
	}{
		"a lease that does not exist is made":          {},
		"a lease that somebody makes first is held":    {put: 409, want: ErrHeld},
		"a free lease is taken":                        {get: lease("", now)},
		"an expired lease is taken":                    {get: lease("b", now.Add(-11*time.Second))},
		"one's own lease is taken again":               {get: lease("a", now)},
		"another's lease is held":                      {get: lease("b", now.Add(-9*time.Second)), want: ErrHeld},
		"a lease that changes under our hands is held": {get: lease("", now), put: 409, want: ErrHeld},
		"a server that fails is an error":              {get: lease("", now), put: 500, want: ErrUnavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			const collection = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
			if c.get != nil {
				a.on("GET", collection+"/plan", c.get)
			}
			write := func(w http.ResponseWriter, _ *http.Request) {
				if c.put != 0 {
					refuse(w, c.put, "Conflict")
					return
				}
				fmt.Fprint(w, `{"metadata":{"resourceVersion":"8"}}`)
			}
			a.on("POST", collection, write)
			a.on("PUT", collection+"/plan", write)
			a.on("PATCH", collection+"/plan", answer(`{}`))
			release, err := a.client().AcquireLease(t.Context(), "kube-system", "plan", "a", 9500*time.Millisecond, now)
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				return
			}
			spec := a.writes()[0].Body["spec"].(map[string]any)
			require.Equal(t, "a", spec["holderIdentity"])
			require.Equal(t, 10.0, spec["leaseDurationSeconds"]) //nolint:testifylint // JSON numbers
			require.NoError(t, release(t.Context()))
			require.Equal(t, "8", a.writes()[1].Body["metadata"].(map[string]any)["resourceVersion"])
		})
	}
}
