package metric_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/metric"
)

func TestCount_WritesOneEmbeddedMetricLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	sink := metric.New(&out, func() time.Time { return time.UnixMilli(1700000000123) })
	sink.Count("Quarantined", "provision", "demo", 2)
	sink.Count("Nothing", "provision", "demo", 0)
	require.JSONEq(t, `{
		"_aws": {"Timestamp": 1700000000123, "CloudWatchMetrics": [{"Namespace": "Treadle",
			"Dimensions": [["function"], ["function", "cluster"]], "Metrics": [{"Name": "Quarantined", "Unit": "Count"}]}]},
		"function": "provision", "cluster": "demo", "Quarantined": 2}`, out.String())
	(*metric.Sink)(nil).Count("Quarantined", "provision", "demo", 1)
}
