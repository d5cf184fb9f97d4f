package kube

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"treadle/shared/cluster"
)

// maxAmount caps every single amount (8 PiB, or nine trillion cores). It is more than any node has and leaves room to add up
// what a thousand containers ask for without overflow.
const maxAmount = 1 << 53

// amount turns a quantity into the unit of the resource's noun, rounded up: millicores for cpu, units for all else.
func amount(name string, q resource.Quantity) int64 {
	scale := resource.Scale(0)
	if name == "cpu" {
		scale = resource.Milli
	}
	if q.CmpInt64(maxAmount/1000) > 0 && (name == "cpu" || q.CmpInt64(maxAmount) > 0) {
		return maxAmount
	}
	return max(-maxAmount, q.ScaledValue(scale))
}

// resources converts what Kubernetes calls a ResourceList.
func resources(list corev1.ResourceList) cluster.Resources {
	var r cluster.Resources
	for name, q := range list {
		r.Set(string(name), amount(string(name), q))
	}
	return r
}

// quantity writes an amount of a resource the way the API reads it.
func quantity(name string, n int64) string {
	if name == "cpu" && n%1000 != 0 {
		return strconv.FormatInt(n, 10) + "m"
	}
	if name == "cpu" {
		return strconv.FormatInt(n/1000, 10)
	}
	if (name == "memory" || name == "ephemeral-storage") && n != 0 {
		for _, unit := range []struct {
			suffix string
			shift  int
		}{{"Gi", 30}, {"Mi", 20}, {"Ki", 10}} {
			if n%(1<<unit.shift) == 0 {
				return strconv.FormatInt(n>>unit.shift, 10) + unit.suffix
			}
		}
	}
	return strconv.FormatInt(n, 10)
}

// quantities writes resources the way the API reads them, leaving out what there is nothing of; nil for nothing.
func quantities(r cluster.Resources) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"cpu", "memory", "ephemeral-storage", "pods"} {
		if n := r.Get(name); n != 0 {
			out[name] = quantity(name, n)
		}
	}
	for name, n := range r.Extended {
		if n != 0 {
			out[name] = quantity(name, n)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// parseAmount reads a quantity of a custom resource strictly.
func parseAmount(field, name, text string) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is no quantity", field, text)
	}
	return amount(name, q), nil
}

// never is how a duration says that it has no end.
const never = "Never"

// maxSeconds keeps a duration in seconds clear of the range of time.Duration.
const maxSeconds = math.MaxInt64 / int64(time.Second)

var durationForm = regexp.MustCompile(`^([0-9]+(s|m|h))+$`)

// parseSeconds reads a duration of hours, minutes and seconds.
func parseSeconds(name, text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil || !durationForm.MatchString(text) {
		return 0, fmt.Errorf("%s: %q is no duration in hours, minutes and seconds", name, text)
	}
	return int64(d / time.Second), nil
}

// seconds writes a duration the way parseSeconds reads it.
func seconds(n int64) string {
	return (time.Duration(min(n, maxSeconds)) * time.Second).String()
}

func sortedKeys[M ~map[K]V, K cmp.Ordered, V any](m M) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
