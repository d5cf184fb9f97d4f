package catalog

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Format is the version of the encoding. It changes when an old reader would misread a new catalogue.
const Format = 1

// ErrFormat says that bytes are no catalogue of this format.
var ErrFormat = errors.New("not a catalogue of this format")

// Catalog is what EC2 sells in a region. Types are sorted by name.
type Catalog struct {
	Format   int    `json:"format"`
	Region   string `json:"region"`
	MadeUnix int64  `json:"made"`
	Types    []Type `json:"types"`
}

// Type is an instance type as EC2 describes it, before any class or cluster has a say. Zero means "none" or "not known".
type Type struct {
	Name            string `json:"name"`
	Arch            string `json:"arch"` // amd64 or arm64
	VCPU            int64  `json:"vcpu"`
	MemoryMiB       int64  `json:"mib"`
	CPUManufacturer string `json:"cpu,omitempty"`
	ClockMHz        int64  `json:"mhz,omitempty"`

	// ENIs counts the interfaces that the default network card takes; only those carry pod addresses.
	ENIs       int64  `json:"enis"`
	IPv4PerENI int64  `json:"ipv4"`
	CardENIs   []int  `json:"cards,omitempty"` // interfaces per network card, where there is more than one card
	EFAs       int64  `json:"efas,omitempty"`
	BranchENIs int64  `json:"branch,omitempty"` // branch interfaces of a trunk, 0 where trunking is not supported
	Mbps       int64  `json:"mbps,omitempty"`
	EBSMbps    int64  `json:"ebsMbps,omitempty"`
	NVMeGB     int64  `json:"nvmeGB,omitempty"` // decimal gigabytes of local NVMe disks
	Hypervisor string `json:"hypervisor,omitempty"`

	Metal                bool `json:"metal,omitempty"`
	Burstable            bool `json:"burstable,omitempty"`
	EncryptsInTransit    bool `json:"encrypts,omitempty"`
	NestedVirtualization bool `json:"nested,omitempty"`
	OnDemand             bool `json:"onDemand,omitempty"`
	Spot                 bool `json:"spot,omitempty"`

	GPUs         []Device `json:"gpus,omitempty"`
	Accelerators []Device `json:"accelerators,omitempty"`

	OnDemandMicroUSDPerHour int64  `json:"price,omitempty"` // Linux; shared tenancy, or dedicated for metal
	Zones                   []Zone `json:"zones"`
}

// Device is a kind of GPU or accelerator in an instance.
type Device struct {
	Name         string `json:"name"`
	Manufacturer string `json:"by"`
	Count        int64  `json:"count"`
	MemoryMiB    int64  `json:"mib,omitempty"`   // of one device
	Cores        int64  `json:"cores,omitempty"` // of one Neuron device
	Neuron       bool   `json:"neuron,omitempty"`
}

// Zone is a zone that offers a type, with the last Spot price seen there; 0: none seen.
type Zone struct {
	Name                string `json:"zone"`
	SpotMicroUSDPerHour int64  `json:"spot,omitempty"`
}

// Encode returns c as gzipped JSON. Equal catalogues give equal bytes.
func Encode(c Catalog) ([]byte, error) {
	c.Format = Format
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("encode catalogue: %w", err)
	}
	if err := json.NewEncoder(z).Encode(c); err != nil {
		return nil, fmt.Errorf("encode catalogue: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("encode catalogue: %w", err)
	}
	return out.Bytes(), nil
}

// Decode reads what Encode wrote. It is strict: anything else, cut off, followed by more or of another format is an error
// that matches ErrFormat.
func Decode(body []byte) (Catalog, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return Catalog{}, fmt.Errorf("decode catalogue: %w: %w", ErrFormat, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return Catalog{}, fmt.Errorf("decode catalogue: %w: %w", ErrFormat, err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	var c Catalog
	if err := in.Decode(&c); err != nil {
		return Catalog{}, fmt.Errorf("decode catalogue: %w: %w", ErrFormat, err)
	}
	if in.More() {
		return Catalog{}, fmt.Errorf("decode catalogue: %w: text after its end", ErrFormat)
	}
	if err := c.check(); err != nil {
		return Catalog{}, fmt.Errorf("decode catalogue: %w: %w", ErrFormat, err)
	}
	return c, nil
}

func (c Catalog) check() error {
	if c.Format != Format {
		return fmt.Errorf("format %d, want %d", c.Format, Format)
	}
	last := ""
	for _, t := range c.Types {
		switch {
		case t.Name <= last:
			return fmt.Errorf("type %q after %q", t.Name, last)
		case t.Arch != "amd64" && t.Arch != "arm64":
			return fmt.Errorf("type %s: architecture %q", t.Name, t.Arch)
		case t.VCPU <= 0 || t.MemoryMiB <= 0:
			return fmt.Errorf("type %s: %d vCPUs and %d MiB", t.Name, t.VCPU, t.MemoryMiB)
		case t.OnDemandMicroUSDPerHour < 0:
			return fmt.Errorf("type %s: negative price", t.Name)
		}
		last = t.Name
	}
	return nil
}
