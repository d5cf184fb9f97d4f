package events_test

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/notice"
)

// matches reports whether an event has, at each place of a pattern, one of the values that the pattern lists there.
func matches(pattern, event any) bool {
	switch p := pattern.(type) {
	case map[string]any:
		e, ok := event.(map[string]any)
		if !ok {
			return false
		}
		for key, want := range p {
			if !matches(want, e[key]) {
				return false
			}
		}
		return true
	case []any:
		return slices.Contains(p, event)
	}
	return false
}

func read(t *testing.T, files fs.FS, name string) (body []byte, value any) {
	t.Helper()
	body, err := fs.ReadFile(files, name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &value))
	return body, value
}

func TestPatterns_LetEachSampleThroughOnce(t *testing.T) {
	t.Parallel()
	patterns, err := fs.Glob(events.Patterns, "patterns/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, patterns)
	used := map[string]bool{}
	samples, err := fs.Glob(events.Samples, "*.json")
	require.NoError(t, err)
	for _, name := range samples {
		if !strings.HasPrefix(name, "ec2-") && !strings.HasPrefix(name, "health-") {
			continue
		}
		body, sample := read(t, events.Samples, name)
		var through []string
		for _, file := range patterns {
			if _, pattern := read(t, events.Patterns, file); matches(pattern, sample) {
				through = append(through, file)
				used[file] = true
			}
		}
		require.Len(t, through, 1, name)
		n, err := notice.DecodeEvent(body)
		require.NoError(t, err, name)
		require.NotEqual(t, notice.Ignored, n.Kind, "%s: what a rule lets through means something", name)
	}
	require.Len(t, used, len(patterns), "each rule has a sample")
}

func TestPatterns_KeepOutWhatIsIgnored(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]string{
		"an instance that starts":           `{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"state":"running"}}`,
		"a Health event of another service": `{"source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"RDS","eventTypeCategory":"scheduledChange"}}`,
		"a Health event about an issue":     `{"source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2","eventTypeCategory":"issue"}}`,
		"an event of an account's own":      `{"source":"shop","detail-type":"EC2 Spot Instance Interruption Warning","detail":{}}`,
	} {
		var value any
		require.NoError(t, json.Unmarshal([]byte(event), &value))
		files, err := fs.Glob(events.Patterns, "patterns/*.json")
		require.NoError(t, err)
		for _, file := range files {
			_, pattern := read(t, events.Patterns, file)
			require.False(t, matches(pattern, value), "%s passes %s", name, file)
		}
	}
}
