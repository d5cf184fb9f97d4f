package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// resumeAbove is the number of objects above which asking what changed is cheaper than asking for everything.
	resumeAbove = 500
	// quiet is how long a watch must be silent before a copy of the right size counts as complete. The server sends what
	// happened since the remembered version at once and in one burst, but gives no sign at its end.
	quiet = 100 * time.Millisecond
	// patience is for how many such silences a copy of the wrong size is waited for before a LIST replaces it.
	patience = 5
	// stall is how long the server may take to accept a watch.
	stall = 3 * time.Second
)

// source describes one kind: where its objects are and how they become nouns.
type source[T any] struct {
	path string // of the whole collection
	json bool   // for custom resources, which have no protobuf
	// decode makes a noun. It may keep nothing of raw, whose bytes are used again.
	decode func(raw []byte, in *interner) (meta, T, error)
	// unversioned blanks what changes with every write, so that a heartbeat is not taken for a change; nil: nothing does.
	unversioned func(*T)
}

// collection is the copy of one kind. Nothing but its stream runs beside the caller.
type collection[T any] struct {
	source[T]
	client *Client
	in     *interner
	items  map[string]T
	// version is what items is as of: every event up to it is applied. Zero: never listed.
	version uint64
	absent  bool // the API does not have the kind
	stream  *stream
	failed  int // streams in a row that broke before they brought anything
	wake    chan<- struct{}
}

// copied is what a Mirror asks of a collection, whatever it holds.
type copied interface {
	sync(ctx context.Context) error
	follow(ctx context.Context) error
	drain(ctx context.Context) (changed bool, err error)
	stop()
}

func newCollection[T any](c *Client, wake chan<- struct{}, s source[T]) *collection[T] {
	return &collection[T]{source: s, client: c, in: newInterner(), items: map[string]T{}, wake: wake}
}

// sync makes the copy at least as new as the moment of the call.
func (c *collection[T]) sync(ctx context.Context) error {
	c.in.trim(len(c.items))
	if c.version == 0 || len(c.items) <= resumeAbove {
		return c.list(ctx)
	}
	complete, err := c.catchUp(ctx)
	if err != nil || complete {
		return err
	}
	c.stop()
	return c.list(ctx)
}

// list replaces the copy by what a consistent LIST says.
func (c *collection[T]) list(ctx context.Context) error {
	fresh := make(map[string]T, len(c.items))
	got, err := c.read(ctx, nil, func(raw []byte) error {
		m, item, err := c.decode(raw, c.in)
		if err != nil {
			return fmt.Errorf("decode %s: %w", m.key(), err)
		}
		fresh[m.key()] = item
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		c.stop()
		c.items, c.version, c.absent = map[string]T{}, 0, true
		return nil
	}
	if err != nil {
		return err
	}
	c.items, c.version, c.absent = fresh, got.version, false
	return nil
}

// read sends a LIST and calls each for every item of the answer.
func (c *collection[T]) read(ctx context.Context, query url.Values, each func(raw []byte) error) (listMeta, error) {
	r := request{method: http.MethodGet, path: c.path, query: query, accept: c.accept("")}
	res, err := c.client.open(ctx, r)
	if err != nil {
		return listMeta{}, err
	}
	defer finish(res.Body)
	parse := readProtoList
	if c.json {
		parse = readJSONList
	}
	m, err := parse(res.Body, each)
	if err != nil {
		return m, fmt.Errorf("list %s: %w", c.path, err)
	}
	if m.version == 0 {
		return m, fmt.Errorf("list %s: no resource version", c.path)
	}
	return m, nil
}

func (c *collection[T]) accept(parameter string) string {
	if c.json {
		return mimeJSON
	}
	return mimeProtobuf + parameter
}

// catchUp applies what happened since the remembered version. It reports false where that cannot be known to be
// complete: the version is too old, the stream broke, or the copy does not get to the size that the server names.
func (c *collection[T]) catchUp(ctx context.Context) (complete bool, err error) {
	size := int64(0)
	now, err := c.read(ctx, url.Values{"limit": {"1"}}, func([]byte) error { size++; return nil })
	if err != nil {
		return false, err
	}
	size += now.remaining
	if c.version >= now.version {
		return true, nil
	}
	if err := c.follow(ctx); err != nil {
		return false, err
	}
	return c.until(ctx, now.version, size)
}

// until applies events until the copy is as new as version, or has the given size when the stream falls silent.
func (c *collection[T]) until(ctx context.Context, version uint64, size int64) (complete bool, err error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(stall):
		return false, nil
	case <-c.stream.begun:
	}
	silence := time.NewTimer(quiet)
	defer silence.Stop()
	for silent := 0; c.version < version; silence.Reset(quiet) {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-silence.C:
			silent++
			if right := int64(len(c.items)) == size; right || silent == patience {
				return right, nil
			}
		case ev, ok := <-c.stream.events:
			if !ok {
				return false, nil
			}
			silent = 0
			if _, err := c.apply(ev); err != nil {
				return false, nil // a broken watch is no failure: the caller lists instead
			}
		}
	}
	return true, nil
}

// follow opens the stream of changes where there is none.
func (c *collection[T]) follow(ctx context.Context) error {
	if c.stream != nil || c.absent {
		return nil
	}
	if c.version == 0 {
		return fmt.Errorf("watch %s: not synced yet", c.path)
	}
	query := url.Values{
		"watch":               {"1"},
		"allowWatchBookmarks": {"true"},
		"resourceVersion":     {strconv.FormatUint(c.version, 10)},
	}
	r := request{method: http.MethodGet, path: c.path, query: query, accept: c.accept(";stream=watch")}
	events := protoEvents
	if c.json {
		events = jsonEvents
	}
	c.stream = startStream(ctx, c.client, r, events, c.wake)
	return nil
}

// drain applies the events that have come and reports whether a noun changed. Where the stream broke it opens another one;
// where its version is too old, it lists.
func (c *collection[T]) drain(ctx context.Context) (changed bool, err error) {
	for c.stream != nil {
		select {
		case ev, ok := <-c.stream.events:
			if !ok {
				again, err := c.reopen(ctx)
				return changed || again, err
			}
			one, err := c.apply(ev)
			switch {
			case errors.Is(err, ErrGone):
				c.stop()
				return true, errors.Join(c.list(ctx), c.follow(ctx))
			case err != nil:
				return changed, err
			}
			c.failed = 0
			changed = changed || one
		default:
			return changed, nil
		}
	}
	return changed, nil
}

// reopen follows a stream that ended. It gives up when streams keep breaking before they bring anything.
func (c *collection[T]) reopen(ctx context.Context) (changed bool, err error) {
	cause := c.stream.err
	c.stop()
	switch {
	case errors.Is(cause, ErrGone), errors.Is(cause, ErrNotFound):
		return true, errors.Join(c.list(ctx), c.follow(ctx))
	case cause == nil:
		return false, c.follow(ctx)
	}
	c.failed++
	if c.failed >= tries {
		return false, fmt.Errorf("watch %s: %w", c.path, cause)
	}
	return false, c.follow(ctx)
}

// apply takes one event in and reports whether it changed a noun.
func (c *collection[T]) apply(ev watchEvent) (changed bool, err error) {
	if ev.kind == "ERROR" {
		var s wireStatus
		if c.json {
			err = json.Unmarshal(ev.object, &s)
		} else {
			s, err = decodeProtoStatus(ev.object)
		}
		if err != nil {
			return false, fmt.Errorf("watch %s: %w", c.path, err)
		}
		return false, s.err("watch "+c.path, s.Code)
	}
	m, item, err := c.decode(ev.object, c.in)
	if err != nil {
		return false, fmt.Errorf("watch %s: decode %s: %w", c.path, m.key(), err)
	}
	if m.version <= c.version {
		return false, nil // a LIST has overtaken the stream
	}
	c.version = m.version
	key := m.key()
	old, had := c.items[key]
	switch ev.kind {
	case "ADDED", "MODIFIED":
		c.items[key] = item
		return !had || !c.same(old, item), nil
	case "DELETED":
		delete(c.items, key)
		return had, nil
	default: // BOOKMARK carries a version and nothing else
		return false, nil
	}
}

func (c *collection[T]) same(a, b T) bool {
	if c.unversioned != nil {
		c.unversioned(&a)
		c.unversioned(&b)
	}
	return reflect.DeepEqual(a, b)
}

// stop ends the stream. What it had not delivered is asked for again by the next one.
func (c *collection[T]) stop() {
	if c.stream != nil {
		c.stream.stop()
		c.stream = nil
	}
}

// sorted returns the objects in the order of their keys.
func (c *collection[T]) sorted() []T {
	out := make([]T, 0, len(c.items))
	for _, key := range slices.Sorted(maps.Keys(c.items)) {
		out = append(out, c.items[key])
	}
	return out
}

// stream reads a watch in a goroutine of its own. Closing of events says that it is over; err is readable from then on.
type stream struct {
	events chan watchEvent
	err    error // nil: the server ended it in good order
	cancel context.CancelFunc
	done   sync.WaitGroup
	begun  chan struct{} // closed when the server has accepted the watch, or refused it
}

// startStream opens the watch. It outlives ctx, whose values it keeps: a watch lasts as long as the invocation.
func startStream(ctx context.Context, c *Client, r request, events eventReader, wake chan<- struct{}) *stream {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &stream{events: make(chan watchEvent, 256), cancel: cancel, begun: make(chan struct{})}
	s.done.Go(func() {
		defer signal(wake)
		defer close(s.events)
		s.err = s.run(ctx, c, r, events, wake)
	})
	return s
}

func (s *stream) run(ctx context.Context, c *Client, r request, events eventReader, wake chan<- struct{}) error {
	res, err := c.open(ctx, r)
	close(s.begun)
	if err != nil {
		return err
	}
	defer finish(res.Body)
	next := events(res.Body)
	for {
		ev, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unavailable(r.verb(), err)
		}
		select {
		case s.events <- ev:
			signal(wake)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *stream) stop() {
	s.cancel()
	s.done.Wait()
}

// signal leaves a note for whoever waits; one note is enough.
func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// eventReader returns what reads the events of a watch one by one.
type eventReader func(io.Reader) (next func() (watchEvent, error))

func protoEvents(r io.Reader) func() (watchEvent, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	return func() (watchEvent, error) { return readProtoEvent(in) }
}

// jsonEvents returns a reader of the events of a JSON watch.
func jsonEvents(r io.Reader) func() (watchEvent, error) {
	dec := json.NewDecoder(r)
	return func() (watchEvent, error) {
		var ev struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := dec.Decode(&ev)
		return watchEvent{ev.Type, ev.Object}, err
	}
}

// readJSONList is readProtoList for a LIST in JSON.
func readJSONList(r io.Reader, each func(item []byte) error) (listMeta, error) {
	var m listMeta
	dec := json.NewDecoder(r)
	if err := expect(dec, json.Delim('{')); err != nil {
		return m, err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return m, noEOF(err)
		}
		switch name {
		case "metadata":
			err = decodeJSONListMeta(dec, &m)
		case "items":
			err = eachJSONItem(dec, each)
		default:
			var skipped json.RawMessage
			err = dec.Decode(&skipped)
		}
		if err != nil {
			return m, noEOF(err)
		}
	}
	return m, expect(dec, json.Delim('}'))
}

func decodeJSONListMeta(dec *json.Decoder, m *listMeta) (err error) {
	var meta struct {
		ResourceVersion    string `json:"resourceVersion"`
		RemainingItemCount int64  `json:"remainingItemCount"`
	}
	if err := dec.Decode(&meta); err != nil {
		return err
	}
	m.remaining = meta.RemainingItemCount
	m.version, err = parseVersion(meta.ResourceVersion)
	return err
}

func eachJSONItem(dec *json.Decoder, each func(item []byte) error) error {
	if err := expect(dec, json.Delim('[')); err != nil {
		return err
	}
	var item json.RawMessage
	for dec.More() {
		item = item[:0]
		if err := dec.Decode(&item); err != nil {
			return err
		}
		if err := each(bytes.TrimSpace(item)); err != nil {
			return err
		}
	}
	return expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return noEOF(err)
	}
	if got != want {
		return fmt.Errorf("%v where %v belongs", got, want)
	}
	return nil
}
