package kube

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// meta is the part of an object's metadata that Treadle reads.
type meta struct {
	name, namespace, uid string
	version              uint64
	generation           int64
	createdUnix          int64
	deletionUnix         int64
	deletionGraceSeconds int64
	labels, annotations  map[string]string
	owners               []ownerReference
	finalizers           []string
}

// key identifies the object within its kind.
func (m *meta) key() string {
	if m.namespace == "" {
		return m.name
	}
	return m.namespace + "/" + m.name
}

// resourceVersion is the version as the API writes it.
func (m *meta) resourceVersion() string { return strconv.FormatUint(m.version, 10) }

// controller returns the owner that controls the object.
func (m *meta) controller() ownerReference {
	for _, o := range m.owners {
		if o.Controller {
			return o
		}
	}
	return ownerReference{}
}

// ownerReference is metav1.OwnerReference.
type ownerReference struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         bool   `json:"controller,omitempty"`
	BlockOwnerDeletion bool   `json:"blockOwnerDeletion,omitempty"`
}

// parseVersion reads a resource version. Versions of one kind are ordered numbers, which Kubernetes promises since 1.35.
func parseVersion(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q is no number", s)
	}
	return v, nil
}

// interner keeps one copy of each string and of each set of labels, because thousands of objects carry equal ones.
type interner struct {
	strings map[string]string
	maps    map[string]map[string]string
	scratch []byte
}

func newInterner() *interner {
	return &interner{strings: map[string]string{}, maps: map[string]map[string]string{}}
}

func (in *interner) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := in.strings[string(b)]; ok {
		return s
	}
	s := string(b)
	in.strings[s] = s
	return s
}

// pairs returns the map whose entries, in protobuf and in the order in which the API server sorts them, are raw.
func (in *interner) pairs(raw []byte) (map[string]string, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if m, ok := in.maps[string(raw)]; ok {
		return m, nil
	}
	m := map[string]string{}
	err := fields(raw, func(entry field) error {
		k, v, err := pair(entry.bytes)
		m[in.text(k)] = in.text(v)
		return err
	})
	if err != nil {
		return nil, err
	}
	in.maps[string(raw)] = m
	return m, nil
}

// pair takes a map entry apart.
func pair(entry []byte) (k, v []byte, err error) {
	err = fields(entry, func(f field) error {
		switch f.number {
		case 1:
			k = f.bytes
		case 2:
			v = f.bytes
		}
		return nil
	})
	return k, v, err
}

// lastApplied is what kubectl notes on everything that it applies: a copy of the object, of no use here.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// decodeMeta reads an ObjectMeta. Only annotations that keep accepts are read.
func decodeMeta(msg []byte, in *interner, keep func(annotation []byte) bool) (meta, error) {
	var m meta
	labels := in.scratch[:0]
	err := fields(msg, func(f field) (err error) {
		switch f.number {
		case 1:
			m.name = string(f.bytes)
		case 3:
			m.namespace = in.text(f.bytes)
		case 5:
			m.uid = string(f.bytes)
		case 6:
			m.version, err = parseVersion(string(f.bytes))
		case 7:
			m.generation = f.int()
		case 8:
			m.createdUnix, err = decodeTime(f.bytes)
		case 9:
			m.deletionUnix, err = decodeTime(f.bytes)
		case 10:
			m.deletionGraceSeconds = f.int()
		case 11:
			labels = appendField(labels, f)
		case 12:
			err = m.annotate(f.bytes, in, keep)
		case 13:
			var o ownerReference
			o, err = decodeOwner(f.bytes, in)
			m.owners = append(m.owners, o)
		case 14:
			m.finalizers = append(m.finalizers, in.text(f.bytes))
		}
		return err
	})
	if err != nil {
		return m, fmt.Errorf("metadata: %w", err)
	}
	m.labels, err = in.pairs(labels)
	in.scratch = labels
	return m, err
}

func (m *meta) annotate(entry []byte, in *interner, keep func([]byte) bool) error {
	k, v, err := pair(entry)
	if err != nil || !keep(k) {
		return err
	}
	if m.annotations == nil {
		m.annotations = map[string]string{}
	}
	m.annotations[in.text(k)] = string(v)
	return nil
}

func notLastApplied(annotation []byte) bool { return !bytes.Equal(annotation, []byte(lastApplied)) }

func decodeTime(msg []byte) (int64, error) {
	var unix int64
	err := fields(msg, func(f field) error {
		if f.number == 1 {
			unix = f.int()
		}
		return nil
	})
	return unix, err
}

func decodeOwner(msg []byte, in *interner) (ownerReference, error) {
	var o ownerReference
	err := fields(msg, func(f field) error {
		switch f.number {
		case 1:
			o.Kind = in.text(f.bytes)
		case 3:
			o.Name = in.text(f.bytes)
		case 4:
			o.UID = in.text(f.bytes)
		case 5:
			o.APIVersion = in.text(f.bytes)
		case 6:
			o.Controller = f.num != 0
		}
		return nil
	})
	return o, err
}

// objectMeta is metav1.ObjectMeta in JSON.
type objectMeta struct {
	Name                       string            `json:"name,omitempty"`
	Namespace                  string            `json:"namespace,omitempty"`
	UID                        string            `json:"uid,omitempty"`
	ResourceVersion            string            `json:"resourceVersion,omitempty"`
	Generation                 int64             `json:"generation,omitempty"`
	CreationTimestamp          *time.Time        `json:"creationTimestamp,omitempty"`
	DeletionTimestamp          *time.Time        `json:"deletionTimestamp,omitempty"`
	DeletionGracePeriodSeconds int64             `json:"deletionGracePeriodSeconds,omitempty"`
	Labels                     map[string]string `json:"labels,omitempty"`
	Annotations                map[string]string `json:"annotations,omitempty"`
	OwnerReferences            []ownerReference  `json:"ownerReferences,omitempty"`
	Finalizers                 []string          `json:"finalizers,omitempty"`
}

func (o objectMeta) meta() (meta, error) {
	version, err := parseVersion(o.ResourceVersion)
	delete(o.Annotations, lastApplied)
	return meta{
		name: o.Name, namespace: o.Namespace, uid: o.UID, version: version, generation: o.Generation,
		createdUnix: unix(o.CreationTimestamp), deletionUnix: unix(o.DeletionTimestamp),
		deletionGraceSeconds: o.DeletionGracePeriodSeconds,
		labels:               o.Labels, annotations: o.Annotations, owners: o.OwnerReferences, finalizers: o.Finalizers,
	}, err
}

func unix(t *time.Time) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.Unix()
}

// trim forgets what was interned when there is far more of it than a kind of n objects can still use.
func (in *interner) trim(n int) {
	if limit := 8*n + 10_000; len(in.strings)+len(in.maps) > limit {
		clear(in.strings)
		clear(in.maps)
	}
}
