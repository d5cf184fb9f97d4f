package cluster

import "slices"

// Matches reports whether labels meet the selector. A nil selector matches nothing, an empty one everything (S-117).
func (s *Selector) Matches(labels map[string]string) bool {
	if s == nil {
		return false
	}
	for _, e := range s.Expressions {
		value, present := labels[e.Key]
		if !e.matches(value, present) {
			return false
		}
	}
	return true
}

// matches reports whether a label with the given state meets e as a label selector, whose keys are taken as they are.
func (e Expression) matches(value string, present bool) bool {
	switch e.Operator {
	case In:
		return present && slices.Contains(e.Values, value)
	case NotIn:
		return !present || !slices.Contains(e.Values, value)
	case Exists:
		return present
	case DoesNotExist:
		return !present
	default: // label selectors know no other
		return false
	}
}

// And returns a selector that asks for e too. And of a nil selector is nil, as nothing stays nothing.
func (s *Selector) And(e Expression) *Selector {
	if s == nil {
		return nil
	}
	return &Selector{Expressions: append(slices.Clone(s.Expressions), e)}
}
