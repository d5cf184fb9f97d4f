package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Operator is the relation between a label and the values of a requirement.
type Operator string

// The operators of NodePool requirements and of node affinity (S-001).
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	Gt           Operator = "Gt"
	Lt           Operator = "Lt"
	Gte          Operator = "Gte"
	Lte          Operator = "Lte"
)

// Expression is one requirement as a user wrote it: in a NodePool, a NodeClaim or a pod's node affinity. MinValues is zero
// where none was given.
type Expression struct {
	Key       string   `json:"key"`
	Operator  Operator `json:"operator"`
	Values    []string `json:"values,omitempty"`
	MinValues int      `json:"minValues,omitempty"`
}

// Requirement is the set of states that a label may be in: some values, and perhaps absent. It is what one or several
// expressions on a key come to. The zero value allows nothing. Requirements are never changed once made, so copies may share
// their values.
type Requirement struct {
	Key       string
	MinValues int

	values []string // sorted; the values allowed or, if other is set, the values ruled out
	other  bool     // every value that is not listed is allowed
	absent bool     // the label may be missing
	low    int64    // with bounded: only integers from low to high
	high   int64
	bound  bool
}

// Requirement returns what e means. An operator that is not known, or a bound that is not an integer, allows nothing.
func (e Expression) Requirement() Requirement {
	r := Requirement{Key: NormalKey(e.Key), MinValues: e.MinValues}
	switch e.Operator {
	case In:
		r.values = sortedSet(e.Values)
	case NotIn:
		r.values, r.other, r.absent = sortedSet(e.Values), true, true
	case Exists:
		r.other = true
	case DoesNotExist:
		r.absent = true
	case Gt, Gte, Lt, Lte:
		if len(e.Values) == 1 {
			r.limit(e.Operator, e.Values[0])
		}
	}
	return r
}

// limit bounds r by an integer. Gt of the largest integer and Lt of the smallest leave nothing (S-002).
func (r *Requirement) limit(op Operator, value string) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || op == Gt && n == math.MaxInt64 || op == Lt && n == math.MinInt64 {
		return
	}
	r.other, r.bound, r.low, r.high = true, true, math.MinInt64, math.MaxInt64
	switch op {
	case Gt:
		r.low = n + 1
	case Gte:
		r.low = n
	case Lt:
		r.high = n - 1
	default:
		r.high = n
	}
}

// Has reports whether the label may have the given value. Under a bound only integers count (S-003).
func (r Requirement) Has(value string) bool {
	if _, listed := slices.BinarySearch(r.values, value); listed == r.other {
		return false
	}
	return r.within(value)
}

func (r Requirement) within(value string) bool {
	if !r.bound {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && r.low <= n && n <= r.high
}

// AllowsAbsent reports whether a node without the label meets r.
func (r Requirement) AllowsAbsent() bool { return r.absent }

// Impossible reports whether no node can meet r.
func (r Requirement) Impossible() bool { return !r.absent && r.forbidsValues() }

// forbidsValues reports whether no value is allowed.
func (r Requirement) forbidsValues() bool {
	if !r.other {
		return len(r.values) == 0
	}
	if !r.bound {
		return false
	}
	if r.low > r.high {
		return true
	}
	// Fewer integers in the range than values ruled out: look whether one is left.
	//nolint:gosec // the difference of two integers fits, whatever wraps on the way
	if span := uint64(r.high) - uint64(r.low); span >= uint64(len(r.values)) {
		return false
	}
	_, free := r.firstInteger()
	return !free
}

// firstInteger returns the smallest allowed integer of a bounded requirement.
func (r Requirement) firstInteger() (int64, bool) {
	for n := max(r.low, 0); n <= r.high; n++ {
		if _, listed := slices.BinarySearch(r.values, strconv.FormatInt(n, 10)); !listed {
			return n, true
		}
		if n == math.MaxInt64 {
			break
		}
	}
	for n := r.low; n < 0 && n <= r.high; n++ {
		if _, listed := slices.BinarySearch(r.values, strconv.FormatInt(n, 10)); !listed {
			return n, true
		}
	}
	return 0, false
}

// Values returns the values that r allows if they are a list, and whether they are. The caller must not change them.
func (r Requirement) Values() ([]string, bool) {
	if r.other {
		return nil, false
	}
	return r.values, true
}

// Intersect returns the states that both allow. Both must have the same key; the larger MinValues stands (S-006, S-094).
func (r Requirement) Intersect(o Requirement) Requirement {
	out := Requirement{
		Key:       r.Key,
		MinValues: max(r.MinValues, o.MinValues),
		other:     r.other && o.other,
		absent:    r.absent && o.absent,
	}
	switch {
	case out.other:
		out.values = union(r.values, o.values)
		out.bound = r.bound || o.bound
		if out.bound {
			out.low, out.high = narrower(r, o)
		}
	case r.other:
		out.values = keep(o.values, r.Has)
	default:
		out.values = keep(r.values, o.Has)
	}
	return out
}

func narrower(r, o Requirement) (low, high int64) {
	low, high = math.MinInt64, math.MaxInt64
	for _, one := range []Requirement{r, o} {
		if one.bound {
			low, high = max(low, one.low), min(high, one.high)
		}
	}
	return low, high
}

// Equal reports whether r and o allow the same states with the same MinValues.
func (r Requirement) Equal(o Requirement) bool {
	return r.Key == o.Key && r.MinValues == o.MinValues && r.other == o.other && r.absent == o.absent &&
		r.bound == o.bound && r.low == o.low && r.high == o.high && slices.Equal(r.values, o.values)
}

// Any returns one allowed value, always the same: the smallest of a list, the smallest integer from zero inside bounds, and
// a fixed word where every value is allowed (S-011). It returns false if the label may only be absent or r is impossible.
func (r Requirement) Any() (string, bool) {
	switch {
	case r.forbidsValues():
		return "", false
	case !r.other:
		return r.values[0], true
	case r.bound:
		n, ok := r.firstInteger()
		return strconv.FormatInt(n, 10), ok
	}
	for n := 0; ; n++ {
		if value := strconv.Itoa(n); r.Has(value) {
			return value, true
		}
	}
}

// Expressions returns r as a user would write it; two bounds become two expressions (S-005). MinValues stands on the first.
func (r Requirement) Expressions() []Expression {
	var out []Expression
	add := func(op Operator, values ...string) {
		out = append(out, Expression{Key: r.Key, Operator: op, Values: values})
	}
	switch {
	case !r.other && len(r.values) > 0:
		add(In, r.values...)
	case !r.other:
		add(DoesNotExist)
	default:
		if len(r.values) > 0 {
			add(NotIn, r.values...)
		}
		if r.bound && r.low != math.MinInt64 {
			add(Gte, strconv.FormatInt(r.low, 10))
		}
		if r.bound && r.high != math.MaxInt64 {
			add(Lte, strconv.FormatInt(r.high, 10))
		}
		if !r.absent && (len(out) == 0 || !r.bound) {
			add(Exists)
		}
	}
	if len(out) > 0 {
		out[0].MinValues = r.MinValues
	}
	return out
}

// String writes r for a person: "karpenter.k8s.aws/instance-cpu >= 4 and <= 64".
func (r Requirement) String() string {
	const shown = 5
	return r.text(shown)
}

// text is String with at most the given number of values listed.
func (r Requirement) text(shown int) string {
	var parts []string
	for _, e := range r.Expressions() {
		switch e.Operator {
		case In, NotIn:
			parts = append(parts, fmt.Sprintf("%s [%s]", strings.ToLower(string(e.Operator)), abbreviate(e.Values, shown)))
		case Gte:
			parts = append(parts, ">= "+e.Values[0])
		case Lte:
			parts = append(parts, "<= "+e.Values[0])
		case DoesNotExist:
			parts = append(parts, "absent")
		default:
			parts = append(parts, "present")
		}
	}
	return r.Key + " " + strings.Join(parts, " and ")
}

func abbreviate(values []string, shown int) string {
	if len(values) <= shown {
		return strings.Join(values, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(values[:shown], ", "), len(values)-shown)
}

func sortedSet(values []string) []string {
	out := slices.Clone(values)
	slices.Sort(out)
	return slices.Compact(out)
}

func union(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	return sortedSet(slices.Concat(a, b))
}

func keep(values []string, wanted func(string) bool) []string {
	var out []string
	for _, v := range values {
		if wanted(v) {
			out = append(out, v)
		}
	}
	return out
}

func compareKeys(a, b Requirement) int { return cmp.Compare(a.Key, b.Key) }
