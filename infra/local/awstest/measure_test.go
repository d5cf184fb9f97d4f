package awstest

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/fault"
	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/ledger"
)

// BenchmarkLaunch_UnderEC2sThrottle is how long it takes until claims of four sizes have instances, under EC2's bucket for CreateFleet
// and with the budget that functions share. A throttle costs what it costs a wake-up: one second.
func BenchmarkLaunch_UnderEC2sThrottle(b *testing.B) {
	for _, nodes := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			for b.Loop() {
				calls := launchAll(b, nodes)
				for name, n := range calls {
					b.ReportMetric(float64(n), name+"-calls")
				}
			}
		})
	}
}

func launchAll(b *testing.B, nodes int) map[string]int {
	b.Helper()
	b.StopTimer()
	w := newWorld(b)
	class := w.class(b)
	types := instanceTypes(b, w, class)
	budget := ledger.NewBudget(w.table(b, time.Now), ledger.Rates(), time.Now)
	known := ledger.New(w.table(b, time.Now))
	f := fleet.New(w.metered(budget), "demo")
	w.breaks(b, fault.Rule{Kind: fault.Throttle, Actions: []string{"CreateFleet"}})
	w.ec2.Calls().Reset()
	b.StartTimer()
	launched := 0
	for group := 0; launched < nodes; group++ {
		known.Read(b.Context(), time.Now())
		o := w.order(class, types, min(50, nodes-launched), cluster.Spot, "m5.large", "m6i.large", "c5.xlarge", "m7g.large")
		ready, err := w.templates.Prepare(b.Context(), o)
		require.NoError(b, err)
		for {
			res, err := f.Launch(b.Context(), request(o, ready, fmt.Sprint("token-", group)))
			if err == nil {
				launched += len(res.Instances)
				break
			}
			time.Sleep(time.Second)
		}
	}
	return maps.Clone(w.ec2.Calls().Counts())
}
