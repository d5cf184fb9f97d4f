package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/infra/local/stack"
	"treadle/shared/store"
)

const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7d2c9a4e-0f0b-4c53-9a44-5b1b0ab6a2f1",` +
	`"operation":"CREATE","resource":{"group":"events.k8s.io","version":"v1","resource":"events"},"dryRun":false}}`

// webhookURL returns the address that the API server calls: the Function URL, the cluster and its token.
func (s *scene) webhookURL(t testing.TB) string {
	t.Helper()
	hooks, err := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "treadle", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, hooks.Webhooks[0].ClientConfig.URL)
	return *hooks.Webhooks[0].ClientConfig.URL
}

func TestWebhookRefuses(t *testing.T) {
	s := turn(t)
	genuine := s.webhookURL(t)
	base, token := filepath.Split(genuine)
	root := strings.TrimSuffix(base, "demo/")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(s.Lambda.CA()))
	client := &http.Client{Timeout: soon, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}

	const foreign = "a-token-that-only-the-other-cluster-has"
	configured := store.New(sdkaws.Config{
		Region: "us-east-1", BaseEndpoint: sdkaws.String(s.URL),
		Credentials: sdkaws.CredentialsProviderFunc(func(context.Context) (sdkaws.Credentials, error) {
			return sdkaws.Credentials{AccessKeyID: stack.AdminKey, SecretAccessKey: "local"}, nil
		}),
	}, "treadle-123456789012-us-east-1", time.Now)
	other, err := configured.Cluster(t.Context(), "demo")
	require.NoError(t, err)
	other.Name, other.WebhookTokenSHA256 = "other", []string{store.HashToken(foreign)}
	require.NoError(t, configured.PutCluster(t.Context(), other))
	t.Cleanup(func() { require.NoError(t, configured.DeleteCluster(context.WithoutCancel(t.Context()), "other")) })

	for name, tt := range map[string]struct {
		method, url, body string
		status            int
		// unseen: Lambda itself refuses the request, so the function has no line to write.
		unseen bool
	}{
		"a wrong token":                      {"POST", base + strings.Repeat("0", len(token)), review, http.StatusForbidden, false},
		"a token that is cut short":          {"POST", genuine[:len(genuine)-1], review, http.StatusForbidden, false},
		"no token":                           {"POST", root + "demo", review, http.StatusNotFound, false},
		"an empty token":                     {"POST", base, review, http.StatusNotFound, false},
		"no path":                            {"POST", root, review, http.StatusNotFound, false},
		"more path than there is":            {"POST", genuine + "/more", review, http.StatusNotFound, false},
		"another cluster's token":            {"POST", base + foreign, review, http.StatusForbidden, false},
		"our token for another cluster":      {"POST", root + "other/" + token, review, http.StatusForbidden, false},
		"a cluster that is not configured":   {"POST", root + "nobody/" + token, review, http.StatusForbidden, false},
		"GET":                                {"GET", genuine, "", http.StatusMethodNotAllowed, false},
		"PUT":                                {"PUT", genuine, review, http.StatusMethodNotAllowed, false},
		"a body that is no JSON":             {"POST", genuine, "hello", http.StatusBadRequest, false},
		"no body":                            {"POST", genuine, "", http.StatusBadRequest, false},
		"JSON that is no AdmissionReview":    {"POST", genuine, `{"kind":"Pod","apiVersion":"v1"}`, http.StatusBadRequest, false},
		"an AdmissionReview without request": {"POST", genuine, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest, false},
		"a body of 2 MB":                     {"POST", genuine, strings.Repeat("x", 2<<20), http.StatusRequestEntityTooLarge, false},
		"a body of 10 MB":                    {"POST", genuine, strings.Repeat("x", 10<<20), http.StatusRequestEntityTooLarge, true},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, sent := s.warnings(t), s.sentByWake()
			request, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, strings.NewReader(tt.body))
			require.NoError(t, err)
			request.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(request)
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, answer.Body)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, tt.status, answer.StatusCode)
			want := warnings + 1
			if tt.unseen {
				want = warnings
			}
			s.eventually(t, soon, "one warning is written", func() error {
				if got := s.warnings(t); got != want {
					return fmt.Errorf("%d warnings, want %d", got-warnings, want-warnings)
				}
				return nil
			})
			require.Equal(t, sent, s.sentByWake(), "nothing is enqueued")
		})
	}

	t.Run("the genuine call wakes once", func(t *testing.T) {
		sent := s.sentByWake()
		answer, err := client.Post(genuine, "application/json", strings.NewReader(review))
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Contains(t, string(body), `"allowed":true`)
		require.Equal(t, sent+1, s.sentByWake())
	})
	for _, file := range s.logFiles(t) {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		require.False(t, bytes.Contains(body, []byte(token)), "the token is in %s", filepath.Base(file))
		require.False(t, bytes.Contains(body, []byte(foreign)), "the other token is in %s", filepath.Base(file))
	}
}

// warnings counts the lines about refused requests.
func (s *scene) warnings(t testing.TB) int { return s.count(t, "wake", "request refused") }

// sentByWake counts the messages that wake has sent, whatever has become of them.
func (s *scene) sentByWake() int {
	n := 0
	for _, c := range s.Calls.Calls() {
		if c.Service == "sqs" && c.Action == "SendMessage" && c.AccessKeyID == "ASIAWAKE" {
			n++
		}
	}
	return n
}

func (s *scene) logFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "functions", "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}
