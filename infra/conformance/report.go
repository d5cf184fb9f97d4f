package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// inapplicable returns the specs that speak of something Treadle does not have, by name, with the reason. No other spec is left out.
func inapplicable() map[string]string {
	return map[string]string{}
}

// report is what conformance.json holds.
type report struct {
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped"`
	Specs   []spec `json:"specs"`
}

// spec is how a spec of Karpenter's went, in all passes together.
type spec struct {
	Name    string  `json:"name"`
	Result  string  `json:"result"` // passed, failed or skipped
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason,omitempty"`
}

// add takes in one run of a suite. A spec has passed only if it did in every pass.
func (r *report) add(specs []types.SpecReport) {
	for _, s := range specs {
		if s.LeafNodeType != types.NodeTypeIt {
			continue
		}
		one := spec{Name: s.FullText(), Seconds: s.RunTime.Round(100 * time.Millisecond).Seconds()}
		switch {
		case s.State == types.SpecStatePassed:
			one.Result = "passed"
		case s.State.Is(types.SpecStateFailureStates):
			one.Result, one.Reason = "failed", firstLine(s.Failure.Message)
		case inapplicable()[one.Name] != "":
			one.Result, one.Reason = "skipped", inapplicable()[one.Name]
		default:
			continue // not asked for
		}
		at := slices.IndexFunc(r.Specs, func(o spec) bool { return o.Name == one.Name })
		switch {
		case at < 0:
			r.Specs = append(r.Specs, one)
		case one.Result == "failed":
			r.Specs[at] = one
		case r.Specs[at].Result == "passed":
			r.Specs[at].Seconds = max(r.Specs[at].Seconds, one.Seconds)
		}
	}
	r.count()
}

// remember adds what earlier runs, of other parts of the suites, have left in a file.
func (r *report) remember(file string) error {
	body, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var earlier report
	if err == nil {
		err = json.Unmarshal(body, &earlier)
	}
	if err != nil {
		return fmt.Errorf("results of earlier runs: %w", err)
	}
	for _, one := range earlier.Specs {
		if !slices.ContainsFunc(r.Specs, func(o spec) bool { return o.Name == one.Name }) {
			r.Specs = append(r.Specs, one)
		}
	}
	r.count()
	return nil
}

func (r *report) count() {
	slices.SortFunc(r.Specs, func(a, b spec) int { return strings.Compare(a.Name, b.Name) })
	r.Passed, r.Failed, r.Skipped = 0, 0, 0
	for _, one := range r.Specs {
		switch one.Result {
		case "passed":
			r.Passed++
		case "failed":
			r.Failed++
		default:
			r.Skipped++
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > 160 {
		line = line[:160] + "…"
	}
	return line
}

// print writes the report for a terminal.
func (r *report) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.Specs {
		_, _ = fmt.Fprintf(table, "%s\t%.1f s\t%s\t%s\n", s.Result, s.Seconds, s.Name, s.Reason)
	}
	_ = table.Flush()
	_, _ = fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

// write writes the report as JSON and, where a file for it is given, as Markdown.
func (r *report) write(file, docs string) error {
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(body, '\n'), 0o644); err != nil {
		return err
	}
	if docs == "" {
		return nil
	}
	var b strings.Builder
	b.WriteString("# Karpenter's own end-to-end suite against Treadle\n\nMade by `make conformance`: the suites of sigs.k8s.io/karpenter v1.14.1, unmodified, on the local stack. Parts may be run one by one (`SPECS=`);\neach line is the latest run of its spec. The CapacityBuffer specs count on nodes of 2 vCPU: `ARGS='-vcpus 2'`.\n\n")
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped.\n\n| spec | result | seconds | |\n|---|---|---|---|\n", r.Passed, r.Failed, r.Skipped)
	for _, s := range r.Specs {
		fmt.Fprintf(&b, "| %s | %s | %.0f | %s |\n", escape(s.Name), s.Result, s.Seconds, escape(s.Reason))
	}
	return os.WriteFile(docs, []byte(b.String()), 0o644)
}

func escape(cell string) string { return strings.ReplaceAll(cell, "|", `\|`) }
