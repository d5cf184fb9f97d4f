package awstest

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/fault"
	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/ledger"
	"treadle/shared/plan"
)

const tableName = "treadle"

// table makes the table that functions share, if there is none yet, and opens it as another function would.
func (w *world) table(t testing.TB, now func() time.Time) *ledger.Table {
	t.Helper()
	key := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: sdk.String(name), AttributeType: types.ScalarAttributeTypeS}
	}
	list, err := w.dynamodb.ListTables(t.Context(), &awsdynamodb.ListTablesInput{})
	require.NoError(t, err)
	if len(list.TableNames) == 0 {
		_, err = w.dynamodb.CreateTable(t.Context(), &awsdynamodb.CreateTableInput{
			TableName: sdk.String(tableName), AttributeDefinitions: []types.AttributeDefinition{key("scope"), key("id")},
			KeySchema: []types.KeySchemaElement{
				{AttributeName: sdk.String("scope"), KeyType: types.KeyTypeHash}, {AttributeName: sdk.String("id"), KeyType: types.KeyTypeRange},
			},
		})
		require.NoError(t, err)
	}
	return ledger.NewTable(w.cfg, tableName, now, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// metered is an EC2 client whose calls ask a budget first.
func (w *world) metered(b *ledger.Budget) *awsec2.Client {
	cfg := w.cfg.Copy()
	cfg.APIOptions = append(cfg.APIOptions, b.Guard)
	return awsec2.NewFromConfig(cfg, fleet.Retry)
}

func soldOut(instanceType string, zones ...string) []plan.Refusal {
	var out []plan.Refusal
	for _, zone := range zones {
		out = append(out, plan.Refusal{InstanceType: instanceType, Zone: zone, Kind: plan.RefusedCapacity})
	}
	return out
}

func TestLedger_OneClustersRefusalIsEverybodys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	mine, yours := ledger.New(w.table(t, time.Now)), ledger.New(w.table(t, time.Now))
	spot := plan.Launch{CapacityType: cluster.Spot}
	mine.Add(now, spot, append(soldOut("m5.large", "a", "b"), plan.Refusal{SubnetID: "subnet-1", Kind: plan.RefusedAddresses}))
	mine.Add(now, plan.Launch{CapacityType: cluster.OnDemand}, []plan.Refusal{{InstanceType: "g5.xlarge", Zone: "a", Kind: plan.RefusedTypeQuota}})
	mine.Learn([]cluster.NodeClaim{{ProviderID: "p", ImageID: "ami-1"}}, []cluster.Node{{
		ProviderID: "p", Labels: map[string]string{cluster.LabelInstanceType: "m5.large"}, Capacity: cluster.Resources{MemoryBytes: 7 << 30},
	}})
	mine.Write(t.Context(), now)
	yours.Read(t.Context(), now)
	for _, zone := range []string{"a", "b"} {
		require.True(t, yours.Refused(now, "m5.large", zone, cluster.Spot))
	}
	require.True(t, yours.Refused(now, "g4dn.xlarge", "c", cluster.OnDemand), "the quota of its class is used up")
	require.False(t, yours.Refused(now, "m5.large", "a", cluster.OnDemand))
	require.True(t, yours.Full(now, "subnet-1"))
	bytes, known := yours.Memory("m5.large", "ami-1")
	require.True(t, known)
	require.EqualValues(t, 7<<30, bytes)

	later := now.Add(4 * time.Minute)
	require.False(t, yours.Refused(later, "m5.large", "a", cluster.Spot))
	cold := ledger.New(w.table(t, time.Now))
	cold.Read(t.Context(), later)
	cold.Add(later, spot, soldOut("m5.large", "a"))
	cold.Write(t.Context(), later)
	mine.Read(t.Context(), later)
	require.True(t, mine.Refused(later.Add(5*time.Minute), "m5.large", "a", cluster.Spot), "a cold function knows that it is the second time")
}

// TestLedger_NoWriterUndoesAnothers has many functions write at once: the memory that lasts longest, and the least memory, stay.
func TestLedger_NoWriterUndoesAnothers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	var waiting sync.WaitGroup
	for n := range 10 {
		one := ledger.New(w.table(t, time.Now))
		waiting.Go(func() {
			at := now.Add(time.Duration(n) * 10 * time.Second)
			one.Add(at, plan.Launch{CapacityType: cluster.Spot}, soldOut("m5.large", "a"))
			one.Learn([]cluster.NodeClaim{{ProviderID: "p", ImageID: "ami-1"}}, []cluster.Node{{
				ProviderID: "p", Labels: map[string]string{cluster.LabelInstanceType: "m5.large"}, Capacity: cluster.Resources{MemoryBytes: int64(1000 + n)},
			}})
			one.Write(t.Context(), at)
		})
	}
	waiting.Wait()
	cold := ledger.New(w.table(t, time.Now))
	cold.Read(t.Context(), now)
	require.True(t, cold.Refused(now.Add(3*time.Minute+80*time.Second), "m5.large", "a", cluster.Spot))
	require.False(t, cold.Refused(now.Add(3*time.Minute+91*time.Second), "m5.large", "a", cluster.Spot), "ten at once are no ten in a row")
	bytes, _ := cold.Memory("m5.large", "ami-1")
	require.EqualValues(t, 1000, bytes)
}

// TestBudget_IsOneForAll has many functions take tokens at once, under a clock that stands still between steps.
func TestBudget_IsOneForAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var millis atomic.Int64
	start := time.Now()
	now := func() time.Time { return start.Add(time.Duration(millis.Load()) * time.Millisecond) }
	for name, rate := range map[string]ledger.Rate{"one by one": {Burst: 5, PerSecond: 2}, "some at once": {Burst: 20, PerSecond: 10, Share: 4}} {
		var budgets []*ledger.Budget
		for range 6 {
			budgets = append(budgets, ledger.NewBudget(w.table(t, now), map[string]ledger.Rate{name: rate}, now))
		}
		first := now()
		taken := 0
		for range 12 {
			var got atomic.Int64
			var waiting sync.WaitGroup
			for _, b := range budgets {
				waiting.Go(func() {
					for range 8 {
						if b.Take(t.Context(), name) {
							got.Add(1)
						}
					}
				})
			}
			waiting.Wait()
			taken += int(got.Load())
			most := rate.Burst + int(now().Sub(first).Milliseconds())*rate.PerSecond/1000
			require.LessOrEqual(t, taken, most, name)
			millis.Add(500)
		}
		require.GreaterOrEqual(t, taken, rate.Burst+rate.PerSecond*11/2-6, "%s: nothing is wasted", name)
	}
}

func TestBudget_CallsThatAreOverItAreNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := ledger.NewBudget(w.table(t, time.Now), map[string]ledger.Rate{"CreateFleet": {Burst: 2, PerSecond: 1}}, time.Now)
	f := fleet.New(w.metered(b), "demo")
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 1, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	for n := range 2 {
		_, err = f.Launch(t.Context(), request(o, ready, fmt.Sprint("token-", n)))
		require.NoError(t, err)
	}
	_, err = f.Launch(t.Context(), request(o, ready, "token-3"))
	require.ErrorIs(t, err, plan.ErrThrottled)
	require.ErrorContains(t, err, "not sent")
	require.Equal(t, 2, w.ec2.Calls().Counts()["CreateFleet"])
	_, err = f.List(t.Context())
	require.NoError(t, err, "other calls have budgets of their own")
}

func TestBudget_LearnsFromAThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rates := map[string]ledger.Rate{"CreateFleet": {Burst: 50, PerSecond: 1}}
	mine, yours := ledger.NewBudget(w.table(t, time.Now), rates, time.Now), ledger.NewBudget(w.table(t, time.Now), rates, time.Now)
	class := w.class(t)
	o := w.order(class, instanceTypes(t, w, class), 1, cluster.OnDemand, "m5.large")
	ready, err := w.templates.Prepare(t.Context(), o)
	require.NoError(t, err)
	w.breaks(t, fault.Rule{Kind: fault.Throttle, Actions: []string{"CreateFleet"}, Times: 1})
	_, err = fleet.New(w.metered(mine), "demo").Launch(t.Context(), request(o, ready, "token-1"))
	require.ErrorIs(t, err, plan.ErrThrottled)
	require.False(t, yours.Take(t.Context(), "CreateFleet"), "somebody else has used the account's calls up")
}
