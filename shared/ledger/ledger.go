package ledger

import (
	"context"
	"errors"
	"slices"
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

	// writers bounds the calls to the table at one time.
	writers = 8
)

// Ledger is a memory of refusals and of what nodes are like. The zero value is empty, ready to use, and shared with nobody. It is
// safe for concurrent use.
type Ledger struct {
	table *Table

	mu       sync.Mutex
	entries  map[subject]entry
	memory   map[node]int64 // bytes
	lessons  int
	memoryAt time.Time // when it was last read
	// What the table does not know yet.
	refused []subject
	learned []node
}

// New returns a ledger that is shared through a table; nil: with nobody.
func New(t *Table) *Ledger { return &Ledger{table: t} }

// subject is what a refusal is about.
type subject struct {
	kind         string
	capacityType cluster.CapacityType
	// place is a zone, or the id of a reservation.
	place string
	// name is an instance type, a subnet, or what EC2 counts against one limit: all of a capacity type where it is empty, else a
	// class of instance types.
	name string
}

const (
	ofOffering = "offering"
	ofQuota    = "quota"
	ofSubnet   = "subnet"
)

func (s subject) id() string {
	return strings.Join([]string{s.kind, string(s.capacityType), s.place, s.name}, "/")
}

// parseSubject reads what id wrote; ok is false for anything else.
func parseSubject(id string) (s subject, ok bool) {
	part := strings.Split(id, "/")
	if len(part) != 4 {
		return subject{}, false
	}
	return subject{part[0], cluster.CapacityType(part[1]), part[2], part[3]}, true
}

// entry is how long a subject counts as refused. It is worth knowing for as long again, because a refusal in that time is a
// repeated one.
type entry struct {
	until  time.Time
	length time.Duration
}

func (e entry) forgetAt() time.Time { return e.until.Add(e.length) }

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

// Add remembers what a launch was refused. A refusal that names no offering counts against every offering that the launch asked
// for. Write tells the other clusters.
func (l *Ledger) Add(now time.Time, launch plan.Launch, refusals []plan.Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range refusals {
		switch r.Kind {
		case plan.RefusedQuota:
			l.refuse(now, subject{kind: ofQuota, capacityType: launch.CapacityType}, quotaMemory, quotaMemory)
		case plan.RefusedTypeQuota:
			class := ""
			if r.InstanceType != "" {
				class = quotaClass(r.InstanceType)
			}
			l.refuse(now, subject{kind: ofQuota, capacityType: launch.CapacityType, name: class}, quotaMemory, quotaMemory)
		case plan.RefusedAddresses:
			l.refuse(now, subject{kind: ofSubnet, name: r.SubnetID}, capacityMemory, capacityMemory)
		case plan.RefusedCapacity:
			if r.InstanceType != "" {
				l.refuse(now, subject{ofOffering, launch.CapacityType, r.Zone, r.InstanceType}, capacityMemory, longestMemory)
				continue
			}
			for _, c := range launch.Configs {
				for _, o := range c.Overrides {
					l.refuse(now, subject{ofOffering, launch.CapacityType, o.Zone, o.InstanceType}, capacityMemory, longestMemory)
				}
			}
		default: // no news about what is to be had
		}
	}
}

// refuse remembers a subject, twice as long as the last time if that is no longer ago than it was long.
func (l *Ledger) refuse(now time.Time, s subject, first, longest time.Duration) {
	length := first
	if old, known := l.entries[s]; known {
		switch {
		case now.Before(old.until):
			return // the same news again
		case now.Before(old.forgetAt()):
			length = min(2*old.length, longest)
		}
	}
	if l.entries == nil {
		l.entries = map[subject]entry{}
	}
	l.entries[s] = entry{now.Add(length), length}
	l.refused = append(l.refused, s)
}

// RefusedAt returns Refused for a fixed instant.
func (l *Ledger) RefusedAt(now time.Time) func(instanceType, place string, capacityType cluster.CapacityType) bool {
	return func(instanceType, place string, capacityType cluster.CapacityType) bool {
		return l.Refused(now, instanceType, place, capacityType)
	}
}

// Refused reports whether an offering was refused lately. place is its zone, or the reservation's id for a reserved one.
func (l *Ledger) Refused(now time.Time, instanceType, place string, capacityType cluster.CapacityType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return false
	}
	for _, s := range [...]subject{
		{kind: ofQuota, capacityType: capacityType},
		{kind: ofQuota, capacityType: capacityType, name: quotaClass(instanceType)},
		{ofOffering, capacityType, place, instanceType},
	} {
		if now.Before(l.entries[s].until) {
			return true
		}
	}
	return false
}

// Full reports whether a subnet lately had no free address.
func (l *Ledger) Full(now time.Time, subnet string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.entries[subject{kind: ofSubnet, name: subnet}].until)
}

const (
	scopeRefusals = "refusals"
	scopeMemory   = "memory"

	attributeUntil  = "refused_until"
	attributeLength = "refused_for"
	attributeBytes  = "capacity_bytes"
)

// Read takes over what other clusters were refused and have learned: one call, and a second one now and then. Where the table is
// out of reach, what is known stays.
func (l *Ledger) Read(ctx context.Context, now time.Time) {
	l.forget(now)
	if l.table == nil {
		return
	}
	if rows, err := l.table.list(ctx, scopeRefusals); err == nil {
		l.merge(rows)
	}
	l.mu.Lock()
	due := now.Sub(l.memoryAt) >= memoryEvery
	l.mu.Unlock()
	if !due {
		return
	}
	if rows, err := l.table.list(ctx, scopeMemory); err == nil {
		l.mergeMemory(now, rows)
	}
}

// forget drops what is neither in force nor good for telling a repeated refusal.
func (l *Ledger) forget(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, e := range l.entries {
		if !now.Before(e.forgetAt()) {
			delete(l.entries, s)
		}
	}
}

// merge keeps, of two memories of a subject, the one that lasts longer.
func (l *Ledger) merge(rows []row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		s, ok := parseSubject(r.id)
		e := entry{time.Unix(r.numbers[attributeUntil], 0), time.Duration(r.numbers[attributeLength]) * time.Second}
		if !ok || !e.until.After(l.entries[s].until) {
			continue
		}
		if l.entries == nil {
			l.entries = map[subject]entry{}
		}
		l.entries[s] = e
	}
}

// Write tells the other clusters what was added since the last time. What the table knows better stays, and what cannot be
// written because the table is out of reach is written the next time, if it still matters then.
func (l *Ledger) Write(ctx context.Context, now time.Time) {
	if l.table == nil {
		return
	}
	l.mu.Lock()
	refused, learned := l.refused, l.learned
	l.refused, l.learned = nil, nil
	l.mu.Unlock()
	refused = each(refused, func(s subject) bool { return l.writeRefusal(ctx, now, s) })
	learned = each(learned, func(n node) bool { return l.writeMemory(ctx, now, n) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused, l.learned = append(l.refused, refused...), append(l.learned, learned...)
}

func (l *Ledger) writeRefusal(ctx context.Context, now time.Time, s subject) bool {
	l.mu.Lock()
	e, known := l.entries[s]
	l.mu.Unlock()
	if !known || !now.Before(e.until) {
		return true
	}
	_, err := l.table.update(ctx, scopeRefusals, s.id(),
		"SET refused_until = :until, refused_for = :length, forget_at = :forget",
		"attribute_not_exists(refused_until) OR refused_until < :until",
		map[string]int64{":until": e.until.Unix(), ":length": int64(e.length.Seconds()), ":forget": e.forgetAt().Unix()})
	return err == nil || errors.Is(err, errCondition)
}

// each calls do for all elements, some at a time, and returns those for which it was false.
func each[T comparable](all []T, do func(T) bool) (left []T) {
	done := make([]bool, len(all))
	var waiting sync.WaitGroup
	slots := make(chan struct{}, writers)
	for i, one := range all {
		slots <- struct{}{}
		waiting.Go(func() {
			defer func() { <-slots }()
			done[i] = do(one)
		})
	}
	waiting.Wait()
	for i, ok := range done {
		if !ok && !slices.Contains(left, all[i]) {
			left = append(left, all[i])
		}
	}
	return left
}
