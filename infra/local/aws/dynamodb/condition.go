package dynamodb

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// condition decides over an item; an item that does not exist has no attributes.
type condition func(item) bool

// operand is a value that an item has, or nil.
type operand func(item) value

func parseCondition(p *parser) (condition, error) {
	left, err := parseAnd(p)
	for err == nil && p.word("OR") {
		var right condition
		a := left
		if right, err = parseAnd(p); err == nil {
			left = func(row item) bool { return a(row) || right(row) }
		}
	}
	return left, err
}

func parseAnd(p *parser) (condition, error) {
	left, err := parseNot(p)
	for err == nil && p.word("AND") {
		var right condition
		a := left
		if right, err = parseNot(p); err == nil {
			left = func(row item) bool { return a(row) && right(row) }
		}
	}
	return left, err
}

func parseNot(p *parser) (condition, error) {
	if p.word("NOT") {
		inner, err := parseNot(p)
		return func(row item) bool { return !inner(row) }, err
	}
	if p.sign("(") {
		inner, err := parseCondition(p)
		if err != nil {
			return nil, err
		}
		return inner, p.want(")")
	}
	if name, ok := p.call("attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"); ok {
		return parseFunction(p, name)
	}
	return parseComparison(p)
}

func parseFunction(p *parser, name string) (condition, error) {
	place, err := p.path()
	if err != nil {
		return nil, err
	}
	var argument operand
	if name != "attribute_exists" && name != "attribute_not_exists" {
		if err := p.want(","); err != nil {
			return nil, err
		}
		if argument, err = parseOperand(p); err != nil {
			return nil, err
		}
	}
	if err := p.want(")"); err != nil {
		return nil, err
	}
	switch name {
	case "attribute_exists":
		return func(row item) bool { return place.get(row) != nil }, nil
	case "attribute_not_exists":
		return func(row item) bool { return place.get(row) == nil }, nil
	case "attribute_type":
		return func(row item) bool {
			v, want := place.get(row), argument(row)
			text, ok := want.(*types.AttributeValueMemberS)
			return ok && v != nil && kind(v) == text.Value
		}, nil
	case "begins_with":
		return func(row item) bool { return beginsWith(place.get(row), argument(row)) }, nil
	default:
		return func(row item) bool { return holds(place.get(row), argument(row)) }, nil
	}
}

func beginsWith(v, prefix value) bool {
	switch x := v.(type) {
	case *types.AttributeValueMemberS:
		p, ok := prefix.(*types.AttributeValueMemberS)
		return ok && strings.HasPrefix(x.Value, p.Value)
	case *types.AttributeValueMemberB:
		p, ok := prefix.(*types.AttributeValueMemberB)
		return ok && bytes.HasPrefix(x.Value, p.Value)
	}
	return false
}

// holds is the function contains: text within text, an element within a set or a list.
func holds(v, part value) bool {
	if v == nil || part == nil {
		return false
	}
	switch x := v.(type) {
	case *types.AttributeValueMemberS:
		p, ok := part.(*types.AttributeValueMemberS)
		return ok && strings.Contains(x.Value, p.Value)
	case *types.AttributeValueMemberL:
		return contains(x.Value, part)
	}
	return contains(members(v), part)
}

func parseComparison(p *parser) (condition, error) {
	left, err := parseOperand(p)
	if err != nil {
		return nil, err
	}
	switch {
	case p.word("BETWEEN"):
		low, err := parseOperand(p)
		if err != nil {
			return nil, err
		}
		if !p.word("AND") {
			return nil, p.unexpected()
		}
		high, err := parseOperand(p)
		return func(row item) bool {
			a, ok1 := order(left(row), low(row))
			b, ok2 := order(left(row), high(row))
			return ok1 && ok2 && a >= 0 && b <= 0
		}, err
	case p.word("IN"):
		list, err := parseList(p)
		return func(row item) bool {
			v := left(row)
			return v != nil && slices.ContainsFunc(list, func(o operand) bool { w := o(row); return w != nil && equal(v, w) })
		}, err
	}
	comparator := p.take()
	if comparator.kind != 's' || !slices.Contains([]string{"=", "<>", "<", "<=", ">", ">="}, comparator.text) {
		return nil, fmt.Errorf("Syntax error; token: %q", comparator.text) //nolint:staticcheck // the service's own words
	}
	right, err := parseOperand(p)
	return func(row item) bool { return meets(left(row), comparator.text, right(row)) }, err
}

func parseList(p *parser) ([]operand, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	var list []operand
	for {
		o, err := parseOperand(p)
		if err != nil {
			return nil, err
		}
		list = append(list, o)
		if !p.sign(",") {
			return list, p.want(")")
		}
	}
}

func order(a, b value) (int, bool) {
	if a == nil || b == nil {
		return 0, false
	}
	return compare(a, b)
}

// meets compares two values. What is missing equals nothing, not even what is missing too, and differs from all.
func meets(a value, comparator string, b value) bool {
	switch comparator {
	case "=":
		return a != nil && b != nil && equal(a, b)
	case "<>":
		return a == nil || b == nil || !equal(a, b)
	}
	n, ok := order(a, b)
	if !ok {
		return false
	}
	switch comparator {
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	case ">":
		return n > 0
	default:
		return n >= 0
	}
}

func parseOperand(p *parser) (operand, error) {
	if p.peek().kind == ':' {
		v, err := p.value()
		return func(item) value { return v }, err
	}
	if _, ok := p.call("size"); ok {
		place, err := p.path()
		if err != nil {
			return nil, err
		}
		return func(row item) value {
			v := place.get(row)
			if v == nil {
				return nil
			}
			n, ok := size(v)
			if !ok {
				return nil
			}
			return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
		}, p.want(")")
	}
	place, err := p.path()
	return place.get, err
}
