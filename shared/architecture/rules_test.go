package architecture_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// level is where a package stands and how far down it may reach.
type level struct {
	at    int
	reach int    // the highest level that it may import
	why   string // of the rule
}

var (
	nouns    = level{0, -1, "the nouns depend on nothing"}
	words    = level{1, 0, "what is decided and what is told is said in nouns"}
	deciding = level{2, 2, "decisions are made from a snapshot and can be replayed"}
	writing  = level{3, 1, "writing knows its own small interfaces, never an adapter"}
	adapter  = level{4, 1, "an adapter speaks to one outside system and knows of no other"}
	wiring   = level{5, 4, "configuration and clients are put together in one place"}
	function = level{6, 5, "a function may use everything but another function"}
)

// levels says where each package of shared stands.
var levels = map[string]level{
	"cluster": nouns,
	"plan":    words, "notice": words,
	"packing": deciding, "disruption": deciding, "joining": deciding, "readiness": deciding, "buffer": deciding, "overlay": deciding,
	"observe": writing, "apply": writing,
	"kube": adapter, "fleet": adapter, "catalog": adapter, "nodeclass": adapter, "queue": adapter, "ledger": adapter, "store": adapter, "metric": adapter, "schedule": adapter,
	"boot": wiring, "site": wiring, "market": wiring, "vigil": wiring,
}

// levelOf returns the level of a folder; ok is false for one that the table lacks. A folder below a package has its parent's level.
func levelOf(folder string) (l level, name string, ok bool) {
	if strings.HasPrefix(folder, "functions/") {
		return function, folder, true
	}
	rest, shared := strings.CutPrefix(folder, "shared/")
	name, _, _ = strings.Cut(rest, "/")
	l, ok = levels[name]
	return l, name, ok && shared
}

// forTests reports whether a folder holds nothing but what tests need.
func forTests(folder string) bool {
	return folder == "shared/architecture" || folder == "shared/apply/simtest"
}

func TestImports_PointOneWay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, false, "shared", "functions") {
		if forTests(p.folder) {
			continue
		}
		own, name, known := levelOf(p.folder)
		if !assert.True(t, known, "%s has no level: put it into the table", p.folder) {
			continue
		}
		for _, imported := range p.imports() {
			folder, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			assert.False(t, forTests(folder), "%s imports %s, which is for tests", p.folder, imported)
			other, otherName, known := levelOf(folder)
			if name == otherName && own.at != function.at {
				continue // a package and those below it
			}
			assert.True(t, known, "%s imports %s, which has no level", p.folder, imported)
			assert.LessOrEqual(t, other.at, own.reach, "%s imports %s: %s", p.folder, imported, own.why)
		}
	}
}

func TestPurePackages_TouchNothingOutside(t *testing.T) {
	t.Parallel()
	banned := []string{
		"context", "crypto/rand", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "os/signal", "path/filepath",
		"runtime", "sync", "syscall", "unsafe",
	}
	clock := []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}
	for _, p := range packages(t, false, "shared") {
		if l, _, known := levelOf(p.folder); !known || l.at > deciding.at {
			continue
		}
		for _, imported := range p.imports() {
			assert.True(t, standard(imported) || strings.HasPrefix(imported, module), "%s imports %s: the core has no dependencies", p.folder, imported)
			assert.NotContains(t, banned, imported, "%s: a decision that reads the world cannot be replayed", p.folder)
		}
		for at, used := range p.uses() {
			name, isTime := strings.CutPrefix(used, "time.")
			assert.False(t, isTime && slices.Contains(clock, name), "%s uses %s: the caller passes the instant in", at, used)
		}
	}
}

func TestApply_KnowsNoAdapterAndNoSDK(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, false, "shared/apply") {
		for _, imported := range p.imports() {
			assert.True(t, standard(imported) || strings.HasPrefix(imported, module), "%s imports %s: what it needs are interfaces of its own", p.folder, imported)
			assert.NotContains(t, []string{"os", "net", "net/http", "log"}, imported, p.folder)
		}
	}
}

func TestProduct_LinksNeitherKarpenterNorTheBigKubernetesClients(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, true, "shared", "functions", "events") {
		for _, imported := range p.imports() {
			for banned, why := range map[string]string{
				"sigs.k8s.io/karpenter":               "its types come in through a test of another module",
				"github.com/aws/karpenter":            "its types come in through a test of another module",
				"k8s.io/client-go/kubernetes":         "a typed clientset costs megabytes and milliseconds of every cold start",
				"k8s.io/kubernetes":                   "the control plane is the local stack's",
				"github.com/aws/aws-sdk-go-v2/config": "the environment has what a function needs, for ten milliseconds less",
			} {
				assert.False(t, imported == banned || strings.HasPrefix(imported, banned+"/") || strings.HasPrefix(imported, banned+"-provider"),
					"%s imports %s: %s", p.folder, imported, why)
			}
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	require.NotContains(t, string(mod), "karpenter")
}

func TestLocalStack_IsJudgedByTheProductAndNotMadeOfIt(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, false, "infra/local") {
		for _, imported := range p.imports() {
			product := strings.HasPrefix(imported, module+"shared/") || strings.HasPrefix(imported, module+"functions/")
			assert.False(t, product, "%s imports %s: a double made of the product's code proves nothing", p.folder, imported)
		}
	}
}

func TestEnvironment_IsReadInOnePlace(t *testing.T) {
	t.Parallel()
	banned := []string{
		"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln", "fmt.Print", "fmt.Printf", "fmt.Println",
	}
	for _, p := range packages(t, false, "shared", "functions", "events") {
		if p.folder == "shared/boot" {
			continue
		}
		for at, used := range p.uses() {
			assert.NotContains(t, banned, used, "%s: settings, endings and output are boot's", at)
		}
	}
}

func TestPackages_HaveNoInitAndNoState(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, false, "shared", "functions", "events") {
		for _, file := range p.files {
			for _, decl := range file.Decls {
				switch d := decl.(type) {
				case *ast.FuncDecl:
					assert.False(t, d.Recv == nil && d.Name.Name == "init", "%s: an init function runs in every cold start", p.at(d))
				case *ast.GenDecl:
					if d.Tok != token.VAR {
						continue
					}
					for _, spec := range d.Specs {
						v := spec.(*ast.ValueSpec)
						assert.True(t, v.Names[0].Name == "_" || embedded(d, v) || constant(v), "%s: var %s is neither a sentinel error, an embedded file nor a compiled table", p.at(v), v.Names[0].Name)
					}
				}
			}
			for at, name := range written(p, file) {
				assert.Fail(t, "package variable is written to", "%s: %s", at, name)
			}
		}
	}
}

// embedded reports whether the compiler fills the variable from a file.
func embedded(d *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, group := range []*ast.CommentGroup{d.Doc, v.Doc} {
		if group != nil && slices.ContainsFunc(group.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return true
		}
	}
	return false
}

// constant reports whether a variable is a sentinel error, another name of one, or a table that is written down: a literal, a
// compiled expression or template.
func constant(v *ast.ValueSpec) bool {
	return len(v.Values) > 0 && !slices.ContainsFunc(v.Values, func(e ast.Expr) bool {
		switch x := e.(type) {
		case *ast.CompositeLit, *ast.SelectorExpr:
			return false
		case *ast.CallExpr:
			s, ok := x.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := s.X.(*ast.Ident)
			return !ok || !slices.Contains([]string{"errors.New", "regexp.MustCompile", "template.Must"}, from.Name+"."+s.Sel.Name)
		}
		return true
	})
}

// written returns the assignments in file to variables of its package.
func written(p *pkg, file *ast.File) map[string]string {
	vars := map[string]bool{}
	for _, f := range p.files {
		for _, decl := range f.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
				for _, spec := range d.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						vars[name.Name] = true
					}
				}
			}
		}
	}
	out := map[string]string{}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		local := map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				for _, left := range x.Lhs {
					id, ok := left.(*ast.Ident)
					switch {
					case !ok:
					case x.Tok == token.DEFINE:
						local[id.Name] = true
					case vars[id.Name] && !local[id.Name]:
						out[p.at(x)] = id.Name
					}
				}
			case *ast.Field:
				for _, name := range x.Names {
					local[name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range x.Names {
					local[name.Name] = true
				}
			}
			return true
		})
	}
	return out
}

func TestPackages_SayWhatTheyAre(t *testing.T) {
	t.Parallel()
	const longest = 25
	for _, p := range packages(t, false, "shared", "functions", "events", "infra") {
		want := "doc.go"
		if p.name == "main" && p.files[want] == nil {
			want = "main.go"
		}
		var in []string
		for name, file := range p.files {
			if file.Doc == nil {
				continue
			}
			in = append(in, name)
			lines := p.set.Position(file.Doc.End()).Line - p.set.Position(file.Doc.Pos()).Line + 1
			assert.LessOrEqual(t, lines, longest, "%s/%s: a package comment of %d lines", p.folder, name, lines)
			text := file.Doc.Text()
			if p.name == "main" {
				assert.True(t, strings.HasPrefix(text, "Command "), "%s/%s starts with %.40q", p.folder, name, text)
			} else {
				assert.True(t, strings.HasPrefix(text, "Package "+p.name+" "), "%s/%s starts with %.40q", p.folder, name, text)
			}
		}
		assert.Equal(t, []string{want}, in, "%s: exactly one package comment", p.folder)
	}
}

func TestExportedNames_SayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, false, "shared", "functions", "events", "infra") {
		for _, file := range p.files {
			for _, decl := range file.Decls {
				switch d := decl.(type) {
				case *ast.FuncDecl:
					known := d.Recv != nil && slices.Contains([]string{"Error", "Unwrap"}, d.Name.Name) // package errors says what they do
					if d.Name.IsExported() && exportedReceiver(d) && !known {
						says(t, p, d, d.Name.Name, d.Doc)
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						switch s := spec.(type) {
						case *ast.TypeSpec:
							doc := s.Doc
							if doc == nil {
								doc = d.Doc
							}
							if s.Name.IsExported() {
								says(t, p, s, s.Name.Name, doc)
							}
						case *ast.ValueSpec:
							value(t, p, d, s)
						}
					}
				}
			}
		}
	}
}

// value wants a comment on a constant or variable, or on the group that it is in.
func value(t *testing.T, p *pkg, d *ast.GenDecl, s *ast.ValueSpec) {
	t.Helper()
	if !s.Names[0].IsExported() {
		return
	}
	if d.Lparen.IsValid() {
		assert.True(t, d.Doc != nil || s.Doc != nil || s.Comment != nil, "%s: %s has no comment, nor has its group", p.at(s), s.Names[0].Name)
		return
	}
	says(t, p, s, s.Names[0].Name, d.Doc)
}

func says(t *testing.T, p *pkg, n ast.Node, name string, doc *ast.CommentGroup) {
	t.Helper()
	text := ""
	if doc != nil {
		text = doc.Text()
	}
	rest, ok := strings.CutPrefix(text, name)
	next, _ := utf8.DecodeRuneInString(rest)
	assert.True(t, ok && !unicode.IsLetter(next) && !unicode.IsDigit(next), "%s: the comment of %s starts with %.40q", p.at(n), name, text)
}

// exportedReceiver reports whether a function is no method, or one that is seen from outside.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	kind := d.Recv.List[0].Type
	if star, ok := kind.(*ast.StarExpr); ok {
		kind = star.X
	}
	if generic, ok := kind.(*ast.IndexExpr); ok {
		kind = generic.X
	}
	id, ok := kind.(*ast.Ident)
	return ok && id.IsExported()
}

func TestFiles_NameNoFolderOfOneMachine(t *testing.T) {
	t.Parallel()
	slash := "/" // apart, so that this file does not name one
	textFiles(t, func(name, content string) {
		for n, line := range strings.Split(content, "\n") {
			for _, folder := range []string{"root", "work", "home"} {
				at := strings.Index(line, slash+folder+slash)
				absolute := at == 0 || at > 0 && strings.ContainsRune(" \"'`(=:", rune(line[at-1]))
				assert.False(t, absolute, "%s:%d names a folder of one machine: %s", name, n+1, line)
			}
		}
	})
}
