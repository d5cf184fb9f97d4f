package notice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Wake means: look at the cluster. Why is for people reading a log.
type Wake struct {
	Cluster string `json:"cluster"`
	Why     string `json:"why,omitempty"`
}

// Encode returns the body of a queue message that DecodeWake reads.
func (w Wake) Encode() []byte {
	body, err := json.Marshal(w)
	if err != nil {
		panic(err) // two strings always marshal
	}
	return body
}

// DecodeWake reads the body of a queue message. Unknown fields, a missing cluster and anything after the object are errors.
func DecodeWake(body []byte) (Wake, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var w Wake
	if err := dec.Decode(&w); err != nil {
		return Wake{}, fmt.Errorf("wake-up: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Wake{}, errors.New("wake-up: more than one JSON value")
	}
	if w.Cluster == "" {
		return Wake{}, errors.New("wake-up: field cluster: missing")
	}
	return w, nil
}
