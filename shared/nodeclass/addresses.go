package nodeclass

import "treadle/shared/cluster"

// Addresses is a book of the free addresses of subnets, with those of launches in flight taken out. Not safe for concurrent use.
type Addresses struct {
	free map[string]int // by subnet id
}

// plenty stands for a number that nobody counted.
const plenty = 1 << 30

// NewAddresses opens a book for the subnets of a resolved class; classes that share subnets should share a book.
func NewAddresses(subnets []cluster.Subnet) *Addresses {
	a := &Addresses{free: make(map[string]int, len(subnets))}
	a.Add(subnets)
	return a
}

// Add puts further subnets into the book; those already in it keep what was booked.
func (a *Addresses) Add(subnets []cluster.Subnet) {
	for _, s := range subnets {
		if _, there := a.free[s.ID]; there {
			continue
		}
		a.free[s.ID] = s.FreeIPs
		if s.FreeIPs < 0 {
			a.free[s.ID] = plenty
		}
	}
}

// Take books n addresses of a subnet; a negative n gives them back. A subnet that is not in the book is left alone.
func (a *Addresses) Take(subnetID string, n int) {
	if _, there := a.free[subnetID]; there {
		a.free[subnetID] -= n
	}
}

// Refuse notes that EC2 found no free address in a subnet.
func (a *Addresses) Refuse(subnetID string) { a.free[subnetID] = 0 }

// best returns the subnet among candidates that has the most free addresses in a zone, the first by order if several have, and
// for how many nodes of the given need it has room.
func (a *Addresses) best(candidates []cluster.Subnet, zone string, need int) (id string, room int) {
	most := -1
	for _, s := range candidates {
		if s.Zone != zone {
			continue
		}
		free, there := a.free[s.ID]
		if !there {
			free = plenty
		}
		if free > most {
			id, most = s.ID, free
		}
	}
	return id, max(most, 0) / max(need, 1)
}
