package disruption_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/buffer"
	"treadle/shared/cluster"
	"treadle/shared/disruption"
	"treadle/shared/packing"
)

// keepRoom adds a buffer for n pods of the given size to the cluster.
func (f *fleet) keepRoom(n, milliCPU int64) {
	ref := cluster.TemplateRef{Kind: cluster.KindPodTemplate, Namespace: "default", Name: "spare"}
	f.Templates = []cluster.PodTemplate{{TemplateRef: ref, Spec: &cluster.PodSpec{
		Requests: cluster.Resources{MilliCPU: milliCPU, MemoryBytes: milliCPU << 21, Pods: 1},
	}}}
	f.Buffers = []cluster.CapacityBuffer{{Namespace: "default", Name: "spare", UID: "spare", Template: ref, Replicas: &n}}
	buffer.Fill(&f.Snapshot)
}

func decideAll(f *fleet) (leaving []string, replacements int) {
	wanted, buffers := packing.Seats(&f.Snapshot)
	commands, _ := disruption.Decide(&f.Snapshot, disruption.Options{Wanted: wanted, Buffers: buffers})
	for _, c := range commands {
		leaving = append(leaving, c.Leaving...)
		replacements += len(c.Replacements)
	}
	return leaving, replacements
}

func TestDecide_KeepsTheRoomThatBuffersAskFor(t *testing.T) {
	t.Parallel()
	two := func() *fleet {
		f := newFleet()
		f.node("m5.xlarge", cluster.OnDemand, 1500)
		f.node("m5.xlarge", cluster.OnDemand, 1500)
		return f
	}
	f := two()
	leaving, _ := decideAll(f)
	require.Len(t, leaving, 1, "one node is enough for both pods")

	f = two()
	f.keepRoom(2, 2000)
	leaving, _ = decideAll(f)
	require.Empty(t, leaving, "but not for the room beside them")
}

func TestDecide_ANodeThatOnlyHoldsRoomGoesWhereOthersHaveIt(t *testing.T) {
	t.Parallel()
	f := newFleet()
	spare := f.node("m5.large", cluster.OnDemand)
	f.node("m5.xlarge", cluster.OnDemand, 2500)
	f.keepRoom(1, 1000)
	wanted, buffers := packing.Seats(&f.Snapshot)
	require.Empty(t, wanted)
	require.Equal(t, map[cluster.NodeName]bool{cluster.NodeName(spare): true}, buffers)
	leaving, replacements := decideAll(f)
	require.Equal(t, []string{spare}, leaving)
	require.Zero(t, replacements)
}

func TestDecide_ADriftedNodeThatHoldsRoomIsReplacedFirst(t *testing.T) {
	t.Parallel()
	f := newFleet()
	drifted := f.node("m5.large", cluster.OnDemand)
	f.NodeClaims[0].Conditions = f.NodeClaims[0].Conditions.With(cluster.Condition{Type: cluster.ConditionDrifted, Status: "True", Reason: "NodePoolDrifted"})
	f.keepRoom(1, 1000)
	leaving, replacements := decideAll(f)
	require.Equal(t, []string{drifted}, leaving)
	require.Equal(t, 1, replacements)
}
