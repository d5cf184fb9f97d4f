// Command gennames writes the table of EC2 wire names that package wire needs. It reads the serializers and
// deserializers of the pinned SDK module, follows them from each operation named on its command line, and keeps only the names
// that do not follow from the Go field by rule: a request key equals the field, a response element is the field with its first
// letter in lower case.
//
// A name that wire's rules could not express (a list that is not flat in a request, a flattened list in an answer, a shape with
// two spellings) ends the run with an error rather than a wrong table.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	module := flag.String("module", "github.com/aws/aws-sdk-go-v2/service/ec2", "SDK `module` to read")
	out := flag.String("out", "names.go", "`file` to write")
	flag.Parse()
	if err := run(*module, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "gennames:", err)
		os.Exit(1)
	}
}

func run(module, out string, operations []string) error {
	if len(operations) == 0 {
		return errors.New("name at least one operation")
	}
	line, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", module).Output()
	if err != nil {
		return fmt.Errorf("locate %s: %w", module, err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(line)), " ")

	t := table{request: map[string]string{}, response: map[string]string{}, items: map[string]string{}}
	requests, err := parse(filepath.Join(dir, "serializers.go"), "_serialize")
	if err != nil {
		return err
	}
	responses, err := parse(filepath.Join(dir, "deserializers.go"), "_deserialize")
	if err != nil {
		return err
	}
	for _, op := range operations {
		if err := t.followRequest(requests, "OpDocument"+op+"Input"); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		if err := t.followResponse(responses, "OpDocument"+op+"Output"); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	src, err := t.source(module+" "+version, operations)
	if err != nil {
		return err
	}
	return os.WriteFile(out, src, 0o644)
}

// functions holds the bodies of the (de)serializers of one file under their names, less the protocol prefix.
type functions struct {
	byName map[string]*ast.FuncDecl
	seen   map[string]bool
}

func parse(file, verb string) (functions, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return functions{}, fmt.Errorf("parse %s: %w", file, err)
	}
	fs := functions{byName: map[string]*ast.FuncDecl{}, seen: map[string]bool{}}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil {
			continue
		}
		if _, name, ok := strings.Cut(fn.Name.Name, verb); ok {
			fs.byName[name] = fn
		}
	}
	return fs, nil
}

// next returns the named function once; later calls return nil.
func (fs functions) next(name string) *ast.FuncDecl {
	if fs.seen[name] {
		return nil
	}
	fs.seen[name] = true
	return fs.byName[name]
}

// table holds wire names under "Shape.Field".
type table struct{ request, response, items map[string]string }

// followRequest reads `if v.Field != nil { objectKey := object.Key("Name"); … }` statements and the functions they call.
func (t table) followRequest(fs functions, name string) error {
	fn := fs.next(name)
	if fn == nil {
		return nil
	}
	if shape, isList := parameter(fn); !isList {
		for _, stmt := range fn.Body.List {
			if cond, ok := stmt.(*ast.IfStmt); ok {
				if err := t.requestField(fs, shape, cond); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	for _, callee := range calls(fn.Body, "_serialize") {
		if err := t.followRequest(fs, callee); err != nil {
			return err
		}
	}
	return nil
}

func (t table) requestField(fs functions, shape string, cond *ast.IfStmt) error {
	field := selected(cond.Cond, "v")
	key, flat := requestKey(cond.Body)
	if field == "" || key == "" {
		return errors.New("statement without a field and a key")
	}
	for _, callee := range calls(cond.Body, "_serialize") {
		if fs.isList(callee) && !flat {
			return fmt.Errorf("%s.%s: a list that is not flat", shape, field)
		}
	}
	return put(t.request, shape+"."+field, key, field)
}

// requestKey finds the key that a statement writes to.
func requestKey(body ast.Node) (key string, flat bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch method(call, "object") {
			case "Key":
				key = literal(call.Args[0])
			case "FlatKey":
				key, flat = literal(call.Args[0]), true
			}
		}
		return true
	})
	return key, flat
}

// followResponse reads `case strings.EqualFold("name", t.Name.Local): … sv.Field …` clauses and the functions they call.
func (t table) followResponse(fs functions, name string) error {
	fn := fs.next(name)
	if fn == nil {
		return nil
	}
	if shape, isList := parameter(fn); !isList {
		var failed error
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if clause, ok := n.(*ast.CaseClause); ok {
				failed = errors.Join(failed, t.responseField(fs, shape, clause))
			}
			return true
		})
		if failed != nil {
			return fmt.Errorf("%s: %w", name, failed)
		}
	}
	for _, callee := range calls(fn.Body, "_deserialize") {
		if err := t.followResponse(fs, callee); err != nil {
			return err
		}
	}
	return nil
}

func (t table) responseField(fs functions, shape string, clause *ast.CaseClause) error {
	if len(clause.List) != 1 {
		return nil
	}
	call, ok := clause.List[0].(*ast.CallExpr)
	if !ok || method(call, "strings") != "EqualFold" {
		return nil
	}
	element := literal(call.Args[0])
	body := &ast.BlockStmt{List: clause.Body}
	field := selected(body, "sv")
	if field == "" {
		return fmt.Errorf("element %q sets no field", element)
	}
	for _, callee := range calls(body, "_deserialize") {
		if strings.HasSuffix(callee, "Unwrapped") {
			return fmt.Errorf("%s.%s: flattened list", shape, field)
		}
		if fs.isList(callee) {
			if err := put(t.items, shape+"."+field, firstElement(fs.byName[callee]), "item"); err != nil {
				return err
			}
		}
	}
	return put(t.response, shape+"."+field, element, strings.ToLower(field[:1])+field[1:])
}

// isList says whether the named function is for a list.
func (fs functions) isList(name string) bool {
	fn := fs.byName[name]
	if fn == nil {
		return false
	}
	_, isList := parameter(fn)
	return isList
}

// firstElement returns the element name that a list's deserializer looks for.
func firstElement(fn *ast.FuncDecl) (element string) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && element == "" && method(call, "strings") == "EqualFold" {
			element = literal(call.Args[0])
		}
		return element == ""
	})
	return element
}

// put records a name that differs from the rule's.
func put(m map[string]string, field, name, byRule string) error {
	if name == byRule {
		return nil
	}
	if old, ok := m[field]; ok && old != name {
		return fmt.Errorf("%s is spelled both %q and %q", field, old, name)
	}
	m[field] = name
	return nil
}

// parameter returns the type name of fn's first parameter and whether it is a slice.
func parameter(fn *ast.FuncDecl) (name string, isList bool) {
	t := fn.Type.Params.List[0].Type
	for {
		switch e := t.(type) {
		case *ast.StarExpr:
			t = e.X
		case *ast.ArrayType:
			isList, t = true, e.Elt
		case *ast.SelectorExpr:
			return e.Sel.Name, isList
		case *ast.Ident:
			return e.Name, isList
		default:
			return "", isList
		}
	}
}

// selected returns F of the first expression base.F under n.
func selected(n ast.Node, base string) (field string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && field == "" {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == base {
				field = sel.Sel.Name
			}
		}
		return field == ""
	})
	return field
}

// calls returns the (de)serializers called under n, less the prefix that ends in verb.
func calls(n ast.Node, verb string) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok {
				if _, name, ok := strings.Cut(id.Name, verb); ok {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

// method returns M of a call base.M(…), or nothing.
func method(call *ast.CallExpr, base string) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == base {
			return sel.Sel.Name
		}
	}
	return ""
}

func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}

func (t table) source(from string, operations []string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by gennames from %s. DO NOT EDIT.\n\npackage wire\n", from)
	fmt.Fprintf(&b, "\n// operations are those that the names below cover.\nvar operations = []string{\n")
	for _, op := range slices.Sorted(slices.Values(operations)) {
		fmt.Fprintf(&b, "%q,\n", op)
	}
	fmt.Fprint(&b, "}\n")
	for _, part := range []struct {
		name, doc string
		names     map[string]string
	}{
		{"requestNames", "holds the request keys that differ from their field", t.request},
		{"responseNames", "holds the response elements that differ from their field in lower camel case", t.response},
		{"itemNames", "holds the list elements of responses that are not called item", t.items},
	} {
		fmt.Fprintf(&b, "\n// %s %s.\nvar %s = map[string]string{\n", part.name, part.doc, part.name)
		for _, field := range slices.Sorted(maps.Keys(part.names)) {
			fmt.Fprintf(&b, "%q: %q,\n", field, part.names[field])
		}
		fmt.Fprint(&b, "}\n")
	}
	return format.Source(b.Bytes())
}
