package refresh

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed branch.txt
var branchTable string

// branches returns how many branch interfaces each type that takes a trunk may have (S-201).
func branches() (map[string]int64, error) {
	out := map[string]int64{}
	for line := range strings.Lines(branchTable) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read table of branch interfaces: %w", err)
		}
		for _, name := range fields[1:] {
			out[name] = n
		}
	}
	return out, nil
}
