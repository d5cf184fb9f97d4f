package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// screen shows states as they come: redrawn in place on a terminal, else a line whenever something has changed.
type screen struct {
	out      io.Writer
	terminal bool
	height   int // of the terminal, in lines

	last  string
	drawn bool
}

// show draws one state under a title.
func (s *screen) show(title string, elapsed time.Duration, st state, notes []string) {
	if !s.terminal {
		line := summaryLine(st)
		if line == s.last {
			return
		}
		s.last = line
		fmt.Fprintf(s.out, "%6.1fs  %s  %s\n", elapsed.Seconds(), title, line)
		return
	}
	var b strings.Builder
	b.WriteString("\x1b[H\x1b[J") // home, clear to the end
	fmt.Fprintf(&b, "treadle  %s  %s\n\n", title, elapsed.Round(time.Second))
	fmt.Fprintf(&b, "  pods   %s %d of %d running, %d pending\n", bar(st.running, st.pods, 30), st.running, st.pods, st.pending)
	fmt.Fprintf(&b, "  nodes  %d claimed, %d registered, %d ready\n", st.claims, st.nodes, st.ready)
	fmt.Fprintf(&b, "  cost   %.2f USD/hour, %.0f USD/month\n", st.usdPerHour, st.usdPerHour*730)
	fmt.Fprintf(&b, "  used   cpu %s  memory %s  gpu %s\n\n", share(st.used.milliCPU, st.room.milliCPU), share(st.used.memory, st.room.memory), share(st.used.gpus, st.room.gpus))
	fmt.Fprintf(&b, "  %-34s %-18s %-11s %-10s %10s %5s  %-21s %s\n", "NODE", "TYPE", "ZONE", "CAPACITY", "USD/HOUR", "PODS", "CPU", "STATE")
	room := max(s.height-12-len(notes), 5)
	for i, r := range st.rows {
		if i == room {
			fmt.Fprintf(&b, "  … and %d more\n", len(st.rows)-room)
			break
		}
		fmt.Fprintf(&b, "  %-34s %-18s %-11s %-10s %10.4f %5d  %s  %s\n", r.node, r.kind, r.zone, r.capacity, r.usdPerHour, r.pods,
			bar(int(r.used.milliCPU), int(r.room.milliCPU), 20), r.state)
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "\n  ! %s", strings.ReplaceAll(n, "\n", "\n    "))
	}
	_, _ = io.WriteString(s.out, b.String())
	s.drawn = true
}

func summaryLine(st state) string {
	return fmt.Sprintf("pods %d/%d running, %d pending; nodes %d claimed, %d registered, %d ready; %.2f USD/h; cpu %s, memory %s, gpu %s",
		st.running, st.pods, st.pending, st.claims, st.nodes, st.ready, st.usdPerHour,
		share(st.used.milliCPU, st.room.milliCPU), share(st.used.memory, st.room.memory), share(st.used.gpus, st.room.gpus))
}

// bar draws part of whole over the given number of characters.
func bar(part, whole, width int) string {
	full := 0
	if whole > 0 {
		full = min(part*width/whole, width)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

func share(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%d%%", part*100/whole)
}

func parse(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}
