package catalog

import (
	"math"
	"strconv"
	"strings"
)

//nolint:gochecknoglobals // a table
var suffixes = map[string]float64{
	"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

// quantity reads a Kubernetes quantity such as 100Mi, 1500m or 2e3, scaled and rounded up; ok is false where text is none.
func quantity(text string, scale float64) (n int64, ok bool) {
	number := strings.TrimRight(text, "numkMGTPEi")
	factor, ok := suffixes[text[len(number):]]
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, false
	}
	return int64(math.Ceil(value * factor * scale)), true
}

// threshold reads an eviction threshold: a quantity, or a percentage of total. 100% means that the signal is switched off.
func threshold(text string, total int64) (n int64, ok bool) {
	percent, isPercent := strings.CutSuffix(text, "%")
	if !isPercent {
		return quantity(text, 1)
	}
	value, err := strconv.ParseFloat(percent, 64)
	if err != nil || value < 0 || value > 100 {
		return 0, false
	}
	if value == 100 {
		return 0, true
	}
	return int64(math.Ceil(float64(total) * value / 100)), true
}
