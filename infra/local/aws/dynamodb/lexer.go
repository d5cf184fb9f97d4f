package dynamodb

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"treadle/infra/local/aws/rpc"
)

// token is one word or sign of an expression.
type token struct {
	kind byte // w: word, #: name reference, ':': value reference, n: number, s: sign, e: end
	text string
}

var lexeme = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_]*)|(#[A-Za-z0-9_]+)|(:[A-Za-z0-9_]+)|([0-9]+)|(<>|<=|>=|[-=<>+,.()\[\]]))`)

func lex(text string) ([]token, error) {
	var tokens []token
	for rest := strings.TrimLeft(text, " \t\r\n"); rest != ""; rest = strings.TrimLeft(rest, " \t\r\n") {
		m := lexeme.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("syntax error near %q", rest[:min(len(rest), 10)])
		}
		for i, kind := range []byte("w#:ns") {
			if m[i+1] != "" {
				tokens = append(tokens, token{kind, m[i+1]})
			}
		}
		rest = rest[len(m[0]):]
	}
	return append(tokens, token{kind: 'e', text: "<EOF>"}), nil
}

// scope is what the expressions of one request refer to, and what they have used of it.
type scope struct {
	names       map[string]string
	values      map[string]value
	usedNames   map[string]bool
	usedValues  map[string]bool
	expressions int
}

func newScope(names map[string]string, values map[string]value) *scope {
	return &scope{names: names, values: values, usedNames: map[string]bool{}, usedValues: map[string]bool{}}
}

// finish refuses names and values that no expression used.
func (s *scope) finish() error {
	for _, side := range []struct {
		what  string
		given []string
		used  map[string]bool
	}{
		{"ExpressionAttributeNames", slices.Sorted(maps.Keys(s.names)), s.usedNames},
		{"ExpressionAttributeValues", slices.Sorted(maps.Keys(s.values)), s.usedValues},
	} {
		if len(side.given) > 0 && s.expressions == 0 {
			return invalid("%s can only be specified when using expressions", side.what)
		}
		for _, name := range side.given {
			if !side.used[name] {
				return invalid("Value provided in %s unused in expressions: keys: {%s}", side.what, name)
			}
		}
	}
	return nil
}

// parser reads one expression.
type parser struct {
	tokens []token
	scope  *scope
}

// parse runs read over a whole expression. The kind names it in errors.
func parse[T any](s *scope, kind, text string, read func(*parser) (T, error)) (T, error) {
	var none T
	s.expressions++
	tokens, err := lex(text)
	if err == nil {
		p := &parser{tokens: tokens, scope: s}
		var out T
		if out, err = read(p); err == nil && p.peek().kind != 'e' {
			err = p.unexpected()
		}
		if err == nil {
			return out, nil
		}
	}
	return none, invalid("Invalid %s: %v", kind, err)
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) take() token {
	t := p.tokens[0]
	if t.kind != 'e' {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) unexpected() error {
	return fmt.Errorf("Syntax error; token: %q", p.peek().text) //nolint:staticcheck // the service's own words
}

// sign takes the sign if it comes next.
func (p *parser) sign(text string) bool {
	if t := p.peek(); t.kind == 's' && t.text == text {
		p.take()
		return true
	}
	return false
}

// want takes the sign or fails.
func (p *parser) want(text string) error {
	if !p.sign(text) {
		return p.unexpected()
	}
	return nil
}

// word takes the keyword, in any case, if it comes next.
func (p *parser) word(text string) bool {
	if t := p.peek(); t.kind == 'w' && strings.EqualFold(t.text, text) {
		p.take()
		return true
	}
	return false
}

// call takes the name of a function and its opening parenthesis, if both come next.
func (p *parser) call(names ...string) (string, bool) {
	t := p.peek()
	if t.kind != 'w' || len(p.tokens) < 2 || p.tokens[1] != (token{'s', "("}) || !slices.Contains(names, t.text) {
		return "", false
	}
	p.tokens = p.tokens[2:]
	return t.text, true
}

// path is the place of a value: names of attributes and indexes of lists.
type path []step

type step struct {
	name  string
	index int // of a list, when the name is empty
}

func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.name == "":
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case i > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// overlaps reports whether one path is the other or leads to it.
func (p path) overlaps(q path) bool {
	n := min(len(p), len(q))
	return slices.Equal(p[:n], q[:n])
}

func (p *parser) path() (path, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	out := path{{name: name}}
	for {
		switch {
		case p.sign("."):
			if name, err = p.name(); err != nil {
				return nil, err
			}
			out = append(out, step{name: name})
		case p.sign("["):
			t := p.peek()
			index, err := strconv.Atoi(t.text)
			if t.kind != 'n' || err != nil {
				return nil, p.unexpected()
			}
			p.take()
			if err := p.want("]"); err != nil {
				return nil, err
			}
			out = append(out, step{index: index})
		default:
			return out, nil
		}
	}
}

func (p *parser) name() (string, error) {
	t := p.peek()
	switch t.kind {
	case 'w':
		if reserved[strings.ToUpper(t.text)] {
			return "", fmt.Errorf("Attribute name is a reserved keyword; reserved keyword: %s", t.text) //nolint:staticcheck // the service's own words
		}
		p.take()
		return t.text, nil
	case '#':
		name, ok := p.scope.names[t.text]
		if !ok {
			return "", fmt.Errorf("An expression attribute name used in the document path is not defined; attribute name: %s", t.text) //nolint:staticcheck // the service's own words
		}
		p.scope.usedNames[t.text] = true
		p.take()
		return name, nil
	}
	return "", p.unexpected()
}

func (p *parser) value() (value, error) {
	t := p.peek()
	v, ok := p.scope.values[t.text]
	if !ok {
		return nil, fmt.Errorf("An expression attribute value used in expression is not defined; attribute value: %s", t.text) //nolint:staticcheck // the service's own words
	}
	p.scope.usedValues[t.text] = true
	p.take()
	return v, nil
}

// get returns the value at a path, or nil.
func (p path) get(row item) value {
	at := row[p[0].name]
	for _, s := range p[1:] {
		switch v := at.(type) {
		case *types.AttributeValueMemberM:
			at = v.Value[s.name]
		case *types.AttributeValueMemberL:
			if s.name != "" || s.index >= len(v.Value) {
				return nil
			}
			at = v.Value[s.index]
		default:
			return nil
		}
	}
	return at
}

// set returns the row with v at the path; nil removes what is there. The row itself stays as it was.
func (p path) set(row item, v value) (item, error) {
	next := maps.Clone(row)
	if next == nil {
		next = item{}
	}
	if len(p) == 1 {
		if v == nil {
			delete(next, p[0].name)
		} else {
			next[p[0].name] = v
		}
		return next, nil
	}
	inner, err := p[1:].within(next[p[0].name], v)
	if err != nil {
		return nil, err
	}
	if inner != nil {
		next[p[0].name] = inner
	}
	return next, nil
}

// within returns the parent with v at the rest of the path.
func (p path) within(parent, v value) (value, error) {
	bad := invalid("The document path provided in the update expression is invalid for update")
	switch x := parent.(type) {
	case *types.AttributeValueMemberM:
		if p[0].name == "" {
			return nil, bad
		}
		m, err := p.set(x.Value, v)
		return &types.AttributeValueMemberM{Value: m}, err
	case *types.AttributeValueMemberL:
		if p[0].name != "" {
			return nil, bad
		}
		list := slices.Clone(x.Value)
		i := p[0].index
		switch {
		case len(p) > 1:
			if i >= len(list) {
				return nil, bad
			}
			inner, err := p[1:].within(list[i], v)
			if err != nil {
				return nil, err
			}
			list[i] = inner
		case v == nil:
			if i < len(list) {
				list = slices.Delete(list, i, i+1)
			}
		case i < len(list):
			list[i] = v
		default:
			list = append(list, v) // an index past the end appends
		}
		return &types.AttributeValueMemberL{Value: list}, nil
	}
	if v == nil {
		return parent, nil // removing from nothing is no error
	}
	return nil, bad
}

func invalid(format string, args ...any) error {
	return rpc.Errorf("ValidationException", format, args...)
}
