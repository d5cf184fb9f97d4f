package ledger

import (
	"strings"
	"sync"
	"time"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

const (
	capacityMemory = 3 * time.Minute // L-052
	longestMemory  = 24 * time.Minute
	quotaMemory    = 15 * time.Minute
)

// Ledger is a memory of refusals. The zero value is empty and ready to use. It is safe for concurrent use.
type Ledger struct {
	mu        sync.Mutex
	offerings map[offering]entry
	quotas    map[quota]time.Time // by the end of their refusal
	subnets   map[string]time.Time
}

type offering struct {
	instanceType, place string
	capacityType        cluster.CapacityType
}

// quota is what EC2 counts against one limit: all of a capacity type where class is empty, else a class of instance types.
type quota struct {
	capacityType cluster.CapacityType
	class        string
}

// quotaClass returns the class of types that EC2's vCPU limits count an instance type to.
func quotaClass(instanceType string) string {
	family, _, _ := strings.Cut(instanceType, ".")
	letters := family[:len(family)-len(strings.TrimLeft(family, "abcdefghijklmnopqrstuvwxyz"))]
	switch letters {
	case "a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z":
		return "standard"
	case "g", "gr", "vt":
		return "g and vt"
	default:
		return letters
	}
}

type entry struct {
	until  time.Time
	length time.Duration
}

// Add remembers what a launch was refused. A refusal that names no offering counts against every offering that the launch asked
// for.
func (l *Ledger) Add(now time.Time, launch plan.Launch, refusals []plan.Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range refusals {
		switch r.Kind {
		case plan.RefusedQuota:
			l.exhaust(now, quota{capacityType: launch.CapacityType})
		case plan.RefusedTypeQuota:
			if r.InstanceType == "" {
				l.exhaust(now, quota{capacityType: launch.CapacityType})
				continue
			}
			l.exhaust(now, quota{launch.CapacityType, quotaClass(r.InstanceType)})
		case plan.RefusedAddresses:
			if l.subnets == nil {
				l.subnets = map[string]time.Time{}
			}
			l.subnets[r.SubnetID] = now.Add(capacityMemory)
		case plan.RefusedCapacity:
			if r.InstanceType != "" {
				l.refuse(now, offering{r.InstanceType, r.Zone, launch.CapacityType})
				continue
			}
			for _, c := range launch.Configs {
				for _, o := range c.Overrides {
					l.refuse(now, offering{o.InstanceType, o.Zone, launch.CapacityType})
				}
			}
		default: // no news about what is to be had
		}
	}
}

func (l *Ledger) exhaust(now time.Time, q quota) {
	if l.quotas == nil {
		l.quotas = map[quota]time.Time{}
	}
	l.quotas[q] = now.Add(quotaMemory)
}

// refuse remembers an offering, twice as long as the last time if that is no longer ago than it was long.
func (l *Ledger) refuse(now time.Time, o offering) {
	if l.offerings == nil {
		l.offerings = map[offering]entry{}
	}
	length := capacityMemory
	if old, known := l.offerings[o]; known {
		switch {
		case now.Before(old.until):
			return // the same news again
		case now.Sub(old.until) < old.length:
			length = min(2*old.length, longestMemory)
		}
	}
	l.offerings[o] = entry{now.Add(length), length}
}

// Refused reports whether an offering was refused lately. place is its zone, or the reservation's id for a reserved one.
func (l *Ledger) Refused(now time.Time, instanceType, place string, capacityType cluster.CapacityType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.quotas[quota{capacityType: capacityType}]) ||
		now.Before(l.quotas[quota{capacityType, quotaClass(instanceType)}]) ||
		now.Before(l.offerings[offering{instanceType, place, capacityType}].until)
}

// Full reports whether a subnet lately had no free address.
func (l *Ledger) Full(now time.Time, subnet string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.subnets[subnet])
}
