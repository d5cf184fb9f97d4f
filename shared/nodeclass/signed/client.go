package signed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"treadle/shared/nodeclass"
)

const (
	attempts   = 3
	firstPause = 100 * time.Millisecond
	maxAnswer  = 1 << 20
)

// Client calls SSM and IAM. It is safe for concurrent use.
type Client struct {
	cfg    aws.Config
	signer *v4.Signer
	now    func() time.Time
}

// New returns a Client that uses the region, credentials, HTTP client and, where one is set, the endpoint of cfg. now is the
// time that requests are signed with.
func New(cfg aws.Config, now func() time.Time) *Client {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = http.DefaultClient
	}
	return &Client{cfg: cfg, signer: v4.NewSigner(), now: now}
}

// call is one request, before it is signed.
type call struct {
	service string // as it is signed for
	region  string // as it is signed for
	url     string
	headers map[string]string
	body    string
	failure func(http.Header, []byte) (code, message string) // reads the answer to a call that failed
}

// do sends c, again after trouble of the network or of AWS, and returns the body of the answer. An error of the service is
// classified as nodeclass.Classify does.
func (c *Client) do(ctx context.Context, one call) ([]byte, error) {
	pause := firstPause
	for try := 1; ; try++ {
		body, again, err := c.once(ctx, one)
		if err == nil || !again || try == attempts {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// once sends c once. again says that the failure is one that may pass.
func (c *Client) once(ctx context.Context, one call) (body []byte, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, one.url, strings.NewReader(one.body))
	if err != nil {
		return nil, false, err
	}
	for name, value := range one.headers {
		req.Header.Set(name, value)
	}
	credentials, err := c.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("get credentials: %w", err)
	}
	sum := sha256.Sum256([]byte(one.body))
	if err := c.signer.SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), one.service, one.region, c.now()); err != nil {
		return nil, false, fmt.Errorf("sign call of %s: %w", one.service, err)
	}
	resp, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return nil, true, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, true, err
	}
	if resp.StatusCode == http.StatusOK {
		return body, false, nil
	}
	code, message := one.failure(resp.Header, bytes.TrimSpace(body))
	if code == "" {
		code = "HTTP" + fmt.Sprint(resp.StatusCode)
	}
	err = nodeclass.Classify(&smithy.GenericAPIError{Code: code, Message: message})
	return nil, resp.StatusCode >= http.StatusInternalServerError && !errors.Is(err, nodeclass.ErrThrottled), err
}

// endpoint returns the URL of a service: that of the configuration, or else host.
func (c *Client) endpoint(host string) string {
	if c.cfg.BaseEndpoint != nil {
		return strings.TrimSuffix(*c.cfg.BaseEndpoint, "/") + "/"
	}
	return "https://" + host + "/"
}

// suffix returns the domain that the partition of a region has.
func suffix(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "amazonaws.com.cn"
	case strings.HasPrefix(region, "us-iso-"):
		return "c2s.ic.gov"
	case strings.HasPrefix(region, "us-isob-"):
		return "sc2s.sgov.gov"
	default:
		return "amazonaws.com"
	}
}
