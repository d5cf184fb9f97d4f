package refresh_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/stretchr/testify/require"

	"treadle/shared/catalog"
	"treadle/shared/catalog/refresh"
)

// fakeEC2 hands out one item a page.
type fakeEC2 struct {
	types     []types.InstanceTypeInfo
	offerings []types.InstanceTypeOffering
	spot      []types.SpotPrice
	fail      map[string]error // by call
}

// page returns the item that token stands for and the token of the next.
func page[T any](all []T, token *string) ([]T, *string) {
	n := 0
	if token != nil {
		_, _ = fmt.Sscan(*token, &n)
	}
	if n >= len(all) {
		return nil, nil
	}
	if n+1 == len(all) {
		return all[n:], nil
	}
	return all[n : n+1], aws.String(fmt.Sprint(n + 1))
}

func (f *fakeEC2) DescribeInstanceTypes(_ context.Context, in *ec2.DescribeInstanceTypesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceTypesOutput, error) {
	out := &ec2.DescribeInstanceTypesOutput{}
	out.InstanceTypes, out.NextToken = page(f.types, in.NextToken)
	return out, f.fail["types"]
}

func (f *fakeEC2) DescribeInstanceTypeOfferings(_ context.Context, in *ec2.DescribeInstanceTypeOfferingsInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceTypeOfferingsOutput, error) {
	out := &ec2.DescribeInstanceTypeOfferingsOutput{}
	out.InstanceTypeOfferings, out.NextToken = page(f.offerings, in.NextToken)
	return out, f.fail["offerings"]
}

func (f *fakeEC2) DescribeSpotPriceHistory(_ context.Context, in *ec2.DescribeSpotPriceHistoryInput, _ ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	out := &ec2.DescribeSpotPriceHistoryOutput{}
	out.SpotPriceHistory, out.NextToken = page(f.spot, in.NextToken)
	return out, f.fail["spot"]
}

// fakePricing answers by tenancy and product family.
type fakePricing struct {
	lists map[string][]string
	fail  error
}

func (f *fakePricing) GetProducts(_ context.Context, in *pricing.GetProductsInput, _ ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	fields := map[string]string{}
	for _, one := range in.Filters {
		fields[*one.Field] = *one.Value
	}
	out := &pricing.GetProductsOutput{}
	out.PriceList, out.NextToken = page(f.lists[fields["tenancy"]+" "+fields["productFamily"]], in.NextToken)
	return out, f.fail
}

// product is an entry of a price list, cut to a third of its fields.
func product(instanceType, currency, price string) string {
	return fmt.Sprintf(`{"product":{"productFamily":"Compute Instance","attributes":{"instanceType":%q,"vcpu":"2","regionCode":"us-east-1"},"sku":"S1"},
	"serviceCode":"AmazonEC2","terms":{"OnDemand":{"S1.T1":{"priceDimensions":{"S1.T1.R1":{"unit":"Hrs","rateCode":"S1.T1.R1","appliesTo":[],
	"pricePerUnit":{%q:%q}}},"sku":"S1","offerTermCode":"T1"}},"Reserved":{"S1.T2":{"priceDimensions":{"x":{"unit":"Quantity","pricePerUnit":{"USD":"500"}}}}}},"version":"1"}`,
		instanceType, currency, price)
}

func m5() types.InstanceTypeInfo {
	return types.InstanceTypeInfo{
		InstanceType: "m5.large", Hypervisor: "nitro", BareMetal: aws.Bool(false), BurstablePerformanceSupported: aws.Bool(false),
		SupportedUsageClasses: []types.UsageClassType{"on-demand", "spot"}, SupportedVirtualizationTypes: []types.VirtualizationType{"hvm"},
		VCpuInfo: &types.VCpuInfo{DefaultVCpus: aws.Int32(2)}, MemoryInfo: &types.MemoryInfo{SizeInMiB: aws.Int64(8192)},
		ProcessorInfo: &types.ProcessorInfo{
			Manufacturer: aws.String("Intel"), SupportedArchitectures: []types.ArchitectureType{"i386", "x86_64"}, SustainedClockSpeedInGhz: aws.Float64(3.1),
		},
		EbsInfo: &types.EbsInfo{EbsOptimizedSupport: "default", EbsOptimizedInfo: &types.EbsOptimizedInfo{MaximumBandwidthInMbps: aws.Int32(4750)}},
		NetworkInfo: &types.NetworkInfo{
			MaximumNetworkInterfaces: aws.Int32(3), Ipv4AddressesPerInterface: aws.Int32(10), DefaultNetworkCardIndex: aws.Int32(0),
			NetworkCards: []types.NetworkCardInfo{{NetworkCardIndex: aws.Int32(0), MaximumNetworkInterfaces: aws.Int32(3), BaselineBandwidthInGbps: aws.Float64(0.75)}},
		},
	}
}

func p4d() types.InstanceTypeInfo {
	i := m5()
	i.InstanceType, i.BareMetal = "p4d.24xlarge", aws.Bool(true)
	i.SupportedUsageClasses = i.SupportedUsageClasses[:1]
	i.InstanceStorageInfo = &types.InstanceStorageInfo{TotalSizeInGB: aws.Int64(8000), NvmeSupport: "required"}
	i.GpuInfo = &types.GpuInfo{Gpus: []types.GpuDeviceInfo{{Name: aws.String("A100"), Manufacturer: aws.String("NVIDIA"), Count: aws.Int32(8), MemoryInfo: &types.GpuDeviceMemoryInfo{SizeInMiB: aws.Int32(40960)}}}}
	card := func(index int32) types.NetworkCardInfo {
		return types.NetworkCardInfo{NetworkCardIndex: aws.Int32(index), MaximumNetworkInterfaces: aws.Int32(15), BaselineBandwidthInGbps: aws.Float64(100)}
	}
	i.NetworkInfo = &types.NetworkInfo{
		MaximumNetworkInterfaces: aws.Int32(60), Ipv4AddressesPerInterface: aws.Int32(50), EncryptionInTransitSupported: aws.Bool(true),
		NetworkCards: []types.NetworkCardInfo{card(0), card(1), card(2), card(3)}, EfaInfo: &types.EfaInfo{MaximumEfaInterfaces: aws.Int32(4)},
	}
	return i
}

func inf2() types.InstanceTypeInfo {
	i := m5()
	i.InstanceType = "inf2.24xlarge"
	i.ProcessorInfo.SupportedFeatures = []types.SupportedAdditionalProcessorFeature{"nested-virtualization"}
	i.NeuronInfo = &types.NeuronInfo{NeuronDevices: []types.NeuronDeviceInfo{{
		Name: aws.String("Inferentia2"), Count: aws.Int32(6), CoreInfo: &types.NeuronDeviceCoreInfo{Count: aws.Int32(2)},
		MemoryInfo: &types.NeuronDeviceMemoryInfo{SizeInMiB: aws.Int32(32768)},
	}}}
	return i
}

func offer(instanceType, zone string) types.InstanceTypeOffering {
	return types.InstanceTypeOffering{InstanceType: types.InstanceType(instanceType), Location: aws.String(zone)}
}

func spot(instanceType, zone, price string, at time.Time) types.SpotPrice {
	return types.SpotPrice{InstanceType: types.InstanceType(instanceType), AvailabilityZone: aws.String(zone), SpotPrice: aws.String(price), Timestamp: aws.Time(at)}
}

var now = time.Unix(1_800_000_000, 0)

func world() (*fakeEC2, *fakePricing) {
	mac := m5()
	mac.InstanceType, mac.ProcessorInfo = "mac1.metal", &types.ProcessorInfo{SupportedArchitectures: []types.ArchitectureType{"x86_64_mac"}}
	old := m5()
	old.InstanceType, old.SupportedVirtualizationTypes = "m1.large", []types.VirtualizationType{"paravirtual"}
	homeless := m5()
	homeless.InstanceType = "m5.far"
	return &fakeEC2{
			types: []types.InstanceTypeInfo{p4d(), m5(), inf2(), mac, old, homeless},
			offerings: []types.InstanceTypeOffering{
				offer("m5.large", "us-east-1b"), offer("m5.large", "us-east-1a"), offer("p4d.24xlarge", "us-east-1b"), offer("inf2.24xlarge", "us-east-1a"),
			},
			spot: []types.SpotPrice{
				spot("m5.large", "us-east-1a", "0.050000", now.Add(-2*time.Hour)), spot("m5.large", "us-east-1a", "0.040000", now.Add(-time.Hour)),
				spot("m5.large", "us-east-1a", "0.060000", now.Add(-3*time.Hour)), spot("p4d.24xlarge", "us-east-1b", "1", now),
			},
		}, &fakePricing{lists: map[string][]string{
			"Shared Compute Instance":                 {product("m5.large", "USD", "0.0960000000"), product("inf2.24xlarge", "USD", "6.4906300000")},
			"Dedicated Compute Instance (bare metal)": {product("p4d.24xlarge", "USD", "32.7726000000")},
		}}
}

func TestRefresh_ReadsFactsAndPrices(t *testing.T) {
	t.Parallel()
	e, p := world()
	got, lost, err := refresh.New("us-east-1", e, p).Refresh(t.Context(), catalog.Catalog{}, now)
	require.NoError(t, err)
	require.NoError(t, lost)
	require.Equal(t, catalog.Catalog{Region: "us-east-1", MadeUnix: 1_800_000_000, Types: []catalog.Type{
		{
			Name: "inf2.24xlarge", Arch: "amd64", VCPU: 2, MemoryMiB: 8192, CPUManufacturer: "Intel", ClockMHz: 3100, ENIs: 3, IPv4PerENI: 10, BranchENIs: 107,
			Mbps: 750, EBSMbps: 4750, Hypervisor: "nitro", OnDemand: true, Spot: true, NestedVirtualization: true, OnDemandMicroUSDPerHour: 6_490_630,
			Accelerators: []catalog.Device{{Name: "Inferentia2", Manufacturer: "AWS", Count: 6, MemoryMiB: 32768, Cores: 2, Neuron: true}},
			Zones:        []catalog.Zone{{Name: "us-east-1a"}},
		},
		{
			Name: "m5.large", Arch: "amd64", VCPU: 2, MemoryMiB: 8192, CPUManufacturer: "Intel", ClockMHz: 3100, ENIs: 3, IPv4PerENI: 10, BranchENIs: 9,
			Mbps: 750, EBSMbps: 4750, Hypervisor: "nitro", OnDemand: true, Spot: true, OnDemandMicroUSDPerHour: 96000,
			Zones: []catalog.Zone{{Name: "us-east-1a", SpotMicroUSDPerHour: 40000}, {Name: "us-east-1b"}},
		},
		{
			Name: "p4d.24xlarge", Arch: "amd64", VCPU: 2, MemoryMiB: 8192, CPUManufacturer: "Intel", ClockMHz: 3100, ENIs: 15, IPv4PerENI: 50,
			CardENIs: []int{15, 15, 15, 15}, EFAs: 4, BranchENIs: 62, Mbps: 400_000, EBSMbps: 4750, NVMeGB: 8000, Hypervisor: "nitro",
			Metal: true, EncryptsInTransit: true, OnDemand: true, OnDemandMicroUSDPerHour: 32_772_600,
			GPUs:  []catalog.Device{{Name: "A100", Manufacturer: "NVIDIA", Count: 8, MemoryMiB: 40960}},
			Zones: []catalog.Zone{{Name: "us-east-1b"}},
		},
	}}, got, "no Mac, no paravirtual machine, no type without a zone, no Spot price for what is not sold as Spot")
	body, err := catalog.Encode(got)
	require.NoError(t, err)
	_, err = catalog.Decode(body)
	require.NoError(t, err)
}

func TestRefresh_KeepsOldPricesWhereItFindsNone(t *testing.T) {
	t.Parallel()
	old := catalog.Catalog{Types: []catalog.Type{{
		Name: "m5.large", OnDemandMicroUSDPerHour: 90000, Zones: []catalog.Zone{{Name: "us-east-1a", SpotMicroUSDPerHour: 30000}},
	}}}
	trouble := errors.New("out of reach")
	price := func(c catalog.Catalog) []int64 {
		for _, one := range c.Types {
			if one.Name == "m5.large" {
				return []int64{one.OnDemandMicroUSDPerHour, one.Zones[0].SpotMicroUSDPerHour, one.Zones[1].SpotMicroUSDPerHour}
			}
		}
		return nil
	}
	for name, tt := range map[string]struct {
		change func(*fakeEC2, *fakePricing)
		old    catalog.Catalog
		want   []int64
	}{
		"Pricing is out of reach": {func(_ *fakeEC2, p *fakePricing) { p.fail = trouble }, old, []int64{90000, 40000, 0}},
		"Pricing has nothing":     {func(_ *fakeEC2, p *fakePricing) { p.lists = nil }, old, []int64{90000, 40000, 0}},
		"Pricing talks nonsense":  {func(_ *fakeEC2, p *fakePricing) { p.lists["Shared Compute Instance"] = []string{"<html>"} }, old, []int64{90000, 40000, 0}},
		"a price that is none": {func(_ *fakeEC2, p *fakePricing) {
			p.lists["Shared Compute Instance"][0] = product("m5.large", "USD", "free")
		}, old, []int64{90000, 40000, 0}},
		"Spot prices are out of reach": {func(e *fakeEC2, _ *fakePricing) { e.fail = map[string]error{"spot": trouble} }, old, []int64{96000, 30000, 96000}},
		"Pricing was never reached": {
			func(_ *fakeEC2, p *fakePricing) { p.fail = trouble }, catalog.Catalog{}, []int64{96000, 40000, 0},
		},
		"there are no Spot prices yet, and no old":    {func(e *fakeEC2, _ *fakePricing) { e.spot = nil }, catalog.Catalog{}, []int64{96000, 96000, 96000}},
		"there are no Spot prices yet, but old ones":  {func(e *fakeEC2, _ *fakePricing) { e.spot = nil }, old, []int64{96000, 30000, 96000}},
		"a Spot price that is none, read to its page": {func(e *fakeEC2, _ *fakePricing) { e.spot[3].SpotPrice = aws.String("x") }, old, []int64{96000, 40000, 96000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, p := world()
			tt.change(e, p)
			got, lost, err := refresh.New("us-east-1", e, p).Refresh(t.Context(), tt.old, now)
			require.NoError(t, err)
			require.Error(t, lost)
			require.Equal(t, tt.want, price(got))
		})
	}
}

func TestRefresh_FailsWithoutTypesOrZones(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"types", "offerings"} {
		e, p := world()
		trouble := errors.New("out of reach")
		e.fail = map[string]error{call: trouble}
		_, _, err := refresh.New("us-east-1", e, p).Refresh(t.Context(), catalog.Catalog{}, now)
		require.ErrorIs(t, err, trouble, call)
	}
}

func TestRefresh_ReadsYuan(t *testing.T) {
	t.Parallel()
	e, p := world()
	p.lists["Shared Compute Instance"][0] = product("m5.large", "CNY", "0.834")
	got, _, err := refresh.New("cn-north-1", e, p).Refresh(t.Context(), catalog.Catalog{}, now)
	require.NoError(t, err)
	require.EqualValues(t, 834000, got.Types[1].OnDemandMicroUSDPerHour)
}

func TestPricingRegion(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"us-east-1": "us-east-1", "sa-east-1": "us-east-1", "eu-west-3": "eu-central-1", "ap-northeast-1": "ap-south-1", "cn-north-1": "cn-northwest-1",
	} {
		require.Equal(t, want, refresh.PricingRegion(region), region)
	}
}
