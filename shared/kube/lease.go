package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

type wireLease struct {
	typeMeta
	Metadata objectMeta `json:"metadata"`
	Spec     leaseSpec  `json:"spec"`
}

type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"`
	LeaseDurationSeconds int64  `json:"leaseDurationSeconds"`
	AcquireTime          string `json:"acquireTime,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     int32  `json:"leaseTransitions"`
}

// free reports whether nobody, or holder itself, holds the lease at that instant. A lease that cannot be read is free: only a
// broken writer can have left it.
func (s leaseSpec) free(holder string, now time.Time) bool {
	if s.HolderIdentity == "" || s.HolderIdentity == holder {
		return true
	}
	renewed, err := time.Parse(time.RFC3339, s.RenewTime)
	return err != nil || renewed.Add(time.Duration(s.LeaseDurationSeconds)*time.Second).Before(now)
}

// AcquireLease takes the lease for holder until ttl has passed, rounded up to seconds, and returns what gives it back earlier. Taking a lease that holder
// has anew extends it. ErrHeld: somebody else has it. It never waits.
func (c *Client) AcquireLease(ctx context.Context, namespace, name, holder string, ttl time.Duration, now time.Time) (release func(context.Context) error, err error) {
	collection := "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/leases"
	path := collection + "/" + url.PathEscape(name)
	var lease wireLease
	err = c.do(ctx, request{method: http.MethodGet, path: path}, nil, &lease)
	create := errors.Is(err, ErrNotFound)
	if err != nil && !create {
		return nil, wrap(err, "acquire", "Lease", name)
	}
	if !lease.Spec.free(holder, now) {
		return nil, fmt.Errorf("acquire Lease %s: %w: %s", name, ErrHeld, lease.Spec.HolderIdentity)
	}
	at := now.UTC().Format(microTime)
	lease.Spec = leaseSpec{
		HolderIdentity:       holder,
		LeaseDurationSeconds: int64((ttl + time.Second - 1) / time.Second),
		AcquireTime:          at,
		RenewTime:            at,
		LeaseTransitions:     lease.Spec.LeaseTransitions + 1,
	}
	r := request{method: http.MethodPut, path: path}
	if create {
		lease.typeMeta = typeMeta{"coordination.k8s.io/v1", "Lease"}
		lease.Metadata = objectMeta{Name: name, Namespace: namespace}
		r = request{method: http.MethodPost, path: collection}
	}
	var taken wireLease
	err = c.do(ctx, r, lease, &taken)
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrExists) {
		return nil, fmt.Errorf("acquire Lease %s: %w", name, ErrHeld)
	}
	if err != nil {
		return nil, wrap(err, "acquire", "Lease", name)
	}
	return func(ctx context.Context) error {
		body := document{
			"metadata": document{"resourceVersion": taken.Metadata.ResourceVersion},
			"spec":     document{"holderIdentity": "", "leaseDurationSeconds": 1},
		}
		err := c.do(ctx, request{method: http.MethodPatch, path: path, contentType: mimeMergePatch}, body, nil)
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
			return nil // it expired and is another's by now
		}
		return wrap(err, "release", "Lease", name)
	}, nil
}
