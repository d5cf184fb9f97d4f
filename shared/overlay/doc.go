// Package overlay applies NodeOverlays to the instance types of pools: what users know better than AWS's lists about prices and extended
// resources (S-268 to S-277). It is pure.
package overlay
