package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// TokenSource returns a bearer token that is valid now. It is called for every request, so it caches.
type TokenSource func(context.Context) (string, error)

// Config says which cluster to talk to and as whom: by Token, or by client certificate where Token is nil.
type Config struct {
	Cluster   string
	Endpoint  string // https://host[:port]
	CA        []byte // PEM
	Token     TokenSource
	UserAgent string
	// ClientCert and ClientKey are PEM, for a cluster whose users are certificates.
	ClientCert, ClientKey []byte
}

// Client talks to one cluster. It is safe for concurrent use.
type Client struct {
	cluster string
	base    string
	// authority is the certificate authority in PEM, which is part of what nodes are made from.
	authority []byte
	token     TokenSource
	agent     string
	http      *http.Client

	mu   sync.Mutex
	said map[string]time.Time // Events sent lately, by name
}

const (
	// A function that was frozen wakes up with connections that the other side closed long ago: an unanswered ping says so.
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second

	dialTimeout    = 5 * time.Second
	requestTimeout = 30 * time.Second
	// tries is how often a request is sent in all when the server sheds load or a read meets a dead connection.
	tries = 4
)

// New returns a client for the cluster. It dials nothing; the only errors are those of a malformed Config.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("cluster %s: endpoint %q is no https URL", c.Cluster, c.Endpoint)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CA) {
		return nil, fmt.Errorf("cluster %s: CA holds no PEM certificate", c.Cluster)
	}
	tlsConfig := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	if c.ClientCert != nil {
		pair, err := tls.X509KeyPair(c.ClientCert, c.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: client certificate: %w", c.Cluster, err)
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig
	transport.TLSHandshakeTimeout = dialTimeout
	transport.ForceAttemptHTTP2 = true
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return &Client{
		cluster:   c.Cluster,
		base:      strings.TrimSuffix(u.String(), "/"),
		authority: c.CA,
		token:     c.Token,
		agent:     c.UserAgent,
		http:      &http.Client{Transport: transport},
		said:      map[string]time.Time{},
	}, nil
}

// Cluster returns the name of the cluster.
func (c *Client) Cluster() string { return c.cluster }

// Close drops idle connections; the client stays usable. A function calls it before it is frozen.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one call. Its zero fields mean: GET, JSON, no body.
type request struct {
	method, path string
	query        url.Values
	body         []byte
	contentType  string
	accept       string
}

func (r request) verb() string { return r.method + " " + r.path }

const (
	mimeJSON       = "application/json"
	mimeProtobuf   = "application/vnd.kubernetes.protobuf"
	mimeMergePatch = "application/merge-patch+json"
	mimeApply      = "application/apply-patch+yaml"
)

// open sends the request and returns the response of a success, whose body the caller closes. Reads are repeated when the
// connection turns out dead; everything is repeated when the server sheds load and says when to come back.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	for try := 1; ; try++ {
		res, err := c.send(ctx, r)
		if err == nil {
			return res, nil
		}
		wait, again := retry(r, err)
		if !again || try == tries || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// retry says whether and when to repeat a request that ended in err.
func retry(r request, err error) (wait time.Duration, again bool) {
	if shed, ok := errors.AsType[*shedError](err); ok {
		return min(shed.after, 2*time.Second), true
	}
	if _, refused := errors.AsType[*StatusError](err); refused {
		return 0, false
	}
	return 20 * time.Millisecond, r.method == http.MethodGet && errors.Is(err, ErrUnavailable)
}

// shedError is a refusal because of load, with the server's word on when to try again.
type shedError struct {
	*StatusError
	after time.Duration
}

func (e *shedError) Unwrap() error { return e.StatusError }

func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.verb(), err)
	}
	if c.token != nil {
		token, err := c.token(ctx)
		if err != nil {
			return nil, fmt.Errorf("token for cluster %s: %w", c.cluster, err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Accept", orElse(r.accept, mimeJSON))
	if r.body != nil {
		req.Header.Set("Content-Type", orElse(r.contentType, mimeJSON))
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unavailable(r.verb(), err)
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer finish(res.Body)
	status := refusal(r.verb(), res)
	if res.StatusCode == http.StatusTooManyRequests && !status.Budget {
		seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if err == nil {
			return nil, &shedError{status, time.Duration(seconds) * time.Second}
		}
	}
	return nil, status
}

// refusal reads the error that a response carries. Whatever answers in another form than Status is quoted as it is.
func refusal(verb string, res *http.Response) *StatusError {
	const most = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(res.Body, most)) // the code alone is worth reporting
	var s wireStatus
	if json.Unmarshal(body, &s) != nil || s.Message == "" {
		s.Message = strings.TrimSpace(string(body[:min(len(body), 200)]))
	}
	return s.err(verb, res.StatusCode)
}

// do sends in as JSON, if it is not nil, and reads the answer into out, if that is not nil.
func (c *Client) do(ctx context.Context, r request, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s: encode: %w", r.verb(), err)
		}
		r.body = body
	}
	res, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer finish(res.Body)
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body) // read to the end, so that the connection serves the next call
	} else {
		err = json.NewDecoder(res.Body).Decode(out)
	}
	if err != nil {
		return unavailable(r.verb(), err)
	}
	return nil
}

// finish closes what was only read from, where no error can matter any more.
func finish(body io.Closer) { _ = body.Close() }

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
