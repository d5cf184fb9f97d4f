package refresh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"

	"treadle/shared/catalog"
)

// ec2API is the part of EC2 that a Refresher uses; *ec2.Client is one.
type ec2API interface {
	DescribeInstanceTypes(context.Context, *ec2.DescribeInstanceTypesInput, ...func(*ec2.Options)) (*ec2.DescribeInstanceTypesOutput, error)
	DescribeInstanceTypeOfferings(context.Context, *ec2.DescribeInstanceTypeOfferingsInput, ...func(*ec2.Options)) (*ec2.DescribeInstanceTypeOfferingsOutput, error)
	DescribeSpotPriceHistory(context.Context, *ec2.DescribeSpotPriceHistoryInput, ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error)
}

// pricingAPI is the part of Pricing that a Refresher uses; *pricing.Client is one.
type pricingAPI interface {
	GetProducts(context.Context, *pricing.GetProductsInput, ...func(*pricing.Options)) (*pricing.GetProductsOutput, error)
}

// Refresher makes catalogues of one region.
type Refresher struct {
	region  string
	ec2     ec2API
	pricing pricingAPI
}

// New returns a Refresher for a region. ec2Client and pricingClient are an *ec2.Client in that region and a *pricing.Client in
// PricingRegion of it.
func New(region string, ec2Client ec2API, pricingClient pricingAPI) *Refresher {
	return &Refresher{region: region, ec2: ec2Client, pricing: pricingClient}
}

// attempts is how often a page is asked for. Nobody waits for a catalogue, so a throttle is waited out.
const attempts = 8

// pricingPatience bounds the wait for a Pricing that cannot be reached, which from an isolated network just never answers.
const pricingPatience = 45 * time.Second

func patientEC2(o *ec2.Options) { o.Retryer = retry.AddWithMaxAttempts(retry.NewStandard(), attempts) }

func patientPricing(o *pricing.Options) {
	o.Retryer = retry.AddWithMaxAttempts(retry.NewStandard(), attempts)
}

// Refresh returns the catalogue as of now. Prices that could not be had are those of old, or else those of a table; lost joins
// the errors of the sources that they were to come from, and is nil where all were read. err says that there is no catalogue.
func (r *Refresher) Refresh(ctx context.Context, old catalog.Catalog, now time.Time) (c catalog.Catalog, lost, err error) {
	all, err := r.types(ctx)
	if err != nil {
		return catalog.Catalog{}, nil, err
	}
	zones, err := r.zones(ctx)
	if err != nil {
		return catalog.Catalog{}, nil, err
	}
	found, lost := r.prices(ctx, now)
	before := make(map[string]*catalog.Type, len(old.Types))
	for i := range old.Types {
		before[old.Types[i].Name] = &old.Types[i]
	}
	c = catalog.Catalog{Region: r.region, MadeUnix: now.Unix()}
	for _, t := range all {
		if len(zones[t.Name]) == 0 {
			continue
		}
		found.put(&t, zones[t.Name], before[t.Name])
		c.Types = append(c.Types, t)
	}
	slices.SortFunc(c.Types, func(a, b catalog.Type) int { return cmp.Compare(a.Name, b.Name) })
	return c, lost, nil
}

// prices is what was found of prices.
type prices struct {
	onDemand map[string]int64
	table    map[string]int64 // serves where Pricing was not read wholly; empty if it was
	spot     map[place]int64
	noSpot   bool // Spot prices were not read wholly
}

// place is an instance type in a zone.
type place struct{ instanceType, zone string }

func (r *Refresher) prices(ctx context.Context, now time.Time) (p prices, lost error) {
	patient, cancel := context.WithTimeout(ctx, pricingPatience)
	defer cancel()
	var lostOnDemand, lostSpot, lostTable error
	if p.onDemand, lostOnDemand = r.onDemand(patient); lostOnDemand != nil {
		p.table, lostTable = byType(priceTable)
	}
	p.spot, lostSpot = r.spot(ctx, now)
	p.noSpot = lostSpot != nil
	return p, errors.Join(lostOnDemand, lostTable, lostSpot)
}

// put gives t its zones and prices. was is what the previous catalogue had, nil if nothing.
func (p prices) put(t *catalog.Type, zones []string, was *catalog.Type) {
	if was == nil {
		was = &catalog.Type{}
	}
	t.OnDemandMicroUSDPerHour = p.onDemand[t.Name]
	if len(p.table) > 0 {
		t.OnDemandMicroUSDPerHour = cmp.Or(t.OnDemandMicroUSDPerHour, was.OnDemandMicroUSDPerHour, p.table[t.Name])
	}
	for _, zone := range zones {
		one := catalog.Zone{Name: zone}
		if t.Spot {
			one.SpotMicroUSDPerHour = p.spot[place{t.Name, zone}]
			if p.noSpot {
				one.SpotMicroUSDPerHour = cmp.Or(one.SpotMicroUSDPerHour, spotOf(was, zone), t.OnDemandMicroUSDPerHour) // S-207
			}
		}
		t.Zones = append(t.Zones, one)
	}
}

func spotOf(t *catalog.Type, zone string) int64 {
	for _, z := range t.Zones {
		if z.Name == zone {
			return z.SpotMicroUSDPerHour
		}
	}
	return 0
}

func (r *Refresher) types(ctx context.Context) ([]catalog.Type, error) {
	trunks, err := byType(branchTable)
	if err != nil {
		return nil, err
	}
	var out []catalog.Type
	in := &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100)}
	for {
		page, err := r.ec2.DescribeInstanceTypes(ctx, in, patientEC2)
		if err != nil {
			return nil, fmt.Errorf("describe instance types: %w", err)
		}
		for i := range page.InstanceTypes {
			if t, ok := fromEC2(&page.InstanceTypes[i]); ok {
				t.BranchENIs = trunks[t.Name]
				out = append(out, t)
			}
		}
		if aws.ToString(page.NextToken) == "" {
			return out, nil
		}
		in.NextToken = page.NextToken
	}
}

// zones returns the zones that offer each type, sorted.
func (r *Refresher) zones(ctx context.Context) (map[string][]string, error) {
	out := map[string][]string{}
	in := &ec2.DescribeInstanceTypeOfferingsInput{LocationType: types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000)}
	for {
		page, err := r.ec2.DescribeInstanceTypeOfferings(ctx, in, patientEC2)
		if err != nil {
			return nil, fmt.Errorf("describe offerings: %w", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			out[string(o.InstanceType)] = append(out[string(o.InstanceType)], aws.ToString(o.Location))
		}
		if aws.ToString(page.NextToken) == "" {
			break
		}
		in.NextToken = page.NextToken
	}
	for name := range out {
		slices.Sort(out[name])
		out[name] = slices.Compact(out[name])
	}
	return out, nil
}

// spot returns the current Spot prices. A start of now makes EC2 answer with the price in force in each place.
func (r *Refresher) spot(ctx context.Context, now time.Time) (map[place]int64, error) {
	out := map[place]int64{}
	seen := map[place]time.Time{}
	in := &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
		StartTime:           aws.Time(now),
		MaxResults:          aws.Int32(1000),
	}
	for {
		page, err := r.ec2.DescribeSpotPriceHistory(ctx, in, patientEC2)
		if err != nil {
			return out, fmt.Errorf("describe spot prices: %w", err)
		}
		for _, p := range page.SpotPriceHistory {
			at := place{string(p.InstanceType), aws.ToString(p.AvailabilityZone)}
			price, err := microUSD(aws.ToString(p.SpotPrice))
			if err != nil {
				return out, fmt.Errorf("spot price of %s in %s: %w", at.instanceType, at.zone, err)
			}
			if when := aws.ToTime(p.Timestamp); !when.Before(seen[at]) {
				out[at], seen[at] = price, when
			}
		}
		if aws.ToString(page.NextToken) == "" {
			break
		}
		in.NextToken = page.NextToken
	}
	if len(out) == 0 {
		return out, errors.New("describe spot prices: there are none")
	}
	return out, nil
}

// fromEC2 returns the facts of a type; ok is false for one that cannot be a node, such as a 32-bit one or a Mac.
func fromEC2(i *types.InstanceTypeInfo) (t catalog.Type, ok bool) {
	arch := architecture(i.ProcessorInfo)
	if arch == "" || i.VCpuInfo == nil || i.MemoryInfo == nil || i.NetworkInfo == nil {
		return catalog.Type{}, false
	}
	if len(i.SupportedVirtualizationTypes) > 0 && !slices.Contains(i.SupportedVirtualizationTypes, types.VirtualizationTypeHvm) {
		return catalog.Type{}, false
	}
	t = catalog.Type{
		Name:       string(i.InstanceType),
		Arch:       arch,
		VCPU:       int64(aws.ToInt32(i.VCpuInfo.DefaultVCpus)),
		MemoryMiB:  aws.ToInt64(i.MemoryInfo.SizeInMiB),
		Hypervisor: string(i.Hypervisor),
		Metal:      aws.ToBool(i.BareMetal),
		Burstable:  aws.ToBool(i.BurstablePerformanceSupported),
		OnDemand:   slices.Contains(i.SupportedUsageClasses, types.UsageClassTypeOnDemand),
		Spot:       slices.Contains(i.SupportedUsageClasses, types.UsageClassTypeSpot),
	}
	processor(&t, i.ProcessorInfo)
	network(&t, i.NetworkInfo)
	if e := i.EbsInfo; e != nil && e.EbsOptimizedSupport == types.EbsOptimizedSupportDefault && e.EbsOptimizedInfo != nil {
		t.EBSMbps = int64(aws.ToInt32(e.EbsOptimizedInfo.MaximumBandwidthInMbps))
	}
	if s := i.InstanceStorageInfo; s != nil && s.NvmeSupport != "" && s.NvmeSupport != types.EphemeralNvmeSupportUnsupported {
		t.NVMeGB = aws.ToInt64(s.TotalSizeInGB)
	}
	devices(&t, i)
	return t, true
}

func architecture(p *types.ProcessorInfo) string {
	switch {
	case p == nil:
		return ""
	case slices.Contains(p.SupportedArchitectures, types.ArchitectureTypeX8664):
		return "amd64"
	case slices.Contains(p.SupportedArchitectures, types.ArchitectureTypeArm64):
		return "arm64"
	default:
		return ""
	}
}

func processor(t *catalog.Type, p *types.ProcessorInfo) {
	t.CPUManufacturer = strings.TrimSpace(aws.ToString(p.Manufacturer))
	t.ClockMHz = int64(aws.ToFloat64(p.SustainedClockSpeedInGhz)*1000 + 0.5)
	t.NestedVirtualization = slices.Contains(p.SupportedFeatures, types.SupportedAdditionalProcessorFeatureNestedVirtualization)
}

func network(t *catalog.Type, n *types.NetworkInfo) {
	t.ENIs = int64(aws.ToInt32(n.MaximumNetworkInterfaces))
	t.IPv4PerENI = int64(aws.ToInt32(n.Ipv4AddressesPerInterface))
	t.EncryptsInTransit = aws.ToBool(n.EncryptionInTransitSupported)
	var gbps float64
	for _, card := range n.NetworkCards {
		gbps += aws.ToFloat64(card.BaselineBandwidthInGbps)
		if aws.ToInt32(card.NetworkCardIndex) == aws.ToInt32(n.DefaultNetworkCardIndex) {
			t.ENIs = int64(aws.ToInt32(card.MaximumNetworkInterfaces))
		}
		if len(n.NetworkCards) > 1 {
			t.CardENIs = append(t.CardENIs, int(aws.ToInt32(card.MaximumNetworkInterfaces)))
		}
	}
	t.Mbps = int64(gbps*1000 + 0.5)
	if n.EfaInfo != nil {
		t.EFAs = int64(aws.ToInt32(n.EfaInfo.MaximumEfaInterfaces))
	}
}

func devices(t *catalog.Type, i *types.InstanceTypeInfo) {
	if i.GpuInfo != nil {
		for _, g := range i.GpuInfo.Gpus {
			d := catalog.Device{Name: aws.ToString(g.Name), Manufacturer: aws.ToString(g.Manufacturer), Count: int64(aws.ToInt32(g.Count))}
			if g.MemoryInfo != nil {
				d.MemoryMiB = int64(aws.ToInt32(g.MemoryInfo.SizeInMiB))
			}
			t.GPUs = append(t.GPUs, d)
		}
	}
	if i.NeuronInfo != nil {
		for _, n := range i.NeuronInfo.NeuronDevices {
			d := catalog.Device{Name: aws.ToString(n.Name), Manufacturer: "AWS", Count: int64(aws.ToInt32(n.Count)), Neuron: true}
			if n.CoreInfo != nil {
				d.Cores = int64(aws.ToInt32(n.CoreInfo.Count))
			}
			if n.MemoryInfo != nil {
				d.MemoryMiB = int64(aws.ToInt32(n.MemoryInfo.SizeInMiB))
			}
			t.Accelerators = append(t.Accelerators, d)
		}
	}
	if i.InferenceAcceleratorInfo != nil && len(t.Accelerators) == 0 {
		for _, a := range i.InferenceAcceleratorInfo.Accelerators {
			t.Accelerators = append(t.Accelerators, catalog.Device{
				Name: aws.ToString(a.Name), Manufacturer: aws.ToString(a.Manufacturer), Count: int64(aws.ToInt32(a.Count)),
			})
		}
	}
}
