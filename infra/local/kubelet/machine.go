package kubelet

import "time"

// Machine is one running instance, as EC2 describes it.
type Machine struct {
	InstanceID     string
	Type           string // instance type, looked up by Options.Lookup
	Zone           string // us-east-1a
	ZoneID         string // use1-az1; empty leaves the label away
	Region         string
	PrivateDNSName string // becomes the name of the Node
	PrivateIP      string
	ImageID        string
	Family         Family // empty: guessed from the user data
	UserData       []byte // plain, gzip or base64; not kept after boot
	CapacityType   string // spot, on-demand or reserved; for displays only
	StorageGiB     int64  // volume that holds pods; 0 means 20
	Fault          Fault
}

// Family is the kind of operating system image, which decides how user data is read.
type Family string

// The families that are known.
const (
	AL2023       Family = "AL2023"
	AL2          Family = "AL2"
	Bottlerocket Family = "Bottlerocket"
	Custom       Family = "Custom"
)

// Fault is what goes wrong with one machine. The zero Fault is a sound machine.
type Fault struct {
	NeverRegister bool            // boots, but no kubelet ever talks to the API server
	NotReady      bool            // Ready stays, or becomes, False
	Silent        bool            // stops heartbeats and everything else, but the instance runs on
	NoDevices     bool            // device plugins never register
	SlowBoot      time.Duration   // added to the boot delay
	MissingMemory float64         // share of memory that the node does not report, 0 to 1
	Conditions    map[string]bool // condition type → status, as a node monitoring agent reports
}

// Type is the hardware of an instance type.
type Type struct {
	VCPU        int64
	MemoryMiB   int64
	Arch        string // amd64 or arm64
	ENIs        int64
	IPv4PerENI  int64
	NVMeGB      int64            // all instance-store disks together, decimal
	Devices     map[string]int64 // extended resource → count, such as nvidia.com/gpu → 4
	VolumeSlots int32            // EBS volumes the CSI driver may attach; 0 means no driver
}

// eniPods is how many pods the VPC CNI can give addresses to, without prefix delegation: the first
// address of each interface is the interface's own, and two pods use the host's network.
func (t Type) eniPods() int64 { return t.ENIs*(t.IPv4PerENI-1) + 2 }

// State is how far a node has come.
type State string

// The states of a node, in the order of its life.
const (
	Booting     State = "booting"     // waiting for the boot delay
	Refused     State = "refused"     // never registers; Reason says why
	Registering State = "registering" // creating the Node, with retries
	NotReady    State = "not-ready"   // registered
	Ready       State = "ready"
	Removed     State = "removed" // the Node object was deleted under a running kubelet
)

// Status is one node, for displays and tests.
type Status struct {
	Machine
	Name   string
	State  State
	Reason string // why Refused, or the last refusal of the API server
	Pods   int    // admitted and not terminal

	RequestedMilliCPU, AllocatableMilliCPU       int64
	RequestedMemoryBytes, AllocatableMemoryBytes int64
}
