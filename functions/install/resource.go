package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/cfn"

	"treadle/shared/store"
)

const (
	// retryEvery and retryReserve are for a cluster that does not let the function in yet: access entries take effect some seconds after
	// they are made.
	retryEvery   = 5 * time.Second
	retryReserve = 15 * time.Second
)

// resource takes the function's events: those of CloudFormation, for which a cluster's installation is a custom resource, and plain ones.
type resource struct {
	*Handler
	// Respond answers CloudFormation with what a function returns; it is cfn.LambdaWrap.
	Respond func(cfn.CustomResourceFunction) cfn.CustomResourceLambdaFunction
	Sleep   func(context.Context, time.Duration)
}

// handle tells the two kinds apart by the field that all of CloudFormation's have.
func (r *resource) handle(ctx context.Context, raw json.RawMessage) (any, error) {
	var kind struct{ RequestType string }
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	if kind.RequestType == "" {
		var e Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fmt.Errorf("event: %w", err)
		}
		return r.Handle(ctx, e)
	}
	var e cfn.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("event of CloudFormation: %w", err)
	}
	return r.Respond(r.change)(ctx, e)
}

// change installs, or on deletion uninstalls. The resource is known by its cluster, so that naming another one installs there first and
// uninstalls here then. A cluster that is gone needs no uninstalling, and what was never installed can always be deleted: a failed
// creation is rolled back that way.
func (r *resource) change(ctx context.Context, e cfn.Event) (id string, data map[string]any, err error) {
	name, _ := e.ResourceProperties["Cluster"].(string)
	url, _ := e.ResourceProperties["WebhookURL"].(string)
	id = "treadle/" + name
	if e.RequestType == cfn.RequestDelete {
		if !store.ValidClusterName(name) {
			return e.PhysicalResourceID, nil, nil
		}
		_, err := r.Handle(ctx, Event{Action: "uninstall", Cluster: name})
		if errors.Is(err, store.ErrNotFound) {
			err = r.Registry.DeleteCluster(ctx, name)
		}
		return e.PhysicalResourceID, nil, err
	}
	for {
		_, err = r.Handle(ctx, Event{Action: "install", Cluster: name, WebhookURL: url})
		deadline, limited := ctx.Deadline()
		if err == nil || !limited || time.Until(deadline) < retryReserve || errors.Is(err, store.ErrNotFound) {
			return id, nil, err
		}
		r.Log.WarnContext(ctx, "cluster not installed yet, trying again", "cluster", name, "error", err)
		r.Sleep(ctx, retryEvery)
	}
}
