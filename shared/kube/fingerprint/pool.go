package fingerprint

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/mitchellh/hashstructure/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeClaimTemplate is what of spec.template of a NodePool is hashed.
type NodeClaimTemplate struct {
	ObjectMeta `json:"metadata"`
	Spec       NodeClaimTemplateSpec `json:"spec"`
}

// ObjectMeta is what the nodes of a pool carry.
type ObjectMeta struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// NodeClaimTemplateSpec leaves the requirements out: they are checked against the node itself.
type NodeClaimTemplateSpec struct {
	Taints                 []corev1.Taint      `json:"taints"`
	StartupTaints          []corev1.Taint      `json:"startupTaints"`
	NodeClassRef           *NodeClassReference `json:"nodeClassRef"`
	TerminationGracePeriod *metav1.Duration    `json:"terminationGracePeriod"`
	ExpireAfter            NillableDuration    `json:"expireAfter"`
}

// NodeClassReference names a node class.
type NodeClassReference struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Group string `json:"group"`
}

// NillableDuration is a duration, or nil for "Never".
type NillableDuration struct {
	*time.Duration
}

// UnmarshalJSON reads a Go duration or "Never".
func (d *NillableDuration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	if text == "Never" {
		*d = NillableDuration{}
		return nil
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	d.Duration = &length
	return nil
}

// NodePool returns the hash of a NodePool, which is given as JSON; it is of version cluster.HashVersionNodePool.
func NodePool(object []byte) (string, error) {
	var pool struct {
		Spec struct {
			Template NodeClaimTemplate `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(object, &pool); err != nil {
		return "", fmt.Errorf("hash of a nodepool: %w", err)
	}
	return sum(pool.Spec.Template)
}

func sum(v any) (string, error) {
	n, err := hashstructure.Hash(v, hashstructure.FormatV2, &hashstructure.HashOptions{SlicesAsSets: true, IgnoreZeroValue: true, ZeroNil: true})
	return strconv.FormatUint(n, 10), err
}
