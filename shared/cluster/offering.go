package cluster

// LabelReservationID names the capacity reservation that a node of a reserved offering runs in.
const LabelReservationID = "karpenter.k8s.aws/capacity-reservation-id"

// InstanceType is an EC2 instance type as one NodeClass sees it: its image, kubelet settings and disks decide what is left
// for pods.
type InstanceType struct {
	Name string `json:"name"`
	// Labels are the labels that a node of this type carries whatever offering it comes from (S-211 to S-225). A label
	// that the type lacks is absent, which NotIn and DoesNotExist accept (S-227).
	Labels map[string]string `json:"labels"`
	// Capacity is what the node will report; Overhead what kubelet keeps back; Allocatable is the difference.
	Capacity    Resources  `json:"capacity"`
	Overhead    Resources  `json:"overhead"`
	Allocatable Resources  `json:"allocatable"`
	Offerings   []Offering `json:"offerings"`
}

// Offering is an instance type in a zone under a capacity type.
type Offering struct {
	Zone                 string       `json:"zone"`
	ZoneID               string       `json:"zoneID,omitempty"`
	CapacityType         CapacityType `json:"capacityType"`
	PriceMicroUSDPerHour int64        `json:"priceMicroUSDPerHour"` // last seen Spot price, or the on-demand list price
	// Available says that a launch may ask for the offering: it has a price, a subnet, and was not refused lately.
	Available bool `json:"available"`
	// Overlaid says that a NodeOverlay set the price.
	Overlaid bool `json:"overlaid,omitempty"`
	// ReservationID and ReservationLeft are set for reserved offerings.
	ReservationID   string `json:"reservationID,omitempty"`
	ReservationLeft int    `json:"reservationLeft,omitempty"`
}

// Label returns what a node of the offering has for a label that the offering decides; ok is false where it decides none or has none.
func (o *Offering) Label(key string) (value string, ok bool) {
	switch key {
	case LabelZone:
		value = o.Zone
	case LabelZoneID:
		value = o.ZoneID
	case LabelCapacityType:
		value = string(o.CapacityType)
	case LabelReservationID:
		value = o.ReservationID
	}
	return value, value != ""
}
