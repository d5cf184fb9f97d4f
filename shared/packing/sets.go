package packing

import (
	"cmp"
	"slices"

	"treadle/shared/cluster"
)

// set is an interned set of requirements of one pool, with what can be launched under it.
type set struct {
	reqs   cluster.Requirements
	types  bitset // types that meet reqs, whether they can be had or not
	offers bitset // usable offerings of those types that meet reqs
	has    bitset // types that have one of offers
	// price is, by type, that of the cheapest usable offering under the capacity type that a launch would choose for the
	// type alone; 0 where has lacks the type.
	price []int64
	// ranked holds offers by rank of capacity type, each cheapest first; nil until it is asked for.
	ranked [][]int32
	// domains caches, by topology key, where nodes made under the set may be.
	domains map[int32][]int32
}

// sets interns the sets of one catalogue, so that to narrow a bin by a pod is one look-up.
type sets struct {
	cat    *catalog
	all    []set
	byText map[string]int32
	met    map[[2]int32]int32

	scratch []uint8 // by type
}

func newSets(cat *catalog) *sets {
	return &sets{cat: cat, byText: map[string]int32{}, met: map[[2]int32]int32{}, scratch: make([]uint8, len(cat.types))}
}

// none is the set that nothing meets.
const none int32 = -1

// intern returns the number of the set of reqs, none if no node can meet them.
func (s *sets) intern(reqs cluster.Requirements) int32 {
	if _, impossible := reqs.Impossible(); impossible {
		return none
	}
	text := reqs.String()
	if id, known := s.byText[text]; known {
		return id
	}
	id := int32(len(s.all))
	s.byText[text] = id
	s.all = append(s.all, s.compile(reqs))
	return id
}

// meet returns the set of what meets both, none if the two contradict each other.
func (s *sets) meet(a, b int32) int32 {
	if a == b || b == none || a == none {
		return min(a, b)
	}
	pair := [2]int32{min(a, b), max(a, b)}
	id, known := s.met[pair]
	if !known {
		id = s.intern(s.all[a].reqs.Intersect(s.all[b].reqs))
		s.met[pair] = id
	}
	return id
}

func (s *sets) compile(reqs cluster.Requirements) set {
	cat := s.cat
	out := set{reqs: reqs, offers: newBitset(len(cat.offers)), has: newBitset(len(cat.types)), price: make([]int64, len(cat.types))}
	out.types = newBitset(len(cat.types))
	for i := range cat.types {
		out.types.add(int32(i))
	}
	for _, r := range reqs {
		out.types = out.types.and(cat.meeting(r))
	}
	for t := range out.types.all {
		best := cluster.CapacityType("")
		for i := cat.types[t].first; i < cat.types[t].last; i++ {
			o := &cat.offers[i]
			if !o.usable() || !o.meets(reqs) {
				continue
			}
			out.offers.add(i)
			if best == "" || rank(o.CapacityType) < rank(best) || o.CapacityType == best && o.PriceMicroUSDPerHour < out.price[t] {
				best, out.price[t] = o.CapacityType, o.PriceMicroUSDPerHour
			}
		}
		if best != "" {
			out.has.add(t)
		}
	}
	return out
}

// ranked returns the usable offers of a set by rank of capacity type, each in the order of price, type, zone and reservation.
func (s *sets) ranked(id int32) [][]int32 {
	one := &s.all[id]
	if one.ranked == nil {
		one.ranked = make([][]int32, rank(cluster.OnDemand)+1)
		for i := range one.offers.all {
			r := rank(s.cat.offers[i].CapacityType)
			one.ranked[r] = append(one.ranked[r], i)
		}
		for _, offers := range one.ranked {
			// Offers are numbered in the order that breaks ties.
			slices.SortFunc(offers, func(a, b int32) int {
				return cmp.Or(cmp.Compare(s.cat.offers[a].PriceMicroUSDPerHour, s.cat.offers[b].PriceMicroUSDPerHour), cmp.Compare(a, b))
			})
		}
	}
	return one.ranked
}

// rank is the place of a capacity type in the order in which a launch tries them (L-016).
func rank(ct cluster.CapacityType) int {
	switch ct {
	case cluster.Reserved:
		return 0
	case cluster.Spot:
		return 1
	default:
		return 2
	}
}
