package packing_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/packing"
	"treadle/shared/plan"
)

var update = flag.Bool("update", false, "write the plans of the scenarios anew")

// scenario is a file of testdata/scenarios: a snapshot with a story. Pods named in Replicas stand for several equal ones;
// without types of its own the snapshot gets the small catalogue; pools without conditions are ready.
type scenario struct {
	Story    string           `json:"story"`
	Options  packing.Options  `json:"options"`
	Replicas map[string]int   `json:"replicas"`
	Refused  []string         `json:"refused"` // capacity types and starts of type names that cannot be had now
	Snapshot cluster.Snapshot `json:"snapshot"`
}

func TestPack_Scenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			s := readScenario(t, file)
			got := packing.Pack(s.Snapshot, s.Options)
			require.Empty(t, check(s.Snapshot, got))
			golden := strings.TrimSuffix(file, ".json") + ".plan"
			text := "# " + s.Story + "\n" + describe(got)
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(text), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), text)
		})
	}
}

func readScenario(t *testing.T, file string) scenario {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	var s scenario
	require.NoError(t, decoder.Decode(&s))
	if s.Snapshot.Types == nil {
		s.Snapshot.Types = map[string][]cluster.InstanceType{"default": smallCatalog()}
	}
	for _, t := range s.Snapshot.Types["default"] {
		for i := range t.Offerings {
			t.Offerings[i].Available = !slices.ContainsFunc(s.Refused, func(r string) bool {
				return string(t.Offerings[i].CapacityType) == r || strings.HasPrefix(t.Name, r)
			})
		}
	}
	for i := range s.Snapshot.NodePools {
		p := &s.Snapshot.NodePools[i]
		if p.Conditions == nil {
			p.Conditions = cluster.Conditions{{Type: cluster.ConditionReady, Status: "True"}}
		}
		p.Template.NodeClass = "default"
	}
	var all []cluster.Pod
	for _, pod := range s.Snapshot.Pods {
		pod.Namespace, pod.UID = "default", cluster.PodUID(pod.Name)
		pod.Spec.Requests.Pods = 1
		pod.Unschedulable = pod.NodeName == ""
		for i := range max(1, s.Replicas[pod.Name]) {
			one := pod
			if s.Replicas[pod.Name] > 0 {
				one.Name = fmt.Sprintf("%s-%d", pod.Name, i)
				one.UID = cluster.PodUID(one.Name)
			}
			all = append(all, one)
		}
	}
	s.Snapshot.Pods = all
	return s
}

// describe writes a plan for people: a line for each claim, placement and refusal.
func describe(p plan.Plan) string {
	var b strings.Builder
	for _, pl := range p.Placed {
		fmt.Fprintf(&b, "%s on %s%s\n", pl.Pod.Name, pl.Node, pl.NodeClaim)
	}
	for _, c := range p.Claims {
		fmt.Fprintf(&b, "claim from %s for %s\n", c.NodePool, strings.Join(names(c.Pods), " "))
		for _, e := range c.Requirements {
			fmt.Fprintf(&b, "    %s %s %s", e.Key, e.Operator, strings.Join(e.Values, " "))
			if e.MinValues > 0 {
				fmt.Fprintf(&b, " (min %d)", e.MinValues)
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "    requests %d m, %d MiB, %d pods\n", c.Requests.MilliCPU, c.Requests.MemoryBytes>>20, c.Requests.Pods)
		fmt.Fprintf(&b, "    %d options", len(c.Options))
		for i, o := range c.Options {
			if i == 3 {
				b.WriteString(" …")
				break
			}
			fmt.Fprintf(&b, ", %s %s %s %.4f", o.InstanceType, o.Zone, o.CapacityType, float64(o.PriceMicroUSDPerHour)/1e6)
		}
		b.WriteByte('\n')
		if c.MinValuesRelaxed {
			b.WriteString("    minValues relaxed\n")
		}
	}
	for _, u := range p.Unplaced {
		fmt.Fprintf(&b, "%s unplaced\n", u.Pod.Name)
		for _, r := range u.Reasons {
			fmt.Fprintf(&b, "    %s: %s: %s\n", r.NodePool, r.Rule, r.Detail)
		}
	}
	return b.String()
}

func names(refs []cluster.PodRef) []string {
	out := make([]string, 0, len(refs))
	for _, r := range refs {
		out = append(out, r.Name)
	}
	return out
}
