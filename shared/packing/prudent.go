package packing

import (
	"strconv"
	"strings"

	"treadle/shared/cluster"
)

// Annotations of a NodePool that say how prudent its plans are.
const (
	// AnnotationNodeShare is the largest part of what is planned at once that one node may hold, such as "25%". "100%" lets
	// the price alone decide.
	AnnotationNodeShare = "treadle.sh/max-node-share"
	// AnnotationSpotTypes is how many instance types a spot node should be able to be at nearly the price of the cheapest,
	// such as "5"; "1" lets the price alone decide.
	AnnotationSpotTypes = "treadle.sh/spot-types"
)

// What a pool gets that does not say.
const (
	defaultShare     = 25     // percent
	smallestCPU      = 16_000 // millicores: nodes up to this size are never too large
	smallestMemory   = 128 << 30
	defaultSpotTypes = 5
	spotPremium      = 25 // percent that a stand-in may cost more
	spotReserve      = 50 // the same where there are too few stand-ins otherwise
)

// prudent returns the types that a node for the demand is planned as: those that are not too large a part of the whole and,
// for spot, that enough other types can stand in for. Each wish is dropped where no type is left.
func (p *pool) prudent(d *demand, largest vec) bitset {
	types := d.types
	if supple := types.and(p.suppleTypes(d.set)); !supple.empty() {
		types = supple
	}
	small := newBitset(len(p.sets.cat.types))
	for t := range types.all {
		if p.free[t][cpu] <= largest[cpu] && p.free[t][memory] <= largest[memory] {
			small.add(t)
		}
	}
	if small.empty() {
		return types
	}
	return small
}

// largestNode returns the CPU and memory of the largest node that loses no more than the pool's share of the demands.
func (p *pool) largestNode(demands []demand) vec {
	share := int64(defaultShare)
	if text, found := strings.CutSuffix(p.Annotations[AnnotationNodeShare], "%"); found {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			share = n
		}
	}
	out := vec{smallestCPU, smallestMemory}
	if share >= 100 {
		return vec{unlimited, unlimited}
	}
	var total [2]int64
	for i := range demands {
		total[cpu] += demands[i].requests[cpu] * demands[i].n
		total[memory] += demands[i].requests[memory] * demands[i].n
	}
	out[cpu] = max(out[cpu], total[cpu]/100*share)
	out[memory] = max(out[memory], total[memory]/100*share)
	return out
}

// suppleTypes returns the types of a set that are not spot, or that enough types of enough families can stand in for: with as
// much room of everything, at most a quarter dearer. Spot capacity goes away by type, so a node that can be only one type is
// soon without successor.
func (p *pool) suppleTypes(set int32) bitset {
	s := &p.sets.all[set]
	if p.supple == nil {
		p.supple = p.findSupple(&p.sets.all[p.base])
	}
	if len(p.sets.ranked(set)[rank(cluster.Spot)]) == 0 {
		return s.has
	}
	return p.supple
}

// spotChoice returns how many types of how many families a spot node of the pool should be able to be.
func (p *pool) spotChoice() (types, families int) {
	types = defaultSpotTypes
	if n, err := strconv.Atoi(p.Annotations[AnnotationSpotTypes]); err == nil {
		types = n
	}
	return types, (types*3 + 4) / 5
}

func (p *pool) findSupple(s *set) bitset {
	wanted, families := p.spotChoice()
	cat := p.sets.cat
	out := newBitset(len(cat.types))
	for t := range s.has.all {
		types, seen := 0, map[string]bool{}
		for u := range s.has.all {
			if s.price[u]*100 > s.price[t]*(100+spotPremium) || cat.types[u].exotic != cat.types[t].exotic || !p.roomier(u, t) {
				continue
			}
			types++
			family, _, _ := strings.Cut(cat.types[u].Name, ".")
			seen[family] = true
			if types >= wanted && len(seen) >= families {
				out.add(t)
				break
			}
		}
	}
	return out
}

// roomier reports whether type a has as much room of everything as type b.
func (p *pool) roomier(a, b int32) bool {
	for j, n := range p.free[b] {
		if p.free[a][j] < n {
			return false
		}
	}
	return true
}
