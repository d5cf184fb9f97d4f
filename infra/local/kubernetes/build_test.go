package kubernetes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// module writes a module into a new folder and returns a builder for it with a cache of its own.
func module(t *testing.T, files map[string]string) builder {
	t.Helper()
	source := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(source, name), []byte(text), 0o600))
	}
	return builder{source: source, cache: t.TempDir(), progress: new(bytes.Buffer), began: time.Now()}
}

func hello() map[string]string {
	return map[string]string{"go.mod": "module hello\n\ngo 1.26\n", "go.sum": "", "main.go": "package main\n\nfunc main() { println(`hello`) }\n"}
}

func TestBuild_BuildersAtTheSameTimeCompileOnce(t *testing.T) {
	t.Parallel()
	b := module(t, hello())
	outputs, paths, errs := make([]bytes.Buffer, 3), make([]string, 3), make([]error, 3)
	var all sync.WaitGroup
	for i := range 3 {
		b.progress = &outputs[i]
		all.Go(func() { paths[i], errs[i] = b.build(t.Context()) })
	}
	all.Wait()
	compiled := 0
	for i := range 3 {
		require.NoError(t, errs[i])
		require.Equal(t, paths[0], paths[i])
		compiled += bytes.Count(outputs[i].Bytes(), []byte("built in"))
	}
	require.Equal(t, 1, compiled)
	said, err := exec.Command(paths[0]).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(said))
	left, err := filepath.Glob(filepath.Join(b.cache, "building-*"))
	require.NoError(t, err)
	require.Empty(t, left, "no half binary is left")
}

func TestBuild_ExplainsItsFailure(t *testing.T) {
	broken := hello()
	broken["main.go"] = "package main\n\nfunc main() { undefined() }\n"
	_, err := module(t, broken).build(t.Context())
	require.ErrorContains(t, err, "undefined: undefined")
	require.NotErrorIs(t, err, ErrModules)

	t.Setenv("GOPROXY", "http://127.0.0.1:1")
	t.Setenv("GOMODCACHE", t.TempDir())
	absent := hello()
	absent["go.mod"] += "\nrequire example.com/absent v1.0.0\n"
	absent["go.sum"] = "example.com/absent v1.0.0 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n" +
		"example.com/absent v1.0.0/go.mod h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
	absent["main.go"] = "package main\n\nimport _ \"example.com/absent\"\n\nfunc main() {}\n"
	_, err = module(t, absent).build(t.Context())
	require.ErrorIs(t, err, ErrModules)
	require.ErrorContains(t, err, "GOPROXY is http://127.0.0.1:1")
}

func TestHashSource_ChangesWithWhateverDecidesTheBinary(t *testing.T) {
	t.Parallel()
	b := module(t, hello())
	hash := func(goVersion string) string {
		h, err := hashSource(b.source, goVersion)
		require.NoError(t, err)
		return h
	}
	write := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(b.source, name), []byte("module hello\n"), 0o600))
	}
	seen := map[string]string{hash("go1.26.8"): "the same sources"}
	require.Contains(t, seen, hash("go1.26.8"))
	write("main_test.go")
	require.Contains(t, seen, hash("go1.26.8"), "tests are not linked")
	require.NotContains(t, seen, hash("go1.26.9"))
	for _, name := range []string{"go.mod", "go.sum", "main.go", "other.go"} {
		write(name)
		h := hash("go1.26.8")
		require.NotContains(t, seen, h, "%s has changed", name)
		seen[h] = name
	}
}

func TestVersion_IsTheOneOfTheModule(t *testing.T) {
	t.Parallel()
	source, err := findSource()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(text), "k8s.io/kubernetes "+version+"\n")
}
