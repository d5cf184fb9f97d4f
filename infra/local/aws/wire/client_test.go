package wire_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"
)

func sometime(n int) time.Time { return time.Date(2026, 9, 14, 10, 21, n%60, 0, time.UTC) }

// answering is a client whose every call gets one answer.
func answering(response *http.Response) *sdk.Client {
	return sdk.New(sdk.Options{
		Region: "us-east-1", Retryer: aws.NopRetryer{}, HTTPClient: fixed{response},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
		}),
		// The inputs are empty: only the answers are looked at.
		APIOptions: []func(*middleware.Stack) error{func(s *middleware.Stack) error {
			_, _ = s.Initialize.Remove("OperationInputValidation") // some operations have none
			return nil
		}},
	})
}

type fixed struct{ response *http.Response }

func (f fixed) Do(*http.Request) (*http.Response, error) { return f.response, nil }

// exchange calls operation on a client that gets body, and returns what the SDK made of it.
func exchange(t *testing.T, operation string, body []byte) any {
	t.Helper()
	client := answering(&http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/xml"}}, Body: io.NopCloser(bytes.NewReader(body)),
	})
	results := reflect.ValueOf(client).MethodByName(operation).Call([]reflect.Value{
		reflect.ValueOf(t.Context()), reflect.ValueOf(input(t, operation)),
	})
	err, _ := results[1].Interface().(error)
	require.NoError(t, err)
	return results[0].Interface()
}

// exchangeError calls an operation on a client that gets a recorded answer and returns its error.
func exchangeError(t *testing.T, w *httptest.ResponseRecorder) error {
	t.Helper()
	_, err := answering(w.Result()).DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{})
	return err
}

func withoutMetadata(out any) any {
	reflect.ValueOf(out).Elem().FieldByName("ResultMetadata").SetZero()
	return out
}
