package boot

import (
	"context"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// AWS returns the configuration for AWS clients: region, credentials and, where AWS_ENDPOINT_URL is set, the endpoint from the
// environment that Lambda gives to a function. Clients made from it try a call three times within seconds; throttles are
// left to the callers, who know whether a call is worth repeating.
func AWS() aws.Config {
	cfg := aws.Config{
		Region: os.Getenv("AWS_REGION"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{
				AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
				SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
				Source:          "environment",
			}, nil
		}),
		HTTPClient: awshttp.NewBuildableClient().WithTimeout(20 * time.Second),
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts = 3
				o.MaxBackoff = 2 * time.Second
			})
		},
	}
	if url := os.Getenv("AWS_ENDPOINT_URL"); url != "" {
		cfg.BaseEndpoint = aws.String(url)
	}
	return cfg
}
