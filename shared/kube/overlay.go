package kube

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"treadle/shared/cluster"
)

const (
	overlaysPath = "/apis/karpenter.sh/v1alpha1/nodeoverlays"
	kindOverlay  = "NodeOverlay"
)

type wireOverlay struct {
	typeMeta
	Metadata objectMeta        `json:"metadata"`
	Spec     wireOverlaySpec   `json:"spec"`
	Status   wireOverlayStatus `json:"status"`
}

type wireOverlaySpec struct {
	Requirements    []wireExpression  `json:"requirements"`
	PriceAdjustment *string           `json:"priceAdjustment,omitempty"`
	Price           *string           `json:"price,omitempty"`
	Capacity        map[string]number `json:"capacity,omitempty"`
	Weight          *int32            `json:"weight,omitempty"`
}

type wireOverlayStatus struct {
	Conditions []wireCondition `json:"conditions,omitempty"`
}

func overlaySource() source[cluster.NodeOverlay] {
	return source[cluster.NodeOverlay]{
		path:        overlaysPath,
		json:        true,
		decode:      decodeOverlay,
		unversioned: func(o *cluster.NodeOverlay) { o.ResourceVersion = "" },
	}
}

func decodeOverlay(raw []byte, _ *interner) (meta, cluster.NodeOverlay, error) {
	var w wireOverlay
	m, bad, err := decodeWire(raw, &w)
	if err != nil {
		return m, cluster.NodeOverlay{}, err
	}
	o := cluster.NodeOverlay{
		Name:            m.name,
		UID:             m.uid,
		ResourceVersion: m.resourceVersion(),
		Generation:      m.generation,
		DeletionUnix:    m.deletionUnix,
		Capacity:        bad.amounts("spec.capacity", w.Spec.Capacity),
		Conditions:      fromConditions(w.Status.Conditions),
	}
	for _, r := range w.Spec.Requirements {
		o.Requirements = append(o.Requirements, expression(r))
	}
	if w.Spec.Weight != nil {
		o.Weight = *w.Spec.Weight
	}
	for _, name := range []string{"cpu", "memory", "ephemeral-storage", "pods"} {
		if _, given := o.Capacity[name]; given {
			bad.add(fmt.Errorf("spec.capacity.%s: only extended resources can be given", name))
		}
	}
	if text := w.Spec.Price; text != nil {
		price, err := parsePrice("spec.price", *text)
		if price < 0 && err == nil {
			err = fmt.Errorf("spec.price: %q is below zero", *text)
		}
		bad.add(err)
		o.Price = &price
	}
	if text := w.Spec.PriceAdjustment; text != nil {
		adjustment, err := parseAdjustment(*text)
		bad.add(err)
		o.Adjustment = &adjustment
	}
	if o.Price != nil && o.Adjustment != nil {
		bad.add(fmt.Errorf("spec.price, spec.priceAdjustment: only one of them may be set"))
	}
	o.Invalid = bad.String()
	return m, o, nil
}

// parsePrice reads USD per hour as micro-USD.
func parsePrice(field, text string) (int64, error) {
	usd, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(usd) || math.Abs(usd) > 1e9 {
		return 0, fmt.Errorf("%s: %q is no price in USD per hour", field, text)
	}
	return int64(math.Round(usd * 1e6)), nil
}

// parseAdjustment reads "+0.5", "-1.2", "+10%" or "-15%".
func parseAdjustment(text string) (a cluster.PriceAdjustment, err error) {
	const field = "spec.priceAdjustment"
	if !strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "-") {
		return a, fmt.Errorf(`%s: %q begins with neither "+" nor "-"`, field, text)
	}
	share, isShare := strings.CutSuffix(text, "%")
	if !isShare {
		a.MicroUSDPerHour, err = parsePrice(field, text)
		return a, err
	}
	a.Percent, err = strconv.ParseFloat(share, 64)
	if err != nil || math.IsNaN(a.Percent) || a.Percent < -100 || a.Percent > 1e6 {
		return cluster.PriceAdjustment{}, fmt.Errorf("%s: %q is no percentage from -100%% up", field, text)
	}
	return a, nil
}

// PatchNodeOverlayStatus writes the conditions in which next differs from old. ErrConflict: somebody else wrote to the overlay.
func (c *Client) PatchNodeOverlayStatus(ctx context.Context, old, next cluster.NodeOverlay) error {
	part := func(o *cluster.NodeOverlay) any { return statusOnly{wireOverlayStatus{toConditions(o.Conditions)}} }
	_, err := c.patch(ctx, target{overlaysPath + "/" + old.Name + "/status", old.UID, old.ResourceVersion}, part(&old), part(&next), nil)
	return wrap(err, "patch status of", kindOverlay, old.Name)
}
