package kube

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

const coreGroups = `{"items":[{"metadata":{},"versions":[{"version":"v1","resources":[
	{"resource":"namespaces","responseKind":{"kind":"Namespace"},"scope":"Cluster"},
	{"resource":"configmaps","responseKind":{"kind":"ConfigMap"},"scope":"Namespaced"}]}]}]}`

const otherGroups = `{"items":[{"metadata":{"name":"apiextensions.k8s.io"},"versions":[{"version":"v1","resources":[
	{"resource":"customresourcedefinitions","responseKind":{"kind":"CustomResourceDefinition"},"scope":"Cluster"}]}]}]}`

const withWidgets = `{"items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[
	{"resource":"widgets","responseKind":{"kind":"Widget"},"scope":"Cluster"}]}]}]}`

const file = `# a comment, and no object
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
--- # the next
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data:
  text: |
    one
     ---
    two
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
---
`

func manifestAPI(t *testing.T) *api {
	t.Helper()
	a := newAPI(t)
	a.on("GET", "/api", answer(coreGroups))
	a.on("GET", "/apis", answer(otherGroups))
	return a
}

func paths(calls []call) []string {
	var out []string
	for _, c := range calls {
		out = append(out, c.Method+" "+c.Path)
	}
	return out
}

func TestApply_WritesInOrderAndWaitsForDefinitions(t *testing.T) {
	t.Parallel()
	a := manifestAPI(t)
	const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
	for _, path := range []string{"/api/v1/namespaces/shop", "/api/v1/namespaces/shop/configmaps/settings", crd, "/apis/example.com/v1/widgets/w"} {
		a.on("PATCH", path, answer(`{}`))
	}
	polls := 0
	a.on("GET", crd, func(w http.ResponseWriter, r *http.Request) {
		if polls++; polls == 1 {
			answer(`{}`)(w, r)
			return
		}
		a.on("GET", "/apis", answer(withWidgets))
		answer(`{"status":{"conditions":[{"type":"Established","status":"True"}]}}`)(w, r)
	})
	require.NoError(t, a.client().Apply(t.Context(), []byte(file)))
	require.Equal(t, []string{
		"PATCH /api/v1/namespaces/shop", "PATCH /api/v1/namespaces/shop/configmaps/settings", "PATCH " + crd, "PATCH /apis/example.com/v1/widgets/w",
	}, paths(a.writes()))
	second := a.writes()[1]
	require.Equal(t, "fieldManager=treadle&force=true", second.Query)
	require.Equal(t, "application/apply-patch+yaml", second.ContentType)
	require.Equal(t, map[string]any{"text": "one\n ---\ntwo\n"}, second.Body["data"])
	require.Equal(t, 2, polls)
}

func TestDelete_GoesBackwardsAndPassesOverWhatIsGone(t *testing.T) {
	t.Parallel()
	a := manifestAPI(t)
	a.on("DELETE", "/api/v1/namespaces/shop", answer(`{}`))
	require.NoError(t, a.client().Delete(t.Context(), []byte(file)))
	require.Equal(t, []string{
		"DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
		"DELETE /api/v1/namespaces/shop/configmaps/settings", "DELETE /api/v1/namespaces/shop",
	}, paths(a.writes()))
}

func TestApply_NamesTheDocumentThatIsWrong(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		file, message string
		kind          error
	}{
		"a document that is no YAML":        {"# nothing\n---\na: [", "document 2: invalid", ErrInvalid},
		"a document without a name":         {"apiVersion: v1\nkind: Namespace", "document 1: invalid: no apiVersion, kind or name", ErrInvalid},
		"a key that is there twice":         {"apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: x}", "document 1: invalid", ErrInvalid},
		"a kind that is not served":         {"apiVersion: v2\nkind: Namespace\nmetadata: {name: x}", "apply Namespace x: v2 Namespace: kind is not served", errUnserved},
		"an object that the server refuses": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: x}", "apply Namespace x: PATCH /api/v1/namespaces/x: 404", ErrNotFound},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := manifestAPI(t).client().Apply(t.Context(), []byte(c.file))
			require.ErrorContains(t, err, c.message)
			require.ErrorIs(t, err, c.kind)
		})
	}
}

func TestStripFinalizers_TakesOffOnlyTheNamedOnes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.on("GET", "/api/v1/nodes", answer(`{"items":[
		{"metadata":{"name":"n1","uid":"u1","resourceVersion":"5","finalizers":["theirs","karpenter.sh/termination"]}},
		{"metadata":{"name":"n2","uid":"u2","resourceVersion":"6","finalizers":["theirs"]}}]}`))
	a.on("GET", claimsPath, answer(`{"items":[{"metadata":{"name":"c1","uid":"u3","resourceVersion":"7","finalizers":["karpenter.sh/termination"]}}]}`))
	a.on("PATCH", "/api/v1/nodes/n1", answer(`{}`))
	a.on("PATCH", claimsPath+"/c1", func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusConflict, "Conflict") })
	changed, err := a.client().StripFinalizers(t.Context(), "karpenter.sh/termination")
	require.ErrorIs(t, err, ErrConflict)
	require.Equal(t, 1, changed)
	require.Equal(t, map[string]any{"metadata": map[string]any{"uid": "u1", "resourceVersion": "5", "finalizers": []any{"theirs"}}}, a.writes()[0].Body)
}
