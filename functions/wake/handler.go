package main

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"treadle/shared/notice"
	"treadle/shared/store"
)

// maxBody is well above any admission review of an Event and well below what Lambda lets through.
const maxBody = 1 << 20

// configurationTTL is how long a cluster's configuration is trusted: the longest that a token lives on after it was taken away.
const configurationTTL = time.Minute

// rereadAfter is how old what is known of a cluster must be for a wrong token to have it read again: a new token works after that
// long at the latest.
const rereadAfter = 2 * time.Second

// Configuration tells how clusters are reached. store.ErrNotFound: the cluster is not served.
type Configuration interface {
	Cluster(ctx context.Context, name string) (store.Cluster, error)
}

// Waker asks for a look at a cluster; asking again within a second changes nothing.
type Waker interface {
	Wake(ctx context.Context, w notice.Wake) error
}

// Handler answers the admission webhook. Each answer to a genuine review is "allowed", whatever happens here: the webhook must never be
// in a cluster's way.
type Handler struct {
	Configuration Configuration
	Provision     Waker
	Lifecycle     Waker
	Disruption    Waker
	Log           *slog.Logger
	Now           func() time.Time

	mu     sync.Mutex
	known  map[string]known
	lastly map[lastly]int64
}

type known struct {
	hashes []string
	at     time.Time // when they were read
}

// lastly is what was sent to whom; its value is the second of sending.
type lastly struct {
	queue   Waker
	cluster string
}

// Handle answers one request: POST /CLUSTER/TOKEN with an AdmissionReview.
func (h *Handler) Handle(ctx context.Context, req events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	if req.RequestContext.HTTP.Method != http.MethodPost {
		return h.refuse(ctx, http.StatusMethodNotAllowed, "", "method is not POST"), nil
	}
	cluster, token, ok := splitPath(req.RawPath)
	if !ok {
		return h.refuse(ctx, http.StatusNotFound, "", "path is not /CLUSTER/TOKEN"), nil
	}
	genuine, err := h.genuine(ctx, cluster, token)
	if err != nil {
		h.Log.ErrorContext(ctx, "configuration could not be read", "cluster", cluster, "error", err)
		return status(http.StatusServiceUnavailable), nil
	}
	if !genuine {
		// The same answer for a wrong token and for a cluster that is not served, so that nobody can find out which there are.
		return h.refuse(ctx, http.StatusForbidden, cluster, "no such cluster and token"), nil
	}
	if len(req.Body) > maxBody {
		return h.refuse(ctx, http.StatusRequestEntityTooLarge, cluster, "body is larger than 1 MiB"), nil
	}
	review, err := decode(req)
	if err != nil {
		return h.refuse(ctx, http.StatusBadRequest, cluster, err.Error()), nil
	}
	if !review.DryRun {
		h.wake(ctx, cluster, review)
	}
	return events.LambdaFunctionURLResponse{
		StatusCode: http.StatusOK,
		Headers:    map[string]string{"Content-Type": "application/json"},
		Body:       string(notice.Allow(review.UID)),
	}, nil
}

func (h *Handler) wake(ctx context.Context, cluster string, a notice.Admission) {
	queues, why := h.route(a)
	if len(queues) == 0 {
		h.Log.WarnContext(ctx, "review of a resource that wakes nobody", "cluster", cluster, "resource", a.Resource)
	}
	for _, queue := range queues {
		h.send(ctx, queue, cluster, why)
	}
}

func (h *Handler) send(ctx context.Context, queue Waker, cluster, why string) {
	now := h.Now()
	key := lastly{queue, cluster}
	h.mu.Lock()
	sent := h.lastly[key] == now.Unix()
	h.mu.Unlock()
	if sent {
		return // the queue would drop it as a duplicate
	}
	if err := queue.Wake(ctx, notice.Wake{Cluster: cluster, Why: why}); err != nil {
		h.Log.ErrorContext(ctx, "wake-up lost, the sweep will find it", "cluster", cluster, "error", err)
		return
	}
	h.mu.Lock()
	if h.lastly == nil {
		h.lastly = map[lastly]int64{}
	}
	h.lastly[key] = now.Unix()
	h.mu.Unlock()
	h.Log.InfoContext(ctx, "cluster woken", "cluster", cluster, "reason", why)
}

// route says whom a review wakes, and why in words for the log.
func (h *Handler) route(a notice.Admission) ([]Waker, string) {
	switch a.Resource {
	case "events":
		return []Waker{h.Provision}, "FailedScheduling"
	case "nodepools", "ec2nodeclasses", "nodeoverlays": // nodes may have drifted
		return []Waker{h.Provision, h.Disruption}, a.Resource + " " + a.Operation
	case "capacitybuffers":
		if a.Operation == "DELETE" { // nodes may be empty now
			return []Waker{h.Provision, h.Lifecycle}, a.Resource + " " + a.Operation
		}
		return []Waker{h.Provision}, a.Resource + " " + a.Operation
	case "podtemplates":
		return []Waker{h.Provision}, a.Resource + " " + a.Operation
	case "nodeclaims":
		if a.Operation == "CREATE" { // a user's own, which is to be launched
			return []Waker{h.Provision, h.Lifecycle}, a.Resource + " " + a.Operation
		}
		return []Waker{h.Lifecycle}, a.Resource + " " + a.Operation
	case "nodes":
		return []Waker{h.Lifecycle}, a.Resource + " " + a.Operation
	default:
		return nil, ""
	}
}

// genuine reports whether token is one of the tokens of the cluster. The comparison takes the same time whether or not the cluster is known.
func (h *Handler) genuine(ctx context.Context, cluster, token string) (bool, error) {
	got := []byte(store.HashToken(token))
	hashes, err := h.tokens(ctx, cluster, configurationTTL)
	if err != nil || contains(hashes, got) {
		return err == nil, err
	}
	// The token may have been changed since: look again, but not so often that a stranger can make us read all day.
	hashes, err = h.tokens(ctx, cluster, rereadAfter)
	return err == nil && contains(hashes, got), err
}

// contains compares with all hashes, so that the time it takes tells nothing.
func contains(hashes []string, got []byte) bool {
	match := 0
	for _, want := range hashes {
		match |= subtle.ConstantTimeCompare(got, []byte(want))
	}
	return match == 1
}

// tokens returns the hashes of the cluster's tokens, as they were no longer ago than age.
func (h *Handler) tokens(ctx context.Context, cluster string, age time.Duration) ([]string, error) {
	now := h.Now()
	h.mu.Lock()
	entry, ok := h.known[cluster]
	h.mu.Unlock()
	if ok && now.Sub(entry.at) < age {
		return entry.hashes, nil
	}
	c, err := h.Configuration.Cluster(ctx, cluster)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // not remembered: strangers could fill the memory with names
	}
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]known{}
	}
	h.known[cluster] = known{c.WebhookTokenSHA256, now}
	return c.WebhookTokenSHA256, nil
}

func (h *Handler) refuse(ctx context.Context, code int, cluster, reason string) events.LambdaFunctionURLResponse {
	h.Log.WarnContext(ctx, "request refused", "status", code, "cluster", cluster, "reason", reason)
	return status(code)
}

func status(code int) events.LambdaFunctionURLResponse {
	return events.LambdaFunctionURLResponse{
		StatusCode: code,
		Headers:    map[string]string{"Content-Type": "text/plain"},
		Body:       http.StatusText(code),
	}
}

func splitPath(path string) (cluster, token string, ok bool) {
	cluster, token, ok = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return cluster, token, ok && store.ValidClusterName(cluster) && token != "" && !strings.Contains(token, "/")
}

func decode(req events.LambdaFunctionURLRequest) (notice.Admission, error) {
	body := []byte(req.Body)
	if req.IsBase64Encoded {
		raw, err := base64.StdEncoding.DecodeString(req.Body)
		if err != nil {
			return notice.Admission{}, err
		}
		body = raw
	}
	return notice.DecodeAdmission(body)
}
