package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"treadle/shared/cluster"
)

// What of a node is decoded: not its images, which are most of it.
//
//nolint:gochecknoglobals // compiled tables
var (
	nodeSpecMask   = mask{3: nil, 4: nil, 5: nil}                                          // providerID, unschedulable, taints
	nodeStatusMask = mask{1: nil, 2: nil, 4: mask{1: nil, 2: nil, 4: nil, 5: nil, 6: nil}} // capacity, allocatable, conditions
)

func nodeSource() source[cluster.Node] {
	return source[cluster.Node]{
		path:        "/api/v1/nodes",
		decode:      decodeNode,
		unversioned: func(n *cluster.Node) { n.ResourceVersion = "" },
	}
}

func decodeNode(raw []byte, in *interner) (meta, cluster.Node, error) {
	var (
		spec   corev1.NodeSpec
		status corev1.NodeStatus
	)
	m, err := decodeCore(raw, in, map[int]part{2: {nodeSpecMask, spec.Unmarshal}, 3: {nodeStatusMask, status.Unmarshal}})
	n := cluster.Node{
		Name:            cluster.NodeName(m.name),
		UID:             m.uid,
		ResourceVersion: m.resourceVersion(),
		ProviderID:      spec.ProviderID,
		Labels:          m.labels,
		Annotations:     m.annotations,
		Finalizers:      m.finalizers,
		Taints:          taints(spec.Taints),
		Unschedulable:   spec.Unschedulable,
		Capacity:        resources(status.Capacity),
		Allocatable:     resources(status.Allocatable),
		CreatedUnix:     m.createdUnix,
		DeletionUnix:    m.deletionUnix,
	}
	for _, o := range m.owners {
		if o.Kind == "NodeClaim" {
			n.OwnedBy, n.OwnedByName = o.UID, o.Name
		}
	}
	for _, c := range status.Conditions {
		n.Conditions = append(n.Conditions, cluster.Condition{
			Type:           in.text([]byte(c.Type)),
			Status:         in.text([]byte(c.Status)),
			Reason:         in.text([]byte(c.Reason)),
			Message:        in.text([]byte(c.Message)),
			TransitionUnix: unix(&c.LastTransitionTime.Time),
		})
	}
	return m, n, err
}

func taints(in []corev1.Taint) []cluster.Taint {
	var out []cluster.Taint
	for _, t := range in {
		out = append(out, cluster.Taint{Key: t.Key, Value: t.Value, Effect: cluster.Effect(t.Effect)})
	}
	return out
}

// part says how a field of an object is decoded: what of it is wanted (nil: all), and by what.
type part struct {
	mask mask
	into func([]byte) error // an Unmarshal method
}

// decodeCore reads the metadata of an object of a built-in kind and the parts asked for, by field number.
func decodeCore(raw []byte, in *interner, parts map[int]part) (meta, error) {
	var m meta
	err := fields(raw, func(f field) (err error) {
		if f.number == 1 {
			m, err = decodeMeta(f.bytes, in, notLastApplied)
			return err
		}
		p, wanted := parts[f.number]
		if !wanted {
			return nil
		}
		msg := f.bytes
		if p.mask != nil {
			if msg, err = p.mask.prune(nil, msg); err != nil {
				return err
			}
		}
		if err = p.into(msg); err != nil {
			return fmt.Errorf("field %d: %w", f.number, err)
		}
		return nil
	})
	return m, err
}

// csiNode is how many volumes of each driver a node can have attached.
type csiNode struct{ limits map[string]int }

func csiNodeSource() source[csiNode] {
	return source[csiNode]{path: "/apis/storage.k8s.io/v1/csinodes", decode: decodeCSINode}
}

func decodeCSINode(raw []byte, in *interner) (meta, csiNode, error) {
	var spec storagev1.CSINodeSpec
	m, err := decodeCore(raw, in, map[int]part{2: {nil, spec.Unmarshal}})
	var n csiNode
	for _, d := range spec.Drivers {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		if n.limits == nil {
			n.limits = map[string]int{}
		}
		n.limits[in.text([]byte(d.Name))] = int(*d.Allocatable.Count)
	}
	return m, n, err
}

// namespace is the labels of a namespace, for selectors of namespaces.
type namespace struct{ labels map[string]string }

func namespaceSource() source[namespace] {
	return source[namespace]{
		path: "/api/v1/namespaces",
		decode: func(raw []byte, in *interner) (meta, namespace, error) {
			m, err := decodeCore(raw, in, nil)
			return m, namespace{m.labels}, err
		},
	}
}
