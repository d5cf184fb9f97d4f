package stack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	sdkdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	sdkeks "github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	sdkiam "github.com/aws/aws-sdk-go-v2/service/iam"
	sdks3 "github.com/aws/aws-sdk-go-v2/service/s3"
	sdksqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"treadle/infra/deployment"
	"treadle/infra/local/aws"
	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/eks"
	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/pki"
	"treadle/infra/local/aws/rpc"
	"treadle/infra/local/aws/sts"
	"treadle/infra/local/kubelet"
	"treadle/infra/local/kubernetes"
	"treadle/infra/local/lambda"
)

const (
	region  = "us-east-1"
	account = "123456789012"
	bucket  = "treadle-" + account + "-" + region
	table   = "treadle"
	version = "1.37"
	// AdminKey is the access key of whoever sits at the machine: for the AWS CLI.
	AdminKey = "AKIALOCALADMIN"
)

// Options say what a stack is like. The zero value of each delay means none.
type Options struct {
	// Build is the folder of the functions: Build/NAME/bootstrap.
	Build string
	// Dir holds logs and data; a temporary folder, removed by Stop, when empty.
	Dir     string
	Cluster string // its name; demo when empty

	PendingFor    time.Duration // from launch to running
	ShutdownFor   time.Duration // from shutting-down to terminated
	BootDelay     time.Duration // from running to the node's registration
	ReadyDelay    time.Duration // from registration to Ready
	DeviceDelay   time.Duration // from Ready to the devices of a node
	PodStartDelay time.Duration
	SweepEvery    time.Duration // below a minute: that often; else, and when zero, each minute

	// Timeouts replaces the time limits of deployment.Functions, by name. A message of theirs is then invisible a second longer than that, so
	// that a crash holds a cluster up for seconds.
	Timeouts map[string]time.Duration

	// SchedulerQPS is how many requests a second kube-scheduler may make; upstream's default when zero.
	SchedulerQPS float32
	// Throttle holds callers of EC2 to its token buckets: 5 calls at once, 2 a second, for the calls that change something.
	Throttle bool
	// Bare leaves the stack without Treadle: no function is deployed into it.
	Bare bool

	AWSPort, KubernetesPort int // free ones when zero

	Progress io.Writer // a line for each step; nil: nobody is told
	Output   io.Writer // every line that a function writes; may be nil
	Log      *slog.Logger
}

// Stack is a running local stack.
type Stack struct {
	Name       string
	AWS        *aws.Server
	EC2        *ec2.Service
	Kubernetes *kubernetes.Cluster
	Lambda     *lambda.Service
	Kubelets   *kubelet.Fleet
	// Faults makes services other than EC2 fail; EC2 has its own, Calls records the calls of all but EC2.
	Faults *rpc.Faults
	Calls  *rpc.CallLog

	// URL is the endpoint of every AWS service.
	URL string
	Dir string

	options   Options
	authority *pki.Authority
	mappings  []*lambda.Mapping
	cleanup   []func(context.Context) error
	waiting   sync.WaitGroup
	cancel    context.CancelFunc
}

// Start starts a stack and installs Treadle into its cluster. ctx bounds the start only; Stop ends the stack.
func Start(ctx context.Context, o Options) (_ *Stack, err error) {
	o.Cluster = cmp.Or(o.Cluster, "demo")
	o.SweepEvery = cmp.Or(o.SweepEvery, time.Minute)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Stack{Name: o.Cluster, Dir: o.Dir, options: o, Faults: &rpc.Faults{}, Calls: &rpc.CallLog{}}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	defer func() {
		if err != nil {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			err = errors.Join(err, s.Stop(stop))
		}
	}()
	steps := []func(context.Context, context.Context) error{s.folder, s.startAWS, s.startKubernetes, s.startKubelets}
	if !o.Bare {
		steps = append(steps, s.deploy, s.Install)
	}
	for _, step := range steps {
		if err := step(ctx, running); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Stop ends everything, the functions first.
func (s *Stack) Stop(ctx context.Context) error {
	var errs []error
	s.cancel()
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, s.cleanup[i](ctx))
	}
	s.cleanup = nil
	s.waiting.Wait()
	return errors.Join(errs...)
}

func (s *Stack) say(format string, args ...any) {
	fmt.Fprintf(s.options.Progress, format+"\n", args...)
}

func (s *Stack) folder(context.Context, context.Context) error {
	if s.Dir != "" {
		return os.MkdirAll(s.Dir, 0o755)
	}
	dir, err := os.MkdirTemp("", "treadle-stack-")
	if err != nil {
		return err
	}
	s.Dir = dir
	s.cleanup = append(s.cleanup, func(context.Context) error { return os.RemoveAll(dir) })
	return nil
}

// startAWS serves the emulated services at one port.
func (s *Stack) startAWS(_, _ context.Context) error {
	authority, err := pki.New()
	if err != nil {
		return err
	}
	s.authority = authority
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.options.AWSPort))
	if err != nil {
		return fmt.Errorf("listen for AWS: %w", err)
	}
	s.URL = "http://" + listener.Addr().String()
	s.EC2 = ec2.New(ec2.Config{
		Account: account, Cluster: s.Name, Seed: 1, PendingFor: s.options.PendingFor, ShutdownFor: s.options.ShutdownFor,
		ProfileExists: s.profileExists,
		ImagesRolled:  func(parameters map[string]string) { s.AWS.SSM.Seed(parameters) },
	})
	if s.options.Throttle {
		if err := s.throttle(); err != nil {
			return err
		}
	}
	s.AWS = aws.New(aws.Options{
		Region: region, Account: account, Host: listener.Addr().String(), EC2: s.EC2,
		Prices: ec2.OnDemandPrices(), Parameters: s.EC2.SSMParameters(), Hooks: rpc.Hooks{Fault: s.Faults, Log: s.Calls},
		Functions: deployed{s}, Lambda: http.HandlerFunc(deployed{s}.ServeHTTP),
	})
	s.AWS.IAM.AddRole("KarpenterNodeRole-"+s.Name, "/", "")
	s.cleanup = append(s.cleanup, func(context.Context) error { s.AWS.Close(); return nil })
	s.AWS.STS.Register(sts.Identity{AccessKeyID: AdminKey, Secret: "local", RoleARN: role("admin")})
	mux := http.NewServeMux()
	control := fault.Handler(s.EC2.Faults(), s.EC2.Calls(), s.EC2)
	mux.Handle("/_fault/", http.StripPrefix("/_fault", control))
	mux.Handle("/", s.AWS)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.waiting.Go(func() { _ = server.Serve(listener) })
	s.cleanup = append(s.cleanup, func(context.Context) error { return server.Close() })
	s.say("AWS emulator at %s", s.URL)
	return nil
}

// deployed delivers events to the functions of a stack, which are deployed after the services that send them.
type deployed struct{ s *Stack }

func (d deployed) Deliver(ctx context.Context, arn string, payload []byte, group string) error {
	if d.s.Lambda == nil {
		return lambda.ErrNotFound
	}
	return d.s.Lambda.Deliver(ctx, arn, payload, group)
}

// ServeHTTP serves Lambda's own API, so that the AWS CLI can invoke functions.
func (d deployed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.s.Lambda == nil {
		http.Error(w, "no function is deployed yet", http.StatusServiceUnavailable)
		return
	}
	d.s.Lambda.Handler().ServeHTTP(w, r)
}

func (s *Stack) profileExists(name string) bool {
	_, err := s.AWS.IAM.GetInstanceProfile(context.Background(), &sdkiam.GetInstanceProfileInput{InstanceProfileName: &name})
	return err == nil
}

// throttle gives the calls that change something EC2's usual bucket.
func (s *Stack) throttle() error {
	_, err := s.EC2.Faults().Add(fault.Rule{ID: "throttle", Kind: "throttle", Burst: 5, PerSecond: 2})
	return err
}

// startKubernetes starts the control plane, with the emulated IAM as its judge of tokens.
func (s *Stack) startKubernetes(ctx, _ context.Context) error {
	url, err := s.serveTLS(s.AWS.EKS.Authenticator(s.Name, s.AWS.STS))
	if err != nil {
		return fmt.Errorf("listen for token reviews: %w", err)
	}
	s.Kubernetes, err = kubernetes.Start(ctx, kubernetes.Options{
		Dir: filepath.Join(s.Dir, "kubernetes"), Port: s.options.KubernetesPort, Progress: s.options.Progress,
		TokenWebhookURL: url, TokenWebhookCA: s.authority.PEM(), SchedulerQPS: s.options.SchedulerQPS,
	})
	if err != nil {
		return err
	}
	s.cleanup = append(s.cleanup, s.Kubernetes.Stop)
	s.AWS.EKS.AddCluster(eks.Cluster{
		Name: s.Name, Endpoint: s.Kubernetes.Endpoint(), CA: s.Kubernetes.CA(), Version: version, ServiceCIDR: "10.100.0.0/16",
	})
	return s.grantPolicies(ctx)
}

// grantPolicies stands in for EKS's own authorizer, which gives those who hold one of its access policies their rights.
func (s *Stack) grantPolicies(ctx context.Context) error {
	_, err := s.Apply(ctx, []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "eks:access-policy:AmazonEKSClusterAdminPolicy"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
  - {kind: Group, apiGroup: rbac.authorization.k8s.io, name: "eks:access-policy:AmazonEKSClusterAdminPolicy"}
`))
	return err
}

// serveTLS serves a handler on a free port with a certificate of the stack's authority and returns its URL.
func (s *Stack) serveTLS(h http.Handler) (string, error) {
	certificate, err := s.authority.Server("127.0.0.1")
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, TLSConfig: tlsConfig(certificate), ReadHeaderTimeout: 10 * time.Second}
	s.waiting.Go(func() { _ = server.ServeTLS(listener, "", "") })
	s.cleanup = append(s.cleanup, func(context.Context) error { return server.Close() })
	return "https://" + listener.Addr().String() + "/", nil
}

// deploy makes queues, bucket, roles and functions, as infra does in an account.
func (s *Stack) deploy(ctx, running context.Context) error {
	var err error
	s.Lambda, err = lambda.New(lambda.Options{
		Region: region, Account: account, LogDir: filepath.Join(s.Dir, "functions"), Output: s.options.Output,
		Authority: s.authority, Freeze: true, Log: s.options.Log,
	})
	if err != nil {
		return err
	}
	s.cleanup = append(s.cleanup, func(context.Context) error { s.Lambda.Stop(); return nil })
	if _, err := s.AWS.S3.CreateBucket(ctx, &sdks3.CreateBucketInput{Bucket: sdkaws.String(bucket)}); err != nil {
		return err
	}
	quarantine, err := s.AWS.SQS.CreateQueue(ctx, &sdksqs.CreateQueueInput{QueueName: sdkaws.String("treadle-quarantine")})
	if err != nil {
		return err
	}
	if err := s.table(ctx); err != nil {
		return err
	}
	env := map[string]string{
		"BUCKET": bucket, "TABLE": table, "QUARANTINE_QUEUE_URL": *quarantine.QueueUrl,
		"NODE_REPAIR": "true", "CAPACITY_BUFFER": "true", "NODE_OVERLAY": "true", // what Karpenter keeps behind a gate is on here
	}
	all := s.functions()
	for _, f := range all {
		if f.Queue == "" {
			continue
		}
		url, err := s.fifo(ctx, f)
		if err != nil {
			return err
		}
		env[strings.ToUpper(f.Queue)+"_QUEUE_URL"] = url
	}
	if err := s.expiries(ctx, env); err != nil {
		return fmt.Errorf("make schedules of deployment.Function expiry: %w", err)
	}
	for _, f := range all {
		if err := s.create(ctx, f, env); err != nil {
			return fmt.Errorf("deploy function %s: %w", f.Name, err)
		}
	}
	if err := s.interruptions(ctx); err != nil {
		return fmt.Errorf("deploy function interruption: %w", err)
	}
	return s.schedule(ctx, running)
}

// table makes the table in which clusters share what they know of EC2.
func (s *Stack) table(ctx context.Context) error {
	_, err := s.AWS.DynamoDB.CreateTable(ctx, &sdkdynamodb.CreateTableInput{
		TableName:   sdkaws.String(table),
		BillingMode: dynamodbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamodbtypes.AttributeDefinition{
			{AttributeName: sdkaws.String("scope"), AttributeType: dynamodbtypes.ScalarAttributeTypeS},
			{AttributeName: sdkaws.String("id"), AttributeType: dynamodbtypes.ScalarAttributeTypeS},
		},
		KeySchema: []dynamodbtypes.KeySchemaElement{
			{AttributeName: sdkaws.String("scope"), KeyType: dynamodbtypes.KeyTypeHash},
			{AttributeName: sdkaws.String("id"), KeyType: dynamodbtypes.KeyTypeRange},
		},
	})
	if err != nil {
		return err
	}
	_, err = s.AWS.DynamoDB.UpdateTimeToLive(ctx, &sdkdynamodb.UpdateTimeToLiveInput{
		TableName:               sdkaws.String(table),
		TimeToLiveSpecification: &dynamodbtypes.TimeToLiveSpecification{AttributeName: sdkaws.String("forget_at"), Enabled: sdkaws.Bool(true)},
	})
	return err
}

// fifo makes the queue of a function, with its dead-letter queue. The visibility is a little over the function's time, so that a
// crash locks a cluster no longer than that.
func (s *Stack) fifo(ctx context.Context, f deployment.Function) (url string, err error) {
	name := "treadle-" + f.Queue
	dead, err := s.AWS.SQS.CreateQueue(ctx, &sdksqs.CreateQueueInput{
		QueueName: sdkaws.String(name + "-dlq.fifo"), Attributes: map[string]string{"FifoQueue": "true"},
	})
	if err != nil {
		return "", err
	}
	attributes, err := s.AWS.SQS.GetQueueAttributes(ctx, &sdksqs.GetQueueAttributesInput{QueueUrl: dead.QueueUrl, AttributeNames: []sqsAttribute{"QueueArn"}})
	if err != nil {
		return "", err
	}
	redrive, err := json.Marshal(map[string]any{"deadLetterTargetArn": attributes.Attributes["QueueArn"], "maxReceiveCount": 10})
	if err != nil {
		return "", err
	}
	out, err := s.AWS.SQS.CreateQueue(ctx, &sdksqs.CreateQueueInput{
		QueueName: sdkaws.String(name + ".fifo"),
		Attributes: map[string]string{
			"FifoQueue": "true", "DelaySeconds": "1", "RedrivePolicy": string(redrive),
			"VisibilityTimeout": fmt.Sprint(int((f.Timeout + s.grace(f)).Seconds())),
		},
	})
	if err != nil {
		return "", err
	}
	return *out.QueueUrl, nil
}

func (s *Stack) create(ctx context.Context, f deployment.Function, shared map[string]string) error {
	dir := filepath.Join(s.options.Build, f.Name)
	if _, err := os.Stat(filepath.Join(dir, "bootstrap")); err != nil {
		return fmt.Errorf("%w (make build makes it)", err)
	}
	key := "ASIA" + strings.ToUpper(f.Name)
	identity := sts.Identity{
		AccessKeyID: key, Secret: "secret-of-" + f.Name, SessionToken: "session-of-" + f.Name,
		RoleARN: role(f.Name), SessionName: "treadle-" + f.Name,
	}
	s.AWS.STS.Register(identity)
	if err := s.admit(ctx, f); err != nil {
		return err
	}
	env := map[string]string{
		"AWS_REGION": region, "AWS_ENDPOINT_URL": s.URL, "AWS_ACCESS_KEY_ID": key,
		"AWS_SECRET_ACCESS_KEY": identity.Secret, "AWS_SESSION_TOKEN": identity.SessionToken,
	}
	for name, value := range shared {
		env[name] = value
	}
	err := s.Lambda.Create(lambda.Function{
		Name: f.Name, Dir: dir, Env: env, MemoryMB: f.MemoryMB, Timeout: f.Timeout, Concurrency: f.Concurrency,
	})
	if err != nil || f.Queue == "" {
		return err
	}
	name := "treadle-" + f.Queue + ".fifo"
	mapping, err := s.Lambda.Map(lambda.EventSource{
		Queue: s.AWS.SQS, QueueURL: shared[strings.ToUpper(f.Queue)+"_QUEUE_URL"], QueueARN: "arn:aws:sqs:" + region + ":" + account + ":" + name,
		Function: f.Name, BatchSize: f.Batch, MaximumConcurrency: f.Concurrency, ReportBatchItemFailures: true,
	})
	s.mappings = append(s.mappings, mapping)
	return err
}

// admit gives the function's role its access entry in the cluster.
func (s *Stack) admit(ctx context.Context, f deployment.Function) error {
	if f.Group == "" && !f.Admin {
		return nil
	}
	in := &sdkeks.CreateAccessEntryInput{ClusterName: &s.Name, PrincipalArn: sdkaws.String(role(f.Name)), Type: sdkaws.String("STANDARD")}
	if f.Group != "" {
		in.KubernetesGroups = []string{f.Group}
	}
	if _, err := s.AWS.EKS.CreateAccessEntry(ctx, in); err != nil {
		return err
	}
	if !f.Admin {
		return nil
	}
	_, err := s.AWS.EKS.AssociateAccessPolicy(ctx, &sdkeks.AssociateAccessPolicyInput{
		ClusterName: &s.Name, PrincipalArn: sdkaws.String(role(f.Name)),
		PolicyArn:   sdkaws.String("arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"),
		AccessScope: &ekstypes.AccessScope{Type: ekstypes.AccessScopeTypeCluster},
	})
	return err
}

func role(name string) string { return "arn:aws:iam::" + account + ":role/treadle-" + name }

// Install fills the catalogue and puts Treadle into the cluster. It may be repeated.
func (s *Stack) Install(ctx, _ context.Context) error {
	s.say("filling the catalogue of instance types")
	if err := s.Call(ctx, "catalog", map[string]string{"source": "treadle.catalog"}); err != nil {
		return err
	}
	url, err := s.Lambda.URL("wake")
	if err != nil {
		return err
	}
	s.say("installing Treadle into cluster %s", s.Name)
	return s.Call(ctx, "install", map[string]string{
		"action": "install", "cluster": s.Name, "webhookURL": url, "webhookCA": string(s.Lambda.CA()),
	})
}

// Call invokes a function and waits; an error of the function is an error.
func (s *Stack) Call(ctx context.Context, name string, event any) error {
	payload, err := json.Marshal(event)
	if err != nil {
		return err
	}
	res, err := s.Lambda.Invoke(ctx, name, payload)
	if err != nil {
		return fmt.Errorf("invoke %s: %w", name, err)
	}
	if res.FunctionError != "" {
		return fmt.Errorf("invoke %s: %s", name, res.Payload)
	}
	return nil
}
