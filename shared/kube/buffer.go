package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"treadle/shared/cluster"
)

const (
	buffersPath = "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers"
	kindBuffer  = "CapacityBuffer"
	appsGroup   = "apps"
)

type wireBuffer struct {
	typeMeta
	Metadata objectMeta       `json:"metadata"`
	Spec     wireBufferSpec   `json:"spec"`
	Status   wireBufferStatus `json:"status"`
}

type wireBufferSpec struct {
	ProvisioningStrategy string            `json:"provisioningStrategy,omitempty"`
	PodTemplateRef       *wireLocalRef     `json:"podTemplateRef,omitempty"`
	ScalableRef          *wireScalableRef  `json:"scalableRef,omitempty"`
	Replicas             *int64            `json:"replicas,omitempty"`
	Percentage           *int64            `json:"percentage,omitempty"`
	Limits               map[string]number `json:"limits,omitempty"`
}

type wireLocalRef struct {
	Name string `json:"name"`
}

type wireScalableRef struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

type wireBufferStatus struct {
	PodTemplateRef        *wireLocalRef   `json:"podTemplateRef,omitempty"`
	Replicas              *int64          `json:"replicas,omitempty"`
	PodTemplateGeneration *int64          `json:"podTemplateGeneration,omitempty"`
	Conditions            []wireCondition `json:"conditions,omitempty"`
	ProvisioningStrategy  string          `json:"provisioningStrategy,omitempty"`
}

func bufferSource() source[cluster.CapacityBuffer] {
	return source[cluster.CapacityBuffer]{
		path:        buffersPath,
		json:        true,
		decode:      decodeBuffer,
		unversioned: func(b *cluster.CapacityBuffer) { b.ResourceVersion = "" },
	}
}

func decodeBuffer(raw []byte, _ *interner) (meta, cluster.CapacityBuffer, error) {
	var w wireBuffer
	m, bad, err := decodeWire(raw, &w)
	if err != nil {
		return m, cluster.CapacityBuffer{}, err
	}
	b := cluster.CapacityBuffer{
		Namespace:       m.namespace,
		Name:            m.name,
		UID:             m.uid,
		ResourceVersion: m.resourceVersion(),
		Generation:      m.generation,
		CreatedUnix:     m.createdUnix,
		DeletionUnix:    m.deletionUnix,
		Strategy:        w.Spec.ProvisioningStrategy,
		Replicas:        w.Spec.Replicas,
		Percentage:      w.Spec.Percentage,
		Limits:          bad.amounts("spec.limits", w.Spec.Limits),
		Status: cluster.CapacityBufferStatus{
			PodTemplateGeneration: w.Status.PodTemplateGeneration,
			Replicas:              w.Status.Replicas,
			Strategy:              w.Status.ProvisioningStrategy,
			Conditions:            fromConditions(w.Status.Conditions),
		},
	}
	if ref := w.Status.PodTemplateRef; ref != nil {
		b.Status.PodTemplate = ref.Name
	}
	switch pods, scalable := w.Spec.PodTemplateRef, w.Spec.ScalableRef; {
	case pods != nil && scalable != nil:
		bad.add(errors.New("spec.podTemplateRef, spec.scalableRef: only one of them may be set"))
	case pods != nil:
		b.Template = cluster.TemplateRef{Kind: cluster.KindPodTemplate, Namespace: m.namespace, Name: pods.Name}
	case scalable != nil:
		b.Template = cluster.TemplateRef{Group: scalable.APIGroup, Kind: scalable.Kind, Namespace: m.namespace, Name: scalable.Name}
	}
	b.Invalid = bad.String()
	return m, b, nil
}

// PatchCapacityBufferStatus writes the status fields in which next differs from old. ErrConflict: somebody else wrote to the buffer.
func (c *Client) PatchCapacityBufferStatus(ctx context.Context, old, next cluster.CapacityBuffer) error {
	part := func(b *cluster.CapacityBuffer) any {
		s := wireBufferStatus{
			Replicas:              b.Status.Replicas,
			PodTemplateGeneration: b.Status.PodTemplateGeneration,
			Conditions:            toConditions(b.Status.Conditions),
			ProvisioningStrategy:  b.Status.Strategy,
		}
		if b.Status.PodTemplate != "" {
			s.PodTemplateRef = &wireLocalRef{b.Status.PodTemplate}
		}
		return statusOnly{s}
	}
	path := namespaced("/apis/autoscaling.x-k8s.io/v1beta1", old.Namespace, "capacitybuffers", old.Name) + "/status"
	_, err := c.patch(ctx, target{path, old.UID, old.ResourceVersion}, part(&old), part(&next), nil)
	return wrap(err, "patch status of", kindBuffer, old.Namespace+"/"+old.Name)
}

func namespaced(prefix, namespace, plural, name string) string {
	return prefix + "/namespaces/" + url.PathEscape(namespace) + "/" + plural + "/" + url.PathEscape(name)
}

// podTemplate reads what a buffer names. What cannot be read says so in its Fault.
func (c *Client) podTemplate(ctx context.Context, ref cluster.TemplateRef) cluster.PodTemplate {
	out := cluster.PodTemplate{TemplateRef: ref}
	if ref.Kind == "" {
		return out
	}
	err := c.readTemplate(ctx, &out)
	if err != nil {
		out.Spec, out.Absent, out.Fault = nil, errors.Is(err, ErrNotFound), fmt.Sprintf("read %s %s/%s: %v", ref.Kind, ref.Namespace, ref.Name, err)
	}
	return out
}

func (c *Client) readTemplate(ctx context.Context, t *cluster.PodTemplate) error {
	var (
		path     string
		template *corev1.PodTemplateSpec
		replicas **int32
		into     func([]byte) error
	)
	switch t.Group + "/" + t.Kind {
	case "/" + cluster.KindPodTemplate:
		var object corev1.PodTemplateSpec
		path, template, into = namespaced("/api/v1", t.Namespace, "podtemplates", t.Name), &object, object.Unmarshal
	case appsGroup + "/" + cluster.KindDeployment:
		var spec appsv1.DeploymentSpec
		path, template, replicas, into = namespaced("/apis/apps/v1", t.Namespace, "deployments", t.Name), &spec.Template, &spec.Replicas, spec.Unmarshal
	case appsGroup + "/" + cluster.KindStatefulSet:
		var spec appsv1.StatefulSetSpec
		path, template, replicas, into = namespaced("/apis/apps/v1", t.Namespace, "statefulsets", t.Name), &spec.Template, &spec.Replicas, spec.Unmarshal
	case appsGroup + "/" + cluster.KindReplicaSet:
		var spec appsv1.ReplicaSetSpec
		path, template, replicas, into = namespaced("/apis/apps/v1", t.Namespace, "replicasets", t.Name), &spec.Template, &spec.Replicas, spec.Unmarshal
	default:
		return errors.New("scalableRef: kind must be Deployment, StatefulSet or ReplicaSet of group apps")
	}
	res, err := c.open(ctx, request{method: http.MethodGet, path: path, accept: mimeProtobuf})
	if err != nil {
		return err
	}
	defer finish(res.Body)
	body, err := io.ReadAll(io.LimitReader(res.Body, maxItem))
	if err != nil {
		return err
	}
	raw, err := unwrap(body)
	if err != nil {
		return err
	}
	m, err := decodeCore(raw, newInterner(), map[int]part{2: {nil, into}})
	if err != nil {
		return err
	}
	t.Generation, t.Labels = m.generation, template.Labels
	t.Spec = podSpec(&template.Spec, &corev1.PodStatus{})
	if replicas != nil {
		t.Replicas = 1 // what the API takes for none given
		if *replicas != nil {
			t.Replicas = int64(**replicas)
		}
	}
	return nil
}
