package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ValidateTemplate checks what the schema of a NodePool cannot: labels and requirements on restricted keys, values that no
// node can have, taints given twice (N-001 to N-005, N-025). The error names every field at fault and what would be right.
func ValidateTemplate(t NodeTemplate) error {
	var errs []error
	for _, key := range sortedKeys(t.Labels) {
		if key == LabelNodePool || key == LabelHostname || Restricted(key) {
			errs = append(errs, fmt.Errorf("spec.template.metadata.labels: %q may not be set by a pool", key))
		}
	}
	for i, e := range t.Requirements {
		if err := validateExpression(e); err != nil {
			errs = append(errs, fmt.Errorf("spec.template.spec.requirements[%d]: %w", i, err))
		}
	}
	type spot struct {
		key    string
		effect Effect
	}
	seen := map[spot]bool{}
	for _, taint := range slices.Concat(t.Taints, t.StartupTaints) {
		at := spot{taint.Key, taint.Effect}
		if seen[at] {
			errs = append(errs, fmt.Errorf("spec.template.spec: taint %s:%s is given twice", taint.Key, taint.Effect))
		}
		seen[at] = true
	}
	return errors.Join(errs...)
}

func validateExpression(e Expression) error {
	key := NormalKey(e.Key)
	if key == LabelNodePool || Restricted(key) {
		return fmt.Errorf("key %q may not be used by a pool", e.Key)
	}
	switch e.Operator {
	case In:
		if len(e.Values) == 0 {
			return fmt.Errorf("key %q: operator In needs at least one value", e.Key)
		}
		if e.MinValues > len(e.Values) {
			return fmt.Errorf("key %q: minValues is %d with %d values", e.Key, e.MinValues, len(e.Values))
		}
	case NotIn:
	case Exists, DoesNotExist:
		if len(e.Values) > 0 {
			return fmt.Errorf("key %q: operator %s takes no values", e.Key, e.Operator)
		}
	case Gt, Lt, Gte, Lte:
		if len(e.Values) != 1 {
			return fmt.Errorf("key %q: operator %s needs exactly one value", e.Key, e.Operator)
		}
		if n, err := strconv.ParseInt(e.Values[0], 10, 64); err != nil || n < 0 {
			return fmt.Errorf("key %q: operator %s needs a whole number from 0 up, not %q", e.Key, e.Operator, e.Values[0])
		}
	default:
		return fmt.Errorf("key %q: operator %q is none of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte", e.Key, e.Operator)
	}
	known := map[string][]string{
		LabelCapacityType:                    {string(OnDemand), string(Spot), string(Reserved)},
		"karpenter.k8s.aws/instance-tenancy": {"default", "dedicated"},
	}
	if values := known[key]; values != nil && e.Operator == In && !slices.ContainsFunc(e.Values, func(v string) bool { return slices.Contains(values, v) }) {
		return fmt.Errorf("key %q: none of its values is one of %v", e.Key, values)
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
