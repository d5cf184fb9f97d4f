// Command install is the Lambda function that puts Treadle into a cluster (CustomResourceDefinitions, rights, webhook) and takes it
// out again.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"treadle/shared/boot"
	"treadle/shared/kube"
	"treadle/shared/store"
)

type config struct {
	Bucket string `env:"BUCKET"`
	// TaskRoot is where Lambda unpacks the function; the definitions lie in its folder crds.
	TaskRoot string `env:"LAMBDA_TASK_ROOT" default:"."`
}

func main() { boot.Start(build) }

func build() (func(context.Context, json.RawMessage) (any, error), error) {
	var cfg config
	if err := boot.Load(&cfg); err != nil {
		return nil, err
	}
	account := boot.AWS()
	h := &Handler{
		EKS:      described{eks.NewFromConfig(account)},
		Registry: store.New(account, cfg.Bucket, time.Now),
		CRDs:     os.DirFS(filepath.Join(cfg.TaskRoot, "crds")),
		Log:      boot.Logger("install"),
		Connect: func(c store.Cluster) (API, error) {
			return kube.New(kube.Config{
				Cluster: c.Name, Endpoint: c.Endpoint, CA: []byte(c.CA), UserAgent: "treadle-install",
				Token: kube.NewEKSToken(c.Name, account.Region, account.Credentials, time.Now, ""),
			})
		},
	}
	r := &resource{Handler: h, Respond: cfn.LambdaWrap, Sleep: boot.Sleep}
	return r.handle, nil
}

// described reads clusters from EKS.
type described struct{ api *eks.Client }

func (d described) Describe(ctx context.Context, name string) (store.Cluster, error) {
	out, err := d.api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(name)})
	if _, gone := errors.AsType[*types.ResourceNotFoundException](err); gone {
		err = fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	if err != nil {
		return store.Cluster{}, err
	}
	c := store.Cluster{Name: name, Endpoint: aws.ToString(out.Cluster.Endpoint), Version: aws.ToString(out.Cluster.Version)}
	if out.Cluster.CertificateAuthority != nil {
		ca, err := base64.StdEncoding.DecodeString(aws.ToString(out.Cluster.CertificateAuthority.Data))
		if err != nil {
			return store.Cluster{}, fmt.Errorf("certificate authority: %w", err)
		}
		c.CA = string(ca)
	}
	if network := out.Cluster.KubernetesNetworkConfig; network != nil {
		c.ServiceCIDR = aws.ToString(network.ServiceIpv4Cidr)
		if v6 := aws.ToString(network.ServiceIpv6Cidr); v6 != "" {
			c.ServiceCIDR = v6
		}
	}
	return c, nil
}
