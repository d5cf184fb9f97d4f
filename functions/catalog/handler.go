package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"treadle/shared/catalog"
	"treadle/shared/store"
)

// Objects keeps the catalogue.
type Objects interface {
	// Get returns an object; store.ErrNotFound: there is none.
	Get(ctx context.Context, key, etag string) ([]byte, string, error)
	// Put writes an object, whatever was there.
	Put(ctx context.Context, key string, body []byte, etag string) (string, error)
}

// Refresher makes a catalogue. Prices that could not be had are those of old, and lost says why.
type Refresher interface {
	Refresh(ctx context.Context, old catalog.Catalog, now time.Time) (c catalog.Catalog, lost, err error)
}

// Handler refreshes the stored catalogue of the region.
type Handler struct {
	Objects   Objects
	Refresher Refresher
	Log       *slog.Logger
	Now       func() time.Time
}

// Answer is what a refresh comes to.
type Answer struct {
	Types int `json:"types"`
	Bytes int `json:"bytes"`
}

// Refresh makes a new catalogue from EC2's and Pricing's facts and puts it in the place of the old one. Repeating it is harmless, so
// what asked for it, a schedule or a person, does not matter.
func (h *Handler) Refresh(ctx context.Context, _ any) (Answer, error) {
	start := h.Now()
	made, lost, err := h.Refresher.Refresh(ctx, h.old(ctx), start)
	if err != nil {
		return Answer{}, fmt.Errorf("refresh catalogue: %w", err)
	}
	if lost != nil {
		h.Log.WarnContext(ctx, "prices not read, keeping older ones", "error", lost)
	}
	body, err := catalog.Encode(made)
	if err != nil {
		return Answer{}, err
	}
	if _, err := h.Objects.Put(ctx, store.CatalogueKey, body, ""); err != nil {
		return Answer{}, err
	}
	offerings, priced := count(made)
	h.Log.InfoContext(ctx, "catalogue refreshed", "region", made.Region, "types", len(made.Types), "offerings", offerings,
		"priced", priced, "bytes", len(body), "dur_ms", h.Now().Sub(start).Milliseconds())
	return Answer{Types: len(made.Types), Bytes: len(body)}, nil
}

// old returns the stored catalogue. One that is missing or cannot be read is an empty one: the new one replaces it.
func (h *Handler) old(ctx context.Context) catalog.Catalog {
	body, _, err := h.Objects.Get(ctx, store.CatalogueKey, "")
	if err == nil {
		var c catalog.Catalog
		if c, err = catalog.Decode(body); err == nil {
			return c
		}
	}
	if !errors.Is(err, store.ErrNotFound) {
		h.Log.WarnContext(ctx, "old catalogue not read", "error", err)
	}
	return catalog.Catalog{}
}

// count returns how many offerings c has, by zone and capacity type, and how many of them have a price.
func count(c catalog.Catalog) (offerings, priced int) {
	for _, t := range c.Types {
		for _, z := range t.Zones {
			if t.OnDemand {
				offerings++
				priced += min(int(t.OnDemandMicroUSDPerHour), 1)
			}
			if t.Spot {
				offerings++
				priced += min(int(z.SpotMicroUSDPerHour), 1)
			}
		}
	}
	return offerings, priced
}
