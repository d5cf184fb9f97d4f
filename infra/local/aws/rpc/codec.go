package rpc

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Unions lists, per union interface, an instance of each of its members.
type Unions map[reflect.Type]map[string]reflect.Type

// Union describes the union T by pointers to its member structs. A member's wire name is what follows "Member" in
// the name of its type.
func Union[T any](members ...T) Unions {
	names := map[string]reflect.Type{}
	for _, m := range members {
		t := reflect.TypeOf(m).Elem()
		_, name, _ := strings.Cut(t.Name(), "Member")
		names[name] = t
	}
	return Unions{reflect.TypeFor[T](): names}
}

var (
	timeType  = reflect.TypeFor[time.Time]()
	bytesType = reflect.TypeFor[[]byte]()
)

// decoder fills SDK types from a tree of maps, slices and scalars.
type decoder struct {
	unions Unions
	text   bool // scalars come as text, lists as {"member": {"1": …}}: the query protocol
}

// set stores src in dst. The path names the place in error messages.
func (d decoder) set(dst reflect.Value, src any, path string) error {
	if src == nil {
		return nil
	}
	switch {
	case dst.Type() == timeType:
		return d.setTime(dst, src, path)
	case dst.Type() == bytesType:
		text, ok := src.(string)
		if !ok {
			return mismatch(path, "a base64 string")
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return mismatch(path, "a base64 string")
		}
		dst.SetBytes(raw)
		return nil
	}
	switch dst.Kind() {
	case reflect.Pointer:
		p := reflect.New(dst.Type().Elem())
		if err := d.set(p.Elem(), src, path); err != nil {
			return err
		}
		dst.Set(p)
		return nil
	case reflect.Interface:
		return d.setUnion(dst, src, path)
	case reflect.Struct:
		return d.setStruct(dst, src, path)
	case reflect.Slice:
		return d.setSlice(dst, src, path)
	case reflect.Map:
		return d.setMap(dst, src, path)
	default:
		return d.setScalar(dst, src, path)
	}
}

func (d decoder) setTime(dst reflect.Value, src any, path string) error {
	switch v := src.(type) {
	case json.Number:
		seconds, err := v.Float64()
		if err != nil {
			return mismatch(path, "a number of seconds")
		}
		dst.Set(reflect.ValueOf(time.UnixMilli(int64(math.Round(seconds * 1000))).UTC()))
		return nil
	case string:
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return mismatch(path, "a timestamp")
		}
		dst.Set(reflect.ValueOf(t))
		return nil
	}
	return mismatch(path, "a timestamp")
}

func (d decoder) setUnion(dst reflect.Value, src any, path string) error {
	tree, ok := src.(map[string]any)
	if !ok || len(tree) != 1 {
		return mismatch(path, "exactly one member of a union")
	}
	for name, value := range tree {
		t, ok := d.unions[dst.Type()][name]
		if !ok {
			return unknown(path, name)
		}
		member := reflect.New(t)
		if err := d.set(member.Elem().FieldByName("Value"), value, path+"."+name); err != nil {
			return err
		}
		dst.Set(member)
	}
	return nil
}

func (d decoder) setStruct(dst reflect.Value, src any, path string) error {
	tree, ok := src.(map[string]any)
	if !ok {
		return mismatch(path, "a structure")
	}
	for name, value := range tree {
		field, ok := dst.Type().FieldByName(upperFirst(name))
		if !ok || !field.IsExported() || field.Name == "ResultMetadata" {
			return unknown(path, name)
		}
		if err := d.set(dst.FieldByIndex(field.Index), value, path+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func (d decoder) setSlice(dst reflect.Value, src any, path string) error {
	items, ok := src.([]any)
	if d.text {
		items, ok = textList(src)
	}
	if !ok {
		return mismatch(path, "a list")
	}
	list := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if err := d.set(list.Index(i), item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	dst.Set(list)
	return nil
}

// textList turns {"member": {"1": a, "2": b}} into [a, b].
func textList(src any) ([]any, bool) {
	tree, ok := src.(map[string]any)
	if !ok {
		return nil, src == ""
	}
	members, ok := tree["member"].(map[string]any)
	if !ok {
		return nil, false
	}
	index := make([]int, 0, len(members))
	for key := range members {
		n, err := strconv.Atoi(key)
		if err != nil {
			return nil, false
		}
		index = append(index, n)
	}
	slices.Sort(index)
	items := make([]any, 0, len(index))
	for _, n := range index {
		items = append(items, members[strconv.Itoa(n)])
	}
	return items, true
}

func (d decoder) setMap(dst reflect.Value, src any, path string) error {
	tree, ok := src.(map[string]any)
	if !ok {
		return mismatch(path, "a map")
	}
	m := reflect.MakeMapWithSize(dst.Type(), len(tree))
	for key, value := range tree {
		item := reflect.New(dst.Type().Elem()).Elem()
		if err := d.set(item, value, path+"."+key); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(key).Convert(dst.Type().Key()), item)
	}
	dst.Set(m)
	return nil
}

func (d decoder) setScalar(dst reflect.Value, src any, path string) error {
	text, isText := src.(string)
	if n, ok := src.(json.Number); ok {
		text = n.String()
	}
	isNumber := !isText || d.text
	switch dst.Kind() {
	case reflect.String:
		if !isText {
			return mismatch(path, "a string")
		}
		dst.SetString(text)
	case reflect.Bool:
		b, ok := src.(bool)
		if d.text {
			parsed, err := strconv.ParseBool(text)
			b, ok = parsed, err == nil
		}
		if !ok {
			return mismatch(path, "true or false")
		}
		dst.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, dst.Type().Bits())
		if err != nil || !isNumber {
			return mismatch(path, "a whole number")
		}
		dst.SetInt(n)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !isNumber {
			return mismatch(path, "a number")
		}
		dst.SetFloat(f)
	default:
		return fmt.Errorf("decode %s: no rule for %s", path, dst.Type())
	}
	return nil
}

func mismatch(path, want string) error {
	return Errorf("SerializationException", "%s must be %s", strings.TrimPrefix(path, "."), want)
}

func unknown(path, name string) error {
	return Errorf("SerializationException", "%s is no known member", strings.TrimPrefix(path+"."+name, "."))
}

// encoder turns SDK types into a tree that encoding/json writes.
type encoder struct {
	lower bool // member names start in lower case on the wire
}

// value returns the tree of v, or nil for what is not set.
func (e encoder) value(v reflect.Value) any {
	if v.Type() == timeType {
		return json.Number(strconv.FormatFloat(float64(v.Interface().(time.Time).UnixMilli())/1000, 'f', -1, 64))
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return e.value(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return nil
		}
		member := v.Elem().Elem()
		_, name, _ := strings.Cut(member.Type().Name(), "Member")
		return map[string]any{name: e.value(member.FieldByName("Value"))}
	case reflect.Struct:
		return e.fields(v)
	case reflect.Slice:
		if v.IsNil() || v.Type() == bytesType {
			return v.Interface()
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = e.value(v.Index(i))
		}
		return list
	case reflect.Map:
		tree := make(map[string]any, v.Len())
		for it := v.MapRange(); it.Next(); {
			tree[it.Key().String()] = e.value(it.Value())
		}
		return tree
	default:
		return v.Interface()
	}
}

func (e encoder) fields(v reflect.Value) map[string]any {
	tree := map[string]any{}
	for field, value := range members(v) {
		name := field.Name
		if e.lower {
			name = lowerFirst(name)
		}
		tree[name] = e.value(value)
	}
	return tree
}

// members yields the fields of a structure that go on the wire: those that are set. A number or a truth value that is
// no pointer cannot be unset.
func members(v reflect.Value) func(yield func(reflect.StructField, reflect.Value) bool) {
	return func(yield func(reflect.StructField, reflect.Value) bool) {
		for i := range v.NumField() {
			field, value := v.Type().Field(i), v.Field(i)
			if !field.IsExported() || field.Name == "ResultMetadata" || field.Name == "ErrorCodeOverride" {
				continue
			}
			switch value.Kind() {
			case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
				if value.IsNil() {
					continue
				}
			case reflect.String:
				if value.Len() == 0 {
					continue
				}
			}
			if !yield(field, value) {
				return
			}
		}
	}
}

func upperFirst(s string) string { return mapFirst(s, unicode.ToUpper) }
func lowerFirst(s string) string { return mapFirst(s, unicode.ToLower) }

func mapFirst(s string, f func(rune) rune) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(f(r)) + s[size:]
}
