package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"time"
)

const (
	reporter = "treadle"
	// repeatAfter is how long an equal Event is not sent again (M-086).
	repeatAfter = 2 * time.Minute
	maxNote     = 1024
	// microTime is how the API writes instants with fractions.
	microTime = "2006-01-02T15:04:05.000000Z07:00"
)

// Event tells people what happened to an object, in events.k8s.io/v1.
type Event struct {
	Regarding Regarding
	Warning   bool
	Reason    string // CamelCase
	Action    string // what Treadle did or tried to do; the reason where empty
	Note      string // cut to 1024 bytes
	At        time.Time
}

// Regarding is the object that an Event is about. Namespace is empty for cluster-wide objects, whose Events are kept in "default".
type Regarding struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// Event sends an Event. Equal ones, in all but their instant, are one object: it is counted up, and not more than once in two minutes
// by one client.
func (c *Client) Event(ctx context.Context, e Event) error {
	name := e.name()
	if !c.say(name, e.At) {
		return nil
	}
	namespace := orElse(e.Regarding.Namespace, "default")
	collection := "/apis/events.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/events"
	err := c.do(ctx, request{method: http.MethodPost, path: collection}, e.body(name, namespace), nil)
	if errors.Is(err, ErrExists) {
		err = c.count(ctx, collection+"/"+name, e.At)
	}
	if err != nil {
		c.unsay(name)
	}
	return wrap(err, "send event", e.Reason, e.Regarding.Kind+" "+e.Regarding.Name)
}

// name is equal for equal Events.
func (e Event) name() string {
	sum := sha256.Sum256(encode([]any{e.Regarding, e.Warning, e.Reason, e.Action, e.note()}))
	const most = 253 - 1 - 16 // of a name, less the dot and the digest
	prefix := e.Regarding.Name
	return prefix[:min(len(prefix), most)] + "." + hex.EncodeToString(sum[:8])
}

// note is the note cut to what the API takes, at the border of a character.
func (e Event) note() string {
	if len(e.Note) <= maxNote {
		return e.Note
	}
	cut := 0
	for i := range e.Note {
		if i > maxNote-len("…") {
			break
		}
		cut = i
	}
	return e.Note[:cut] + "…"
}

func (e Event) body(name, namespace string) document {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	return document{
		"apiVersion":          "events.k8s.io/v1",
		"kind":                "Event",
		"metadata":            document{"name": name, "namespace": namespace},
		"eventTime":           e.At.UTC().Format(microTime),
		"reportingController": reporter,
		"reportingInstance":   reporter,
		"action":              orElse(e.Action, e.Reason),
		"reason":              e.Reason,
		"regarding":           e.Regarding,
		"note":                e.note(),
		"type":                kind,
	}
}

// count notes one more occurrence of an Event that is there already.
func (c *Client) count(ctx context.Context, path string, at time.Time) error {
	var known struct {
		Series struct {
			Count int `json:"count"`
		} `json:"series"`
	}
	err := c.do(ctx, request{method: http.MethodGet, path: path}, nil, &known)
	if err != nil {
		return err
	}
	// The first repetition makes a series of two.
	series := document{"count": max(known.Series.Count, 1) + 1, "lastObservedTime": at.UTC().Format(microTime)}
	return c.do(ctx, request{method: http.MethodPatch, path: path, contentType: mimeMergePatch}, document{"series": series}, nil)
}

// say reports whether an Event of that name may be sent at that instant, and takes it that it is.
func (c *Client) say(name string, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.said[name]; ok && at.Sub(last) < repeatAfter {
		return false
	}
	const most = 4096
	if len(c.said) >= most {
		for old, last := range c.said {
			if at.Sub(last) >= repeatAfter {
				delete(c.said, old)
			}
		}
	}
	c.said[name] = at
	return true
}

func (c *Client) unsay(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.said, name)
}
