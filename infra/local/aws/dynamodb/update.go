package dynamodb

import (
	"errors"
	"math/big"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// change is one action of an update expression.
type change struct {
	at path
	// to returns what comes to stand there, from the item as it was; nil removes it.
	to func(item) (value, error)
}

// update is a whole update expression.
type update []change

// apply returns the item after the changes, all of which see it as it was.
func (u update) apply(old item) (item, error) {
	next := old
	// Elements of lists are removed from the end, so that the indexes before them hold.
	ordered := slices.Clone(u)
	slices.SortStableFunc(ordered, func(a, b change) int { return b.at[len(b.at)-1].index - a.at[len(a.at)-1].index })
	for _, c := range ordered {
		v, err := c.to(old)
		if err != nil {
			return nil, err
		}
		if next, err = c.at.set(next, v); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func parseUpdate(p *parser) (update, error) {
	var u update
	seen := map[string]bool{}
	for p.peek().kind != 'e' {
		var read func(*parser) (change, error)
		section := strings.ToUpper(p.peek().text)
		switch {
		case p.word("SET"):
			read = parseSet
		case p.word("REMOVE"):
			read = parseRemove
		case p.word("ADD"):
			read = parseAdd
		case p.word("DELETE"):
			read = parseDelete
		default:
			return nil, p.unexpected()
		}
		if seen[section] {
			return nil, errors.New("The \"" + section + "\" section can only be used once in an update expression;") //nolint:staticcheck // the service's own words
		}
		seen[section] = true
		for {
			c, err := read(p)
			if err != nil {
				return nil, err
			}
			for _, other := range u {
				if c.at.overlaps(other.at) {
					return nil, errors.New("Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [" + other.at.String() + "], path two: [" + c.at.String() + "]") //nolint:staticcheck // the service's own words
				}
			}
			u = append(u, c)
			if !p.sign(",") {
				break
			}
		}
	}
	if len(u) == 0 {
		return nil, errors.New("The expression can not be empty;") //nolint:staticcheck // the service's own words
	}
	return u, nil
}

func parseSet(p *parser) (change, error) {
	at, err := p.path()
	if err != nil {
		return change{}, err
	}
	if err := p.want("="); err != nil {
		return change{}, err
	}
	left, err := parseTerm(p)
	if err != nil {
		return change{}, err
	}
	plus := p.sign("+")
	if !plus && !p.sign("-") {
		return change{at, left}, nil
	}
	right, err := parseTerm(p)
	return change{at, func(row item) (value, error) {
		a, err := left(row)
		if err != nil {
			return nil, err
		}
		b, err := right(row)
		if err != nil {
			return nil, err
		}
		x, ok1 := number(a)
		y, ok2 := number(b)
		if !ok1 || !ok2 {
			return nil, invalid("An operand in the update expression has an incorrect data type")
		}
		if !plus {
			y = new(big.Rat).Neg(y)
		}
		return fromNumber(new(big.Rat).Add(x, y)), nil
	}}, err
}

// term is a value that an update takes from an item; one that is missing is an error.
type term func(item) (value, error)

func parseTerm(p *parser) (term, error) {
	name, ok := p.call("if_not_exists", "list_append")
	if !ok {
		read, err := parseOperand(p)
		return func(row item) (value, error) {
			if v := read(row); v != nil {
				return v, nil
			}
			return nil, invalid("The provided expression refers to an attribute that does not exist in the item")
		}, err
	}
	if name == "if_not_exists" {
		place, err := p.path()
		if err != nil {
			return nil, err
		}
		otherwise, err := parseSecond(p)
		return func(row item) (value, error) {
			if v := place.get(row); v != nil {
				return v, nil
			}
			return otherwise(row)
		}, err
	}
	first, err := parseTerm(p)
	if err != nil {
		return nil, err
	}
	second, err := parseSecond(p)
	return func(row item) (value, error) {
		a, err := first(row)
		if err != nil {
			return nil, err
		}
		b, err := second(row)
		if err != nil {
			return nil, err
		}
		x, ok1 := a.(*types.AttributeValueMemberL)
		y, ok2 := b.(*types.AttributeValueMemberL)
		if !ok1 || !ok2 {
			return nil, invalid("An operand in the update expression has an incorrect data type")
		}
		return &types.AttributeValueMemberL{Value: slices.Concat(x.Value, y.Value)}, nil
	}, err
}

// parseSecond reads the second argument of a function, to its end.
func parseSecond(p *parser) (term, error) {
	if err := p.want(","); err != nil {
		return nil, err
	}
	t, err := parseTerm(p)
	if err != nil {
		return nil, err
	}
	return t, p.want(")")
}

func parseRemove(p *parser) (change, error) {
	at, err := p.path()
	return change{at, func(item) (value, error) { return nil, nil }}, err
}

// parsePathAndValue reads what ADD and DELETE are followed by.
func parsePathAndValue(p *parser) (path, value, error) {
	at, err := p.path()
	if err != nil {
		return nil, nil, err
	}
	if p.peek().kind != ':' {
		return nil, nil, p.unexpected()
	}
	v, err := p.value()
	return at, v, err
}

func parseAdd(p *parser) (change, error) {
	at, added, err := parsePathAndValue(p)
	if err != nil {
		return change{}, err
	}
	if _, isNumber := number(added); !isNumber && members(added) == nil {
		return change{}, errors.New("Incorrect operand type for operator or function; operator: ADD, operand type: " + kind(added)) //nolint:staticcheck // the service's own words
	}
	return change{at, func(row item) (value, error) {
		old := at.get(row)
		if old == nil {
			return added, nil
		}
		if kind(old) != kind(added) {
			return nil, invalid("An operand in the update expression has an incorrect data type")
		}
		if n, ok := number(added); ok {
			m, _ := number(old)
			return fromNumber(m.Add(m, n)), nil
		}
		return setOf(kind(old), append(members(old), without(members(added), members(old))...)), nil
	}}, nil
}

func parseDelete(p *parser) (change, error) {
	at, dropped, err := parsePathAndValue(p)
	if err != nil {
		return change{}, err
	}
	if members(dropped) == nil {
		return change{}, errors.New("Incorrect operand type for operator or function; operator: DELETE, operand type: " + kind(dropped)) //nolint:staticcheck // the service's own words
	}
	return change{at, func(row item) (value, error) {
		old := at.get(row)
		if old == nil {
			return nil, nil
		}
		if kind(old) != kind(dropped) {
			return nil, invalid("An operand in the update expression has an incorrect data type")
		}
		return setOf(kind(old), without(members(old), members(dropped))), nil
	}}, nil
}
