package ec2

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Type describes an instance type as the catalogue has it. Zero means that it has none of that kind.
type Type struct {
	Name           string
	Category       string // letters of the family, such as c, m, inf
	Generation     int
	VCPU           int
	MemoryMiB      int
	Arch           string // amd64 or arm64
	GPUs           int    // 0 with a GPUName: a slice of one
	GPUName        string // such as NVIDIA-T4
	GPUMemoryMiB   int    // of all GPUs together
	Accelerators   int    // Neuron devices
	Accelerator    string // Inferentia, Inferentia2 or Trainium
	ENIs           int    // of the default network card
	IPv4PerENI     int
	MaxPods        int // VPC CNI without prefix delegation
	BranchENIs     int
	NetworkCards   int
	EFAs           int
	NetworkMbps    int // baseline; 0 is unknown
	NVMeGB         int
	LocalDiskGB    int
	Hypervisor     string // nitro, xen or none
	BareMetal      bool
	Burstable      bool
	SpotCapable    bool
	Zones          []string // full names, sorted
	OnDemandUSD    float64  // per hour, Linux, shared tenancy
	SpotSavingPct  int      // region-wide average against On-Demand; synthetic where unpublished
	InterruptBand  int      // 0 (under 5 %) to 4 (over 20 %) interruptions a month
	SpotUnlisted   bool     // saving and band are not from published figures
	family, suffix string
}

// Family returns the part of the name before the dot, such as m5 in m5.large.
func (t *Type) Family() string { return t.family }

// Size returns the part of the name after the dot, such as large in m5.large.
func (t *Type) Size() string { return t.suffix }

//go:embed data/ec2-us-east-1.csv.gz
var packedCatalog []byte

// catalog is the parsed table: read once, never written to.
type catalog struct {
	byName map[string]*Type
	names  []string // sorted
}

//nolint:gochecknoglobals // the embedded table, parsed on first use
var loadCatalog = sync.OnceValue(func() *catalog {
	c, err := parseCatalog(packedCatalog)
	if err != nil {
		panic(err) // the table is part of the program
	}
	return c
})

// region is the only one the catalogue speaks of.
const region = "us-east-1"

func parseCatalog(packed []byte) (*catalog, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("open catalogue: %w", err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read catalogue: %w", err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	c := &catalog{byName: map[string]*Type{}}
	for _, row := range rows[1:] {
		t, err := parseType(func(name string) string { return row[column[name]] })
		if err != nil {
			return nil, fmt.Errorf("read catalogue: %s: %w", row[0], err)
		}
		c.byName[t.Name] = t
	}
	c.names = slices.Sorted(maps.Keys(c.byName))
	return c, nil
}

func parseType(get func(string) string) (*Type, error) {
	var failed error
	number := func(name string) int {
		s := get(name)
		if s == "" {
			return 0
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			failed = fmt.Errorf("%s: %w", name, err)
		}
		return n
	}
	t := &Type{
		Name: get("type"), Category: get("category"), Generation: number("generation"), VCPU: number("vcpu"),
		MemoryMiB: number("memory_mib"), Arch: get("arch"), GPUs: number("gpu_count"), GPUName: get("gpu_kind"),
		GPUMemoryMiB: number("gpu_mem_mib"), Accelerators: number("accel_count"), Accelerator: get("accel_kind"),
		ENIs: number("enis"), IPv4PerENI: number("ipv4_per_eni"), MaxPods: number("max_pods"), BranchENIs: number("branch_enis"),
		NetworkCards: number("network_cards"), EFAs: number("efa"),
		NetworkMbps: number("network_mbps"), NVMeGB: number("nvme_gb"), LocalDiskGB: number("local_disk_gb"),
		Hypervisor: get("hypervisor"), BareMetal: number("bare_metal") == 1, Burstable: number("burstable") == 1,
		SpotCapable: number("spot_capable") == 1, SpotSavingPct: number("spot_savings_pct"),
		InterruptBand: number("spot_interrupt_band"), SpotUnlisted: get("spot_savings_pct") == "",
	}
	t.family, t.suffix, _ = strings.Cut(t.Name, ".")
	for _, letter := range get("zones") {
		t.Zones = append(t.Zones, region+string(letter))
	}
	if t.SpotUnlisted {
		t.SpotSavingPct, t.InterruptBand = unlistedSaving, unlistedBand
	}
	price, err := strconv.ParseFloat(get("od_usd_h"), 64)
	if err != nil {
		failed = fmt.Errorf("od_usd_h: %w", err)
	}
	t.OnDemandUSD = price
	return t, failed
}

// Where no saving is published, Spot costs 40 % of On-Demand less and is interrupted now and then.
const (
	unlistedSaving = 40
	unlistedBand   = 2
)

// LookupType returns the named instance type. The answer is shared: do not change it.
func LookupType(name string) (*Type, bool) {
	t, ok := loadCatalog().byName[name]
	return t, ok
}

// TypeNames returns the names of all instance types, sorted.
func TypeNames() []string { return slices.Clone(loadCatalog().names) }

// OnDemandPrices returns the On-Demand price of each type in USD per hour (Linux, shared tenancy, us-east-1).
func OnDemandPrices() map[string]float64 {
	prices := map[string]float64{}
	for name, t := range loadCatalog().byName {
		prices[name] = t.OnDemandUSD
	}
	return prices
}

// syntheticSpot is the Spot price of a type in a zone when nobody set one: the average saving, up to 12 % off either way by
// zone. The same type and zone always get the same price.
func syntheticSpot(t *Type, zone string) float64 {
	h := fnv.New64a()
	h.Write([]byte(t.Name + "/" + zone))
	wobble := float64(h.Sum64()%10_000)/10_000*0.24 - 0.12
	return t.OnDemandUSD * (1 - float64(t.SpotSavingPct)/100) * (1 + wobble)
}

// zoneIDs maps the zones of the account that the catalogue was recorded in.
//
//nolint:gochecknoglobals // a table
var zoneIDs = map[string]string{
	"us-east-1a": "use1-az2", "us-east-1b": "use1-az4", "us-east-1c": "use1-az6",
	"us-east-1d": "use1-az1", "us-east-1e": "use1-az3", "us-east-1f": "use1-az5",
}
