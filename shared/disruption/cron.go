package disruption

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// cron is a schedule of five fields, each a bit set of the values at which it is due.
type cron struct {
	minute, hour, day, month, weekday uint64
	// A day is due by either of two fields that are both restricted, as cron has always had it.
	anyDay, anyWeekday bool
}

// parseCron reads "minute hour day-of-month month day-of-week" or one of the names of N-014.
func parseCron(text string) (cron, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "@yearly", "@annually":
		text = "0 0 1 1 *"
	case "@monthly":
		text = "0 0 1 * *"
	case "@weekly":
		text = "0 0 * * 0"
	case "@daily", "@midnight":
		text = "0 0 * * *"
	case "@hourly":
		text = "0 * * * *"
	}
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return cron{}, fmt.Errorf("schedule %q has %d fields, want 5: minute hour day month weekday", text, len(fields))
	}
	c := cron{anyDay: unrestricted(fields[2]), anyWeekday: unrestricted(fields[4])}
	for i, field := range []struct {
		name   string
		lo, hi int
		names  string // three letters each, from lo
		into   *uint64
	}{
		{"minute", 0, 59, "", &c.minute},
		{"hour", 0, 23, "", &c.hour},
		{"day of month", 1, 31, "", &c.day},
		{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec", &c.month},
		{"day of week", 0, 7, "sunmontuewedthufrisat", &c.weekday},
	} {
		bits, err := parseField(fields[i], field.lo, field.hi, field.names)
		if err != nil {
			return cron{}, fmt.Errorf("schedule %q: %s: %w", text, field.name, err)
		}
		*field.into = bits
	}
	c.weekday |= c.weekday >> 7 & 1 // 7 is Sunday too
	return c, nil
}

// unrestricted reports whether a field names every value by a star. A star with a step restricts, which decides how the two day fields
// combine; Karpenter's schedules are read that way.
func unrestricted(field string) bool {
	for part := range strings.SplitSeq(field, ",") {
		switch part {
		case "*", "?", "*/1", "?/1":
			return true
		}
	}
	return false
}

// parseField reads a list of values, ranges and steps: "1,3-5,*/15".
func parseField(text string, lo, hi int, names string) (uint64, error) {
	var bits uint64
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			n, err := strconv.Atoi(stepText)
			if err != nil || n < 1 {
				return 0, fmt.Errorf("step %q is not a positive number", stepText)
			}
			step = min(n, hi+1) // so that adding it never overflows
		}
		from, to, err := parseSpan(span, stepped, lo, hi, names)
		if err != nil {
			return 0, err
		}
		for v := from; v <= to; v += step {
			bits |= 1 << v
		}
	}
	return bits, nil
}

// parseSpan reads a value, a range or a star. A value with a step after it runs to the end.
func parseSpan(span string, stepped bool, lo, hi int, names string) (from, to int, err error) {
	if span == "*" || span == "?" {
		return lo, hi, nil
	}
	first, last, ranged := strings.Cut(span, "-")
	if from, err = value(first, lo, hi, names); err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		if to, err = value(last, lo, hi, names); err != nil {
			return 0, 0, err
		}
	case stepped:
		to = hi
	default:
		to = from
	}
	if to < from {
		return 0, 0, fmt.Errorf("range %q runs backwards", span)
	}
	return from, to, nil
}

func value(text string, lo, hi int, names string) (int, error) {
	if len(text) == 3 && names != "" {
		if at := strings.Index(names, strings.ToLower(text)); at >= 0 && at%3 == 0 {
			return lo + at/3, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%q is not between %d and %d", text, lo, hi)
	}
	return n, nil
}

// matches reports whether the schedule is due in the minute of t, which is in UTC.
func (c cron) matches(t time.Time) bool {
	day := c.day>>t.Day()&1 == 1
	weekday := c.weekday>>int(t.Weekday())&1 == 1
	due := day && weekday
	if !c.anyDay && !c.anyWeekday {
		due = day || weekday
	}
	return due && c.minute>>t.Minute()&1 == 1 && c.hour>>t.Hour()&1 == 1 && c.month>>int(t.Month())&1 == 1
}
