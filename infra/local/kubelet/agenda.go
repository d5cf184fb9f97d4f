package kubelet

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// agenda is a queue of keys, each due at a time. A key waits at most once, with the earliest time
// asked for, and is never handed to two workers at once. It is what stands in for a timer and a
// goroutine per node and pod. Safe for concurrent use.
type agenda[K comparable] struct {
	mu      sync.Mutex
	waiting map[K]*entry[K]
	heap    entryHeap[K]
	busy    map[K]time.Time // key in work → when it was asked for again, zero if it was not
	changed chan struct{}   // holds one token when the earliest time may have moved
}

type entry[K comparable] struct {
	key   K
	due   time.Time
	index int
}

func newAgenda[K comparable]() *agenda[K] {
	return &agenda[K]{
		waiting: map[K]*entry[K]{},
		busy:    map[K]time.Time{},
		changed: make(chan struct{}, 1),
	}
}

// at asks for key to be worked on at due, or earlier if it already waits for an earlier time.
func (a *agenda[K]) at(key K, due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if again, ok := a.busy[key]; ok {
		if again.IsZero() || due.Before(again) {
			a.busy[key] = due
		}
		return
	}
	a.push(key, due)
}

func (a *agenda[K]) push(key K, due time.Time) {
	e, ok := a.waiting[key]
	switch {
	case !ok:
		e = &entry[K]{key: key, due: due}
		a.waiting[key] = e
		heap.Push(&a.heap, e)
	case due.Before(e.due):
		e.due = due
		heap.Fix(&a.heap, e.index)
	default:
		return
	}
	if e.index == 0 {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// run hands due keys to workers until ctx ends, and returns when the last worker has. The time that
// do returns is when it wants the key again; zero means not.
func (a *agenda[K]) run(ctx context.Context, workers int, do func(context.Context, K) time.Time) {
	work := make(chan K)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for key := range work {
				a.done(key, do(ctx, key))
			}
		})
	}
	defer wg.Wait()
	defer close(work)

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		key, wait, ok := a.next(time.Now())
		if ok {
			select {
			case work <- key:
				continue
			case <-ctx.Done():
				return
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.changed:
		case <-ctx.Done():
			return
		}
	}
}

// next takes the earliest key if it is due; else it says how long to wait.
func (a *agenda[K]) next(now time.Time) (key K, wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.heap) == 0 {
		return key, time.Hour, false
	}
	e := a.heap[0]
	if wait := e.due.Sub(now); wait > 0 {
		return key, wait, false
	}
	heap.Pop(&a.heap)
	delete(a.waiting, e.key)
	a.busy[e.key] = time.Time{}
	return e.key, 0, true
}

func (a *agenda[K]) done(key K, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again := a.busy[key]
	delete(a.busy, key)
	if !again.IsZero() {
		a.push(key, again)
	}
	if !next.IsZero() {
		a.push(key, next)
	}
}

type entryHeap[K comparable] []*entry[K]

func (h entryHeap[K]) Len() int           { return len(h) }
func (h entryHeap[K]) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h entryHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *entryHeap[K]) Push(x any) {
	e := x.(*entry[K])
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *entryHeap[K]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
