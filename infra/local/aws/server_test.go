package aws_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	awspricing "github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	awsscheduler "github.com/aws/aws-sdk-go-v2/service/scheduler"
	schedulertypes "github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws"
	"treadle/infra/local/aws/eks"
	"treadle/infra/local/aws/rpc"
	"treadle/infra/local/aws/sts"
)

const (
	keyID  = "AKIAPROVISION"
	secret = "provision's secret"
	role   = "arn:aws:iam::123456789012:role/treadle/provision"
)

// world is a served Server and what its calls left behind.
type world struct {
	*aws.Server
	url    string
	log    *rpc.CallLog
	faults *rpc.Faults
	config sdk.Config
}

func serve(t testing.TB, o aws.Options) world {
	t.Helper()
	w := world{log: &rpc.CallLog{}, faults: &rpc.Faults{}}
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.ServeHTTP(rw, r) }))
	o.Host = ts.Listener.Addr().String()
	o.Hooks = rpc.Hooks{Fault: w.faults, Log: w.log}
	w.Server = aws.New(o)
	w.STS.Register(sts.Identity{AccessKeyID: keyID, Secret: secret, RoleARN: role, SessionName: "provision"})
	ts.Start()
	t.Cleanup(ts.Close)
	t.Cleanup(w.Close)
	w.url = ts.URL
	w.config = sdk.Config{
		Region:       "us-east-1",
		BaseEndpoint: &ts.URL,
		Credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{AccessKeyID: keyID, SecretAccessKey: secret}, nil
		}),
		Retryer:                    func() sdk.Retryer { return sdk.NopRetryer{} },
		RequestChecksumCalculation: sdk.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: sdk.ResponseChecksumValidationWhenSupported,
	}
	return w
}

// code returns the error code of an SDK error.
func code(t *testing.T, err error) string {
	t.Helper()
	api, ok := errors.AsType[smithy.APIError](err)
	require.True(t, ok, "%v", err)
	return api.ErrorCode()
}

func TestSQS_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	c := awssqs.NewFromConfig(w.config)
	made, err := c.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: sdk.String("q.fifo"), Attributes: map[string]string{"FifoQueue": "true"}})
	require.NoError(t, err)
	require.Equal(t, w.url+"/123456789012/q.fifo", *made.QueueUrl)
	_, err = c.SendMessage(t.Context(), &awssqs.SendMessageInput{
		QueueUrl: made.QueueUrl, MessageBody: sdk.String("<body> & \"more\""), MessageGroupId: sdk.String("g"), MessageDeduplicationId: sdk.String("d"),
		MessageAttributes: map[string]sqstypes.MessageAttributeValue{"a": {DataType: sdk.String("Binary"), BinaryValue: []byte{0, 1}}},
	})
	require.NoError(t, err)
	got, err := c.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{
		QueueUrl: made.QueueUrl, MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{"All"},
	})
	require.NoError(t, err)
	require.Len(t, got.Messages, 1)
	require.Equal(t, "<body> & \"more\"", *got.Messages[0].Body)
	require.Equal(t, []byte{0, 1}, got.Messages[0].MessageAttributes["a"].BinaryValue)
	require.Equal(t, "g", got.Messages[0].Attributes["MessageGroupId"])
	deleted, err := c.DeleteMessageBatch(t.Context(), &awssqs.DeleteMessageBatchInput{QueueUrl: made.QueueUrl, Entries: []sqstypes.DeleteMessageBatchRequestEntry{
		{Id: sdk.String("1"), ReceiptHandle: got.Messages[0].ReceiptHandle}, {Id: sdk.String("2"), ReceiptHandle: sdk.String("?")},
	}})
	require.NoError(t, err)
	require.Len(t, deleted.Successful, 1)
	require.Len(t, deleted.Failed, 1)

	_, err = c.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: sdk.String("other")})
	_, ok := errors.AsType[*sqstypes.QueueDoesNotExist](err)
	require.True(t, ok)
	require.Equal(t, "AWS.SimpleQueueService.NonExistentQueue", code(t, err), "the code of the older protocol")
}

func TestFaults_FailCallsAndTheLogKeepsThem(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	c := awssqs.NewFromConfig(w.config)
	create := &awssqs.CreateQueueInput{QueueName: sdk.String("q")}
	w.faults.Fail("sqs", "CreateQueue", 1, rpc.Throttled("sqs"))
	w.faults.Fail("sqs", "*", 1, rpc.ErrLostReply)
	w.faults.Fail("*", "*", 1, rpc.Denied("sqs", "CreateQueue"))
	_, err := c.CreateQueue(t.Context(), create)
	require.Equal(t, "RequestThrottled", code(t, err))
	_, err = c.CreateQueue(t.Context(), create)
	require.Error(t, err, "the connection is dropped")
	_, err = c.CreateQueue(t.Context(), create)
	require.Equal(t, "AccessDenied", code(t, err))
	out, err := c.ListQueues(t.Context(), &awssqs.ListQueuesInput{})
	require.NoError(t, err)
	require.Len(t, out.QueueUrls, 1, "the call whose reply was lost took effect")
	require.Len(t, w.faults.Fired(), 3)
	var codes []string
	for _, call := range w.log.Calls() {
		require.Equal(t, "sqs", call.Service)
		require.Equal(t, keyID, call.AccessKeyID)
		codes = append(codes, call.Action+" "+call.Code)
	}
	require.Equal(t, []string{"CreateQueue RequestThrottled", "CreateQueue LostReply", "CreateQueue AccessDenied", "ListQueues "}, codes)
}

func TestRouter_RefusesWhatIsNoService(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{EC2: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		_, _ = io.WriteString(rw, "ec2 "+r.Form.Get("Action"))
	})})
	for name, row := range map[string]struct {
		method, contentType, body, target string
		status                            int
		want                              string
	}{
		"an unsigned form goes by its version":   {"POST", "application/x-www-form-urlencoded", "Action=DescribeInstances&Version=2016-11-15", "", 200, "ec2 DescribeInstances"},
		"a plain request is for nobody":          {"GET", "", "", "", 403, "MissingAuthenticationToken"},
		"an unknown action is refused":           {"POST", "", "{}", "AmazonSQS.Fly", 400, "UnknownOperationException"},
		"an unknown member is refused":           {"POST", "", `{"QueueName":"q","Wings":2}`, "AmazonSQS.CreateQueue", 400, "Wings is no known member"},
		"a member of another type is refused":    {"POST", "", `{"QueueName":7}`, "AmazonSQS.CreateQueue", 400, "QueueName must be a string"},
		"what is no JSON is refused":             {"POST", "", `{`, "AmazonSQS.CreateQueue", 400, "SerializationException"},
		"an unknown action of a form is refused": {"POST", "application/x-www-form-urlencoded", "Action=Fly&Version=2011-06-15", "", 400, "Fly is not served"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequestWithContext(t.Context(), row.method, w.url, strings.NewReader(row.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", row.contentType)
			if row.target != "" {
				req.Header.Set("X-Amz-Target", row.target)
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, row.status, resp.StatusCode, string(body))
			require.Contains(t, string(body), row.want)
		})
	}
}

func TestSSM_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{Parameters: map[string]string{"/aws/service/eks/a": "ami-1", "/aws/service/eks/b/c": "ami-2"}})
	c := awsssm.NewFromConfig(w.config)
	got, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: sdk.String("/aws/service/eks/a")})
	require.NoError(t, err)
	require.Equal(t, "ami-1", *got.Parameter.Value)
	require.WithinDuration(t, time.Now(), *got.Parameter.LastModifiedDate, time.Minute)
	_, err = c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: sdk.String("/none")})
	_, ok := errors.AsType[*ssmtypes.ParameterNotFound](err)
	require.True(t, ok)
	many, err := c.GetParameters(t.Context(), &awsssm.GetParametersInput{Names: []string{"/aws/service/eks/b/c", "/none"}})
	require.NoError(t, err)
	require.Len(t, many.Parameters, 1)
	require.Equal(t, []string{"/none"}, many.InvalidParameters)
	_, err = c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: sdk.String("/aws/x"), Value: sdk.String("v"), Type: ssmtypes.ParameterTypeString})
	require.Equal(t, "AccessDeniedException", code(t, err))
	put, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: sdk.String("/own"), Value: sdk.String("v"), Type: ssmtypes.ParameterTypeSecureString})
	require.NoError(t, err)
	require.EqualValues(t, 1, put.Version)
	_, err = c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: sdk.String("/own"), Value: sdk.String("w")})
	require.Equal(t, "ParameterAlreadyExists", code(t, err))
	secret, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: sdk.String("/own:1"), WithDecryption: sdk.Bool(true)})
	require.NoError(t, err)
	require.Equal(t, "v", *secret.Parameter.Value)
	pages := awsssm.NewGetParametersByPathPaginator(c, &awsssm.GetParametersByPathInput{Path: sdk.String("/aws/service"), Recursive: sdk.Bool(true), MaxResults: sdk.Int32(1)})
	var names []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, p := range page.Parameters {
			names = append(names, *p.Name)
		}
	}
	require.Equal(t, []string{"/aws/service/eks/a", "/aws/service/eks/b/c"}, names)
}

func TestPricing_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	prices := map[string]float64{"m5.large": 0.096, "m5.metal": 4.608}
	for i := range 150 {
		prices["t"+strings.Repeat("x", i)] = 1
	}
	w := serve(t, aws.Options{Prices: prices})
	c := awspricing.NewFromConfig(w.config)
	list := func(tenancy, family string) map[string]string {
		term := func(field, value string) pricingtypes.Filter {
			return pricingtypes.Filter{Type: pricingtypes.FilterTypeTermMatch, Field: &field, Value: &value}
		}
		got := map[string]string{}
		pages := awspricing.NewGetProductsPaginator(c, &awspricing.GetProductsInput{ServiceCode: sdk.String("AmazonEC2"), Filters: []pricingtypes.Filter{
			term("regionCode", "us-east-1"), term("operatingSystem", "Linux"), term("tenancy", tenancy), term("productFamily", family),
			term("capacitystatus", "Used"), term("preInstalledSw", "NA"), term("operation", "RunInstances"), term("marketoption", "OnDemand"),
		}})
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.PriceList), 100)
			for _, text := range page.PriceList {
				var entry struct {
					Product struct{ Attributes struct{ InstanceType string } }
					Terms   struct {
						OnDemand map[string]struct {
							PriceDimensions map[string]struct{ PricePerUnit struct{ USD string } }
						}
					}
				}
				require.NoError(t, json.Unmarshal([]byte(text), &entry))
				for _, term := range entry.Terms.OnDemand {
					for _, rate := range term.PriceDimensions {
						got[entry.Product.Attributes.InstanceType] = rate.PricePerUnit.USD
					}
				}
			}
		}
		return got
	}
	shared := list("Shared", "Compute Instance")
	require.Len(t, shared, 151)
	require.Equal(t, "0.0960000000", shared["m5.large"])
	require.Equal(t, map[string]string{"m5.metal": "4.6080000000"}, list("Dedicated", "Compute Instance (bare metal)"))
}

func TestEKS_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	w.EKS.AddCluster(eks.Cluster{Name: "demo", Endpoint: "https://127.0.0.1:6443", CA: []byte("PEM"), Version: "1.37", Tags: map[string]string{"Key": "Value"}})
	c := awseks.NewFromConfig(w.config)
	out, err := c.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: sdk.String("demo")})
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:6443", *out.Cluster.Endpoint)
	require.Equal(t, "10.100.0.0/16", *out.Cluster.KubernetesNetworkConfig.ServiceIpv4Cidr)
	require.Equal(t, ekstypes.ClusterStatusActive, out.Cluster.Status)
	require.Equal(t, map[string]string{"Key": "Value"}, out.Cluster.Tags)
	ca, err := base64.StdEncoding.DecodeString(*out.Cluster.CertificateAuthority.Data)
	require.NoError(t, err)
	require.Equal(t, "PEM", string(ca))
	_, err = c.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: sdk.String("other")})
	_, ok := errors.AsType[*ekstypes.ResourceNotFoundException](err)
	require.True(t, ok, "%v", err)

	create := &awseks.CreateAccessEntryInput{ClusterName: sdk.String("demo"), PrincipalArn: sdk.String(role), KubernetesGroups: []string{"treadle"}}
	_, err = c.CreateAccessEntry(t.Context(), create)
	require.NoError(t, err)
	_, err = c.CreateAccessEntry(t.Context(), create)
	require.Equal(t, "ResourceInUseException", code(t, err))
	create.KubernetesGroups = []string{"system:masters"}
	_, err = c.CreateAccessEntry(t.Context(), create)
	require.Equal(t, "InvalidParameterException", code(t, err))
	policy := sdk.String("arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy")
	_, err = c.AssociateAccessPolicy(t.Context(), &awseks.AssociateAccessPolicyInput{
		ClusterName: sdk.String("demo"), PrincipalArn: sdk.String(role), PolicyArn: policy, AccessScope: &ekstypes.AccessScope{Type: ekstypes.AccessScopeTypeCluster},
	})
	require.NoError(t, err)
	entries, err := c.ListAccessEntries(t.Context(), &awseks.ListAccessEntriesInput{ClusterName: sdk.String("demo"), AssociatedPolicyArn: policy})
	require.NoError(t, err)
	require.Equal(t, []string{role}, entries.AccessEntries)
	_, err = c.DisassociateAccessPolicy(t.Context(), &awseks.DisassociateAccessPolicyInput{ClusterName: sdk.String("demo"), PrincipalArn: sdk.String(role), PolicyArn: policy})
	require.NoError(t, err)
	_, err = c.DeleteAccessEntry(t.Context(), &awseks.DeleteAccessEntryInput{ClusterName: sdk.String("demo"), PrincipalArn: sdk.String(role)})
	require.NoError(t, err)
	_, err = c.DescribeAccessEntry(t.Context(), &awseks.DescribeAccessEntryInput{ClusterName: sdk.String("demo"), PrincipalArn: sdk.String(role)})
	require.Equal(t, "ResourceNotFoundException", code(t, err))
}

func TestSTS_SaysWhoCalls(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	out, err := awssts.NewFromConfig(w.config).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	require.NoError(t, err)
	require.Equal(t, "arn:aws:sts::123456789012:assumed-role/provision/provision", *out.Arn)
	require.Equal(t, "123456789012", *out.Account)
	other := w.config.Copy()
	other.Credentials = sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
		return sdk.Credentials{AccessKeyID: "AKIANOBODY", SecretAccessKey: "x"}, nil
	})
	_, err = awssts.NewFromConfig(other).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	require.Equal(t, "InvalidClientTokenId", code(t, err))
}

// token presigns as clients of EKS do, by the SDK's own signer.
func token(t *testing.T, host, cluster, action string, credentials sdk.Credentials, at time.Time) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/?Action="+action+"&Version=2011-06-15&X-Amz-Expires=60", nil)
	require.NoError(t, err)
	if cluster != "" {
		req.Header.Set("x-k8s-aws-id", cluster)
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	url, _, err := v4.NewSigner().PresignHTTP(t.Context(), credentials, req, empty, "sts", "us-east-1", at)
	require.NoError(t, err)
	return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(url))
}

func TestAuthenticator_LetsInOnlyWhoSignedForThisCluster(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	w.EKS.AddCluster(eks.Cluster{Name: "demo"})
	session := sdk.Credentials{AccessKeyID: "ASIASESSION", SecretAccessKey: "s", SessionToken: "token/+="}
	stranger := sdk.Credentials{AccessKeyID: "AKIASTRANGER", SecretAccessKey: "t"}
	w.STS.Register(
		sts.Identity{AccessKeyID: session.AccessKeyID, Secret: session.SecretAccessKey, SessionToken: session.SessionToken, RoleARN: role, SessionName: "i-1"},
		sts.Identity{AccessKeyID: stranger.AccessKeyID, Secret: stranger.SecretAccessKey, RoleARN: "arn:aws:iam::123456789012:role/stranger"},
	)
	_, err := w.EKS.CreateAccessEntry(t.Context(), &awseks.CreateAccessEntryInput{ClusterName: sdk.String("demo"), PrincipalArn: sdk.String(role), KubernetesGroups: []string{"treadle"}})
	require.NoError(t, err)
	handler := w.EKS.Authenticator("demo", w.STS)
	review := func(t *testing.T, token string) (status struct {
		Authenticated bool
		User          eks.User
		Error         string
	}) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": map[string]string{"token": token}})
		require.NoError(t, err)
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body)))
		require.Equal(t, http.StatusOK, rec.Code)
		var got struct{ Status any }
		got.Status = &status
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &got))
		return status
	}

	const host = "sts.us-east-1.amazonaws.com"
	const action = "GetCallerIdentity"
	own := sdk.Credentials{AccessKeyID: keyID, SecretAccessKey: secret}
	now := time.Now()
	for name, good := range map[string]string{
		"a token of the role":                 token(t, host, "demo", action, own, now),
		"a token of a session":                token(t, host, "demo", action, session, now),
		"a token of fourteen minutes ago":     token(t, host, "demo", action, own, now.Add(-14*time.Minute)),
		"a token made for the local endpoint": token(t, strings.TrimPrefix(w.url, "http://"), "demo", action, own, now),
	} {
		t.Run(name, func(t *testing.T) {
			status := review(t, good)
			require.True(t, status.Authenticated, status.Error)
			require.Equal(t, []string{"treadle"}, status.User.Groups)
			require.True(t, strings.HasPrefix(status.User.Username, "arn:aws:sts::123456789012:assumed-role/provision/"), status.User.Username)
			require.NotContains(t, status.User.Username, "{{")
			require.Equal(t, []string{role}, status.User.Extra["canonicalArn"])
		})
	}
	wrongSecret := sdk.Credentials{AccessKeyID: keyID, SecretAccessKey: "guess"}
	noToken := sdk.Credentials{AccessKeyID: session.AccessKeyID, SecretAccessKey: session.SecretAccessKey}
	unknown := sdk.Credentials{AccessKeyID: "AKIAUNKNOWN", SecretAccessKey: "u"}
	for name, bad := range map[string]string{
		"no token":                            "",
		"another kind of token":               "eyJhbGciOi",
		"no base64":                           "k8s-aws-v1.***",
		"a token for another cluster":         token(t, host, "other", action, own, now),
		"a token that names no cluster":       token(t, host, "", action, own, now),
		"a token of sixteen minutes ago":      token(t, host, "demo", action, own, now.Add(-16*time.Minute)),
		"a token from the future":             token(t, host, "demo", action, own, now.Add(16*time.Minute)),
		"a token with a forged signature":     token(t, host, "demo", action, wrongSecret, now),
		"a token of an unknown key":           token(t, host, "demo", action, unknown, now),
		"a session without its session token": token(t, host, "demo", action, noToken, now),
		"a token for another action":          token(t, host, "demo", "AssumeRole", own, now),
		"a token for another host":            token(t, "sts.evil.example", "demo", action, own, now),
		"a token for another region":          token(t, "sts.eu-west-1.amazonaws.com", "demo", action, own, now),
		"a role without an access entry":      token(t, host, "demo", action, stranger, now),
	} {
		t.Run(name, func(t *testing.T) {
			status := review(t, bad)
			require.False(t, status.Authenticated)
			require.NotEmpty(t, status.Error)
		})
	}
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{")))
	require.Equal(t, http.StatusBadRequest, rec.Code)
}

func TestS3_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	c := awss3.NewFromConfig(w.config)
	bucket := sdk.String("treadle-123456789012-us-east-1")
	_, err := c.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: bucket})
	require.NoError(t, err)
	put := func(key, body string, change func(*awss3.PutObjectInput)) (string, error) {
		in := &awss3.PutObjectInput{Bucket: bucket, Key: &key, Body: strings.NewReader(body), Metadata: map[string]string{"made": "here"}}
		if change != nil {
			change(in)
		}
		out, err := c.PutObject(t.Context(), in)
		if err != nil {
			return "", err
		}
		return *out.ETag, nil
	}
	first, err := put("a/b c+d", "one", nil)
	require.NoError(t, err)
	got, err := c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: bucket, Key: sdk.String("a/b c+d")})
	require.NoError(t, err)
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err, "the SDK compares the checksum")
	require.Equal(t, "one", string(body))
	require.Equal(t, first, *got.ETag)
	require.Equal(t, "here", got.Metadata["made"])
	require.NotNil(t, got.ChecksumCRC32)

	_, err = c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: bucket, Key: sdk.String("a/b c+d"), IfNoneMatch: &first})
	require.Equal(t, "NotModified", code(t, err))
	_, err = c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: bucket, Key: sdk.String("none")})
	_, ok := errors.AsType[*s3types.NoSuchKey](err)
	require.True(t, ok, "%v", err)
	_, err = c.HeadObject(t.Context(), &awss3.HeadObjectInput{Bucket: bucket, Key: sdk.String("none")})
	_, ok = errors.AsType[*s3types.NotFound](err)
	require.True(t, ok, "%v", err)

	_, err = put("a/b c+d", "two", func(in *awss3.PutObjectInput) { in.IfNoneMatch = sdk.String("*") })
	require.Equal(t, "PreconditionFailed", code(t, err))
	second, err := put("a/b c+d", "two", func(in *awss3.PutObjectInput) { in.IfMatch = &first })
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	_, err = put("a/b c+d", "three", func(in *awss3.PutObjectInput) { in.IfMatch = &first })
	require.Equal(t, "PreconditionFailed", code(t, err))
	for _, algorithm := range []s3types.ChecksumAlgorithm{"CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"} {
		_, err = put("sum/"+string(algorithm), "summed", func(in *awss3.PutObjectInput) { in.ChecksumAlgorithm = algorithm })
		require.NoError(t, err, algorithm)
	}
	_, err = put("a/z", strings.Repeat("large", 1<<18), nil)
	require.NoError(t, err)
	part, err := c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: bucket, Key: sdk.String("a/z"), Range: sdk.String("bytes=1-3")})
	require.NoError(t, err)
	body, err = io.ReadAll(part.Body)
	require.NoError(t, err)
	require.Equal(t, "arg", string(body))

	var keys, prefixes []string
	pages := awss3.NewListObjectsV2Paginator(c, &awss3.ListObjectsV2Input{Bucket: bucket, Delimiter: sdk.String("/"), MaxKeys: sdk.Int32(1)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, p := range page.CommonPrefixes {
			prefixes = append(prefixes, *p.Prefix)
		}
	}
	require.Equal(t, []string{"a/", "sum/"}, prefixes)
	listed, err := c.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: bucket, Prefix: sdk.String("a/")})
	require.NoError(t, err)
	for _, o := range listed.Contents {
		keys = append(keys, *o.Key)
	}
	require.Equal(t, []string{"a/b c+d", "a/z"}, keys)
	_, err = c.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: bucket, Key: sdk.String("a/z")})
	require.NoError(t, err)
	_, err = c.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: sdk.String("other-bucket")})
	require.Equal(t, "NoSuchBucket", code(t, err))
}

func TestS3_TakesChecksumsBehindTheBody(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	ts := httptest.NewTLSServer(w)
	t.Cleanup(ts.Close)
	config := w.config.Copy()
	config.BaseEndpoint, config.HTTPClient = &ts.URL, ts.Client()
	c := awss3.NewFromConfig(config) // the SDK puts them there only under TLS
	bucket, key := sdk.String("bucket"), sdk.String("key")
	_, err := c.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: bucket})
	require.NoError(t, err)
	body := strings.Repeat("0123456789", 50_000)
	for name, reader := range map[string]io.Reader{"a body of known length": strings.NewReader(body), "a stream": io.MultiReader(strings.NewReader(body))} {
		in := &awss3.PutObjectInput{Bucket: bucket, Key: key, Body: reader, ChecksumAlgorithm: s3types.ChecksumAlgorithmSha256, ContentEncoding: sdk.String("gzip")}
		if name == "a stream" {
			in.ContentLength = sdk.Int64(int64(len(body)))
		}
		put, err := c.PutObject(t.Context(), in)
		require.NoError(t, err, name)
		require.NotNil(t, put.ChecksumSHA256)
		got, err := c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: bucket, Key: key})
		require.NoError(t, err)
		read, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(read))
		require.Equal(t, "gzip", *got.ContentEncoding)
	}
}

func TestS3_UnwrapsChunkedBodiesAndHoldsThemAgainstTheirTrailer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		body   string
		status int
	}{
		"two chunks and the right sum": {"3\r\none\r\n3;chunk-signature=ab\r\ntwo\r\n0\r\nx-amz-checksum-crc32:jBGBRQ==\r\n\r\n", 200},
		"a sum of something else":      {"3\r\none\r\n3\r\ntwx\r\n0\r\nx-amz-checksum-crc32:jBGBRQ==\r\n\r\n", 400},
		"fewer bytes than announced":   {"3\r\none\r\n0\r\n\r\n", 400},
		"a chunk that is cut off":      {"6\r\none", 400},
		"a chunk without a size":       {"one\r\n", 400},
		"a chunk longer than it says":  {"3\r\nonetwo\r\n0\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serve(t, aws.Options{})
			_, err := w.S3.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: sdk.String("bucket")})
			require.NoError(t, err)
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/bucket/key", strings.NewReader(row.body))
			req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+keyID+"/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0")
			req.Header.Set("X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
			req.Header.Set("X-Amz-Decoded-Content-Length", "6")
			req.Header.Set("Content-Encoding", "aws-chunked")
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, req)
			require.Equal(t, row.status, rec.Code, rec.Body.String())
			if row.status != http.StatusOK {
				return
			}
			out, err := w.S3.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: sdk.String("bucket"), Key: sdk.String("key")})
			require.NoError(t, err)
			body, err := io.ReadAll(out.Body)
			require.NoError(t, err)
			require.Equal(t, "onetwo", string(body))
			require.Nil(t, out.ContentEncoding)
		})
	}
}

func TestDynamoDB_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	c := awsdynamodb.NewFromConfig(w.config)
	table := sdk.String("ledger")
	_, err := c.CreateTable(t.Context(), &awsdynamodb.CreateTableInput{
		TableName: table, BillingMode: dynamodbtypes.BillingModePayPerRequest,
		KeySchema:            []dynamodbtypes.KeySchemaElement{{AttributeName: sdk.String("pk"), KeyType: dynamodbtypes.KeyTypeHash}},
		AttributeDefinitions: []dynamodbtypes.AttributeDefinition{{AttributeName: sdk.String("pk"), AttributeType: dynamodbtypes.ScalarAttributeTypeS}},
	})
	require.NoError(t, err)
	every := map[string]dynamodbtypes.AttributeValue{
		"pk": &dynamodbtypes.AttributeValueMemberS{Value: "a"}, "n": &dynamodbtypes.AttributeValueMemberN{Value: "1.50"},
		"b": &dynamodbtypes.AttributeValueMemberB{Value: []byte{0, 255}}, "yes": &dynamodbtypes.AttributeValueMemberBOOL{Value: false},
		"no": &dynamodbtypes.AttributeValueMemberNULL{Value: true}, "ss": &dynamodbtypes.AttributeValueMemberSS{Value: []string{"x"}},
		"bs": &dynamodbtypes.AttributeValueMemberBS{Value: [][]byte{{1}}},
		"l": &dynamodbtypes.AttributeValueMemberL{Value: []dynamodbtypes.AttributeValue{&dynamodbtypes.AttributeValueMemberM{
			Value: map[string]dynamodbtypes.AttributeValue{"deep": &dynamodbtypes.AttributeValueMemberNS{Value: []string{"1", "2"}}},
		}}},
	}
	_, err = c.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: table, Item: every})
	require.NoError(t, err)
	got, err := c.GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: table, Key: map[string]dynamodbtypes.AttributeValue{"pk": every["pk"]}})
	require.NoError(t, err)
	require.Equal(t, every, got.Item)
	_, err = c.PutItem(t.Context(), &awsdynamodb.PutItemInput{
		TableName: table, Item: every, ConditionExpression: sdk.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: dynamodbtypes.ReturnValuesOnConditionCheckFailureAllOld,
	})
	failed, ok := errors.AsType[*dynamodbtypes.ConditionalCheckFailedException](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, every, failed.Item)
}

func TestEventBridge_DeliversToQueues(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	queues, c := awssqs.NewFromConfig(w.config), eventbridge.NewFromConfig(w.config)
	made, err := queues.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: sdk.String("q.fifo"), Attributes: map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"}})
	require.NoError(t, err)
	rule := sdk.String("mine")
	_, err = c.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: rule, EventPattern: sdk.String(`{"source":["mine"]}`)})
	require.NoError(t, err)
	_, err = c.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: rule, Targets: []eventbridgetypes.Target{{
		Id: sdk.String("q"), Arn: sdk.String("arn:aws:sqs:us-east-1:123456789012:q.fifo"), SqsParameters: &eventbridgetypes.SqsParameters{MessageGroupId: sdk.String("demo")},
	}}})
	require.NoError(t, err)
	put, err := c.PutEvents(t.Context(), &eventbridge.PutEventsInput{Entries: []eventbridgetypes.PutEventsRequestEntry{
		{Source: sdk.String("mine"), DetailType: sdk.String("D"), Detail: sdk.String("{}"), Time: sdk.Time(time.Unix(1e9, 0))},
	}})
	require.NoError(t, err)
	require.Zero(t, put.FailedEntryCount)
	got, err := queues.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: made.QueueUrl, WaitTimeSeconds: 20})
	require.NoError(t, err)
	require.Len(t, got.Messages, 1)
	require.Contains(t, *got.Messages[0].Body, `"time":"2001-09-09T01:46:40Z"`)
	_, err = c.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: rule, EventPattern: sdk.String(`{"source":"mine"}`)})
	_, ok := errors.AsType[*eventbridgetypes.InvalidEventPatternException](err)
	require.True(t, ok, "%v", err)
}

func TestScheduler_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	functions := make(deliveries, 1)
	w := serve(t, aws.Options{Functions: functions})
	c := awsscheduler.NewFromConfig(w.config)
	_, err := c.CreateScheduleGroup(t.Context(), &awsscheduler.CreateScheduleGroupInput{Name: sdk.String("treadle")})
	require.NoError(t, err)
	name, group := sdk.String("expire_i-1.x"), sdk.String("treadle")
	create := &awsscheduler.CreateScheduleInput{
		Name: name, GroupName: group, ScheduleExpression: sdk.String(time.Now().UTC().Format("at(2006-01-02T15:04:05)")),
		FlexibleTimeWindow: &schedulertypes.FlexibleTimeWindow{Mode: schedulertypes.FlexibleTimeWindowModeOff},
		Target:             &schedulertypes.Target{Arn: sdk.String("arn:aws:lambda:us-east-1:123456789012:function:expiry"), RoleArn: sdk.String(role), Input: sdk.String(`{"x":1}`)},
	}
	_, err = c.CreateSchedule(t.Context(), create)
	require.NoError(t, err)
	require.Equal(t, "arn:aws:lambda:us-east-1:123456789012:function:expiry {\"x\":1}", <-functions)
	create.ClientToken = nil
	_, err = c.CreateSchedule(t.Context(), create)
	_, ok := errors.AsType[*schedulertypes.ConflictException](err)
	require.True(t, ok, "%v", err)
	got, err := c.GetSchedule(t.Context(), &awsscheduler.GetScheduleInput{Name: name, GroupName: group})
	require.NoError(t, err)
	require.Equal(t, *create.ScheduleExpression, *got.ScheduleExpression)
	require.WithinDuration(t, time.Now(), *got.CreationDate, time.Minute)
	listed, err := c.ListSchedules(t.Context(), &awsscheduler.ListSchedulesInput{GroupName: group, NamePrefix: sdk.String("expire_"), MaxResults: sdk.Int32(10)})
	require.NoError(t, err)
	require.Len(t, listed.Schedules, 1)
	_, err = c.DeleteSchedule(t.Context(), &awsscheduler.DeleteScheduleInput{Name: name, GroupName: group})
	require.NoError(t, err)
	_, err = c.DeleteSchedule(t.Context(), &awsscheduler.DeleteScheduleInput{Name: name, GroupName: group})
	_, ok = errors.AsType[*schedulertypes.ResourceNotFoundException](err)
	require.True(t, ok, "%v", err)
}

// deliveries is a Deliverer that passes on what it gets.
type deliveries chan string

func (d deliveries) Deliver(_ context.Context, arn string, payload []byte, _ string) error {
	d <- arn + " " + string(payload)
	return nil
}

func TestIAM_SpeaksToTheSDK(t *testing.T) {
	t.Parallel()
	w := serve(t, aws.Options{})
	w.IAM.AddRole("node", "/", `{"Version":"2012-10-17"}`)
	c := awsiam.NewFromConfig(w.config)
	got, err := c.GetRole(t.Context(), &awsiam.GetRoleInput{RoleName: sdk.String("node")})
	require.NoError(t, err)
	require.Equal(t, "arn:aws:iam::123456789012:role/node", *got.Role.Arn)
	_, err = c.GetRole(t.Context(), &awsiam.GetRoleInput{RoleName: sdk.String("none")})
	_, ok := errors.AsType[*iamtypes.NoSuchEntityException](err)
	require.True(t, ok, "%v", err)

	name, path := sdk.String("demo_123"), sdk.String("/treadle/us-east-1/demo/")
	create := &awsiam.CreateInstanceProfileInput{InstanceProfileName: name, Path: path, Tags: []iamtypes.Tag{
		{Key: sdk.String("a&b"), Value: sdk.String("<1>")}, {Key: sdk.String("c"), Value: sdk.String("")},
	}}
	_, err = c.CreateInstanceProfile(t.Context(), create)
	require.NoError(t, err)
	_, err = c.CreateInstanceProfile(t.Context(), create)
	_, ok = errors.AsType[*iamtypes.EntityAlreadyExistsException](err)
	require.True(t, ok, "%v", err)
	add := &awsiam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: sdk.String("node")}
	_, err = c.AddRoleToInstanceProfile(t.Context(), add)
	require.NoError(t, err)
	_, err = c.AddRoleToInstanceProfile(t.Context(), add)
	_, ok = errors.AsType[*iamtypes.LimitExceededException](err)
	require.True(t, ok, "%v", err)
	_, err = c.TagInstanceProfile(t.Context(), &awsiam.TagInstanceProfileInput{InstanceProfileName: name, Tags: []iamtypes.Tag{{Key: sdk.String("c"), Value: sdk.String("2")}}})
	require.NoError(t, err)
	_, err = c.UntagInstanceProfile(t.Context(), &awsiam.UntagInstanceProfileInput{InstanceProfileName: name, TagKeys: []string{"none"}})
	require.NoError(t, err)
	profile, err := c.GetInstanceProfile(t.Context(), &awsiam.GetInstanceProfileInput{InstanceProfileName: name})
	require.NoError(t, err)
	require.Equal(t, "node", *profile.InstanceProfile.Roles[0].RoleName)
	require.Equal(t, []iamtypes.Tag{{Key: sdk.String("a&b"), Value: sdk.String("<1>")}, {Key: sdk.String("c"), Value: sdk.String("2")}}, profile.InstanceProfile.Tags)
	_, err = c.CreateInstanceProfile(t.Context(), &awsiam.CreateInstanceProfileInput{InstanceProfileName: sdk.String("other")})
	require.NoError(t, err)
	listed, err := c.ListInstanceProfiles(t.Context(), &awsiam.ListInstanceProfilesInput{PathPrefix: path})
	require.NoError(t, err)
	require.Len(t, listed.InstanceProfiles, 1)
	pages, all := awsiam.NewListInstanceProfilesPaginator(c, &awsiam.ListInstanceProfilesInput{MaxItems: sdk.Int32(1)}), 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		all += len(page.InstanceProfiles)
	}
	require.Equal(t, 2, all)
	_, err = c.DeleteInstanceProfile(t.Context(), &awsiam.DeleteInstanceProfileInput{InstanceProfileName: name})
	_, ok = errors.AsType[*iamtypes.DeleteConflictException](err)
	require.True(t, ok, "%v", err)
	_, err = c.RemoveRoleFromInstanceProfile(t.Context(), &awsiam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: sdk.String("node")})
	require.NoError(t, err)
	_, err = c.DeleteInstanceProfile(t.Context(), &awsiam.DeleteInstanceProfileInput{InstanceProfileName: name})
	require.NoError(t, err)
}

// BenchmarkSQS_OverHTTP sends, receives and deletes one message through the SDK.
func BenchmarkSQS_OverHTTP(b *testing.B) {
	w := serve(b, aws.Options{})
	c := awssqs.NewFromConfig(w.config)
	made, err := c.CreateQueue(b.Context(), &awssqs.CreateQueueInput{QueueName: sdk.String("q")})
	require.NoError(b, err)
	for b.Loop() {
		_, err := c.SendMessage(b.Context(), &awssqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: sdk.String("m")})
		require.NoError(b, err)
		got, err := c.ReceiveMessage(b.Context(), &awssqs.ReceiveMessageInput{QueueUrl: made.QueueUrl})
		require.NoError(b, err)
		_, err = c.DeleteMessage(b.Context(), &awssqs.DeleteMessageInput{QueueUrl: made.QueueUrl, ReceiptHandle: got.Messages[0].ReceiptHandle})
		require.NoError(b, err)
	}
}
