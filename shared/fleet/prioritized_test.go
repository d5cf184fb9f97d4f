package fleet

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

func TestInput_OverlaidPricesAreGoneBy(t *testing.T) {
	t.Parallel()
	for _, capacityType := range []cluster.CapacityType{cluster.Spot, cluster.OnDemand} {
		in := input(plan.Request{Token: "t", Count: 1, Launch: plan.Launch{
			CapacityType: capacityType, Prioritized: true,
			Configs: []plan.LaunchConfig{{Template: "lt", Overrides: []plan.Override{{InstanceType: "m5.large", SubnetID: "s", Zone: "a", PriceMicroUSDPerHour: 95_000}}}},
		}})
		require.InDelta(t, 0.095, *in.LaunchTemplateConfigs[0].Overrides[0].Priority, 1e-9)
		if capacityType == cluster.Spot {
			require.Equal(t, types.SpotAllocationStrategyCapacityOptimizedPrioritized, in.SpotOptions.AllocationStrategy)
		} else {
			require.Equal(t, types.FleetOnDemandAllocationStrategyPrioritized, in.OnDemandOptions.AllocationStrategy)
		}
	}
}
