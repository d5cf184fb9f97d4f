package disruption

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseCron_Matches(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		schedule string
		at       string
		want     bool
	}{
		"a star is every minute":                         {"* * * * *", "2026-12-01T01:02:00Z", true},
		"minute and hour have both to be due":            {"30 9 * * *", "2026-12-01T09:30:00Z", true},
		"another minute is not due":                      {"30 9 * * *", "2026-12-01T09:31:00Z", false},
		"a list of ranges and values":                    {"0 8-10,18 * * *", "2026-12-01T18:00:00Z", true},
		"outside the list is not due":                    {"0 8-10,18 * * *", "2026-12-01T11:00:00Z", false},
		"a step counts from the low end":                 {"*/15 * * * *", "2026-12-01T09:45:00Z", true},
		"a step leaves out what lies between":            {"*/15 * * * *", "2026-12-01T09:40:00Z", false},
		"a value with a step runs to the high end":       {"10/20 * * * *", "2026-12-01T09:50:00Z", true},
		"names of months and days":                       {"0 9 * dec tue", "2026-12-01T09:00:00Z", true},
		"a range of days by name":                        {"0 9 * * MON-FRI", "2026-12-05T09:00:00Z", false},
		"7 is Sunday":                                    {"0 9 * * 7", "2026-12-06T09:00:00Z", true},
		"0 is Sunday":                                    {"0 9 * * 0", "2026-12-06T09:00:00Z", true},
		"both day fields given: either will do":          {"0 9 1 * mon", "2026-12-01T09:00:00Z", true},
		"both day fields given: the weekday alone too":   {"0 9 1 * mon", "2026-12-07T09:00:00Z", true},
		"both day fields given: one of them must be due": {"0 9 1 * mon", "2026-12-08T09:00:00Z", false},
		"a star day of month leaves it to the weekday":   {"0 9 * * mon", "2026-12-08T09:00:00Z", false},
		"a question mark is a star":                      {"0 9 ? * mon", "2026-12-08T09:00:00Z", false},
		"a stepped day restricts: either will do":        {"0 9 */2 * mon", "2026-12-03T09:00:00Z", true},
		"@yearly":   {"@yearly", "2026-01-01T00:00:00Z", true},
		"@annually": {"@annually", "2026-01-02T00:00:00Z", false},
		"@monthly":  {"@monthly", "2026-12-01T00:00:00Z", true},
		"@weekly":   {"@weekly", "2026-12-06T00:00:00Z", true},
		"@daily":    {"@daily", "2026-12-05T00:00:00Z", true},
		"@midnight": {"@midnight", "2026-12-05T00:01:00Z", false},
		"@hourly":   {"@hourly", "2026-12-05T07:00:00Z", true},
	} { // N-014
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := parseCron(tt.schedule)
			require.NoError(t, err)
			at, err := time.Parse(time.RFC3339, tt.at)
			require.NoError(t, err)
			require.Equal(t, tt.want, c.matches(at))
		})
	}
}

func TestParseCron_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{
		"":                            "has 0 fields, want 5",
		"* * * *":                     "has 4 fields, want 5",
		"@fortnightly":                "has 1 fields, want 5",
		"60 * * * *":                  `minute: "60" is not between 0 and 59`,
		"* 24 * * *":                  `hour: "24" is not between 0 and 23`,
		"* * 0 * *":                   `day of month: "0" is not between 1 and 31`,
		"* * * 13 *":                  `month: "13" is not between 1 and 12`,
		"* * * * 8":                   `day of week: "8" is not between 0 and 7`,
		"*/0 * * * *":                 `minute: step "0" is not a positive number`,
		"*/x * * * *":                 `minute: step "x" is not a positive number`,
		"9-5 * * * *":                 `minute: range "9-5" runs backwards`,
		"1- * * * *":                  `minute: "" is not between 0 and 59`,
		"1,,2 * * * *":                `minute: "" is not between 0 and 59`,
		"* * * unj *":                 `month: "unj" is not between`,
		"* * * * sund":                `day of week: "sund"`,
		"* * * * 9223372036854775808": "day of week",
	} {
		_, err := parseCron(schedule)
		require.ErrorContains(t, err, want, "schedule %q", schedule)
	}
}

func TestParseCron_TakesAStepBeyondEveryValue(t *testing.T) {
	t.Parallel()
	c, err := parseCron("5/9223372036854775807 * * * *")
	require.NoError(t, err)
	require.Equal(t, uint64(1)<<5, c.minute)
}

// due returns the first minute from start at which c is due, looking eight years ahead: long enough for every leap day.
func (c cron) due(start time.Time) (time.Time, bool) {
	if c.minute == 0 || c.hour == 0 {
		return time.Time{}, false
	}
	clock := time.Duration(bits.TrailingZeros64(c.hour))*time.Hour + time.Duration(bits.TrailingZeros64(c.minute))*time.Minute
	for day := start.Truncate(24 * time.Hour); day.Before(start.AddDate(8, 0, 0)); day = day.AddDate(0, 0, 1) {
		if at := day.Add(clock); !at.Before(start) && c.matches(at) {
			return at, true
		}
	}
	return time.Time{}, false
}

func field(t *rapid.T, name string, lo, hi int) string {
	one := rapid.Custom(func(t *rapid.T) string {
		a := rapid.IntRange(lo, hi).Draw(t, "from")
		b := rapid.IntRange(a, hi).Draw(t, "to")
		step := rapid.IntRange(1, 2*hi).Draw(t, "step")
		return rapid.SampledFrom([]string{
			"*", "?", fmt.Sprint(a), fmt.Sprintf("%d-%d", a, b), fmt.Sprintf("*/%d", step), fmt.Sprintf("%d-%d/%d", a, b, step), fmt.Sprintf("%d/%d", a, step),
		}).Draw(t, "form")
	})
	return strings.Join(rapid.SliceOfN(one, 1, 3).Draw(t, name), ",")
}

func TestCron_IsDueSomeTimeUnlessItsDateIsImpossible(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join([]string{
			field(t, "minute", 0, 59), field(t, "hour", 0, 23), field(t, "day", 1, 31), field(t, "month", 1, 12), field(t, "weekday", 0, 7),
		}, " ")
		c, err := parseCron(text)
		require.NoError(t, err, text)
		_, found := c.due(start)
		require.Equal(t, possible(c), found, text)
	})
}

// possible reports whether some date of the eight years from December 2026 meets the schedule, going through a calendar of its own.
func possible(c cron) bool {
	for at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2034 || at.Month() < 12; at = at.AddDate(0, 0, 1) {
		inMonth := c.month&(1<<at.Month()) != 0
		day, weekday := c.day&(1<<at.Day()) != 0, c.weekday&(1<<at.Weekday()) != 0
		either := !c.anyDay && !c.anyWeekday
		if inMonth && (day && weekday || either && (day || weekday)) {
			return true
		}
	}
	return false
}

func TestCron_AnImpossibleDateIsNeverDue(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for schedule, want := range map[string]bool{"0 0 30 2 *": false, "0 0 31 4,6,9,11 *": false, "0 0 29 2 *": true, "0 0 30 2 mon": true} {
		c, err := parseCron(schedule)
		require.NoError(t, err)
		_, found := c.due(start)
		require.Equal(t, want, found, schedule)
	}
}

func FuzzParseCron(f *testing.F) {
	for _, seed := range []string{"* * * * *", "@daily", "0 9 1-5/2 jan,feb mon-fri", "5/9223372036854775807 * * * *", "-1 * * * *", "1-2-3 * * * *", "*/*/2 * * * *"} {
		f.Add(seed)
	}
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCron(text)
		if err != nil {
			return
		}
		for name, got := range map[string][2]uint64{
			"minute": {c.minute, 1<<60 - 1}, "hour": {c.hour, 1<<24 - 1}, "day": {c.day, 1<<32 - 2}, "month": {c.month, 1<<13 - 2}, "weekday": {c.weekday, 1<<8 - 1},
		} {
			if got[0] == 0 || got[0]&^got[1] != 0 {
				t.Errorf("%q: %s has the values %b", text, name, got[0])
			}
		}
		c.matches(at)
	})
}
