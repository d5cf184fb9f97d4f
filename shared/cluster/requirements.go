package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Requirements holds what a node must be like: at most one Requirement for a key, sorted by key. It is never changed once
// made. Nil asks for nothing.
type Requirements []Requirement

// NewRequirements merges labels, each as In with one value (S-014), and expressions into one requirement a key. Keys with
// older names are read as the current ones (S-022).
func NewRequirements(labels map[string]string, expressions ...Expression) Requirements {
	all := make(Requirements, 0, len(labels)+len(expressions))
	for key, value := range labels {
		all = append(all, Requirement{Key: NormalKey(key), values: []string{value}})
	}
	for _, e := range expressions {
		all = append(all, e.Requirement())
	}
	return merge(all)
}

// merge sorts all by key and intersects what shares a key.
func merge(all Requirements) Requirements {
	slices.SortStableFunc(all, compareKeys)
	out := all[:0]
	for _, r := range all {
		if last := len(out) - 1; last >= 0 && out[last].Key == r.Key {
			out[last] = out[last].Intersect(r)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Get returns the requirement on key, and whether there is one.
func (rs Requirements) Get(key string) (Requirement, bool) {
	i, found := slices.BinarySearchFunc(rs, Requirement{Key: key}, compareKeys)
	if !found {
		return Requirement{}, false
	}
	return rs[i], true
}

// Allows reports whether a node whose label key has the given value meets rs; a key without requirement allows everything.
func (rs Requirements) Allows(key, value string) bool {
	r, found := rs.Get(key)
	return !found || r.Has(value)
}

// Intersect returns the requirements of both. Use Impossible to see whether a node can still meet them.
func (rs Requirements) Intersect(o Requirements) Requirements {
	return merge(slices.Concat(rs, o))
}

// Impossible returns the first requirement that no node can meet, and whether there is one.
func (rs Requirements) Impossible() (Requirement, bool) {
	for _, r := range rs {
		if r.Impossible() {
			return r, true
		}
	}
	return Requirement{}, false
}

// Without returns rs without the keys for which drop returns true.
func (rs Requirements) Without(drop func(key string) bool) Requirements {
	return slices.DeleteFunc(slices.Clone(rs), func(r Requirement) bool { return drop(r.Key) })
}

// MeetsLabels returns the first requirement that a node with exactly these labels does not meet, and false if there is one.
func (rs Requirements) MeetsLabels(labels map[string]string) (Requirement, bool) {
	for _, r := range rs {
		value, present := labels[r.Key]
		if present && !r.Has(value) || !present && !r.absent {
			return r, false
		}
	}
	return Requirement{}, true
}

// Conflict says in a few words why a node made from rs cannot meet what a pod wants; "" if it can. Keys that rs does not
// mention are free if they are well known (S-009), and absent otherwise (S-008).
func (rs Requirements) Conflict(wants Requirements) string {
	for _, want := range wants {
		have, defined := rs.Get(want.Key)
		switch {
		case !defined && !WellKnown(want.Key):
			if !want.absent {
				return fmt.Sprintf("wants %s, a label that the pool does not define%s", want, rs.hint(want.Key))
			}
		case !defined:
			if want.Impossible() {
				return fmt.Sprintf("wants %s, which contradicts itself", want.Key)
			}
		case have.Intersect(want).Impossible():
			return fmt.Sprintf("wants %s, the pool has %s", want, have)
		}
	}
	return ""
}

// Equal reports whether rs and o are the same requirements.
func (rs Requirements) Equal(o Requirements) bool {
	return slices.EqualFunc(rs, o, Requirement.Equal)
}

// Expressions returns rs as a user would write it, by key.
func (rs Requirements) Expressions() []Expression {
	out := make([]Expression, 0, len(rs))
	for _, r := range rs {
		out = append(out, r.Expressions()...)
	}
	return out
}

// Labels returns the labels that a node made from rs gets before EC2 has chosen anything: one allowed value for each key
// that is not well known and must or may be present (S-011).
func (rs Requirements) Labels() map[string]string {
	out := map[string]string{}
	for _, r := range rs {
		if WellKnown(r.Key) || Restricted(r.Key) {
			continue
		}
		if value, ok := r.Any(); ok {
			out[r.Key] = value
		}
	}
	return out
}

// String writes rs for a person and as a key: equal requirements have equal text.
func (rs Requirements) String() string {
	var b strings.Builder
	for i, r := range rs {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(r.text(len(r.values)))
		if r.MinValues > 0 {
			fmt.Fprintf(&b, " (at least %d values)", r.MinValues)
		}
	}
	return b.String()
}
