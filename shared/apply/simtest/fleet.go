package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// answer is what a client token was answered.
type answer struct {
	request string
	result  plan.Result
	err     error
}

// endingSeconds is how long an instance takes to end.
const endingSeconds = 5

// Launch answers as apply.Fleet asks for: a token once answered is answered the same again, and only for the same request.
func (w *World) Launch(_ context.Context, r plan.Request) (out plan.Result, err error) {
	request, err := json.Marshal(r)
	if err != nil {
		return plan.Result{}, err
	}
	err = w.write("launch "+r.Launch.Group, func() error {
		if before, known := w.answered[r.Token]; known {
			if before.request != string(request) {
				w.Misused++
				return fmt.Errorf("token %s: %w", r.Token, plan.ErrMismatch)
			}
			out = before.result
			return before.err
		}
		given := r.Count
		if w.Give != nil {
			if given, err = w.Give(r.Count); err != nil {
				return err
			}
		}
		w.Launches++
		out = w.launch(r, given)
		if given == 0 {
			err = fmt.Errorf("group %s: %w", r.Launch.Group, plan.ErrNoCapacity)
		}
		w.answered[r.Token] = answer{string(request), out, err}
		return err
	})
	return out, err
}

func (w *World) launch(r plan.Request, given int) plan.Result {
	w.serial++
	out := plan.Result{FleetID: fmt.Sprintf("fleet-%04d", w.serial)}
	o := r.Launch.Configs[0].Overrides[0]
	tags := maps.Clone(r.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[cluster.TagLaunch] = r.Token
	for range given {
		out.Instances = append(out.Instances, *w.start(o.InstanceType, o.Zone, r.Launch.CapacityType, tags))
	}
	if given < r.Count {
		out.Refusals = append(out.Refusals, plan.Refusal{
			InstanceType: o.InstanceType, Zone: o.Zone, CapacityType: r.Launch.CapacityType,
			Code: "InsufficientInstanceCapacity", Message: "sold out", Kind: plan.RefusedCapacity,
		})
	}
	return out
}

func (w *World) start(kind, zone string, capacityType cluster.CapacityType, tags map[string]string) *cluster.Instance {
	w.serial++
	one := &cluster.Instance{
		ID: cluster.InstanceID(fmt.Sprintf("i-%04d", w.serial)), Type: kind, Zone: zone, CapacityType: capacityType, ImageID: "ami-1",
		State: cluster.InstancePending, LaunchUnix: w.now, Tags: tags,
	}
	w.Instances[one.ID] = one
	return one
}

// Terminate lets instances end.
func (w *World) Terminate(_ context.Context, ids ...cluster.InstanceID) error {
	return w.write(fmt.Sprint("terminate ", ids), func() error {
		for _, id := range ids {
			if one := w.Instances[id]; one != nil && one.State != cluster.InstanceTerminated && one.State != cluster.InstanceShuttingDown {
				one.State, w.ending[id] = cluster.InstanceShuttingDown, w.now+endingSeconds
			}
		}
		return nil
	})
}

// Describe returns those of the instances that EC2 knows.
func (w *World) Describe(_ context.Context, ids ...cluster.InstanceID) ([]cluster.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []cluster.Instance
	for _, id := range ids {
		if one := w.Instances[id]; one != nil {
			out = append(out, *one)
		}
	}
	return out, nil
}

// List returns every instance that has not ended.
func (w *World) List(context.Context) ([]cluster.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []cluster.Instance
	for _, id := range slices.Sorted(maps.Keys(w.Instances)) {
		if one := w.Instances[id]; one.State != cluster.InstanceTerminated {
			out = append(out, *one)
		}
	}
	return out, nil
}

// Tag tags an instance.
func (w *World) Tag(_ context.Context, id cluster.InstanceID, tags map[string]string) error {
	return w.write("tag instance "+string(id), func() error {
		one := w.Instances[id]
		if one == nil {
			return fmt.Errorf("instance %s: %w", id, plan.ErrNotFound)
		}
		one.Tags = maps.Clone(one.Tags)
		if one.Tags == nil {
			one.Tags = map[string]string{}
		}
		maps.Copy(one.Tags, tags)
		return nil
	})
}

// Sights returns what EC2 says about every instance that a claim or a node of the snapshot names.
func (w *World) Sights(snap *cluster.Snapshot) cluster.Sights {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := cluster.Sights{}
	look := func(providerID string) {
		if id := cluster.InstanceOf(providerID); id != "" {
			out[id] = cluster.Sight{}
			if one := w.Instances[id]; one != nil {
				out[id] = cluster.Sight{Instance: *one, Found: true}
			}
		}
	}
	for i := range snap.NodeClaims {
		look(snap.NodeClaims[i].ProviderID)
	}
	for i := range snap.Nodes {
		look(snap.Nodes[i].ProviderID)
	}
	return out
}
