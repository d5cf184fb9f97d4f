package aws

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"treadle/infra/local/aws/dynamodb"
	"treadle/infra/local/aws/eks"
	"treadle/infra/local/aws/events"
	"treadle/infra/local/aws/iam"
	"treadle/infra/local/aws/pricing"
	"treadle/infra/local/aws/rpc"
	"treadle/infra/local/aws/s3"
	"treadle/infra/local/aws/scheduler"
	"treadle/infra/local/aws/sqs"
	"treadle/infra/local/aws/ssm"
	"treadle/infra/local/aws/sts"
)

// Options say where the services stand and what they begin with.
type Options struct {
	Region     string             // us-east-1 when empty
	Account    string             // 123456789012 when empty
	Host       string             // host and port that the handler is served at; names queue URLs
	EC2        http.Handler       // may be nil
	Lambda     http.Handler       // Lambda's Invoke call; may be nil
	Prices     map[string]float64 // on-demand, USD per hour by instance type
	Parameters map[string]string  // SSM parameters, Amazon's own included
	Hooks      rpc.Hooks          // faults and call log of all services but EC2
	Functions  Deliverer          // what EventBridge and Scheduler deliver to when a target is a function; may be nil
}

// Deliverer hands a payload to the target with the ARN. The group is the message group of a FIFO queue, or empty.
type Deliverer interface {
	Deliver(ctx context.Context, arn string, payload []byte, group string) error
}

// Server is every service but EC2 and Lambda, and the handler of all. Safe for concurrent use.
type Server struct {
	DynamoDB  *dynamodb.Service
	EKS       *eks.Service
	Events    *events.Service
	IAM       *iam.Service
	Pricing   *pricing.Service
	S3        *s3.Service
	SQS       *sqs.Service
	SSM       *ssm.Service
	STS       *sts.Service
	Scheduler *scheduler.Service

	handler http.Handler
}

// New builds the services. The server must be closed.
func New(o Options) *Server {
	region, account := cmp.Or(o.Region, "us-east-1"), cmp.Or(o.Account, "123456789012")
	s := &Server{
		DynamoDB: dynamodb.New(region, account),
		EKS:      eks.New(eks.Options{Region: region, Account: account}),
		IAM:      iam.New(account),
		Pricing:  pricing.New(region, o.Prices),
		S3:       s3.New(region),
		SQS:      sqs.New(sqs.Options{Region: region, Account: account, URL: "http://" + o.Host}),
		SSM:      ssm.New(region, account),
		STS:      sts.New(region, o.Host),
	}
	targets := targetsByKind{"sqs": s.SQS, "lambda": o.Functions}
	s.Events = events.New(events.Options{Region: region, Account: account, Targets: targets})
	s.Scheduler = scheduler.New(scheduler.Options{Region: region, Account: account, Targets: targets})
	s.SSM.Seed(o.Parameters)
	services := map[string]http.Handler{
		"dynamodb":  s.DynamoDB.Handler(o.Hooks),
		"eks":       s.EKS.Handler(o.Hooks),
		"events":    s.Events.Handler(o.Hooks),
		"iam":       s.IAM.Handler(o.Hooks),
		"pricing":   s.Pricing.Handler(o.Hooks),
		"s3":        s.S3.Handler(o.Hooks),
		"scheduler": s.Scheduler.Handler(o.Hooks),
		"sqs":       s.SQS.Handler(o.Hooks),
		"ssm":       s.SSM.Handler(o.Hooks),
		"sts":       s.STS.Handler(o.Hooks),
	}
	for name, handler := range map[string]http.Handler{"ec2": o.EC2, "lambda": o.Lambda} {
		if handler != nil {
			services[name] = handler
		}
	}
	s.handler = Router(services)
	return s
}

// ServeHTTP serves all services.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close stops rules and schedules.
func (s *Server) Close() {
	s.Events.Close()
	s.Scheduler.Close()
}

// targetsByKind delivers by the service in a target's ARN.
type targetsByKind map[string]Deliverer

// Deliver implements Deliverer.
func (t targetsByKind) Deliver(ctx context.Context, arn string, payload []byte, group string) error {
	part := strings.SplitN(arn, ":", 4)
	if len(part) < 4 || t[part[2]] == nil {
		return fmt.Errorf("deliver to %s: no such kind of target", arn)
	}
	return t[part[2]].Deliver(ctx, arn, payload, group)
}
