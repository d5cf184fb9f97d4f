package boot

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type settings struct {
	Bucket  string        `env:"BUCKET"`
	Limit   int           `env:"LIMIT" default:"7"`
	Wait    time.Duration `env:"WAIT" default:"45s"`
	Dry     bool          `env:"DRY" default:"false"`
	Suffix  string        `env:"SUFFIX" default:""`
	Ignored string
}

func TestLoad(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env  map[string]string
		want settings
		errs []string
	}{
		"a setting that is not set takes its default": {
			env:  map[string]string{"BUCKET": "b"},
			want: settings{Bucket: "b", Limit: 7, Wait: 45 * time.Second},
		},
		"every kind of setting is parsed": {
			env:  map[string]string{"BUCKET": "b", "LIMIT": "9", "WAIT": "2m", "DRY": "true", "SUFFIX": "x"},
			want: settings{Bucket: "b", Limit: 9, Wait: 2 * time.Minute, Dry: true, Suffix: "x"},
		},
		"every fault is named, not just the first": {
			env:  map[string]string{"LIMIT": "many", "WAIT": "5", "DRY": "perhaps"},
			errs: []string{"setting BUCKET: not set", `setting LIMIT: "many" is not a whole number`, `setting WAIT: "5" is not a duration`, `setting DRY: "perhaps"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got settings
			err := load(&got, func(k string) string { return tt.env[k] })
			for _, want := range tt.errs {
				require.ErrorContains(t, err, want)
			}
			if tt.errs == nil {
				require.NoError(t, err)
				require.Equal(t, tt.want, got)
			}
		})
	}
}

func TestOnce_RunsTheHandlerOnStandardInput(t *testing.T) {
	t.Parallel()
	double := func(_ context.Context, n int) (int, error) {
		if n < 0 {
			return 0, errors.New("negative")
		}
		return 2 * n, nil
	}
	var out strings.Builder
	require.NoError(t, once(t.Context(), double, strings.NewReader("21"), &out))
	require.Equal(t, "42\n", out.String())
	require.ErrorContains(t, once(t.Context(), double, strings.NewReader("-1"), &out), "negative")
	require.ErrorContains(t, once(t.Context(), double, strings.NewReader("{"), &out), "read event from standard input")
}
