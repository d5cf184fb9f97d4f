package kube

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
)

func TestDecodeOverlay(t *testing.T) {
	t.Parallel()
	_, o, err := decodeOverlay([]byte(`{"metadata":{"name":"o","uid":"u","resourceVersion":"3","generation":2},"spec":{"weight":10,
		"requirements":[{"key":"node.kubernetes.io/instance-type","operator":"In","values":["m5.large"]}],
		"price":"0.095","capacity":{"smarter-devices/fuse":"10","hugepages-2Mi":"1Gi"}}}`), nil)
	require.NoError(t, err)
	require.Empty(t, o.Invalid)
	require.Equal(t, int32(10), o.Weight)
	require.Equal(t, int64(95_000), *o.Price)
	require.Equal(t, map[string]int64{"smarter-devices/fuse": 10, "hugepages-2Mi": 1 << 30}, o.Capacity)
	require.Equal(t, []cluster.Expression{{Key: cluster.LabelInstanceType, Operator: cluster.In, Values: []string{"m5.large"}}}, o.Requirements)
}

func TestDecodeOverlay_PriceAdjustments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]cluster.PriceAdjustment{
		"+0.5": {MicroUSDPerHour: 500_000}, "-1.25": {MicroUSDPerHour: -1_250_000}, "+10%": {Percent: 10}, "-15.5%": {Percent: -15.5}, "-100%": {Percent: -100},
	} {
		got, err := parseAdjustment(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestDecodeOverlay_SaysWhatCannotBeUnderstood(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"price":"cheap"}`:                         `spec.price: "cheap" is no price in USD per hour`,
		`{"price":"-1"}`:                            `spec.price: "-1" is below zero`,
		`{"price":"NaN"}`:                           `spec.price: "NaN" is no price in USD per hour`,
		`{"priceAdjustment":"10%"}`:                 `begins with neither`,
		`{"priceAdjustment":"-101%"}`:               `is no percentage from -100% up`,
		`{"priceAdjustment":"+x"}`:                  `spec.priceAdjustment: "+x" is no price`,
		`{"price":"1","priceAdjustment":"+1"}`:      "only one of them may be set",
		`{"capacity":{"cpu":"4"}}`:                  "spec.capacity.cpu: only extended resources can be given",
		`{"capacity":{"example.com/fuse":"a lot"}}`: "spec.capacity.example.com/fuse",
		`{"weight":"heavy"}`:                        "weight",
	} {
		_, o, err := decodeOverlay([]byte(`{"metadata":{"name":"o","resourceVersion":"3"},"spec":`+spec+`}`), nil)
		require.NoError(t, err, spec)
		require.Contains(t, o.Invalid, want, spec)
	}
}
