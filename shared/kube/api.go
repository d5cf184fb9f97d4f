package kube

import (
	"encoding/json"
	"strings"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/kube/fingerprint"
)

// Karpenter's objects as JSON: NodePool and NodeClaim of karpenter.sh/v1 here, EC2NodeClass in api_nodeclass.go. Karpenter's own Go types
// would bring its controller runtime into every function. A test of another module holds these against its published schemas.

const (
	poolGroup  = "karpenter.sh"
	classGroup = "karpenter.k8s.aws"
	apiVersion = poolGroup + "/v1"

	poolsPath   = "/apis/karpenter.sh/v1/nodepools"
	claimsPath  = "/apis/karpenter.sh/v1/nodeclaims"
	classesPath = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"

	kindNodePool  = "NodePool"
	kindNodeClaim = "NodeClaim"
	kindNodeClass = "EC2NodeClass"
)

// Carried returns, by kind, an empty value of what this package reads and writes of Karpenter's API. Tests compare its JSON
// fields with the published schemas.
func Carried() map[string]any {
	return map[string]any{kindNodePool: wireNodePool{}, kindNodeClaim: wireNodeClaim{}, kindNodeClass: wireNodeClass{}}
}

type typeMeta struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
}

type wireNodePool struct {
	typeMeta
	Metadata objectMeta     `json:"metadata"`
	Spec     wirePoolSpec   `json:"spec"`
	Status   wirePoolStatus `json:"status"`
}

type wirePoolSpec struct {
	Template   wireTemplate      `json:"template"`
	Disruption wireDisruption    `json:"disruption"`
	Limits     map[string]number `json:"limits,omitempty"`
	Weight     *int32            `json:"weight,omitempty"`
	Replicas   *int64            `json:"replicas,omitempty"`
}

type wireTemplate struct {
	Metadata struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec wireNodeSpec `json:"spec"`
}

// wireNodeSpec is what a pool's template and a claim have in common.
type wireNodeSpec struct {
	Requirements           []wireRequirement `json:"requirements"`
	Taints                 []wireTaint       `json:"taints,omitempty"`
	StartupTaints          []wireTaint       `json:"startupTaints,omitempty"`
	NodeClassRef           wireClassRef      `json:"nodeClassRef"`
	ExpireAfter            string            `json:"expireAfter,omitempty"`
	TerminationGracePeriod string            `json:"terminationGracePeriod,omitempty"`
}

type wireClassRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

type wireRequirement struct {
	wireExpression
	MinValues int `json:"minValues,omitempty"`
}

type wireExpression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

type wireTaint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

type wireDisruption struct {
	ConsolidateAfter    string       `json:"consolidateAfter,omitempty"`
	ConsolidationPolicy string       `json:"consolidationPolicy,omitempty"`
	Budgets             []wireBudget `json:"budgets,omitempty"`
}

type wireBudget struct {
	Nodes    string   `json:"nodes"`
	Schedule string   `json:"schedule,omitempty"`
	Duration string   `json:"duration,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
}

type wirePoolStatus struct {
	Resources  map[string]number `json:"resources,omitempty"`
	Nodes      int64             `json:"nodes"`
	Conditions []wireCondition   `json:"conditions,omitempty"`
}

type wireNodeClaim struct {
	typeMeta
	Metadata objectMeta      `json:"metadata"`
	Spec     wireClaimSpec   `json:"spec"`
	Status   wireClaimStatus `json:"status"`
}

type wireClaimSpec struct {
	wireNodeSpec
	Resources struct {
		Requests map[string]number `json:"requests,omitempty"`
	} `json:"resources"`
}

type wireClaimStatus struct {
	NodeName         string            `json:"nodeName,omitempty"`
	ProviderID       string            `json:"providerID,omitempty"`
	ImageID          string            `json:"imageID,omitempty"`
	Capacity         map[string]number `json:"capacity,omitempty"`
	Allocatable      map[string]number `json:"allocatable,omitempty"`
	Conditions       []wireCondition   `json:"conditions,omitempty"`
	LastPodEventTime *time.Time        `json:"lastPodEventTime,omitempty"`
}

type wireCondition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	ObservedGeneration int64     `json:"observedGeneration,omitempty"`
}

// number is a quantity: the API accepts a bare number for it as well as a string.
type number string

// UnmarshalJSON accepts a string or a number.
func (n *number) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(n))
	}
	*n = number(raw)
	return nil
}

// problems collects what of an object cannot be understood.
type problems []string

func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}

func (p problems) String() string { return strings.Join(p, "; ") }

// hash returns the hash of an object. One that cannot be understood has none.
func (p *problems) hash(sum string, err error) string {
	if len(*p) == 0 {
		p.add(err)
	}
	return sum
}

func (p *problems) seconds(field, text string) int64 {
	if text == "" {
		return 0
	}
	n, err := parseSeconds(field, text)
	p.add(err)
	return n
}

func (p *problems) amounts(field string, in map[string]number) map[string]int64 {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]int64, len(in))
	for _, name := range sortedKeys(in) {
		n, err := parseAmount(field+"."+name, name, string(in[name]))
		p.add(err)
		out[name] = n
	}
	return out
}

func (p *problems) resources(field string, in map[string]number) cluster.Resources {
	var r cluster.Resources
	for name, n := range p.amounts(field, in) {
		r.Set(name, n)
	}
	return r
}

// decodeWire reads an object of Karpenter's API. Whatever is not of the form that the schema promises is a problem of that
// object alone: its metadata is still read, so that it can be shown and told.
func decodeWire[W any](raw []byte, into *W) (meta, problems, error) {
	var head struct {
		Metadata objectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return meta{}, nil, err
	}
	m, err := head.Metadata.meta()
	if err != nil {
		return m, nil, err
	}
	var p problems
	p.add(json.Unmarshal(raw, into))
	return m, p, nil
}

func nodePoolSource() source[cluster.NodePool] {
	return source[cluster.NodePool]{
		path:        poolsPath,
		json:        true,
		decode:      decodeNodePool,
		unversioned: func(p *cluster.NodePool) { p.ResourceVersion = "" },
	}
}

func decodeNodePool(raw []byte, _ *interner) (meta, cluster.NodePool, error) {
	var w wireNodePool
	m, bad, err := decodeWire(raw, &w)
	if err != nil {
		return m, cluster.NodePool{}, err
	}
	node, t := w.Spec.Template.Spec, w.Spec.Template.Metadata
	p := cluster.NodePool{
		Name:            m.name,
		UID:             m.uid,
		ResourceVersion: m.resourceVersion(),
		Generation:      m.generation,
		Annotations:     m.annotations,
		DeletionUnix:    m.deletionUnix,
		Replicas:        w.Spec.Replicas,
		Limits:          bad.amounts("spec.limits", w.Spec.Limits),
		Template: cluster.NodeTemplate{
			Labels:                        t.Labels,
			Annotations:                   t.Annotations,
			Requirements:                  expressions(node.Requirements),
			Taints:                        fromTaints(node.Taints),
			StartupTaints:                 fromTaints(node.StartupTaints),
			NodeClassGroup:                node.NodeClassRef.Group,
			NodeClassKind:                 node.NodeClassRef.Kind,
			NodeClass:                     node.NodeClassRef.Name,
			ExpireAfterSeconds:            bad.expiry("spec.template.spec.expireAfter", node.ExpireAfter),
			TerminationGracePeriodSeconds: bad.optionalSeconds("spec.template.spec.terminationGracePeriod", node.TerminationGracePeriod),
		},
		ConsolidationPolicy: w.Spec.Disruption.ConsolidationPolicy,
		StatusResources:     bad.resources("status.resources", w.Status.Resources),
		StatusNodes:         w.Status.Nodes,
		Conditions:          fromConditions(w.Status.Conditions),
	}
	if w.Spec.Weight != nil {
		p.Weight = *w.Spec.Weight
	}
	if after := w.Spec.Disruption.ConsolidateAfter; after != never {
		n := bad.seconds("spec.disruption.consolidateAfter", after)
		p.ConsolidateAfterSeconds = &n
	}
	for _, b := range w.Spec.Disruption.Budgets {
		p.Budgets = append(p.Budgets, cluster.Budget{
			Nodes:           b.Nodes,
			Schedule:        b.Schedule,
			DurationSeconds: bad.seconds("spec.disruption.budgets.duration", b.Duration),
			Reasons:         b.Reasons,
		})
	}
	p.Hash = bad.hash(fingerprint.NodePool(raw))
	p.Invalid = bad.String()
	return m, p, nil
}

func nodeClaimSource() source[cluster.NodeClaim] {
	return source[cluster.NodeClaim]{
		path:        claimsPath,
		json:        true,
		decode:      func(raw []byte, _ *interner) (meta, cluster.NodeClaim, error) { return decodeNodeClaim(raw) },
		unversioned: func(c *cluster.NodeClaim) { c.ResourceVersion = "" },
	}
}

func decodeNodeClaim(raw []byte) (meta, cluster.NodeClaim, error) {
	var w wireNodeClaim
	m, bad, err := decodeWire(raw, &w)
	if err != nil {
		return m, cluster.NodeClaim{}, err
	}
	c := cluster.NodeClaim{
		Name:                          m.name,
		UID:                           m.uid,
		ResourceVersion:               m.resourceVersion(),
		Generation:                    m.generation,
		Labels:                        m.labels,
		Annotations:                   m.annotations,
		Finalizers:                    m.finalizers,
		Requirements:                  expressions(w.Spec.Requirements),
		Requests:                      bad.resources("spec.resources.requests", w.Spec.Resources.Requests),
		Taints:                        fromTaints(w.Spec.Taints),
		StartupTaints:                 fromTaints(w.Spec.StartupTaints),
		NodeClass:                     w.Spec.NodeClassRef.Name,
		ExpireAfterSeconds:            bad.expiry("spec.expireAfter", w.Spec.ExpireAfter),
		TerminationGracePeriodSeconds: bad.optionalSeconds("spec.terminationGracePeriod", w.Spec.TerminationGracePeriod),
		NodeName:                      cluster.NodeName(w.Status.NodeName),
		ProviderID:                    w.Status.ProviderID,
		ImageID:                       w.Status.ImageID,
		Capacity:                      bad.resources("status.capacity", w.Status.Capacity),
		Allocatable:                   bad.resources("status.allocatable", w.Status.Allocatable),
		Conditions:                    fromConditions(w.Status.Conditions),
		LastPodEventUnix:              unix(w.Status.LastPodEventTime),
		CreatedUnix:                   m.createdUnix,
		DeletionUnix:                  m.deletionUnix,
	}
	for _, o := range m.owners {
		if o.Kind == kindNodePool {
			c.OwnerPool = cluster.Owner{Kind: o.Kind, Name: o.Name, UID: o.UID}
		}
	}
	c.Invalid = bad.String()
	return m, c, nil
}

// expiry reads a duration that may be Never, which is 0.
func (p *problems) expiry(field, text string) int64 {
	if text == never {
		return 0
	}
	return p.seconds(field, text)
}

func (p *problems) optionalSeconds(field, text string) *int64 {
	if text == "" {
		return nil
	}
	n := p.seconds(field, text)
	return &n
}

func expressions(in []wireRequirement) []cluster.Expression {
	var out []cluster.Expression
	for _, r := range in {
		e := expression(r.wireExpression)
		e.MinValues = r.MinValues
		out = append(out, e)
	}
	return out
}

func expression(w wireExpression) cluster.Expression {
	return cluster.Expression{Key: stableKey(w.Key), Operator: cluster.Operator(w.Operator), Values: w.Values}
}

func toExpression(e cluster.Expression) wireExpression {
	return wireExpression{Key: e.Key, Operator: string(e.Operator), Values: e.Values}
}

func toRequirements(in []cluster.Expression) []wireRequirement {
	out := make([]wireRequirement, 0, len(in)) // required by the schema, even if empty
	for _, e := range in {
		out = append(out, wireRequirement{toExpression(e), e.MinValues})
	}
	return out
}

func fromTaints(in []wireTaint) []cluster.Taint {
	var out []cluster.Taint
	for _, t := range in {
		out = append(out, cluster.Taint{Key: t.Key, Value: t.Value, Effect: cluster.Effect(t.Effect)})
	}
	return out
}

func toTaints(in []cluster.Taint) []wireTaint {
	var out []wireTaint
	for _, t := range in {
		out = append(out, wireTaint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return out
}

func fromConditions(in []wireCondition) cluster.Conditions {
	var out cluster.Conditions
	for _, c := range in {
		out = append(out, cluster.Condition{
			Type:               c.Type,
			Status:             c.Status,
			Reason:             c.Reason,
			Message:            c.Message,
			TransitionUnix:     unix(&c.LastTransitionTime),
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	return out
}

// toConditions gives every condition a reason, which the schema requires; Karpenter's, where there is nothing to say, is the type.
func toConditions(in cluster.Conditions) []wireCondition {
	var out []wireCondition
	for _, c := range in {
		out = append(out, wireCondition{
			Type:               c.Type,
			Status:             c.Status,
			Reason:             orElse(c.Reason, c.Type),
			Message:            c.Message,
			LastTransitionTime: time.Unix(c.TransitionUnix, 0).UTC(),
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	return out
}

func toNumbers(r cluster.Resources) map[string]number {
	var out map[string]number
	for name, text := range quantities(r) {
		if out == nil {
			out = map[string]number{}
		}
		out[name] = number(text)
	}
	return out
}

func toTime(unixSeconds int64) *time.Time {
	if unixSeconds == 0 {
		return nil
	}
	t := time.Unix(unixSeconds, 0).UTC()
	return &t
}
