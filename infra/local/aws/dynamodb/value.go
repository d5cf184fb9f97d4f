package dynamodb

import (
	"bytes"
	"cmp"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// value is what DynamoDB stores, in the SDK's own form. Values are never changed in place.
type value = types.AttributeValue

// item is one row of a table.
type item = map[string]value

// kind returns the type code of a value, such as S or NS.
func kind(v value) string {
	_, name, _ := strings.Cut(reflect.TypeOf(v).Elem().Name(), "Member")
	return name
}

// number returns a value as a number.
func number(v value) (*big.Rat, bool) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(n.Value)
}

// fromNumber writes a number with as many digits as it needs. DynamoDB keeps 38.
func fromNumber(r *big.Rat) value {
	text := r.FloatString(38)
	text = strings.TrimRight(text, "0")
	return &types.AttributeValueMemberN{Value: strings.TrimSuffix(text, ".")}
}

// compare orders two values of the same scalar kind. It reports false for what has no order.
func compare(a, b value) (order int, ok bool) {
	switch x := a.(type) {
	case *types.AttributeValueMemberS:
		y, ok := b.(*types.AttributeValueMemberS)
		if !ok {
			return 0, false
		}
		return cmp.Compare(x.Value, y.Value), true
	case *types.AttributeValueMemberB:
		y, ok := b.(*types.AttributeValueMemberB)
		if !ok {
			return 0, false
		}
		return bytes.Compare(x.Value, y.Value), true
	case *types.AttributeValueMemberN:
		m, ok1 := number(a)
		n, ok2 := number(b)
		if !ok1 || !ok2 {
			return 0, false
		}
		return m.Cmp(n), true
	}
	return 0, false
}

// equal compares values of any kind: numbers by value, sets without order.
func equal(a, b value) bool {
	if kind(a) != kind(b) {
		return false
	}
	if order, ok := compare(a, b); ok {
		return order == 0
	}
	switch x := a.(type) {
	case *types.AttributeValueMemberL:
		return slices.EqualFunc(x.Value, b.(*types.AttributeValueMemberL).Value, equal)
	case *types.AttributeValueMemberM:
		y := b.(*types.AttributeValueMemberM).Value
		if len(x.Value) != len(y) {
			return false
		}
		for name, v := range x.Value {
			if y[name] == nil || !equal(v, y[name]) {
				return false
			}
		}
		return true
	}
	if members(a) != nil || members(b) != nil {
		x, y := members(a), members(b)
		return len(x) == len(y) && len(without(x, y)) == 0
	}
	return reflect.DeepEqual(a, b) // BOOL and NULL
}

// members returns the elements of a set, or nil for what is none.
func members(v value) []value {
	var list []value
	switch s := v.(type) {
	case *types.AttributeValueMemberSS:
		for _, e := range s.Value {
			list = append(list, &types.AttributeValueMemberS{Value: e})
		}
	case *types.AttributeValueMemberNS:
		for _, e := range s.Value {
			list = append(list, &types.AttributeValueMemberN{Value: e})
		}
	case *types.AttributeValueMemberBS:
		for _, e := range s.Value {
			list = append(list, &types.AttributeValueMemberB{Value: e})
		}
	}
	return list
}

// setOf makes a set of the kind from elements, or nil from none.
func setOf(kind string, list []value) value {
	if len(list) == 0 {
		return nil
	}
	switch kind {
	case "SS":
		set := &types.AttributeValueMemberSS{}
		for _, e := range list {
			set.Value = append(set.Value, e.(*types.AttributeValueMemberS).Value)
		}
		return set
	case "NS":
		set := &types.AttributeValueMemberNS{}
		for _, e := range list {
			set.Value = append(set.Value, e.(*types.AttributeValueMemberN).Value)
		}
		return set
	default:
		set := &types.AttributeValueMemberBS{}
		for _, e := range list {
			set.Value = append(set.Value, e.(*types.AttributeValueMemberB).Value)
		}
		return set
	}
}

func contains(list []value, v value) bool {
	return slices.ContainsFunc(list, func(e value) bool { return equal(e, v) })
}

func without(list, drop []value) []value {
	return slices.DeleteFunc(slices.Clone(list), func(e value) bool { return contains(drop, e) })
}

// size is what the function size returns.
func size(v value) (int, bool) {
	switch x := v.(type) {
	case *types.AttributeValueMemberS:
		return len(x.Value), true
	case *types.AttributeValueMemberB:
		return len(x.Value), true
	case *types.AttributeValueMemberL:
		return len(x.Value), true
	case *types.AttributeValueMemberM:
		return len(x.Value), true
	}
	if list := members(v); list != nil {
		return len(list), true
	}
	return 0, false
}
