package kube

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
)

func TestEKSToken_IsAPresignedURLThatNamesTheCluster(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := 0
	expires := now.Add(time.Hour)
	creds := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		asked++
		return aws.Credentials{AccessKeyID: "AKIDPROVISION", SecretAccessKey: "s", SessionToken: "t", CanExpire: true, Expires: expires}, nil
	})
	source := NewEKSToken("demo", "us-east-1", creds, func() time.Time { return now }, "")
	token, err := source(t.Context())
	require.NoError(t, err)
	encoded, ok := strings.CutPrefix(token, "k8s-aws-v1.")
	require.True(t, ok)
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	require.NoError(t, err)
	u, err := url.Parse(string(raw))
	require.NoError(t, err)
	require.Equal(t, "https", u.Scheme)
	require.Equal(t, "sts.us-east-1.amazonaws.com", u.Host)
	q := u.Query()
	require.Equal(t, "GetCallerIdentity", q.Get("Action"))
	require.Equal(t, "60", q.Get("X-Amz-Expires"))
	require.Equal(t, "host;x-k8s-aws-id", q.Get("X-Amz-SignedHeaders"))
	require.Equal(t, "20260102T030405Z", q.Get("X-Amz-Date"))
	require.Equal(t, "AKIDPROVISION/20260102/us-east-1/sts/aws4_request", q.Get("X-Amz-Credential"))
	require.Equal(t, "t", q.Get("X-Amz-Security-Token"))

	other, err := NewEKSToken("other", "us-east-1", creds, func() time.Time { return now }, "")(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, token, other, "the name of the cluster is signed")

	asked = 0
	now = now.Add(8 * time.Minute)
	again, err := source(t.Context())
	require.NoError(t, err)
	require.Equal(t, token, again)
	require.Zero(t, asked)
	now = now.Add(2 * time.Minute)
	again, err = source(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, token, again)

	expires = now.Add(10 * time.Minute)
	now = now.Add(10 * time.Minute)
	_, err = source(t.Context())
	require.NoError(t, err)
	asked = 0
	now = now.Add(time.Second)
	_, err = source(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, asked, "a token is not used longer than the credentials that signed it")
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Cluster: "demo", Endpoint: "http://x", CA: []byte("x")})
	require.ErrorContains(t, err, `cluster demo: endpoint "http://x" is no https URL`)
	_, err = New(Config{Cluster: "demo", Endpoint: "https://x", CA: []byte("x")})
	require.ErrorContains(t, err, "CA holds no PEM certificate")
}
