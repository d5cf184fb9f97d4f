package schedule

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"treadle/shared/plan"
)

const (
	// attempts is how often a call is made that the network or the service fails. Each call may be repeated: names make it so.
	attempts  = 3
	maxAnswer = 1 << 20
)

// do makes a call and returns the body of its answer.
func (s *Scheduler) do(ctx context.Context, method, path string, query url.Values, body []byte) (answer []byte, err error) {
	for range attempts {
		var again bool
		if answer, again, err = s.once(ctx, method, path, query, body); !again || ctx.Err() != nil {
			break
		}
	}
	return answer, err
}

// once makes a call once. again says that its failure may pass at once.
func (s *Scheduler) once(ctx context.Context, method, path string, query url.Values, body []byte) (answer []byte, again bool, err error) {
	base := "https://scheduler." + s.cfg.Region + "." + domain(s.cfg.Region)
	if s.cfg.BaseEndpoint != nil {
		base = strings.TrimSuffix(*s.cfg.BaseEndpoint, "/")
	}
	target := base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	credentials, err := s.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("get credentials: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := s.signer.SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "scheduler", s.cfg.Region, s.now()); err != nil {
		return nil, false, fmt.Errorf("sign: %w", err)
	}
	res, err := s.cfg.HTTPClient.Do(req)
	if err != nil {
		return nil, true, fmt.Errorf("%w: %w", plan.ErrUnavailable, err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, true, fmt.Errorf("%w: %w", plan.ErrUnavailable, err)
	}
	if res.StatusCode/100 == 2 {
		return answer, false, nil
	}
	return nil, res.StatusCode >= http.StatusInternalServerError, failure(res, answer)
}

// failure puts the answer to a call that failed into the words that callers match.
func failure(res *http.Response, body []byte) error {
	code, _, _ := strings.Cut(res.Header.Get("X-Amzn-Errortype"), ":")
	var said struct{ Message string } // JSON matches the service's lower-case form as well
	_ = json.Unmarshal(body, &said)   // a body that is none leaves the code
	return fmt.Errorf("%w: %s", kind(res.StatusCode), strings.TrimSuffix(code+": "+said.Message, ": "))
}

func kind(status int) error {
	switch status {
	case http.StatusConflict:
		return plan.ErrExists
	case http.StatusNotFound:
		return plan.ErrNotFound
	case http.StatusForbidden:
		return plan.ErrDenied
	case http.StatusPaymentRequired: // the service's word for its quota
		return plan.ErrQuota
	case http.StatusTooManyRequests:
		return plan.ErrThrottled
	}
	if status >= http.StatusInternalServerError {
		return plan.ErrUnavailable
	}
	return plan.ErrInvalid
}

// domain is that of a region's partition.
func domain(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}
