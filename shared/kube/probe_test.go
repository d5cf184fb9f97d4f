package kube

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProbes_ReadAtMostOneObject(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	c := a.client()
	some := answer(`{"items":[{"metadata":{"name":"x"}}]}`)
	a.on("GET", "/api/v1/pods", some)
	has, err := c.HasPendingPods(t.Context())
	require.NoError(t, err)
	require.True(t, has)
	require.Equal(t, 1, a.count("GET", "/api/v1/pods", "fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending&limit=1"))
	a.on("GET", "/api/v1/pods", answer(`{"items":[]}`))
	has, err = c.HasPendingPods(t.Context())
	require.NoError(t, err)
	require.False(t, has)

	has, err = c.HasNodeClaims(t.Context())
	require.NoError(t, err, "a kind that the API does not know is empty")
	require.False(t, has)
	a.on("GET", claimsPath, some)
	has, err = c.HasNodeClaims(t.Context())
	require.NoError(t, err)
	require.True(t, has)
	a.on("GET", claimsPath, func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusForbidden, "Forbidden") })
	_, err = c.HasNodeClaims(t.Context())
	require.ErrorIs(t, err, ErrForbidden)
}
