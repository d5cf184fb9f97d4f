package apply

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// Claims creates NodeClaims. The error is plan.ErrExists where the name is taken.
type Claims interface {
	CreateNodeClaim(ctx context.Context, c cluster.NodeClaim) (cluster.NodeClaim, error)
}

// NodeClaim returns the claim to write for a planned one: made from the template of its pool, and carrying the launch that it
// stands for and the pods that it is meant for. Create names it. A claim without a launch is launched by whoever finds it so.
func NodeClaim(pool *cluster.NodePool, class *cluster.NodeClass, c plan.Claim, launch plan.Launch) cluster.NodeClaim {
	t := pool.Template
	labels := maps.Clone(t.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, r := range c.Requirements {
		if r.Operator == cluster.In && len(r.Values) == 1 {
			labels[r.Key] = r.Values[0]
		}
	}
	labels[cluster.LabelNodePool] = pool.Name
	labels[cluster.LabelNodeClass] = t.NodeClass
	annotations := maps.Clone(t.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[cluster.AnnotationNodePoolHash] = pool.Hash
	annotations[cluster.AnnotationNodePoolHashVersion] = cluster.HashVersionNodePool
	annotations[cluster.AnnotationNodeClassHash] = class.Hash
	annotations[cluster.AnnotationNodeClassHashVersion] = cluster.HashVersionNodeClass
	if launch.Group != "" {
		annotations[cluster.AnnotationLaunch] = launch.Annotation()
	}
	annotations[cluster.AnnotationPlanned] = cluster.FormatPlanned(c.Pods)
	if c.MinValuesRelaxed {
		annotations[cluster.AnnotationMinValuesRelaxed] = "true"
	}
	return cluster.NodeClaim{
		Labels:                        labels,
		Annotations:                   annotations,
		Finalizers:                    []string{cluster.FinalizerTermination},
		OwnerPool:                     cluster.Owner{Kind: "NodePool", Name: pool.Name, UID: pool.UID},
		Requirements:                  c.Requirements,
		Requests:                      c.Requests,
		Taints:                        t.Taints,
		StartupTaints:                 t.StartupTaints,
		NodeClass:                     t.NodeClass,
		ExpireAfterSeconds:            t.ExpireAfterSeconds,
		TerminationGracePeriodSeconds: t.TerminationGracePeriodSeconds,
	}
}

// ClaimName returns the name of the nth claim of a launch group, in the form of Kubernetes' generated names. try tells further
// names apart where one is taken.
func ClaimName(pool, group string, n, try int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // those of Kubernetes: no vowels, so no words
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d/%d", group, n, try) // a hash cannot fail
	sum := h.Sum64()
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[sum%uint64(len(letters))]
		sum /= uint64(len(letters))
	}
	return pool + "-" + string(suffix)
}

// Create writes the claims of one launch group and returns them as the API server has them, those that were written also beside an
// error. wants holds claims as NodeClaim makes them; their names are chosen here.
func Create(ctx context.Context, kube Claims, group string, wants []cluster.NodeClaim) ([]cluster.NodeClaim, error) {
	made := make([]cluster.NodeClaim, len(wants))
	errs := make([]error, len(wants))
	Each(len(wants), func(i int) { made[i], errs[i] = create(ctx, kube, group, i, wants[i]) })
	out := make([]cluster.NodeClaim, 0, len(wants))
	for i := range made {
		if errs[i] == nil {
			out = append(out, made[i])
		}
	}
	return out, errors.Join(errs...)
}

func create(ctx context.Context, kube Claims, group string, n int, want cluster.NodeClaim) (cluster.NodeClaim, error) {
	const tries = 4
	for try := range tries {
		want.Name = ClaimName(want.NodePool(), group, n, try)
		made, err := kube.CreateNodeClaim(ctx, want)
		if errors.Is(err, plan.ErrExists) {
			continue
		}
		if err != nil {
			return cluster.NodeClaim{}, fmt.Errorf("create nodeclaim %s: %w", want.Name, err)
		}
		return made, nil
	}
	return cluster.NodeClaim{}, fmt.Errorf("create nodeclaim for group %s: %w: %d names in a row", group, plan.ErrExists, tries)
}
