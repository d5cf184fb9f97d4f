package ledger

import (
	"context"
	"errors"
	"strings"
	"time"

	"treadle/shared/cluster"
)

const (
	memoryEvery = 5 * time.Minute
	// memoryKept is how long the memory of a type and an image is remembered after it was last news (L-110).
	memoryKept = 60 * 24 * time.Hour
)

// node is what decides how much memory a node has.
type node struct{ instanceType, image string }

func (n node) id() string { return n.instanceType + "/" + n.image }

// Learn remembers how much memory the registered nodes of a cluster have, for each instance type and image the least that was seen
// (S-182). Write tells the other clusters.
func (l *Ledger) Learn(claims []cluster.NodeClaim, nodes []cluster.Node) {
	images := make(map[string]string, len(claims)) // by provider id
	for i := range claims {
		if claims[i].ProviderID != "" && claims[i].ImageID != "" {
			images[claims[i].ProviderID] = claims[i].ImageID
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range nodes {
		n := node{nodes[i].Labels[cluster.LabelInstanceType], images[nodes[i].ProviderID]}
		if n.instanceType != "" && n.image != "" && l.learn(n, nodes[i].Capacity.MemoryBytes) {
			l.learned = append(l.learned, n)
		}
	}
}

// learn reports whether bytes is news.
func (l *Ledger) learn(n node, bytes int64) bool {
	known, have := l.memory[n]
	if bytes <= 0 || have && known <= bytes {
		return false
	}
	if l.memory == nil {
		l.memory = map[node]int64{}
	}
	l.memory[n] = bytes
	l.lessons++
	return true
}

// Lessons counts the news about memory: what was made from an older count is out of date.
func (l *Ledger) Lessons() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lessons
}

// Memory returns the least memory that a node of a type under an image was seen to have.
func (l *Ledger) Memory(instanceType, image string) (bytes int64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bytes, known = l.memory[node{instanceType, image}]
	return bytes, known
}

func (l *Ledger) mergeMemory(now time.Time, rows []row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memoryAt = now
	for _, r := range rows {
		if instanceType, image, ok := strings.Cut(r.id, "/"); ok {
			l.learn(node{instanceType, image}, r.numbers[attributeBytes])
		}
	}
}

func (l *Ledger) writeMemory(ctx context.Context, now time.Time, n node) bool {
	bytes, known := l.Memory(n.instanceType, n.image)
	if !known {
		return true
	}
	_, err := l.table.update(ctx, scopeMemory, n.id(),
		"SET capacity_bytes = :bytes, forget_at = :forget",
		"attribute_not_exists(capacity_bytes) OR capacity_bytes > :bytes",
		map[string]int64{":bytes": bytes, ":forget": now.Add(memoryKept).Unix()})
	return err == nil || errors.Is(err, errCondition)
}
