package awstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/shared/catalog"
	"treadle/shared/cluster"
)

func TestCatalog_HoldsTheWholeRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ec2.Calls().Reset()
	c := w.catalogue(t)
	require.Len(t, c.Types, len(ec2.TypeNames()))
	t.Logf("calls for a refresh: %v", w.ec2.Calls().Counts())
	body, err := catalog.Encode(c)
	require.NoError(t, err)
	back, err := catalog.Decode(body)
	require.NoError(t, err)
	require.Equal(t, c.Types, back.Types)
	t.Logf("stored: %d bytes", len(body))

	class := w.class(t)
	unpriced := 0
	for i, it := range catalog.InstanceTypes(c, class, catalog.Options{}) {
		from, known := ec2.LookupType(it.Name)
		require.True(t, known)
		require.EqualValues(t, from.VCPU*1000, it.Capacity.MilliCPU, it.Name)
		require.EqualValues(t, from.GPUs, it.Capacity.Get("nvidia.com/gpu")+it.Capacity.Get("amd.com/gpu")+it.Capacity.Get("habana.ai/gaudi"), it.Name)
		require.Positive(t, it.Allocatable.MilliCPU, it.Name)
		require.EqualValues(t, from.MaxPods, it.Capacity.Pods, it.Name)
		require.EqualValues(t, from.BranchENIs, it.Capacity.Get("vpc.amazonaws.com/pod-eni"), it.Name)
		require.Len(t, c.Types[i].Zones, len(from.Zones), it.Name)
		if c.Types[i].OnDemand && c.Types[i].OnDemandMicroUSDPerHour == 0 {
			unpriced++
		}
	}
	require.Zero(t, unpriced)
}

func TestCatalog_OffersWhereThereAreSubnetAndImage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := w.class(t)
	types := catalog.InstanceTypes(w.catalogue(t), class, catalog.Options{})
	available := map[cluster.CapacityType]int{}
	for _, it := range types {
		for _, o := range it.Offerings {
			if o.Available {
				require.Contains(t, []string{"us-east-1a", "us-east-1b", "us-east-1c"}, o.Zone)
				require.NotEmpty(t, o.ZoneID)
				require.Positive(t, o.PriceMicroUSDPerHour)
				available[o.CapacityType]++
			}
		}
	}
	require.Greater(t, available[cluster.OnDemand], 2500)
	require.Greater(t, available[cluster.Spot], 1500)
}

func BenchmarkDecode_Region(b *testing.B) {
	body, err := catalog.Encode(newWorld(b).catalogue(b))
	require.NoError(b, err)
	b.ReportAllocs()
	b.ReportMetric(float64(len(body)), "stored-bytes")
	for b.Loop() {
		_, err := catalog.Decode(body)
		require.NoError(b, err)
	}
}

func BenchmarkInstanceTypes_Region(b *testing.B) {
	w := newWorld(b)
	c, class := w.catalogue(b), w.class(b)
	b.ReportAllocs()
	for b.Loop() {
		require.Len(b, catalog.InstanceTypes(c, class, catalog.Options{}), len(c.Types))
	}
}
