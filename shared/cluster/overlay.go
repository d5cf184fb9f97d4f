package cluster

import "math"

// NodeOverlay is a user's correction of what instance types cost and have (karpenter.sh/v1alpha1, N-076 to N-081).
type NodeOverlay struct {
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Generation      int64  `json:"generation,omitempty"`
	DeletionUnix    int64  `json:"deletion,omitempty"`
	// Invalid says what of the object cannot be understood; such an overlay changes nothing. Empty: nothing.
	Invalid string `json:"invalid,omitempty"`

	Weight       int32        `json:"weight,omitempty"`
	Requirements []Expression `json:"requirements,omitempty"`
	// Price is absolute, in micro-USD per hour; Adjustment changes the price that there is. At most one of them is set.
	Price      *int64           `json:"price,omitempty"`
	Adjustment *PriceAdjustment `json:"adjustment,omitempty"`
	// Capacity holds extended resources that types have besides.
	Capacity   map[string]int64 `json:"capacity,omitempty"`
	Conditions Conditions       `json:"conditions,omitempty"`
}

// PriceAdjustment changes a price by an amount and by a share of it.
type PriceAdjustment struct {
	MicroUSDPerHour int64   `json:"microUSDPerHour,omitempty"`
	Percent         float64 `json:"percent,omitempty"`
}

// Apply returns the changed price, which is never below zero (S-268).
func (a PriceAdjustment) Apply(microUSDPerHour int64) int64 {
	return max(0, microUSDPerHour+a.MicroUSDPerHour+int64(math.Round(float64(microUSDPerHour)*a.Percent/100)))
}
