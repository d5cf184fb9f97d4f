package packing

import "math/bits"

// bitset is a set of small integers. Sets that meet in one operation have the same length.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i int32) bool { return b[i>>6]&(1<<(i&63)) != 0 }

func (b bitset) add(i int32) { b[i>>6] |= 1 << (i & 63) }

// and returns a new set of what both hold.
func (b bitset) and(o bitset) bitset {
	out := make(bitset, len(b))
	for i := range b {
		out[i] = b[i] & o[i]
	}
	return out
}

// join adds all that o holds.
func (b bitset) join(o bitset) {
	for i := range b {
		b[i] |= o[i]
	}
}

func (b bitset) empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// all yields the members in ascending order.
func (b bitset) all(yield func(int32) bool) {
	for i, w := range b {
		for w != 0 {
			if !yield(int32(i<<6 + bits.TrailingZeros64(w))) {
				return
			}
			w &= w - 1
		}
	}
}
