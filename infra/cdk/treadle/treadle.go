package treadle

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseks"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"treadle/events"
	"treadle/infra/deployment"
)

// retries is how often a message is tried before it goes to the dead-letter queue.
const retries = 10

// Treadle is what New has added to a stack.
type Treadle struct {
	// Functions holds the functions by name, Queues the queues that feed them, and Dead their dead-letter queues, both by function.
	Functions map[string]awslambda.Function
	Queues    map[string]awssqs.Queue
	Dead      map[string]awssqs.Queue
	// Clusters holds what is deployed for each cluster, by its name.
	Clusters map[string]awscdk.NestedStack
	// WebhookURL is the Function URL that API servers call.
	WebhookURL *string

	props                      Props
	scope_                     constructs.Construct
	region, account, partition string
	key                        awskms.IKey
	bucket                     awss3.Bucket
	table                      awsdynamodb.Table
	quarantine                 awssqs.Queue
	group                      string // of the schedules that end nodes by their age
	schedulerRole              awsiam.Role
}

// New adds Treadle to a scope. The error names every field of props that will not do. Errors of the CDK itself are panics, as everywhere
// in the CDK for Go.
func New(scope constructs.Construct, id string, props Props) (*Treadle, error) {
	if err := props.complete(); err != nil {
		return nil, err
	}
	stack := awscdk.Stack_Of(scope)
	t := &Treadle{
		Functions: map[string]awslambda.Function{}, Queues: map[string]awssqs.Queue{}, Dead: map[string]awssqs.Queue{},
		Clusters: map[string]awscdk.NestedStack{}, props: props, scope_: constructs.NewConstruct(scope, jsii.String(id)),
		region: *stack.Region(), account: *stack.Account(), partition: *stack.Partition(),
	}
	for _, name := range slices.Sorted(maps.Keys(props.Tags)) {
		awscdk.Tags_Of(t.scope_).Add(jsii.String(name), jsii.String(props.Tags[name]), nil)
	}
	awscdk.Tags_Of(t.scope_).Add(jsii.String("app.kubernetes.io/managed-by"), jsii.String("treadle"), nil)
	t.memory()
	t.queues()
	t.schedules()
	for _, f := range deployment.Functions() {
		t.function(f)
	}
	t.sources()
	t.Functions["lifecycle"].AddEnvironment(jsii.String("SCHEDULE_TARGET_ARN"), t.Functions["expiry"].FunctionArn(), nil)
	t.schedulerRole.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("lambda:InvokeFunction"), Resources: &[]*string{t.Functions["expiry"].FunctionArn()},
	}))
	url := t.Functions["wake"].AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_NONE})
	t.WebhookURL = url.Url()
	for _, c := range props.Clusters {
		t.cluster(c)
	}
	t.watch()
	return t, nil
}

// memory makes the bucket that says which clusters there are and what EC2 has to offer, and the table of what clusters share about EC2.
func (t *Treadle) memory() {
	bucket := &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(), EnforceSSL: jsii.Bool(true), Encryption: awss3.BucketEncryption_S3_MANAGED,
		// Both are made anew from what is there: losing them costs minutes.
		RemovalPolicy: awscdk.RemovalPolicy_RETAIN,
	}
	table := &awsdynamodb.TableProps{
		PartitionKey:        &awsdynamodb.Attribute{Name: jsii.String("scope"), Type: awsdynamodb.AttributeType_STRING},
		SortKey:             &awsdynamodb.Attribute{Name: jsii.String("id"), Type: awsdynamodb.AttributeType_STRING},
		TimeToLiveAttribute: jsii.String("forget_at"), BillingMode: awsdynamodb.BillingMode_PAY_PER_REQUEST,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	}
	if t.props.KMSKeyARN != "" {
		t.key = awskms.Key_FromKeyArn(t.scope_, jsii.String("Key"), jsii.String(t.props.KMSKeyARN))
		bucket.Encryption, bucket.EncryptionKey, bucket.BucketKeyEnabled = awss3.BucketEncryption_KMS, t.key, jsii.Bool(true)
		table.Encryption, table.EncryptionKey = awsdynamodb.TableEncryption_CUSTOMER_MANAGED, t.key
	}
	t.bucket = awss3.NewBucket(t.scope_, jsii.String("Bucket"), bucket)
	t.table = awsdynamodb.NewTable(t.scope_, jsii.String("Table"), table)
}

// queues makes the FIFO queues of wake-ups, the queue of EC2's and Health's events, each with its dead-letter queue, and the one for
// malformed messages.
func (t *Treadle) queues() {
	t.quarantine = t.queue("Quarantine", awssqs.QueueProps{RetentionPeriod: awscdk.Duration_Days(jsii.Number(14))})
	for _, f := range deployment.Functions() {
		if f.Queue == "" {
			continue
		}
		id := title(f.Queue)
		t.Dead[f.Name] = t.queue(id+"Dead", awssqs.QueueProps{Fifo: jsii.Bool(true), RetentionPeriod: awscdk.Duration_Days(jsii.Number(14))})
		t.Queues[f.Name] = t.queue(id+"Queue", awssqs.QueueProps{
			Fifo: jsii.Bool(true),
			// A message is delivered once the second that it stands for is over: what deduplication swallowed is in the API by then.
			DeliveryDelay: awscdk.Duration_Seconds(jsii.Number(1)),
			// A little over the function's time, so that a crash locks a cluster no longer than that.
			VisibilityTimeout: awscdk.Duration_Seconds(jsii.Number(f.Timeout.Seconds() + 5)),
			DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: t.Dead[f.Name], MaxReceiveCount: jsii.Number(retries)},
		})
	}
	t.Dead["interruption"] = t.queue("InterruptionDead", awssqs.QueueProps{RetentionPeriod: awscdk.Duration_Days(jsii.Number(14))})
	t.Queues["interruption"] = t.queue("InterruptionQueue", awssqs.QueueProps{
		VisibilityTimeout: awscdk.Duration_Seconds(jsii.Number(35)),
		DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: t.Dead["interruption"], MaxReceiveCount: jsii.Number(retries)},
	})
	files, err := fs.Glob(events.Patterns, "patterns/*.json")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, file := range files {
		t.rule(file)
	}
}

func (t *Treadle) queue(id string, props awssqs.QueueProps) awssqs.Queue {
	props.EnforceSSL = jsii.Bool(true)
	props.Encryption = awssqs.QueueEncryption_SQS_MANAGED
	if t.key != nil {
		props.Encryption, props.EncryptionMasterKey = awssqs.QueueEncryption_KMS, t.key
	}
	return awssqs.NewQueue(t.scope_, jsii.String(id), &props)
}

// rule lets the events that match a pattern through to the queue of the function interruption.
func (t *Treadle) rule(file string) {
	text, err := events.Patterns.ReadFile(file)
	if err != nil {
		panic(err) // it was just listed
	}
	var pattern any
	if err := json.Unmarshal(text, &pattern); err != nil {
		panic(err) // a test reads every pattern
	}
	rule := awsevents.NewCfnRule(t.scope_, jsii.String("Rule"+title(strings.TrimSuffix(path.Base(file), ".json"))), &awsevents.CfnRuleProps{
		EventPattern: pattern, State: jsii.String("ENABLED"),
		Targets: []any{map[string]any{"id": "queue", "arn": t.Queues["interruption"].QueueArn()}},
	})
	t.Queues["interruption"].AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("sqs:SendMessage"), Resources: &[]*string{t.Queues["interruption"].QueueArn()},
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil)},
		Conditions: &map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": rule.AttrArn()}},
	}))
}

// schedules makes the group of the schedules that end nodes by their age, and the role that they do it with.
func (t *Treadle) schedules() {
	group := awsscheduler.NewScheduleGroup(t.scope_, jsii.String("Schedules"), &awsscheduler.ScheduleGroupProps{RemovalPolicy: awscdk.RemovalPolicy_DESTROY})
	t.group = *group.ScheduleGroupName()
	t.schedulerRole = t.role("SchedulerRole", "scheduler.amazonaws.com")
}

func (t *Treadle) role(id, service string) awsiam.Role {
	props := &awsiam.RoleProps{AssumedBy: awsiam.NewServicePrincipal(jsii.String(service), nil)}
	if t.props.RolePath != "" {
		props.Path = jsii.String(t.props.RolePath)
	}
	if t.props.PermissionsBoundary != "" {
		props.PermissionsBoundary = awsiam.ManagedPolicy_FromManagedPolicyArn(t.scope_, jsii.String(id+"Boundary"), jsii.String(t.props.PermissionsBoundary))
	}
	return awsiam.NewRole(t.scope_, jsii.String(id), props)
}

// function makes a function of the table, with a role that may do what the table says and no more.
func (t *Treadle) function(f deployment.Function) {
	id := title(f.Name)
	role := t.role(id+"Role", "lambda.amazonaws.com")
	logs := awslogs.NewLogGroup(t.scope_, jsii.String(id+"Log"), &awslogs.LogGroupProps{RemovalPolicy: awscdk.RemovalPolicy_DESTROY})
	logs.Node().DefaultChild().(awslogs.CfnLogGroup).SetRetentionInDays(jsii.Number(t.props.LogRetentionDays))
	role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("logs:CreateLogStream", "logs:PutLogEvents"), Resources: &[]*string{logs.LogGroupArn()},
	}))
	for _, r := range f.Rights {
		if resources, _ := t.scope(r.On); len(resources) > 0 {
			role.AddToPolicy(t.statement(r))
		}
	}
	send := []*string{}
	for _, name := range f.Wakes {
		send = append(send, t.Queues[name].QueueArn())
	}
	if f.Quarantines {
		send = append(send, t.quarantine.QueueArn())
	}
	if len(send) > 0 {
		role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{Actions: jsii.Strings("sqs:SendMessage"), Resources: &send}))
	}
	if t.key != nil {
		role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Actions: jsii.Strings("kms:Decrypt", "kms:GenerateDataKey"), Resources: &[]*string{t.key.KeyArn()},
		}))
	}
	architecture := awslambda.Architecture_ARM_64()
	if t.props.Architecture == "x86_64" {
		architecture = awslambda.Architecture_X86_64()
	}
	function := awslambda.NewFunction(t.scope_, jsii.String(id), &awslambda.FunctionProps{
		Runtime: awslambda.Runtime_PROVIDED_AL2023(), Handler: jsii.String("bootstrap"), Architecture: architecture,
		Code:       awslambda.Code_FromAsset(jsii.String(filepath.Join(t.props.Build, f.Name)), nil),
		MemorySize: jsii.Number(float64(f.MemoryMB)), Timeout: awscdk.Duration_Seconds(jsii.Number(f.Timeout.Seconds())),
		Role: role, LogGroup: logs, LoggingFormat: awslambda.LoggingFormat_JSON, Environment: t.environment(f),
		Description: jsii.String("Treadle: " + f.Name),
	})
	if f.Name == "wake" && t.props.WebhookConcurrency > 0 {
		function.Node().DefaultChild().(awslambda.CfnFunction).SetReservedConcurrentExecutions(jsii.Number(t.props.WebhookConcurrency))
	}
	if t.props.VPC != nil && (f.Group != "" || f.Admin) {
		role.AddManagedPolicy(awsiam.ManagedPolicy_FromAwsManagedPolicyName(jsii.String("service-role/AWSLambdaVPCAccessExecutionRole")))
		function.Node().DefaultChild().(awslambda.CfnFunction).SetVpcConfig(map[string]any{
			"subnetIds": t.props.VPC.SubnetIDs, "securityGroupIds": t.props.VPC.SecurityGroupIDs,
		})
	}
	t.Functions[f.Name] = function
}

// environment returns the settings of a function: where its queues, its bucket and its table are, and what is switched on.
func (t *Treadle) environment(f deployment.Function) *map[string]*string {
	env := map[string]*string{"BUCKET": t.bucket.BucketName()}
	for _, name := range f.Wakes {
		env[strings.ToUpper(name)+"_QUEUE_URL"] = t.Queues[name].QueueUrl()
	}
	if f.Quarantines {
		env["QUARANTINE_QUEUE_URL"] = t.quarantine.QueueUrl()
	}
	for _, r := range f.Rights {
		switch r.On {
		case deployment.Table:
			env["TABLE"] = t.table.TableName()
		case deployment.Schedules:
			env["SCHEDULE_GROUP"] = jsii.String(t.group)
			env["SCHEDULE_ROLE_ARN"] = t.schedulerRole.RoleArn()
		}
	}
	for _, g := range t.props.gates() {
		if slices.Contains(g.of, f.Name) {
			env[g.name] = jsii.String(strconv.FormatBool(g.on))
		}
	}
	return &env
}

// sources has the queues feed their functions and the clock start those that it starts.
func (t *Treadle) sources() {
	for _, f := range deployment.Functions() {
		queue, fed := t.Queues[f.Name]
		if !fed {
			continue
		}
		queue.GrantConsumeMessages(t.Functions[f.Name])
		batch := max(f.Batch, 1)
		if f.Queue == "" {
			batch = 10
		}
		awslambda.NewEventSourceMapping(t.scope_, jsii.String(title(f.Name)+"Source"), &awslambda.EventSourceMappingProps{
			Target: t.Functions[f.Name], EventSourceArn: queue.QueueArn(), BatchSize: jsii.Number(float64(batch)),
			ReportBatchItemFailures: jsii.Bool(true), MaxConcurrency: jsii.Number(float64(max(f.Concurrency, 2))),
		})
	}
	for name, every := range map[string]awscdk.Duration{"sweep": awscdk.Duration_Minutes(jsii.Number(1)), "catalog": awscdk.Duration_Hours(jsii.Number(6))} {
		awsevents.NewRule(t.scope_, jsii.String(title(name)+"Clock"), &awsevents.RuleProps{
			Schedule: awsevents.Schedule_Rate(every),
			Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(t.Functions[name], &awseventstargets.LambdaFunctionProps{
				Event: awsevents.RuleTargetInput_FromObject(map[string]string{"source": "treadle." + name}), RetryAttempts: jsii.Number(0),
			})},
		})
	}
}

// cluster lets the functions into a cluster and installs Treadle there. When the cluster is taken out of the list, it is uninstalled first.
func (t *Treadle) cluster(c Cluster) {
	// A nested stack, because a stack holds 500 resources and a cluster takes eight.
	scope := awscdk.NewNestedStack(t.scope_, jsii.String("Cluster-"+c.Name), nil)
	t.Clusters[c.Name] = scope
	install := awscdk.NewCustomResource(scope, jsii.String("Installation"), &awscdk.CustomResourceProps{
		ServiceToken: t.Functions["install"].FunctionArn(), ResourceType: jsii.String("Custom::TreadleInstallation"),
		ServiceTimeout: awscdk.Duration_Minutes(jsii.Number(5)),
		Properties: &map[string]any{
			"Cluster": c.Name, "WebhookURL": t.WebhookURL,
			// Another build may bring other definitions, rights or rules: it is installed anew.
			"Version": awscdk.FileSystem_Fingerprint(jsii.String(filepath.Join(t.props.Build, "install")), nil),
		},
	})
	for _, f := range deployment.Functions() {
		if f.Group == "" && !f.Admin {
			continue
		}
		props := &awseks.CfnAccessEntryProps{
			ClusterName: jsii.String(c.Name), PrincipalArn: t.Functions[f.Name].Role().RoleArn(), Type: jsii.String("STANDARD"),
		}
		if f.Group != "" {
			props.KubernetesGroups = jsii.Strings(f.Group)
		}
		if f.Admin {
			props.AccessPolicies = []any{map[string]any{
				"policyArn":   fmt.Sprintf("arn:%s:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy", t.partition),
				"accessScope": map[string]any{"type": "cluster"},
			}}
		}
		entry := awseks.NewCfnAccessEntry(scope, jsii.String(title(f.Name)+"Access"), props)
		install.Node().AddDependency(entry)
	}
}

// title turns a-b into AB with capitals, as construct ids are written.
func title(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
