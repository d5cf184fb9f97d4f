package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Errors of a Bucket, to be matched with errors.Is.
var (
	ErrNotFound    = errors.New("no such object")
	ErrNotModified = errors.New("object has not changed")
	ErrConflict    = errors.New("object was changed by another writer")
)

// maxObjectBytes bounds what Get reads into memory: the catalogue of a Region is a tenth of it.
const maxObjectBytes = 32 << 20

// Bucket is an S3 bucket. It is safe for concurrent use.
type Bucket struct {
	cfg    aws.Config
	name   string
	now    func() time.Time
	signer *v4.Signer
	client aws.HTTPClient
}

// New returns the bucket called name, reached with cfg's region, credentials, endpoint and HTTP client. It dials nothing.
func New(cfg aws.Config, name string, now func() time.Time) *Bucket {
	client := cfg.HTTPClient
	if client == nil {
		client = http.DefaultClient
	}
	// S3 signs the path as it is sent; every other service signs it escaped once more.
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	return &Bucket{cfg: cfg, name: name, now: now, signer: signer, client: client}
}

// Get returns the object under key and its entity tag. With a non-empty etag the body is read only if it has changed since:
// otherwise the error is ErrNotModified. ErrNotFound: there is no such object.
func (b *Bucket) Get(ctx context.Context, key, etag string) ([]byte, string, error) {
	header := http.Header{}
	if etag != "" {
		header.Set("If-None-Match", etag)
	}
	body, answer, err := b.do(ctx, http.MethodGet, key, nil, header, nil)
	if err != nil {
		return nil, "", fmt.Errorf("read object %q: %w", key, err)
	}
	return body, answer.Get("ETag"), nil
}

// Put writes the object under key and returns its entity tag. With a non-empty etag it does so only while the object still has
// that tag, otherwise the error is ErrConflict.
func (b *Bucket) Put(ctx context.Context, key string, body []byte, etag string) (string, error) {
	header := http.Header{}
	if etag != "" {
		header.Set("If-Match", etag)
	}
	_, answer, err := b.do(ctx, http.MethodPut, key, nil, header, body)
	if err != nil {
		return "", fmt.Errorf("write object %q: %w", key, err)
	}
	return answer.Get("ETag"), nil
}

// Delete removes the object under key; an object that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if _, _, err := b.do(ctx, http.MethodDelete, key, nil, nil, nil); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete object %q: %w", key, err)
	}
	return nil
}

// List returns the keys that start with prefix, in S3's order.
func (b *Bucket) List(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	query := url.Values{"list-type": {"2"}, "prefix": {prefix}}
	for {
		body, _, err := b.do(ctx, http.MethodGet, "", query, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("list objects under %q: %w", prefix, err)
		}
		var page struct {
			Contents              []struct{ Key string }
			IsTruncated           bool
			NextContinuationToken string
		}
		if err := xml.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("list objects under %q: %w", prefix, err)
		}
		for _, one := range page.Contents {
			keys = append(keys, one.Key)
		}
		if !page.IsTruncated {
			return keys, nil
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}

func (b *Bucket) do(ctx context.Context, method, key string, query url.Values, header http.Header, body []byte) ([]byte, http.Header, error) {
	const tries = 3
	for try := 1; ; try++ {
		out, answer, err := b.once(ctx, method, key, query, header, body)
		var server serverError
		if err == nil || !errors.As(err, &server) || try == tries {
			return out, answer, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(time.Duration(try) * 50 * time.Millisecond):
		}
	}
}

func (b *Bucket) once(ctx context.Context, method, key string, query url.Values, header http.Header, body []byte) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.address(key, query), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, header)
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	creds, err := b.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("credentials: %w", err)
	}
	if err := b.signer.SignHTTP(ctx, creds, req, hash, "s3", b.cfg.Region, b.now()); err != nil {
		return nil, nil, fmt.Errorf("sign: %w", err)
	}
	res, err := b.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	out, err := io.ReadAll(io.LimitReader(res.Body, maxObjectBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if len(out) > maxObjectBytes {
		return nil, nil, fmt.Errorf("object is larger than %d MiB", maxObjectBytes>>20)
	}
	return out, res.Header, statusError(res.StatusCode, out)
}

// address uses the bucket's own host name on AWS and a path below the endpoint where one is set, as S3 asks for.
func (b *Bucket) address(key string, query url.Values) string {
	base := "https://" + b.name + ".s3." + b.cfg.Region + ".amazonaws.com"
	if b.cfg.BaseEndpoint != nil {
		base = strings.TrimSuffix(*b.cfg.BaseEndpoint, "/") + "/" + b.name
	}
	u := base + "/" + (&url.URL{Path: key}).EscapedPath()
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	return u
}

// serverError is an answer that is worth asking again for.
type serverError struct{ error }

func statusError(status int, body []byte) error {
	switch {
	case status < 300:
		return nil
	case status == http.StatusNotModified:
		return ErrNotModified
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusPreconditionFailed, status == http.StatusConflict:
		return ErrConflict
	}
	var answer struct{ Code, Message string }
	_ = xml.Unmarshal(body, &answer) // a proxy may answer in HTML: then the status alone has to tell
	err := fmt.Errorf("status %d %s: %s", status, answer.Code, answer.Message)
	if status >= 500 {
		return serverError{err}
	}
	return err
}
