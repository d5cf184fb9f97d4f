package ec2

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

func (s *Service) describeInstanceTypes(_ *fault.Call, in *sdk.DescribeInstanceTypesInput) (*sdk.DescribeInstanceTypesOutput, error) {
	pass, err := typeFilters.compile(in.Filters, nil)
	if err != nil {
		return nil, err
	}
	names := TypeNames()
	if len(in.InstanceTypes) > 0 {
		if len(in.InstanceTypes) > 100 {
			return nil, invalid("The maximum number of instance types that can be specified is 100")
		}
		if in.MaxResults != nil {
			return nil, wire.Errorf("InvalidParameterCombination", "MaxResults cannot be used with InstanceTypes")
		}
		names = nil
		var unknown []string
		for _, name := range in.InstanceTypes {
			if _, ok := LookupType(string(name)); !ok {
				unknown = append(unknown, string(name))
			}
			names = append(names, string(name))
		}
		if len(unknown) > 0 {
			return nil, wire.Errorf("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(unknown, ", "))
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	var all []*Type
	for _, name := range names {
		if t, _ := LookupType(name); pass(t) {
			all = append(all, t)
		}
	}
	all, next, err := page(all, in.MaxResults, in.NextToken, limits{5, 100, 100})
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeInstanceTypesOutput{NextToken: next, InstanceTypes: []types.InstanceTypeInfo{}}
	for _, t := range all {
		out.InstanceTypes = append(out.InstanceTypes, t.show())
	}
	return out, nil
}

//nolint:gochecknoglobals // a table
var typeFilters = filters[*Type]{
	"instance-type":                         func(t *Type) []string { return one(t.Name) },
	"processor-info.supported-architecture": func(t *Type) []string { return one(string(architecture(t.Arch))) },
	"supported-virtualization-type":         func(*Type) []string { return one("hvm") },
	"supported-root-device-type":            func(*Type) []string { return one("ebs") },
	"bare-metal":                            func(t *Type) []string { return one(strconv.FormatBool(t.BareMetal)) },
	"burstable-performance-supported":       func(t *Type) []string { return one(strconv.FormatBool(t.Burstable)) },
	"current-generation":                    func(t *Type) []string { return one(strconv.FormatBool(t.current())) },
	"hypervisor": func(t *Type) []string {
		if t.BareMetal {
			return nil
		}
		return one(t.Hypervisor)
	},
	"supported-usage-class": func(t *Type) []string {
		var all []string
		for _, class := range t.usageClasses() {
			all = append(all, string(class))
		}
		return all
	},
	"vcpu-info.default-vcpus":    func(t *Type) []string { return one(strconv.Itoa(t.VCPU)) },
	"memory-info.size-in-mib":    func(t *Type) []string { return one(strconv.Itoa(t.MemoryMiB)) },
	"instance-storage-supported": func(t *Type) []string { return one(strconv.FormatBool(t.LocalDiskGB > 0)) },
}

// current says whether AWS sells a type as one of the current generation.
func (t *Type) current() bool {
	previous := []string{"a1", "c1", "c3", "c4", "d2", "g3", "g3s", "i2", "m1", "m2", "m3", "m4", "r3", "r4", "t1", "hs1", "cc2", "cr1"}
	return !slices.Contains(previous, t.family)
}

func (t *Type) usageClasses() []types.UsageClassType {
	classes := []types.UsageClassType{types.UsageClassTypeOnDemand}
	if t.SpotCapable {
		classes = append(classes, types.UsageClassTypeSpot)
	}
	return classes
}

// show gives t in the SDK's shape: what the catalogue says and what follows from it.
func (t *Type) show() types.InstanceTypeInfo {
	v := types.InstanceTypeInfo{
		InstanceType: types.InstanceType(t.Name), BareMetal: new(t.BareMetal), BurstablePerformanceSupported: new(t.Burstable),
		CurrentGeneration: new(t.current()), MemoryInfo: &types.MemoryInfo{SizeInMiB: new(int64(t.MemoryMiB))},
		SupportedUsageClasses: t.usageClasses(), SupportedRootDeviceTypes: []types.RootDeviceType{types.RootDeviceTypeEbs},
		SupportedVirtualizationTypes: []types.VirtualizationType{types.VirtualizationTypeHvm}, InstanceStorageSupported: new(t.LocalDiskGB > 0),
		ProcessorInfo: &types.ProcessorInfo{
			Manufacturer:           new(t.cpuMaker()),
			SupportedArchitectures: []types.ArchitectureType{types.ArchitectureType(architecture(t.Arch))},
		},
		VCpuInfo:    t.showCPUs(),
		NetworkInfo: t.showNetwork(),
		GpuInfo:     t.showGPUs(),
		EbsInfo:     t.showEBS(),
	}
	if !t.BareMetal {
		v.Hypervisor = types.InstanceTypeHypervisor(t.Hypervisor)
	}
	if t.Accelerators > 0 {
		t.showNeuron(&v)
	}
	if t.LocalDiskGB > 0 {
		v.InstanceStorageInfo = t.showStorage()
	}
	return v
}

// cpuMaker reads the maker off the family's name, where a after the generation is AMD. Accelerated families do not say.
func (t *Type) cpuMaker() string {
	letters := strings.TrimLeft(strings.TrimPrefix(t.family, t.Category), "0123456789")
	unmarked := []string{"f2", "g5", "g6", "g6e", "g6f", "gr6", "gr6f", "inf2", "p5", "p5e"}
	switch {
	case t.Arch == "arm64":
		return "AWS"
	case strings.HasPrefix(letters, "a"), slices.Contains(unmarked, t.family):
		return "AMD"
	default:
		return "Intel"
	}
}

func (t *Type) showCPUs() *types.VCpuInfo {
	threads := 2
	// One thread a core: Graviton, AMD from its seventh generation on, the HPC families and T2.
	if t.Arch == "arm64" || t.family == "t2" || t.Category == "hpc" || t.Generation >= 7 && t.cpuMaker() == "AMD" {
		threads = 1
	}
	threads = min(threads, t.VCPU)
	return &types.VCpuInfo{
		DefaultVCpus: count(t.VCPU), DefaultCores: count(t.VCPU / threads), DefaultThreadsPerCore: count(threads),
	}
}

func (t *Type) showNetwork() *types.NetworkInfo {
	nitro := t.Hypervisor != "xen"
	v := &types.NetworkInfo{
		MaximumNetworkInterfaces: count(t.ENIs * t.NetworkCards), Ipv4AddressesPerInterface: count(t.IPv4PerENI),
		Ipv6AddressesPerInterface: count(t.IPv4PerENI), Ipv6Supported: new(nitro), EfaSupported: new(t.EFAs > 0),
		EnaSupport: types.EnaSupportSupported, DefaultNetworkCardIndex: count(0), MaximumNetworkCards: count(t.NetworkCards),
		EncryptionInTransitSupported: new(nitro && t.encrypts()), NetworkPerformance: new("Moderate"),
	}
	if nitro {
		v.EnaSupport = types.EnaSupportRequired
	}
	if t.EFAs > 0 {
		v.EfaInfo = &types.EfaInfo{MaximumEfaInterfaces: count(t.EFAs)}
	}
	// The catalogue has the bandwidth of all cards together, which share it evenly.
	gbps := float64(t.NetworkMbps) / 1000
	if gbps > 0 {
		v.NetworkPerformance = new(bandwidth(gbps))
	}
	for n := range t.NetworkCards {
		card := types.NetworkCardInfo{
			NetworkCardIndex: count(n), MaximumNetworkInterfaces: count(t.ENIs), NetworkPerformance: v.NetworkPerformance,
		}
		if gbps > 0 {
			share := gbps / float64(t.NetworkCards)
			card.BaselineBandwidthInGbps, card.PeakBandwidthInGbps, card.NetworkPerformance = new(share), new(share), new(bandwidth(share))
		}
		v.NetworkCards = append(v.NetworkCards, card)
	}
	return v
}

// encrypts says whether a Nitro type encrypts what it sends to its like: in the general families only newer ones and those with
// fast networks do.
func (t *Type) encrypts() bool {
	switch t.Category {
	case "c", "m", "r":
		return t.Generation >= 6 || slices.Contains([]string{"c5a", "c5ad", "c5n", "m5dn", "m5n", "m5zn", "r5dn", "r5n"}, t.family)
	case "a", "t", "z":
		return false
	default:
		return true
	}
}

func bandwidth(gbps float64) string { return strconv.FormatFloat(gbps, 'f', -1, 64) + " Gigabit" }

// count is n as the SDK has it. Nothing in the catalogue comes near the limit of its type.
func count(n int) *int32 { return new(int32(n)) } //nolint:gosec // see above

func (t *Type) showGPUs() *types.GpuInfo {
	if t.GPUName == "" {
		return nil
	}
	maker, name, _ := strings.Cut(t.GPUName, "-")
	gpu := types.GpuDeviceInfo{
		Manufacturer: new(maker), Name: new(name), Count: count(t.GPUs),
		MemoryInfo: &types.GpuDeviceMemoryInfo{SizeInMiB: count(t.GPUMemoryMiB / max(t.GPUs, 1))},
	}
	if t.GPUs == 0 {
		gpu.LogicalGpuCount = count(1)
	}
	return &types.GpuInfo{TotalGpuMemoryInMiB: count(t.GPUMemoryMiB), Gpus: []types.GpuDeviceInfo{gpu}}
}

// showNeuron fills in what EC2 says of its own accelerators. Cores and memory are those of the chips.
func (t *Type) showNeuron(v *types.InstanceTypeInfo) {
	cores, memory, version := 4, 8192, 1
	switch t.Accelerator {
	case "Inferentia2", "Trainium":
		cores, memory, version = 2, 32768, 2
	}
	if t.family == "trn2" {
		cores, memory, version = 8, 98304, 3
	}
	v.NeuronInfo = &types.NeuronInfo{
		TotalNeuronDeviceMemoryInMiB: count(t.Accelerators * memory),
		NeuronDevices: []types.NeuronDeviceInfo{{
			Name: new(t.Accelerator), Count: count(t.Accelerators), MemoryInfo: &types.NeuronDeviceMemoryInfo{SizeInMiB: count(memory)},
			CoreInfo: &types.NeuronDeviceCoreInfo{Count: count(cores), Version: count(version)},
		}},
	}
	if strings.HasPrefix(t.Accelerator, "Inferentia") {
		v.InferenceAcceleratorInfo = &types.InferenceAcceleratorInfo{
			TotalInferenceMemoryInMiB: v.NeuronInfo.TotalNeuronDeviceMemoryInMiB,
			Accelerators: []types.InferenceDeviceInfo{{
				Manufacturer: new("AWS"), Name: new(t.Accelerator), Count: count(t.Accelerators),
				MemoryInfo: &types.InferenceDeviceMemoryInfo{SizeInMiB: count(memory)},
			}},
		}
	}
}

func (t *Type) showStorage() *types.InstanceStorageInfo {
	v := &types.InstanceStorageInfo{
		TotalSizeInGB: new(int64(t.LocalDiskGB)), NvmeSupport: types.EphemeralNvmeSupportUnsupported,
		EncryptionSupport: types.InstanceStorageEncryptionSupportUnsupported,
		Disks:             []types.DiskInfo{{Count: count(1), SizeInGB: new(int64(t.LocalDiskGB)), Type: types.DiskTypeHdd}},
	}
	if t.NVMeGB > 0 {
		v.NvmeSupport, v.EncryptionSupport = types.EphemeralNvmeSupportRequired, types.InstanceStorageEncryptionSupportRequired
		v.Disks[0].Type = types.DiskTypeSsd
	}
	return v
}

func (t *Type) showEBS() *types.EbsInfo {
	v := &types.EbsInfo{
		EbsOptimizedSupport: types.EbsOptimizedSupportDefault, EncryptionSupport: types.EbsEncryptionSupportSupported,
		NvmeSupport: types.EbsNvmeSupportRequired,
	}
	if t.Hypervisor == "xen" {
		v.NvmeSupport, v.EbsOptimizedSupport = types.EbsNvmeSupportUnsupported, types.EbsOptimizedSupportSupported
	}
	return v
}

func (s *Service) describeInstanceTypeOfferings(_ *fault.Call, in *sdk.DescribeInstanceTypeOfferingsInput) (*sdk.DescribeInstanceTypeOfferingsOutput, error) {
	pass, err := offeringFilters.compile(in.Filters, nil)
	if err != nil {
		return nil, err
	}
	kind := cmp.Or(in.LocationType, types.LocationTypeRegion)
	all := []types.InstanceTypeOffering{}
	add := func(t *Type, location string) {
		o := types.InstanceTypeOffering{InstanceType: types.InstanceType(t.Name), Location: new(location), LocationType: kind}
		if pass(o) && !slices.ContainsFunc(all[max(0, len(all)-1):], func(last types.InstanceTypeOffering) bool {
			return last.InstanceType == o.InstanceType && *last.Location == location
		}) {
			all = append(all, o)
		}
	}
	for _, name := range TypeNames() {
		t, _ := LookupType(name)
		for _, zone := range t.Zones {
			if s.cfg.Faults.Withdrawn("DescribeInstanceTypeOfferings", fault.Pool{Type: name, Zone: zone}) {
				continue
			}
			switch kind {
			case types.LocationTypeRegion:
				add(t, region)
			case types.LocationTypeAvailabilityZone:
				add(t, zone)
			case types.LocationTypeAvailabilityZoneId:
				add(t, zoneIDs[zone])
			default:
				return nil, invalid("Value (%s) for parameter locationType is invalid.", kind)
			}
		}
	}
	all, next, err := page(all, in.MaxResults, in.NextToken, limits{5, 1000, 1000})
	return &sdk.DescribeInstanceTypeOfferingsOutput{InstanceTypeOfferings: all, NextToken: next}, err
}

//nolint:gochecknoglobals // a table
var offeringFilters = filters[types.InstanceTypeOffering]{
	"instance-type": func(o types.InstanceTypeOffering) []string { return one(string(o.InstanceType)) },
	"location":      func(o types.InstanceTypeOffering) []string { return one(*o.Location) },
}

// SetSpotPrice fixes the Spot price of a type in a zone, in USD per hour, in the place of the synthetic one.
func (s *Service) SetSpotPrice(typeName, zone string, usd float64) error {
	if _, ok := LookupType(typeName); !ok || zoneIDs[zone] == "" || usd <= 0 {
		return fmt.Errorf("set spot price: %s in %s at %v", typeName, zone, usd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPrices[fault.Pool{Type: typeName, Zone: zone}] = usd
	return nil
}

// spotPrice is what a type costs as Spot in a zone now.
func (s *Service) spotPrice(t *Type, zone string) float64 {
	usd, set := s.setPrices[fault.Pool{Type: t.Name, Zone: zone}]
	if !set {
		usd = syntheticSpot(t, zone)
	}
	return s.cfg.Faults.SpotPrice(fault.Pool{Type: t.Name, Zone: zone, Capacity: "spot"}, usd)
}

// historyAge is how old the last change of each synthetic price is.
const historyAge = 10 * time.Minute

func (s *Service) describeSpotPriceHistory(_ *fault.Call, in *sdk.DescribeSpotPriceHistoryInput) (*sdk.DescribeSpotPriceHistoryOutput, error) {
	pass, err := priceFilters.compile(in.Filters, nil)
	if err != nil {
		return nil, err
	}
	all := []types.SpotPrice{}
	if len(in.ProductDescriptions) == 0 || slices.ContainsFunc(in.ProductDescriptions, anyLike([]string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})) {
		all = keep(s.spotPrices(in), pass)
	}
	all, next, err := page(all, in.MaxResults, in.NextToken, limits{1, 1000, 1000})
	return &sdk.DescribeSpotPriceHistoryOutput{SpotPriceHistory: all, NextToken: next}, err
}

// spotPrices lists the prices of the types and the zone that a request names, or of all.
func (s *Service) spotPrices(in *sdk.DescribeSpotPriceHistoryInput) []types.SpotPrice {
	names := TypeNames()
	if len(in.InstanceTypes) > 0 {
		names = convert[[]string](in.InstanceTypes)
	}
	only := deref(in.AvailabilityZone)
	if id := deref(in.AvailabilityZoneId); id != "" {
		only = cmp.Or(zoneOf(id), id)
	}
	at := time.Now().Add(-historyAge).Truncate(time.Second)
	var all []types.SpotPrice
	for _, name := range names {
		t, ok := LookupType(name)
		if !ok || !t.SpotCapable {
			continue
		}
		for _, zone := range t.Zones {
			if only != "" && only != zone || s.cfg.Faults.Withdrawn("DescribeSpotPriceHistory", fault.Pool{Type: name, Zone: zone, Capacity: spot}) {
				continue
			}
			all = append(all, types.SpotPrice{
				InstanceType: types.InstanceType(name), AvailabilityZone: new(zone), AvailabilityZoneId: new(zoneIDs[zone]),
				ProductDescription: types.RIProductDescriptionLinuxUnix, SpotPrice: new(strconv.FormatFloat(s.spotPrice(t, zone), 'f', 6, 64)),
				Timestamp: new(at),
			})
		}
	}
	return all
}

//nolint:gochecknoglobals // a table
var priceFilters = filters[types.SpotPrice]{
	"instance-type":       func(p types.SpotPrice) []string { return one(string(p.InstanceType)) },
	"availability-zone":   func(p types.SpotPrice) []string { return one(*p.AvailabilityZone) },
	"product-description": func(p types.SpotPrice) []string { return one(string(p.ProductDescription)) },
	"spot-price":          func(p types.SpotPrice) []string { return one(*p.SpotPrice) },
}
