package kube

import (
	"context"
	"net/http"

	"treadle/shared/cluster"
)

// Nominate tells the scheduler on which node a pending pod is expected: it tries that node first, and keeps the room there from
// other pods of the same priority. Schedulers before Kubernetes 1.35 do not read it from others and drop it. ErrNotFound and
// ErrConflict: that pod is gone.
func (c *Client) Nominate(ctx context.Context, pod cluster.PodRef, node cluster.NodeName) error {
	body := document{"metadata": document{"uid": pod.UID}, "status": document{"nominatedNodeName": node}}
	r := request{method: http.MethodPatch, path: podPath(pod) + "/status", contentType: mimeMergePatch}
	return wrap(c.do(ctx, r, body, nil), "nominate node for", "Pod", pod.Namespace+"/"+pod.Name)
}
