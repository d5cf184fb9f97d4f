package aws_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws"
)

// TestSnapshots_OfTheSDKAreUnderstood sends every request that the SDK's modules ship as a sample, each with all members
// set, to the services. What is served must know all members; it may refuse their values.
func TestSnapshots_OfTheSDKAreUnderstood(t *testing.T) {
	t.Parallel()
	// The number of operations served; a module without samples (Scheduler, S3) is not here.
	for service, served := range map[string]int{
		"dynamodb": 13, "eks": 9, "eventbridge": 11, "iam": 10, "pricing": 1, "sqs": 14, "ssm": 5, "sts": 1,
	} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			w := serve(t, aws.Options{})
			out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/service/"+service).Output()
			require.NoError(t, err)
			files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "request_snapshot", "*.request.snap"))
			require.NoError(t, err)
			known := 0
			for _, file := range files {
				sample, err := os.ReadFile(file)
				require.NoError(t, err)
				rec := httptest.NewRecorder()
				w.ServeHTTP(rec, request(t, string(sample), service))
				body := rec.Body.String()
				if strings.Contains(body, "UnknownOperationException") || strings.Contains(body, "InvalidAction") {
					continue
				}
				known++
				require.NotContains(t, body, "SerializationException", filepath.Base(file))
				require.NotContains(t, body, "MissingAuthenticationToken", filepath.Base(file))
			}
			require.Equal(t, served, known)
		})
	}
}

// request reads a sample: a request line, its headers between empty lines, and the body.
func request(t *testing.T, sample, service string) *http.Request {
	t.Helper()
	line, rest, _ := strings.Cut(sample, "\n")
	head, body, _ := strings.Cut(strings.TrimPrefix(rest, "\n"), "\n\n")
	method, target, ok := strings.Cut(line, " ")
	require.True(t, ok)
	r := httptest.NewRequestWithContext(t.Context(), method, target, io.NopCloser(strings.NewReader(body)))
	for header := range strings.SplitSeq(head, "\n") {
		if name, value, ok := strings.Cut(header, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+keyID+"/20260101/us-east-1/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	return r
}
