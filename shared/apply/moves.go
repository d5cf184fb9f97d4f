package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Objects writes the objects that a move changes. Patches write the differences between two states of an object, in one call, and
// make no call where there is none; they answer plan.ErrConflict if the object was changed since it was read. Deleting or
// evicting what is gone is plan.ErrNotFound.
type Objects interface {
	PatchNodeClaim(ctx context.Context, old, new cluster.NodeClaim) (cluster.NodeClaim, error)
	PatchNodeClaimStatus(ctx context.Context, old, new cluster.NodeClaim) (cluster.NodeClaim, error)
	DeleteNodeClaim(ctx context.Context, name, uid string) error
	PatchNode(ctx context.Context, old, new cluster.Node) error
	DeleteNode(ctx context.Context, name cluster.NodeName, uid string) error
	Evict(ctx context.Context, pod cluster.PodRef) error
	DeletePod(ctx context.Context, pod cluster.PodRef, graceSeconds *int64) error
	Event(ctx context.Context, e plan.Event) error
	Nominate(ctx context.Context, pod cluster.PodRef, node cluster.NodeName) error
}

// Instances ends instances; ending one that is gone is no error.
type Instances interface {
	Terminate(ctx context.Context, ids ...cluster.InstanceID) error
}

// Mover carries out moves. It is safe for concurrent use.
type Mover struct {
	Cluster   string
	Kube      Objects
	Instances Instances
	Log       *slog.Logger
}

// inParallel is how many moves are carried out at a time: enough to hide the API server's latency, too few to trouble it.
const inParallel = 16

// Move carries out the moves, several at a time, and returns their errors joined. A conflict, and an object that is gone, are
// not among them: the next look sees what happened. ok reports whether every move went through as it was decided.
func (m *Mover) Move(ctx context.Context, moves []plan.Move) (ok bool, err error) {
	errs := make([]error, len(moves))
	Each(len(moves), func(i int) { errs[i] = m.one(ctx, moves[i]) })
	stale := func(err error) bool {
		return errors.Is(err, plan.ErrConflict) || errors.Is(err, plan.ErrNotFound) || errors.Is(err, plan.ErrBudget)
	}
	ok = !slices.ContainsFunc(errs, func(err error) bool { return err != nil })
	for i, err := range errs {
		if stale(err) {
			m.Log.DebugContext(ctx, "move put off", "cluster", m.Cluster, "reason", moves[i].Reason, "error", err)
		}
	}
	return ok, errors.Join(slices.DeleteFunc(errs, stale)...)
}

// Each calls f for 0 to n−1, several at a time, and returns when all calls have.
func Each(n int, f func(i int)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, inParallel)
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wait.Wait()
}

// one carries out a move in the order of its fields.
func (m *Mover) one(ctx context.Context, move plan.Move) error {
	log := m.Log.With("cluster", m.Cluster, "reason", move.Reason)
	if move.Claim != nil {
		log = log.With("nodeclaim", move.Claim.Name, "nodepool", move.Claim.NodePool())
	}
	if move.Node != nil {
		log = log.With("node", move.Node.Name)
	}
	if err := m.write(ctx, move); err != nil {
		return err
	}
	for _, e := range move.Events {
		if err := m.Kube.Event(ctx, e); err != nil {
			log.WarnContext(ctx, "event not written", "event", e.Reason, "error", err) // never a reason to hold up work
		}
	}
	for _, pod := range move.Nominate {
		if err := m.Kube.Nominate(ctx, pod, move.Node.Name); err != nil {
			log.DebugContext(ctx, "node not nominated", "pod", pod.Name, "error", err) // the scheduler will find its own way
		}
	}
	if move.DeleteClaim {
		log.InfoContext(ctx, "deleting nodeclaim")
		if err := m.Kube.DeleteNodeClaim(ctx, move.Claim.Name, move.Claim.UID); err != nil {
			return fmt.Errorf("delete nodeclaim %s: %w", move.Claim.Name, err)
		}
	}
	if move.DeleteNode {
		log.InfoContext(ctx, "deleting node")
		if err := m.Kube.DeleteNode(ctx, move.Node.Name, move.Node.UID); err != nil {
			return fmt.Errorf("delete node %s: %w", move.Node.Name, err)
		}
	}
	if err := m.clear(ctx, log, move); err != nil {
		return err
	}
	if move.Terminate != "" {
		log.InfoContext(ctx, "terminating instance", "instance", move.Terminate)
		if err := m.Instances.Terminate(ctx, move.Terminate); err != nil {
			return fmt.Errorf("terminate instance %s: %w", move.Terminate, err)
		}
		log.InfoContext(ctx, "instance terminating", "instance", move.Terminate)
	}
	if move.Release {
		return m.release(ctx, log, move)
	}
	return nil
}

// write patches the node before the claim: what keeps pods away comes before what says that they are kept away.
func (m *Mover) write(ctx context.Context, move plan.Move) error {
	if move.WantNode != nil {
		if err := m.Kube.PatchNode(ctx, *move.Node, *move.WantNode); err != nil {
			return fmt.Errorf("patch node %s: %w", move.Node.Name, err)
		}
	}
	if move.WantClaim == nil {
		return nil
	}
	now, err := m.Kube.PatchNodeClaim(ctx, *move.Claim, *move.WantClaim)
	if err != nil {
		return fmt.Errorf("patch nodeclaim %s: %w", move.Claim.Name, err)
	}
	want := *move.WantClaim
	want.ResourceVersion = now.ResourceVersion
	old := *move.Claim
	old.ResourceVersion = now.ResourceVersion
	if _, err := m.Kube.PatchNodeClaimStatus(ctx, old, want); err != nil {
		return fmt.Errorf("patch status of nodeclaim %s: %w", move.Claim.Name, err)
	}
	return nil
}

// clear asks the pods of a node to go.
func (m *Mover) clear(ctx context.Context, log *slog.Logger, move plan.Move) error {
	var errs []error
	for _, pod := range move.Evict {
		err := m.Kube.Evict(ctx, pod)
		switch {
		case err == nil:
			log.InfoContext(ctx, "pod evicted", "namespace", pod.Namespace, "pod", pod.Name)
			_ = m.Kube.Event(ctx, plan.PodEvent(pod, "Evicted", false, "evicted to drain its node"))
		case errors.Is(err, plan.ErrBudget):
			_ = m.Kube.Event(ctx, plan.NodeEvent(move.Node, "FailedDraining", true, "a disruption budget holds pod "+pod.Namespace+"/"+pod.Name))
			errs = append(errs, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err))
		case errors.Is(err, plan.ErrNotFound), errors.Is(err, plan.ErrConflict):
			// gone, or another pod of that name by now
		default:
			errs = append(errs, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	for _, kill := range move.Kill {
		_ = m.Kube.Event(ctx, plan.PodEvent(kill.Pod, "Disrupted", true, "deleted to meet the termination deadline of its node"))
		err := m.Kube.DeletePod(ctx, kill.Pod, &kill.GraceSeconds)
		if err != nil && !errors.Is(err, plan.ErrNotFound) && !errors.Is(err, plan.ErrConflict) {
			errs = append(errs, fmt.Errorf("delete pod %s/%s: %w", kill.Pod.Namespace, kill.Pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// release lets the node go, and then the claim: a claim without a node is finished by the next look, a node without a claim
// would be nobody's.
func (m *Mover) release(ctx context.Context, log *slog.Logger, move plan.Move) error {
	if move.Node != nil {
		if err := m.Kube.DeleteNode(ctx, move.Node.Name, move.Node.UID); err != nil && !errors.Is(err, plan.ErrNotFound) {
			return fmt.Errorf("delete node %s: %w", move.Node.Name, err)
		}
		free := *move.Node
		free.Finalizers = without(free.Finalizers)
		free.ResourceVersion = "" // the deletion changed it; a list of finalizers with ours gone is right whatever else changed
		old := *move.Node
		old.ResourceVersion = ""
		if err := m.Kube.PatchNode(ctx, old, free); err != nil && !errors.Is(err, plan.ErrNotFound) {
			return fmt.Errorf("release node %s: %w", move.Node.Name, err)
		}
	}
	if move.Claim == nil {
		return nil
	}
	free := *move.Claim
	free.Finalizers = without(free.Finalizers)
	if _, err := m.Kube.PatchNodeClaim(ctx, *move.Claim, free); err != nil {
		return fmt.Errorf("release nodeclaim %s: %w", move.Claim.Name, err)
	}
	log.InfoContext(ctx, "nodeclaim released", "instance", cluster.InstanceOf(move.Claim.ProviderID))
	return nil
}

func without(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(s string) bool { return s == cluster.FinalizerTermination })
}
