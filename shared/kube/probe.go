package kube

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// HasPendingPods reports whether a pod waits for a node. It reads at most one pod, so it is cheap in a cluster of any size.
func (c *Client) HasPendingPods(ctx context.Context) (bool, error) {
	return c.any(ctx, "/api/v1/pods", url.Values{"fieldSelector": {"spec.nodeName=,status.phase=Pending"}})
}

// HasNodeClaims reports whether there is a NodeClaim; false where the API does not know the kind.
func (c *Client) HasNodeClaims(ctx context.Context) (bool, error) {
	return c.any(ctx, claimsPath, url.Values{})
}

// HasCapacityBuffers reports whether there is a CapacityBuffer; false where the API does not know the kind.
func (c *Client) HasCapacityBuffers(ctx context.Context) (bool, error) {
	return c.any(ctx, buffersPath, url.Values{})
}

func (c *Client) any(ctx context.Context, path string, query url.Values) (bool, error) {
	query.Set("limit", "1")
	var list struct {
		Items []metaOnly `json:"items"`
	}
	err := c.do(ctx, request{method: http.MethodGet, path: path, query: query, accept: metadataMime}, nil, &list)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return len(list.Items) > 0, wrap(err, "look for", "objects", path)
}
