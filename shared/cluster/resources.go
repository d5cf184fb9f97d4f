package cluster

import "maps"

// Resources is an amount of each resource: what a pod requests, what a node has, what daemons take. The zero value is
// nothing of anything. Values share no memory with each other unless a function says so.
type Resources struct {
	MilliCPU       int64 `json:"milliCPU,omitempty"`
	MemoryBytes    int64 `json:"memoryBytes,omitempty"`
	EphemeralBytes int64 `json:"ephemeralBytes,omitempty"`
	Pods           int64 `json:"pods,omitempty"`
	// Extended counts every other resource by name in its own unit: devices for GPUs, bytes for huge pages.
	Extended map[string]int64 `json:"extended,omitempty"`
}

// Plus returns r + o.
func (r Resources) Plus(o Resources) Resources {
	return r.combine(o, func(a, b int64) int64 { return a + b })
}

// Minus returns r − o; amounts may become negative.
func (r Resources) Minus(o Resources) Resources {
	return r.combine(o, func(a, b int64) int64 { return a - b })
}

// Max returns the larger amount of each resource.
func (r Resources) Max(o Resources) Resources {
	return r.combine(o, func(a, b int64) int64 { return max(a, b) })
}

// FloorZero returns r with negative amounts set to zero.
func (r Resources) FloorZero() Resources { return r.Max(Resources{}) }

// Fits reports whether r, taken as a request, can be served from capacity c. A resource of which nothing is asked does
// not count, so zero of a resource that c lacks fits (S-174); a negative capacity serves no positive request (S-175).
func (r Resources) Fits(c Resources) bool { return r.Short(c) == "" }

// Short names the first resource of which r asks more than c holds, in the order cpu, memory, ephemeral-storage, pods and
// then extended resources by name; "" if r fits.
func (r Resources) Short(c Resources) string {
	switch {
	case r.MilliCPU > 0 && r.MilliCPU > c.MilliCPU:
		return "cpu"
	case r.MemoryBytes > 0 && r.MemoryBytes > c.MemoryBytes:
		return "memory"
	case r.EphemeralBytes > 0 && r.EphemeralBytes > c.EphemeralBytes:
		return "ephemeral-storage"
	case r.Pods > 0 && r.Pods > c.Pods:
		return "pods"
	}
	short := ""
	for name, n := range r.Extended {
		if n > 0 && n > c.Extended[name] && (short == "" || name < short) {
			short = name
		}
	}
	return short
}

// IsZero reports whether r holds nothing of anything.
func (r Resources) IsZero() bool {
	for _, n := range r.Extended {
		if n != 0 {
			return false
		}
	}
	return r.MilliCPU == 0 && r.MemoryBytes == 0 && r.EphemeralBytes == 0 && r.Pods == 0
}

// Get returns the amount of the resource that Kubernetes calls name: millicores for cpu, bytes for memory and
// ephemeral-storage, a count for pods and for extended resources.
func (r Resources) Get(name string) int64 {
	switch name {
	case "cpu":
		return r.MilliCPU
	case "memory":
		return r.MemoryBytes
	case "ephemeral-storage":
		return r.EphemeralBytes
	case "pods":
		return r.Pods
	default:
		return r.Extended[name]
	}
}

// Set changes the amount of the resource that Kubernetes calls name; units as in Get.
func (r *Resources) Set(name string, n int64) {
	switch name {
	case "cpu":
		r.MilliCPU = n
	case "memory":
		r.MemoryBytes = n
	case "ephemeral-storage":
		r.EphemeralBytes = n
	case "pods":
		r.Pods = n
	default:
		if r.Extended == nil {
			r.Extended = map[string]int64{}
		}
		r.Extended[name] = n
	}
}

func (r Resources) combine(o Resources, f func(a, b int64) int64) Resources {
	out := Resources{
		MilliCPU:       f(r.MilliCPU, o.MilliCPU),
		MemoryBytes:    f(r.MemoryBytes, o.MemoryBytes),
		EphemeralBytes: f(r.EphemeralBytes, o.EphemeralBytes),
		Pods:           f(r.Pods, o.Pods),
	}
	if len(r.Extended)+len(o.Extended) == 0 {
		return out
	}
	out.Extended = maps.Clone(r.Extended)
	if out.Extended == nil {
		out.Extended = make(map[string]int64, len(o.Extended))
	}
	for name := range out.Extended {
		out.Extended[name] = f(out.Extended[name], o.Extended[name])
	}
	for name, n := range o.Extended {
		if _, done := r.Extended[name]; !done {
			out.Extended[name] = f(0, n)
		}
	}
	return out
}
