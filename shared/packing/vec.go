package packing

import (
	"math"
	"slices"

	"treadle/shared/cluster"
)

// vec is an amount of each resource in the order of a dims.
type vec []int64

// The first resources of every vec.
const (
	cpu = iota
	memory
	ephemeral
	pods
	fixedDims
)

// dims names the resources that decide something in one run: those that pods or daemons request and those that a pool
// limits. Resources that nobody asks for need no room in a vec.
type dims struct {
	names []string
	index map[string]int
}

func newDims() *dims {
	d := &dims{names: []string{"cpu", "memory", "ephemeral-storage", "pods"}, index: map[string]int{}}
	for i, name := range d.names {
		d.index[name] = i
	}
	return d
}

// learn adds the names of more resources in sorted order.
func (d *dims) learn(names map[string]bool) {
	sorted := make([]string, 0, len(names))
	for name := range names {
		if _, known := d.index[name]; !known {
			sorted = append(sorted, name)
		}
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		d.index[name] = len(d.names)
		d.names = append(d.names, name)
	}
}

func (d *dims) vec(r cluster.Resources) vec {
	v := make(vec, len(d.names))
	v[cpu], v[memory], v[ephemeral], v[pods] = r.MilliCPU, r.MemoryBytes, r.EphemeralBytes, r.Pods
	for i := fixedDims; i < len(d.names); i++ {
		v[i] = r.Extended[d.names[i]]
	}
	return v
}

func (d *dims) resources(v vec) cluster.Resources {
	var r cluster.Resources
	for i, n := range v {
		if n != 0 {
			r.Set(d.names[i], n)
		}
	}
	return r
}

func (v vec) add(o vec) {
	for i := range v {
		v[i] += o[i]
	}
}

func (v vec) sub(o vec) {
	for i := range v {
		v[i] -= o[i]
	}
}

// addTimes adds n times o.
func (v vec) addTimes(o vec, n int64) {
	for i := range v {
		v[i] += n * o[i]
	}
}

// fits reports whether the request v can be served from room. What is not asked for does not count (S-174).
func (v vec) fits(room vec) bool {
	for i, n := range v {
		if n > 0 && n > room[i] {
			return false
		}
	}
	return true
}

// times returns how often the request v can be served from room, at most limit.
func (v vec) times(room vec, limit int64) int64 {
	for i, n := range v {
		if n <= 0 {
			continue
		}
		if room[i] < n {
			return 0
		}
		limit = min(limit, room[i]/n)
	}
	return limit
}

// floorZero raises negative amounts to zero.
func (v vec) floorZero() {
	for i := range v {
		v[i] = max(v[i], 0)
	}
}

func (v vec) minWith(o vec) {
	for i := range v {
		v[i] = min(v[i], o[i])
	}
}

func (v vec) maxWith(o vec) {
	for i := range v {
		v[i] = max(v[i], o[i])
	}
}

// unlimited stands for a resource without limit.
const unlimited = math.MaxInt64
