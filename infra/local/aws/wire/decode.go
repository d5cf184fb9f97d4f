package wire

import (
	"encoding/base64"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Decode fills in, a pointer to an SDK input struct, from a posted form. Action and Version are skipped. A parameter that the
// shape does not have is an *Error with code UnknownParameter, and a value of the wrong type one with code
// InvalidParameterValue. Lists come back in the order of their indexes.
func Decode(form url.Values, in any) error {
	root := &node{}
	for key, values := range form {
		if key == "Action" || key == "Version" || len(values) == 0 {
			continue
		}
		root.at(strings.Split(key, ".")).value = &values[0]
	}
	return root.into(reflect.ValueOf(in).Elem(), "")
}

// node is one level of a dotted form key.
type node struct {
	value    *string
	children map[string]*node
}

func (n *node) at(path []string) *node {
	for _, step := range path {
		child := n.children[step]
		if child == nil {
			child = &node{}
			if n.children == nil {
				n.children = map[string]*node{}
			}
			n.children[step] = child
		}
		n = child
	}
	return n
}

//nolint:gochecknoglobals // reflect.Type values of two leaves, compared by identity
var (
	timeType  = reflect.TypeFor[time.Time]()
	bytesType = reflect.TypeFor[[]byte]()
)

// into decodes n into v; path is the key so far, for messages.
func (n *node) into(v reflect.Value, path string) error {
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return n.into(v.Elem(), path)
	case v.Type() == timeType || v.Type() == bytesType:
		return n.leaf(v, path)
	case v.Kind() == reflect.Struct:
		return n.structure(v, path)
	case v.Kind() == reflect.Slice:
		return n.list(v, path)
	default:
		return n.leaf(v, path)
	}
}

func (n *node) structure(v reflect.Value, path string) error {
	if n.value != nil && path != "" {
		return Errorf("InvalidParameterValue", "The parameter %s is a structure", path)
	}
	left := maps.Clone(n.children)
	for i, field := range members(v.Type()) {
		if field.name == "" {
			continue
		}
		key := requestKey(v.Type(), field.name)
		if child, ok := n.children[key]; ok {
			delete(left, key)
			if err := child.into(v.Field(i), join(path, key)); err != nil {
				return err
			}
		}
	}
	if len(left) > 0 {
		unknown := join(path, slices.Min(slices.Collect(maps.Keys(left))))
		return Errorf("UnknownParameter", "The parameter %s is not recognized", unknown)
	}
	return nil
}

func (n *node) list(v reflect.Value, path string) error {
	type entry struct {
		index int
		node  *node
	}
	entries := make([]entry, 0, len(n.children))
	for key, child := range n.children {
		index, err := strconv.Atoi(key)
		if err != nil {
			return Errorf("UnknownParameter", "The parameter %s is not recognized", join(path, key))
		}
		entries = append(entries, entry{index, child})
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.index - b.index })
	v.Set(reflect.MakeSlice(v.Type(), len(entries), len(entries)))
	for i, e := range entries {
		if err := e.node.into(v.Index(i), join(path, strconv.Itoa(e.index))); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) leaf(v reflect.Value, path string) error {
	if len(n.children) > 0 {
		unknown := join(path, slices.Min(slices.Collect(maps.Keys(n.children))))
		return Errorf("UnknownParameter", "The parameter %s is not recognized", unknown)
	}
	if n.value == nil {
		return nil
	}
	if err := parse(*n.value, v); err != nil {
		return Errorf("InvalidParameterValue", "Value (%s) for parameter %s is invalid.", *n.value, path)
	}
	return nil
}

func parse(s string, v reflect.Value) error {
	switch {
	case v.Type() == timeType:
		t, err := time.Parse(time.RFC3339Nano, s)
		v.Set(reflect.ValueOf(t))
		return err
	case v.Type() == bytesType:
		b, err := base64.StdEncoding.DecodeString(s)
		v.SetBytes(b)
		return err
	}
	switch v.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		v.SetBool(b)
		return err
	case reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(s, 10, v.Type().Bits())
		v.SetInt(i)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		v.SetFloat(f)
		return err
	default: // a string or an enumeration
		v.SetString(s)
		return nil
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
