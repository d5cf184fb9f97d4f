package awstest

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/catalog"
)

//go:generate go test . -count=1 -run ^TestBuiltin_ -update

var update = flag.Bool("update", false, "write the catalogue that comes with the functions")

const builtinFile = "../../../shared/catalog/builtin/us-east-1.json.gz"

// TestBuiltin_IsWhatTheRegionSells makes and holds the catalogue that comes with the functions. It has no Spot prices: those of the
// emulator are made up.
func TestBuiltin_IsWhatTheRegionSells(t *testing.T) {
	t.Parallel()
	c := newWorld(t).catalogue(t)
	c.MadeUnix = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC).Unix()
	for i := range c.Types {
		for z := range c.Types[i].Zones {
			c.Types[i].Zones[z].SpotMicroUSDPerHour = 0
		}
	}
	if *update {
		body, err := catalog.Encode(c)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(builtinFile, body, 0o600))
	}
	body, err := os.ReadFile(builtinFile)
	require.NoError(t, err)
	require.LessOrEqual(t, len(body), 60<<10, "every function that plans carries it")
	got, err := catalog.Decode(body)
	require.NoError(t, err)
	c.Format = catalog.Format
	require.Equal(t, c, got)
}
