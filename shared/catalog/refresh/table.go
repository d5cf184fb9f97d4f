package refresh

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// branchTable says how many branch interfaces each type that takes a trunk may have (S-201).
//
//go:embed branch.txt
var branchTable string

// priceTable holds on-demand prices for where Pricing was never reached, as from an isolated network: without any price nothing
// could be launched. Regions differ in how dear they are, much less in which types are dearer than others.
//
//go:embed price.txt
var priceTable string

// byType reads a table whose lines are a number and the types that it is for.
func byType(table string) (map[string]int64, error) {
	out := map[string]int64{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read table by instance type: %w", err)
		}
		for _, name := range fields[1:] {
			out[name] = n
		}
	}
	return out, nil
}
