package packing

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// identify returns a hash of all that the plan says but its id. Each part is written with its length, so that no two
// different plans are written alike.
func identify(p *plan.Plan) string {
	sum := sha256.New()
	w := &hashWriter{Writer: bufio.NewWriter(sum)}
	w.number(len(p.Placed))
	for i := range p.Placed {
		w.pod(&p.Placed[i].Pod)
		w.text(string(p.Placed[i].Node))
		w.text(p.Placed[i].NodeClaim)
	}
	w.number(len(p.Claims))
	for i := range p.Claims {
		w.claim(&p.Claims[i])
	}
	w.number(len(p.Unplaced))
	for i := range p.Unplaced {
		w.pod(&p.Unplaced[i].Pod)
		w.number(len(p.Unplaced[i].Reasons))
		for _, r := range p.Unplaced[i].Reasons {
			w.text(r.NodePool)
			w.text(r.Rule)
			w.text(r.Detail)
		}
	}
	// Writing to a hash never fails.
	_ = w.Flush()
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

type hashWriter struct {
	*bufio.Writer
	scratch [binary.MaxVarintLen64]byte
}

func (w *hashWriter) number(n int) {
	_, _ = w.Write(w.scratch[:binary.PutVarint(w.scratch[:], int64(n))])
}

func (w *hashWriter) text(s string) {
	w.number(len(s))
	_, _ = w.WriteString(s)
}

func (w *hashWriter) pod(p *cluster.PodRef) {
	w.text(p.Namespace)
	w.text(p.Name)
	w.text(string(p.UID))
}

func (w *hashWriter) claim(c *plan.Claim) {
	w.text(c.NodePool)
	w.number(len(c.Requirements))
	for i := range c.Requirements {
		e := &c.Requirements[i]
		w.text(e.Key)
		w.text(string(e.Operator))
		w.number(e.MinValues)
		w.number(len(e.Values))
		for _, v := range e.Values {
			w.text(v)
		}
	}
	w.number(len(c.Options))
	for i := range c.Options {
		o := &c.Options[i]
		w.text(o.InstanceType)
		w.text(o.Zone)
		w.text(string(o.CapacityType))
		w.text(o.ReservationID)
		w.number(int(o.PriceMicroUSDPerHour))
	}
	w.number(len(c.Pods))
	for i := range c.Pods {
		w.pod(&c.Pods[i])
	}
}
