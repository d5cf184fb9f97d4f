package ec2

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/wire"
)

// filters maps filter names to the values a resource has under them.
type filters[T any] map[string]func(T) []string

// compile returns a predicate for what the request asks. tags gives a resource's tags; nil if it has none to filter by. An
// unknown filter is an error even if nothing would be filtered.
func (f filters[T]) compile(asked []types.Filter, tags func(T) map[string]string) (func(T) bool, error) {
	tests := make([]func(T) bool, 0, len(asked))
	for _, a := range asked {
		name := deref(a.Name)
		if len(a.Values) == 0 {
			return nil, invalid("The filter '%s' has no values", name)
		}
		key, isTag := strings.CutPrefix(name, "tag:")
		values, known := f[name]
		switch {
		case isTag && tags != nil:
			values = func(r T) []string {
				if v, ok := tags(r)[key]; ok {
					return []string{v}
				}
				return nil
			}
		case name == "tag-key" && tags != nil:
			values = func(r T) []string { return slices.Collect(maps.Keys(tags(r))) }
		case name == "tag-value" && tags != nil:
			values = func(r T) []string { return slices.Collect(maps.Values(tags(r))) }
		case !known:
			return nil, invalid("The filter '%s' is invalid", name)
		}
		match := anyLike(a.Values)
		tests = append(tests, func(r T) bool { return slices.ContainsFunc(values(r), match) })
	}
	return func(r T) bool {
		for _, test := range tests {
			if !test(r) {
				return false
			}
		}
		return true
	}, nil
}

// anyLike returns whether a string is like one of patterns, in which * stands for anything and ? for one character.
func anyLike(patterns []string) func(string) bool {
	exact := map[string]bool{}
	var wild []string
	for _, p := range patterns {
		if strings.ContainsAny(p, "*?") {
			wild = append(wild, p)
		} else {
			exact[p] = true
		}
	}
	return func(s string) bool {
		return exact[s] || slices.ContainsFunc(wild, func(p string) bool { return like(p, s) })
	}
}

func like(pattern, s string) bool {
	for pattern != "" {
		switch pattern[0] {
		case '*':
			rest := strings.TrimLeft(pattern, "*")
			for i := range len(s) + 1 {
				if like(rest, s[i:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}

// limits says how many results a page may and does have.
type limits struct{ least, most, usual int }

// page cuts the page that the request asks for out of all.
func page[T any](all []T, maxResults *int32, token *string, l limits) (part []T, next *string, err error) {
	size := l.usual
	if maxResults != nil {
		size = int(*maxResults)
		if size < l.least || size > l.most {
			return nil, nil, invalid("Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", size, l.least, l.most)
		}
	}
	from, err := readToken(token)
	if err != nil {
		return nil, nil, err
	}
	from = min(from, len(all))
	to := min(from+size, len(all))
	if to < len(all) {
		next = writeToken(to)
	}
	return all[from:to], next, nil
}

func writeToken(at int) *string {
	return new(base64.RawURLEncoding.EncodeToString([]byte("at/" + strconv.Itoa(at))))
}

func readToken(token *string) (int, error) {
	if token == nil || *token == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(*token)
	if err == nil {
		var at int
		if at, err = strconv.Atoi(strings.TrimPrefix(string(b), "at/")); err == nil && at >= 0 {
			return at, nil
		}
	}
	return 0, wire.Errorf("InvalidNextToken", "The token '%s' is invalid", *token)
}

// registry keeps resources of one kind by id, in the order in which they came.
type registry[T interface{ key() string }] struct {
	byID map[string]T
	ids  []string
}

func (r *registry[T]) add(v T) {
	if r.byID == nil {
		r.byID = map[string]T{}
	}
	if _, ok := r.byID[v.key()]; !ok {
		r.ids = append(r.ids, v.key())
	}
	r.byID[v.key()] = v
}

func (r *registry[T]) remove(id string) {
	delete(r.byID, id)
	r.ids = slices.DeleteFunc(r.ids, func(have string) bool { return have == id })
}

func (r *registry[T]) all() []T {
	all := make([]T, len(r.ids))
	for i, id := range r.ids {
		all[i] = r.byID[id]
	}
	return all
}

// pick returns the resources with the given ids, or all; notFound makes the error for the first id that does not exist.
func (r *registry[T]) pick(ids []string, notFound func(id string) error) ([]T, error) {
	if len(ids) == 0 {
		return r.all(), nil
	}
	var picked []T
	for _, id := range ids {
		v, ok := r.byID[id]
		if !ok {
			return nil, notFound(id)
		}
		picked = append(picked, v)
	}
	return picked, nil
}

// keep returns the elements of all that pass.
func keep[T any](all []T, pass func(T) bool) []T {
	kept := []T{}
	for _, v := range all {
		if pass(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// one wraps the value of a filter that a resource has once.
func one(s string) []string { return []string{s} }

// convert copies v into a T that has members of the same names, as the SDK's request and response shapes do.
func convert[T any](v any) T {
	return converted(reflect.ValueOf(v), reflect.TypeFor[T]()).Interface().(T)
}

func converted(v reflect.Value, to reflect.Type) reflect.Value {
	target := reflect.New(to)
	b, err := json.Marshal(v.Interface())
	if err == nil {
		err = json.Unmarshal(b, target.Interface())
	}
	if err != nil {
		panic(err) // the SDK's shapes are plain data
	}
	return target.Elem()
}
