package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root   = "../.."
	module = "treadle/"
)

// pkg is one folder of Go files that are no tests.
type pkg struct {
	folder string // below the root, such as shared/cluster
	name   string
	files  map[string]*ast.File // by base name
	set    *token.FileSet
}

// packages parses every package below the given folders, with or without its test files.
func packages(t *testing.T, tests bool, folders ...string) []*pkg {
	t.Helper()
	byFolder := map[string]*pkg{}
	for _, folder := range folders {
		walk(t, folder, func(name string) {
			if path.Ext(name) != ".go" || !tests && strings.HasSuffix(name, "_test.go") {
				return
			}
			dir := path.Dir(name)
			p := byFolder[dir]
			if p == nil {
				p = &pkg{folder: dir, files: map[string]*ast.File{}, set: token.NewFileSet()}
				byFolder[dir] = p
			}
			file, err := parser.ParseFile(p.set, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(t, err)
			p.name, p.files[path.Base(name)] = file.Name.Name, file
		})
	}
	var all []*pkg
	for _, p := range byFolder {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pkg) int { return strings.Compare(a.folder, b.folder) })
	require.NotEmpty(t, all, "no package below %v", folders)
	return all
}

// walk calls f with the path below the root of every file that belongs to the repository: neither built nor downloaded.
func walk(t *testing.T, folder string, f func(name string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if base == "testdata" || base == "build" || base == "cdk.out" || base == "node_modules" || base == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		below, err := filepath.Rel(root, name)
		if err == nil {
			f(filepath.ToSlash(below))
		}
		return err
	})
	require.NoError(t, err)
}

// imports returns what the package imports.
func (p *pkg) imports() []string {
	seen := map[string]bool{}
	for _, file := range p.files {
		for _, spec := range file.Imports {
			if name, err := strconv.Unquote(spec.Path.Value); err == nil {
				seen[name] = true
			}
		}
	}
	var all []string
	for name := range seen {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// uses returns where the package names an exported identifier of an imported package, as "path.Name" by position.
func (p *pkg) uses() map[string]string {
	out := map[string]string{}
	for _, file := range p.files {
		imported := map[string]string{}
		for _, spec := range file.Imports {
			full, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			name := path.Base(full)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			imported[name] = full
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && imported[x.Name] != "" {
					out[p.at(s)] = imported[x.Name] + "." + s.Sel.Name
				}
			}
			return true
		})
	}
	return out
}

func (p *pkg) at(n ast.Node) string {
	at := p.set.Position(n.Pos())
	return p.folder + "/" + filepath.Base(at.Filename) + ":" + strconv.Itoa(at.Line) + ":" + strconv.Itoa(at.Column)
}

// standard reports whether an import path belongs to the standard library.
func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".") && first != strings.TrimSuffix(module, "/")
}

// textFiles calls f with every file of the repository that people write.
func textFiles(t *testing.T, f func(name, content string)) {
	t.Helper()
	walk(t, ".", func(name string) {
		switch path.Ext(name) {
		case ".go", ".md", ".yaml", ".yml", ".json", ".mod", ".toml", ".sh", ".txt", "":
		default:
			return
		}
		info, err := os.Stat(filepath.Join(root, name))
		require.NoError(t, err)
		if info.Size() > 4<<20 || !info.Mode().IsRegular() {
			return
		}
		body, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		f(name, string(body))
	})
}
