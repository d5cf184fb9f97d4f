package builtin

import (
	_ "embed"

	"treadle/shared/catalog"
)

//go:embed us-east-1.json.gz
var body []byte

// Catalog returns the catalogue that comes with the binary. Its Spot prices are the on-demand prices, as a bound (S-207): nobody
// knows those of the day. It decodes the catalogue each time, in some ten milliseconds.
func Catalog() (catalog.Catalog, error) {
	c, err := catalog.Decode(body)
	for i := range c.Types {
		t := &c.Types[i]
		for z := range t.Zones {
			if t.Spot {
				t.Zones[z].SpotMicroUSDPerHour = t.OnDemandMicroUSDPerHour
			}
		}
	}
	return c, err
}
