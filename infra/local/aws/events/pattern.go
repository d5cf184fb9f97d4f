package events

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
)

// Pattern is a parsed event pattern.
type Pattern struct{ root object }

// object wants each of its fields, and one of the alternatives under $or.
type object struct {
	fields map[string]node
	or     []object
}

// node is an object or a list of alternatives.
type node struct {
	object *object
	leaf   []test
}

// test is one alternative of a leaf.
type test struct {
	absent bool           // the field must be missing
	value  func(any) bool // the field must be there and meet this
}

// ParsePattern reads an event pattern. The error says what it does not understand.
func ParsePattern(text string) (Pattern, error) {
	var tree map[string]any
	if err := decode([]byte(text), &tree); err != nil {
		return Pattern{}, fmt.Errorf("the pattern is no JSON object: %w", err)
	}
	if len(tree) == 0 {
		return Pattern{}, fmt.Errorf("empty event pattern")
	}
	root, err := parseObject(tree)
	return Pattern{root}, err
}

// Match reports whether an event, a JSON object, meets the pattern.
func (p Pattern) Match(event []byte) (bool, error) {
	var tree map[string]any
	if err := decode(event, &tree); err != nil {
		return false, fmt.Errorf("the event is no JSON object: %w", err)
	}
	return p.root.match(tree), nil
}

func decode(text []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	return d.Decode(into)
}

func (o object) match(tree map[string]any) bool {
	for name, n := range o.fields {
		value, ok := tree[name]
		if !n.match(value, ok) {
			return false
		}
	}
	if len(o.or) == 0 {
		return true
	}
	for _, alternative := range o.or {
		if alternative.match(tree) {
			return true
		}
	}
	return false
}

func (n node) match(value any, exists bool) bool {
	values, isList := value.([]any)
	if n.object == nil {
		if !isList {
			values = []any{value}
		}
		for _, t := range n.leaf {
			if t.absent {
				if !exists {
					return true
				}
				continue
			}
			for _, v := range values {
				if exists && t.value(v) {
					return true
				}
			}
		}
		return false
	}
	if !isList {
		tree, _ := value.(map[string]any) // what is no object has none of the fields
		return n.object.match(tree)
	}
	for _, v := range values {
		if tree, ok := v.(map[string]any); ok && n.object.match(tree) {
			return true
		}
	}
	return false
}

func parseObject(tree map[string]any) (object, error) {
	o := object{fields: map[string]node{}}
	for name, value := range tree {
		if name == "$or" {
			if list, ok := value.([]any); ok {
				for _, item := range list {
					sub, ok := item.(map[string]any)
					if !ok || len(list) < 2 {
						return object{}, fmt.Errorf("$or wants a list of two or more objects")
					}
					alternative, err := parseObject(sub)
					if err != nil {
						return object{}, err
					}
					o.or = append(o.or, alternative)
				}
				continue
			}
		}
		n, err := parseNode(name, value)
		if err != nil {
			return object{}, err
		}
		o.fields[name] = n
	}
	return o, nil
}

func parseNode(name string, value any) (node, error) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			return node{}, fmt.Errorf("%q is empty", name)
		}
		sub, err := parseObject(v)
		return node{object: &sub}, err
	case []any:
		if len(v) == 0 {
			return node{}, fmt.Errorf("%q has no alternatives", name)
		}
		var n node
		for _, item := range v {
			t, err := parseTest(item)
			if err != nil {
				return node{}, fmt.Errorf("%q: %w", name, err)
			}
			n.leaf = append(n.leaf, t)
		}
		return n, nil
	}
	return node{}, fmt.Errorf("%q must be an object or an array", name)
}

func parseTest(item any) (test, error) {
	tree, ok := item.(map[string]any)
	if !ok {
		return literal(item)
	}
	if len(tree) != 1 {
		return test{}, fmt.Errorf("a match must have exactly one operator")
	}
	for operator, argument := range tree {
		if operator == "exists" {
			want, ok := argument.(bool)
			if !ok {
				return test{}, fmt.Errorf("exists wants true or false")
			}
			return test{absent: !want, value: func(any) bool { return true }}, nil
		}
		match, err := parseOperator(operator, argument)
		return test{value: match}, err
	}
	return test{}, nil
}

func literal(want any) (test, error) {
	if _, isList := want.([]any); isList {
		return test{}, fmt.Errorf("an alternative cannot be a list")
	}
	return test{value: func(v any) bool { return equal(v, want) }}, nil
}

// equal compares scalars; numbers by value.
func equal(a, b any) bool {
	x, xok := number(a)
	y, yok := number(b)
	if xok && yok {
		return x.Cmp(y) == 0
	}
	return reflect.DeepEqual(a, b)
}

func number(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(n.String())
}

func parseOperator(operator string, argument any) (func(any) bool, error) {
	switch operator {
	case "anything-but":
		return anythingBut(argument)
	case "numeric":
		return numeric(argument)
	case "prefix", "suffix", "equals-ignore-case", "wildcard", "cidr":
		match, err := textOperator(operator, argument)
		if err != nil {
			return nil, err
		}
		return func(v any) bool {
			text, ok := v.(string)
			return ok && match(text)
		}, nil
	}
	return nil, fmt.Errorf("unrecognized match type %s", operator)
}

// textOperator compares text. Prefix and suffix may wrap equals-ignore-case.
func textOperator(operator string, argument any) (func(string) bool, error) {
	if nested, ok := argument.(map[string]any); ok && len(nested) == 1 && (operator == "prefix" || operator == "suffix") {
		if want, ok := nested["equals-ignore-case"].(string); ok {
			match, err := textOperator(operator, strings.ToLower(want))
			return func(v string) bool { return match(strings.ToLower(v)) }, err
		}
	}
	want, ok := argument.(string)
	if !ok {
		return nil, fmt.Errorf("%s wants text", operator)
	}
	switch operator {
	case "prefix":
		return func(v string) bool { return strings.HasPrefix(v, want) }, nil
	case "suffix":
		return func(v string) bool { return strings.HasSuffix(v, want) }, nil
	case "equals-ignore-case":
		return func(v string) bool { return strings.EqualFold(v, want) }, nil
	case "cidr":
		network, err := netip.ParsePrefix(want)
		if err != nil {
			return nil, fmt.Errorf("cidr: %w", err)
		}
		return func(v string) bool {
			addr, err := netip.ParseAddr(v)
			return err == nil && network.Contains(addr)
		}, nil
	default:
		return wildcard(want)
	}
}

// wildcard matches text where * stands for any number of characters, and \* for itself.
func wildcard(want string) (func(string) bool, error) {
	parts := []string{""}
	for i := 0; i < len(want); i++ {
		switch {
		case want[i] == '\\':
			i++
			if i == len(want) || want[i] != '*' && want[i] != '\\' {
				return nil, fmt.Errorf("wildcard: invalid escape character at pos %d", i-1)
			}
			parts[len(parts)-1] += want[i : i+1]
		case want[i] == '*':
			if i > 0 && want[i-1] == '*' && parts[len(parts)-1] == "" {
				return nil, fmt.Errorf("wildcard: consecutive wildcard characters at pos %d", i-1)
			}
			parts = append(parts, "")
		default:
			parts[len(parts)-1] += want[i : i+1]
		}
	}
	first, middle, last := parts[0], parts[1:], ""
	if len(middle) == 0 {
		return func(v string) bool { return v == first }, nil
	}
	middle, last = middle[:len(middle)-1], middle[len(middle)-1]
	return func(v string) bool {
		rest, ok := strings.CutPrefix(v, first)
		if !ok {
			return false
		}
		for _, p := range middle {
			if _, rest, ok = strings.Cut(rest, p); !ok {
				return false
			}
		}
		return strings.HasSuffix(rest, last)
	}, nil
}

// anythingBut wants a value that is none of a list, or does not meet a text operator.
func anythingBut(argument any) (func(any) bool, error) {
	if nested, ok := argument.(map[string]any); ok {
		if len(nested) != 1 {
			return nil, fmt.Errorf("anything-but wants exactly one operator")
		}
		for operator, inner := range nested {
			list, ok := inner.([]any)
			if !ok {
				list = []any{inner}
			}
			var matches []func(string) bool
			for _, want := range list {
				match, err := textOperator(operator, want)
				if err != nil {
					return nil, fmt.Errorf("anything-but: %w", err)
				}
				matches = append(matches, match)
			}
			return func(v any) bool {
				text, ok := v.(string)
				for _, match := range matches {
					if ok && match(text) {
						return false
					}
				}
				return true
			}, nil
		}
	}
	list, ok := argument.([]any)
	if !ok {
		list = []any{argument}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("anything-but wants at least one value")
	}
	return func(v any) bool {
		for _, want := range list {
			if equal(v, want) {
				return false
			}
		}
		return true
	}, nil
}

// numeric wants pairs of a comparison and a number, all of which must hold.
func numeric(argument any) (func(any) bool, error) {
	list, ok := argument.([]any)
	if !ok || len(list) == 0 || len(list)%2 != 0 {
		return nil, fmt.Errorf("numeric wants pairs of a comparison and a number")
	}
	var tests []func(*big.Rat) bool
	for i := 0; i < len(list); i += 2 {
		comparison, _ := list[i].(string)
		bound, ok := number(list[i+1])
		if !ok {
			return nil, fmt.Errorf("numeric: %v is no number", list[i+1])
		}
		holds, ok := map[string]func(int) bool{
			"=":  func(c int) bool { return c == 0 },
			"<":  func(c int) bool { return c < 0 },
			"<=": func(c int) bool { return c <= 0 },
			">":  func(c int) bool { return c > 0 },
			">=": func(c int) bool { return c >= 0 },
		}[comparison]
		if !ok {
			return nil, fmt.Errorf("numeric: unrecognized comparison %v", list[i])
		}
		tests = append(tests, func(n *big.Rat) bool { return holds(n.Cmp(bound)) })
	}
	return func(v any) bool {
		n, ok := number(v)
		for _, t := range tests {
			if !ok || !t(n) {
				return false
			}
		}
		return true
	}, nil
}
