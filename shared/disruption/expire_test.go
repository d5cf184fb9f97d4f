package disruption_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/apply/simtest"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
)

func TestExpire(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change  func(*cluster.NodeClaim)
		expires bool
		next    int64 // after the claim's creation
	}{
		"a claim that may live for ever is left":                  {func(*cluster.NodeClaim) {}, false, 0},
		"a claim in its last second is left until that is over":   {func(c *cluster.NodeClaim) { c.ExpireAfterSeconds = 101 }, false, 101},
		"a claim as old as it may be goes (D-096)":                {func(c *cluster.NodeClaim) { c.ExpireAfterSeconds = 100 }, true, 0},
		"a claim that goes already does not expire again (D-098)": {func(c *cluster.NodeClaim) { c.ExpireAfterSeconds, c.DeletionUnix = 50, 1 }, false, 0},
		"a claim whose node has not come expires like any other":  {func(c *cluster.NodeClaim) { c.ExpireAfterSeconds, c.ProviderID = 100, "" }, true, 0},
		"do-not-disrupt does not save a claim (D-096)": {func(c *cluster.NodeClaim) {
			c.ExpireAfterSeconds, c.Annotations = 100, map[string]string{cluster.AnnotationDoNotDisrupt: "true"}
		}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := simtest.New(now)
			claim, _ := w.AddMachine("c", "general")
			tt.change(claim)
			snap := w.Snapshot(now + 100)
			d := disruption.Expire(&snap)
			require.Equal(t, tt.expires, d.Waiting)
			if tt.next != 0 {
				require.Equal(t, now+tt.next, d.NextUnix)
			}
			if !tt.expires {
				require.Empty(t, d.Moves)
				return
			}
			require.Len(t, d.Moves, 1)
			require.True(t, d.Moves[0].DeleteClaim)
			require.Equal(t, "expired", d.Moves[0].Reason)
			require.Equal(t, "Expired", d.Moves[0].Events[0].Reason)
			require.Equal(t, "1m40s old, and its expireAfter is 1m40s", d.Moves[0].Events[0].Note)
		})
	}
}
