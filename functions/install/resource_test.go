package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/stretchr/testify/require"

	"treadle/shared/store"
)

// asked is what CloudFormation was answered.
type asked struct {
	id  string
	err error
}

func custom(s *scene) (*resource, *asked) {
	got := &asked{}
	return &resource{
		Handler: handler(s),
		Respond: func(f cfn.CustomResourceFunction) cfn.CustomResourceLambdaFunction {
			return func(ctx context.Context, e cfn.Event) (string, error) {
				got.id, _, got.err = f(ctx, e)
				return "", nil
			}
		},
		Sleep: func(context.Context, time.Duration) { s.fail = "" }, // meanwhile the cluster lets us in
	}, got
}

func event(t *testing.T, kind, cluster string) json.RawMessage {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"RequestType": kind, "ResponseURL": "https://s3.example/answer", "PhysicalResourceId": "treadle/demo",
		"ResourceProperties": map[string]any{"ServiceToken": "arn", "Cluster": cluster, "WebhookURL": "https://url.lambda-url.us-east-1.on.aws/"},
	})
	require.NoError(t, err)
	return body
}

func TestResource_InstallsAndUninstalls(t *testing.T) {
	t.Parallel()
	s := &scene{}
	r, got := custom(s)
	for _, kind := range []string{"Create", "Update"} {
		_, err := r.handle(t.Context(), event(t, kind, "demo"))
		require.NoError(t, err)
		require.NoError(t, got.err)
		require.Equal(t, "treadle/demo", got.id)
		require.NotNil(t, s.served)
		require.NotEmpty(t, s.webhook)
	}
	_, err := r.handle(t.Context(), event(t, "Delete", "demo"))
	require.NoError(t, err)
	require.NoError(t, got.err)
	require.Nil(t, s.served)
	require.Empty(t, s.webhook)
}

func TestResource_WaitsForAClusterThatDoesNotLetItInYet(t *testing.T) {
	t.Parallel()
	s := &scene{fail: "describe demo"}
	r, got := custom(s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := r.handle(ctx, event(t, "Create", "demo"))
	require.NoError(t, err)
	require.NoError(t, got.err)
	require.NotNil(t, s.served)
}

func TestResource_TellsCloudFormationWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := &scene{}
	r, got := custom(s)
	_, err := r.handle(t.Context(), event(t, "Create", "no/name"))
	require.NoError(t, err, "the answer is CloudFormation's to read")
	require.ErrorContains(t, got.err, "field cluster")
	_, err = r.handle(t.Context(), event(t, "Delete", "no/name"))
	require.NoError(t, err)
	require.NoError(t, got.err, "what was never installed can be deleted")
}

// vanished is EKS without the cluster.
type vanished struct{}

func (vanished) Describe(context.Context, string) (store.Cluster, error) {
	return store.Cluster{}, store.ErrNotFound
}

func TestResource_ForgetsAClusterThatIsGone(t *testing.T) {
	t.Parallel()
	s := &scene{served: &store.Cluster{Name: "demo"}}
	r, got := custom(s)
	r.EKS = vanished{}
	_, err := r.handle(t.Context(), event(t, "Delete", "demo"))
	require.NoError(t, err)
	require.NoError(t, got.err)
	require.Nil(t, s.served)
}

func TestResource_TakesPlainEventsToo(t *testing.T) {
	t.Parallel()
	s := &scene{}
	r, _ := custom(s)
	out, err := r.handle(t.Context(), json.RawMessage(`{"action":"install","cluster":"demo","webhookURL":"https://url.example/"}`))
	require.NoError(t, err)
	require.Equal(t, Summary{Cluster: "demo", Action: "install"}, out)
	_, err = r.handle(t.Context(), json.RawMessage(`[]`))
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrNotFound)
}
