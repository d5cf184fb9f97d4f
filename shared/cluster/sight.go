package cluster

// Sights holds what EC2 said about the instances that it was asked about.
type Sights map[InstanceID]Sight

// Sight is EC2's answer about one instance. Found is false where it knows no such instance.
type Sight struct {
	Instance Instance `json:"instance"`
	Found    bool     `json:"found"`
}

// Gone reports whether the instance has ended or is ending for good. An instance that EC2 does not know counts as gone only if
// settled: a young one may not be visible yet.
func (s Sight) Gone(settled bool) bool {
	if !s.Found {
		return settled
	}
	return s.Instance.State == InstanceTerminated || s.Instance.State == InstanceShuttingDown
}

// Ended reports whether the instance is over and costs nothing any more: terminated, or unknown to EC2.
func (s Sight) Ended() bool { return !s.Found || s.Instance.State == InstanceTerminated }
