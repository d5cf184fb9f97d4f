package wire

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Operations returns the operations whose shapes this package can name, sorted.
func Operations() []string { return slices.Clone(operations) }

// member is one field of a shape. name is empty for what the SDK adds to it (result metadata).
type member struct{ name, element, item string }

//nolint:gochecknoglobals // cache of what reflection finds out; filled on first use, safe for concurrent use
var shapes sync.Map // reflect.Type → []member

// members returns the fields of a shape, one per struct field.
func members(t reflect.Type) []member {
	if m, ok := shapes.Load(t); ok {
		return m.([]member)
	}
	all := make([]member, t.NumField())
	for i := range all {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		m := member{name: f.Name, element: strings.ToLower(f.Name[:1]) + f.Name[1:], item: "item"}
		if name, ok := responseNames[t.Name()+"."+f.Name]; ok {
			m.element = name
		}
		if name, ok := itemNames[t.Name()+"."+f.Name]; ok {
			m.item = name
		}
		all[i] = m
	}
	shapes.Store(t, all)
	return all
}

func requestKey(t reflect.Type, field string) string {
	if key, ok := requestNames[t.Name()+"."+field]; ok {
		return key
	}
	return field
}
