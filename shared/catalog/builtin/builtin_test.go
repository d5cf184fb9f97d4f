package builtin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/catalog"
	"treadle/shared/catalog/builtin"
	"treadle/shared/cluster"
)

func TestCatalog_OffersSomethingForEveryArchitecture(t *testing.T) {
	t.Parallel()
	c, err := builtin.Catalog()
	require.NoError(t, err)
	require.Equal(t, "us-east-1", c.Region)
	require.Greater(t, len(c.Types), 1000)
	class := cluster.NodeClass{Status: cluster.NodeClassStatus{
		Subnets: []cluster.Subnet{{ID: "subnet-a", Zone: "us-east-1a"}}, AMIs: []cluster.AMI{{ID: "ami-1"}},
	}}
	offered := map[[2]string]int{}
	for _, it := range catalog.InstanceTypes(c, class, catalog.Options{}) {
		for _, o := range it.Offerings {
			if o.Available {
				offered[[2]string{it.Labels[cluster.LabelArch], string(o.CapacityType)}]++
			}
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		require.Greater(t, offered[[2]string{arch, "on-demand"}], 100)
		require.Greater(t, offered[[2]string{arch, "spot"}], 100)
	}
}

func TestCatalog_SpotCostsNoMoreThanItsBound(t *testing.T) {
	t.Parallel()
	c, err := builtin.Catalog()
	require.NoError(t, err)
	for _, one := range c.Types {
		require.Positive(t, one.OnDemandMicroUSDPerHour, one.Name)
		for _, z := range one.Zones {
			want := int64(0)
			if one.Spot {
				want = one.OnDemandMicroUSDPerHour
			}
			require.Equal(t, want, z.SpotMicroUSDPerHour, one.Name)
		}
	}
}

func BenchmarkCatalog(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, err := builtin.Catalog()
		require.NoError(b, err)
	}
}
