package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport_RemembersThePartsThatWereRunBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, docs := filepath.Join(dir, "conformance.json"), filepath.Join(dir, "conformance.md")
	first := report{Specs: []spec{{Name: "b", Result: "failed", Reason: "a | b"}, {Name: "a", Result: "passed", Seconds: 3}}}
	require.NoError(t, first.remember(file), "there may be none")
	require.NoError(t, first.write(file, ""))

	second := report{Specs: []spec{{Name: "b", Result: "passed"}, {Name: "c", Result: "failed", Reason: "x | y"}}}
	require.NoError(t, second.remember(file))
	require.Equal(t, report{Passed: 2, Failed: 1, Specs: []spec{
		{Name: "a", Result: "passed", Seconds: 3}, {Name: "b", Result: "passed"}, {Name: "c", Result: "failed", Reason: "x | y"},
	}}, second)
	require.NoError(t, second.write(file, docs))
	text, err := os.ReadFile(docs)
	require.NoError(t, err)
	require.Contains(t, string(text), `| c | failed | 0 | x \| y |`)

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o644))
	require.ErrorContains(t, second.remember(file), "results of earlier runs")
}
