package awstest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awspricing "github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws"
	"treadle/infra/local/aws/dynamodb"
	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/iam"
	"treadle/infra/local/aws/rpc"
	"treadle/shared/catalog"
	"treadle/shared/catalog/refresh"
	"treadle/shared/cluster"
	"treadle/shared/fleet"
	"treadle/shared/nodeclass"
	"treadle/shared/nodeclass/signed"
	"treadle/shared/plan"
)

// world is an emulated AWS and the adapters that reach it as a function does.
type world struct {
	ec2       *ec2.Service
	iam       *iam.Service
	client    *awsec2.Client
	prices    *awspricing.Client
	signed    *signed.Client
	resolver  *nodeclass.Resolver
	templates *nodeclass.Templates
	fleet     *fleet.Fleet
	facts     nodeclass.Facts
	cfg       sdk.Config
	dynamodb  *dynamodb.Service
}

func newWorld(t testing.TB, change ...func(*ec2.Config)) *world {
	t.Helper()
	w := &world{iam: iam.New("123456789012")}
	w.iam.AddRole("KarpenterNodeRole-demo", "", "")
	config := ec2.Config{Cluster: "demo", Seed: 1}
	for _, f := range change {
		f(&config)
	}
	w.ec2 = ec2.New(config)
	rest := aws.New(aws.Options{EC2: w.ec2, Prices: ec2.OnDemandPrices(), Parameters: w.ec2.SSMParameters()})
	w.dynamodb = rest.DynamoDB
	server := httptest.NewServer(aws.Router(map[string]http.Handler{
		"dynamodb": rest.DynamoDB.Handler(rpc.Hooks{}),
		"ec2":      w.ec2, "ssm": rest.SSM.Handler(rpc.Hooks{}), "pricing": rest.Pricing.Handler(rpc.Hooks{}), "iam": w.iam.Handler(rpc.Hooks{}),
	}))
	t.Cleanup(server.Close)
	w.cfg = sdk.Config{
		Region: "us-east-1", BaseEndpoint: sdk.String(server.URL),
		Credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{AccessKeyID: "AKIAPROVISION", SecretAccessKey: "secret"}, nil
		}),
	}
	w.client = awsec2.NewFromConfig(w.cfg, fleet.Retry)
	w.prices = awspricing.NewFromConfig(w.cfg)
	w.signed = signed.New(w.cfg, time.Now)
	w.resolver = nodeclass.NewResolver(w.client, w.signed, w.signed)
	w.templates = nodeclass.NewTemplates(w.client)
	w.fleet = fleet.New(w.client, "demo")
	w.facts = nodeclass.Facts{
		Cluster: "demo", Region: "us-east-1", KubernetesVersion: "1.37", Endpoint: "https://127.0.0.1:6443", CA: "Y2VydA==",
		ServiceCIDR: "10.100.0.0/16", DNSIP: "10.100.0.10", NowUnix: time.Now().Unix(),
	}
	return w
}

func (w *world) breaks(t testing.TB, rules ...fault.Rule) {
	t.Helper()
	_, err := w.ec2.Faults().Add(rules...)
	require.NoError(t, err)
}

// catalogue is what the function catalog would store.
func (w *world) catalogue(t testing.TB) catalog.Catalog {
	t.Helper()
	c, lost, err := refresh.New("us-east-1", w.client, w.prices).Refresh(t.Context(), catalog.Catalog{}, time.Now())
	require.NoError(t, err)
	require.NoError(t, lost)
	return c
}

// class is the quick-start class, resolved.
func (w *world) class(t testing.TB, change ...func(*cluster.NodeClassSpec)) cluster.NodeClass {
	t.Helper()
	discovery := []cluster.SelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "demo"}}}
	c := cluster.NodeClass{Name: "default", UID: "uid-1", Generation: 1, Spec: cluster.NodeClassSpec{
		SubnetSelectorTerms: discovery, SecurityGroupSelectorTerms: discovery,
		AMISelectorTerms: []cluster.SelectorTerm{{Alias: "al2023@latest"}}, InstanceProfile: "nodes",
	}}
	for _, f := range change {
		f(&c.Spec)
	}
	var err error
	c.Status, err = w.resolver.Resolve(t.Context(), c, w.facts)
	require.NoError(t, err)
	return c
}

// options are the available offerings of the named types under one capacity type.
func options(types []cluster.InstanceType, kind cluster.CapacityType, names ...string) []plan.Option {
	var out []plan.Option
	for _, name := range names {
		for _, it := range types {
			if it.Name != name {
				continue
			}
			for _, o := range it.Offerings {
				if o.Available && o.CapacityType == kind {
					out = append(out, plan.Option{
						InstanceType: name, Zone: o.Zone, CapacityType: kind, PriceMicroUSDPerHour: o.PriceMicroUSDPerHour, ReservationID: o.ReservationID,
					})
				}
			}
		}
	}
	return out
}

// order asks for count nodes of the named types.
func (w *world) order(class cluster.NodeClass, types []cluster.InstanceType, count int, kind cluster.CapacityType, names ...string) nodeclass.Order {
	return nodeclass.Order{
		Facts: w.facts, Class: class, Pool: cluster.NodePool{Name: "web"}, Count: count, Types: types,
		Claim:     plan.Claim{NodePool: "web", Requests: cluster.Resources{Pods: 5}, Options: options(types, kind, names...)},
		Addresses: nodeclass.NewAddresses(class.Status.Subnets),
	}
}

// request is the launch of what was prepared.
func request(o nodeclass.Order, p nodeclass.Prepared, token string) plan.Request {
	return plan.Request{
		Token: token, Count: p.Count, Tags: fleet.Tags(o.Facts.Cluster, o.Pool.Name, o.Class), Context: o.Class.Spec.Context,
		Launch: plan.Launch{Group: "g1", CapacityType: o.Claim.Options[0].CapacityType, Configs: p.Configs},
	}
}
