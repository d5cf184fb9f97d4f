package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	tokenPrefix = "k8s-aws-v1." //nolint:gosec // the start of every token, no secret
	// tokenLife is how long a token is used. EKS accepts it for fifteen minutes from its signature.
	tokenLife = 9 * time.Minute
	// emptyHash is the SHA-256 of an empty body.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// NewEKSToken returns the source of tokens for an EKS cluster: a presigned GetCallerIdentity URL that names the cluster. It
// makes no call; the cluster's authenticator sends the request that was signed. An empty stsEndpoint means the region's own.
// Tokens are kept for up to nine minutes and never longer than the credentials that signed them. Safe for concurrent use.
func NewEKSToken(cluster, region string, creds aws.CredentialsProvider, now func() time.Time, stsEndpoint string) TokenSource {
	if stsEndpoint == "" {
		stsEndpoint = "https://sts." + region + ".amazonaws.com/"
	}
	var (
		mu    sync.Mutex
		token string
		until time.Time
	)
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		at := now()
		if token != "" && at.Before(until) {
			return token, nil
		}
		c, err := creds.Retrieve(ctx)
		if err != nil {
			return "", fmt.Errorf("retrieve credentials: %w", err)
		}
		signed, err := presign(ctx, c, cluster, region, stsEndpoint, at)
		if err != nil {
			return "", err
		}
		token, until = tokenPrefix+base64.RawURLEncoding.EncodeToString([]byte(signed)), at.Add(tokenLife)
		if c.CanExpire && c.Expires.Before(until) {
			until = c.Expires
		}
		return token, nil
	}
}

func presign(ctx context.Context, c aws.Credentials, cluster, region, endpoint string, at time.Time) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("parse STS endpoint: %w", err)
	}
	if u.Path == "" {
		u.Path = "/"
	}
	u.RawQuery = url.Values{
		"Action":        {"GetCallerIdentity"},
		"Version":       {"2011-06-15"},
		"X-Amz-Expires": {"60"},
	}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("parse STS endpoint: %w", err)
	}
	req.Header.Set("X-K8s-Aws-Id", cluster)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, c, req, emptyHash, "sts", region, at)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}
