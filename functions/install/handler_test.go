package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"treadle/events"
	"treadle/shared/store"
)

const pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

// scene is a cluster, its EKS entry and the registry; it writes down what is done to them in one list and fails where it is told.
type scene struct {
	steps   []string
	fail    string // the step that fails
	served  *store.Cluster
	webhook string // the manifest that the cluster has, "" for none
	// gap says that at some moment the cluster's webhook carried a token that the registry did not know.
	gap bool
}

func (s *scene) step(format string, args ...any) error {
	name := fmt.Sprintf(format, args...)
	s.steps = append(s.steps, name)
	if s.webhook != "" && (s.served == nil || !s.known()) {
		s.gap = true
	}
	if name == s.fail {
		return errors.New("out of reach")
	}
	return nil
}

// known reports whether the token in the webhook's address is one that wake would let in.
func (s *scene) known() bool {
	_, rest, _ := strings.Cut(s.webhook, "/demo/")
	token, _, _ := strings.Cut(rest, `"`)
	for _, sum := range s.served.WebhookTokenSHA256 {
		if sum == store.HashToken(token) {
			return true
		}
	}
	return false
}

func (s *scene) Describe(_ context.Context, name string) (store.Cluster, error) {
	return store.Cluster{Name: name, Endpoint: "https://api.example", CA: pem, Version: "1.37"}, s.step("describe %s", name)
}

func (s *scene) Cluster(_ context.Context, name string) (store.Cluster, error) {
	if s.served == nil {
		return store.Cluster{}, fmt.Errorf("cluster %s: %w", name, store.ErrNotFound)
	}
	return *s.served, nil
}

func (s *scene) PutCluster(_ context.Context, c store.Cluster) error {
	if err := s.step("serve with %d tokens", len(c.WebhookTokenSHA256)); err != nil {
		return err
	}
	s.served = &c
	return nil
}

func (s *scene) DeleteCluster(context.Context, string) error {
	if err := s.step("serve no more"); err != nil {
		return err
	}
	s.served = nil
	return nil
}

// what names a manifest by its first kind.
func what(manifest []byte) string {
	var one struct{ Kind string }
	_ = yaml.Unmarshal([]byte(strings.Split(string(manifest), "\n---")[0]), &one)
	return one.Kind
}

func (s *scene) Apply(_ context.Context, manifest []byte) error {
	kind := what(manifest)
	if err := s.step("apply %s", kind); err != nil {
		return err
	}
	if kind == "ValidatingWebhookConfiguration" {
		s.webhook = string(manifest)
	}
	return nil
}

func (s *scene) Delete(_ context.Context, manifest []byte) error {
	kind := what(manifest)
	if err := s.step("delete %s", kind); err != nil {
		return err
	}
	if kind == "ValidatingWebhookConfiguration" {
		s.webhook = ""
	}
	return nil
}

func (s *scene) StripFinalizers(_ context.Context, names ...string) (int, error) {
	return 3, s.step("strip %s", strings.Join(names, " "))
}

func handler(s *scene) *Handler {
	return &Handler{
		EKS: s, Registry: s, Connect: func(store.Cluster) (API, error) { return s, nil }, Log: slog.New(slog.DiscardHandler),
		CRDs: fstest.MapFS{"nodepools.yaml": {Data: []byte("kind: CustomResourceDefinition\n")}},
	}
}

func sample(t *testing.T) Event {
	t.Helper()
	body, err := events.Samples.ReadFile("install.json")
	require.NoError(t, err)
	var e Event
	require.NoError(t, json.Unmarshal(body, &e))
	return e
}

var (
	installing = []string{
		"describe demo", "apply CustomResourceDefinition", "apply ClusterRole", "serve with 1 tokens", "apply ValidatingWebhookConfiguration", "serve with 1 tokens",
	}
	removing = []string{
		"describe demo", "delete ValidatingWebhookConfiguration", "serve no more", "strip karpenter.sh/termination karpenter.k8s.aws/termination", "delete ClusterRole",
	}
)

func TestInstall_GoesInAndOutInAFixedOrder(t *testing.T) {
	t.Parallel()
	s := &scene{}
	e := sample(t)
	got, err := handler(s).Handle(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, Summary{Cluster: "demo", Action: "install"}, got)
	require.Equal(t, installing, s.steps, "the token is known before it is used")
	require.True(t, s.known())
	require.NotContains(t, s.webhook, s.served.WebhookTokenSHA256[0])

	s.steps = nil
	e.Action = "uninstall"
	got, err = handler(s).Handle(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, Summary{Cluster: "demo", Action: "uninstall", FinalizersRemoved: 3}, got)
	require.Equal(t, removing, s.steps, "finalizers go when nobody puts them on any more")
	require.Nil(t, s.served)

	s.steps = nil
	_, err = handler(s).Handle(t.Context(), e)
	require.NoError(t, err, "out of a cluster where it is not")
}

func TestInstall_ChangesTheTokenWithoutAGap(t *testing.T) {
	t.Parallel()
	s := &scene{}
	e := sample(t)
	_, err := handler(s).Handle(t.Context(), e)
	require.NoError(t, err)
	first := s.served.WebhookTokenSHA256
	s.steps = nil
	_, err = handler(s).Handle(t.Context(), e)
	require.NoError(t, err)
	require.Contains(t, s.steps, "serve with 2 tokens", "both are good while the webhook changes over")
	require.Len(t, s.served.WebhookTokenSHA256, 1)
	require.NotEqual(t, first, s.served.WebhookTokenSHA256)
	require.True(t, s.known())
	require.False(t, s.gap)
}

func TestInstall_LeavesNoGapWhereverItStops(t *testing.T) {
	t.Parallel()
	e := sample(t)
	for _, fail := range append([]string{"serve with 2 tokens"}, installing...) {
		s := &scene{}
		_, err := handler(s).Handle(t.Context(), e)
		require.NoError(t, err)
		s.fail = fail
		_, _ = handler(s).Handle(t.Context(), e) // a second installation, stopped
		require.True(t, s.known(), "stopped at %q", fail)
		s.fail = ""
		_, err = handler(s).Handle(t.Context(), e)
		require.NoError(t, err)
		require.True(t, s.known())
		require.Len(t, s.served.WebhookTokenSHA256, 1)
		require.False(t, s.gap, "stopped at %q", fail)
	}
}

func TestInstall_NamesTheClusterAndTheStepThatFailed(t *testing.T) {
	t.Parallel()
	for action, steps := range map[string][]string{"install": installing, "uninstall": removing} {
		for _, fail := range steps[1:] {
			s := &scene{fail: fail}
			e := sample(t)
			e.Action = action
			_, err := handler(s).Handle(t.Context(), e)
			require.ErrorContains(t, err, action+` cluster "demo": `, fail)
			require.ErrorContains(t, err, "out of reach")
			require.Equal(t, fail, s.steps[len(s.steps)-1], "nothing comes after what failed")
		}
	}
	_, err := handler(&scene{fail: "describe demo"}).Handle(t.Context(), sample(t))
	require.ErrorContains(t, err, `describe cluster "demo": out of reach`)
	h := handler(&scene{})
	h.CRDs = fstest.MapFS{}
	_, err = h.Handle(t.Context(), sample(t))
	require.ErrorContains(t, err, "no CustomResourceDefinitions beside the function")
}

func TestInstall_RefusesABadEventByField(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Event)
		want   []string
	}{
		"an action that it does not know": {func(e *Event) { e.Action = "upgrade" }, []string{`field action: is "upgrade"`}},
		"no cluster":                      {func(e *Event) { e.Cluster = "" }, []string{`field cluster: ""`}},
		"a cluster that is a path":        {func(e *Event) { e.Cluster = "../demo" }, []string{`field cluster: "../demo"`}},
		"an address without TLS":          {func(e *Event) { e.WebhookURL = "http://x.example/" }, []string{"field webhookURL"}},
		"an address with a query, which the API server refuses": {
			func(e *Event) { e.WebhookURL = "https://x.example/?token=1" }, []string{"field webhookURL"},
		},
		"an address with a user":              {func(e *Event) { e.WebhookURL = "https://u:p@x.example/" }, []string{"field webhookURL"}},
		"an authority that is no certificate": {func(e *Event) { e.WebhookCA = "x" }, []string{"field webhookCA"}},
		"every field at fault at once": {
			func(e *Event) { *e = Event{Action: "install", Cluster: "-", WebhookURL: "x", WebhookCA: "x"} },
			[]string{"field cluster", "field webhookURL", "field webhookCA"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scene{}
			e := sample(t)
			tt.change(&e)
			_, err := handler(s).Handle(t.Context(), e)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			require.Empty(t, s.steps)
		})
	}
}

// webhooks is what the API server reads of the manifest.
type webhooks struct {
	Kind     string
	Webhooks []struct {
		Name                    string
		FailurePolicy           string
		SideEffects             string
		TimeoutSeconds          int
		AdmissionReviewVersions []string
		ClientConfig            struct{ URL, CABundle string }
		MatchConditions         []struct{ Name, Expression string }
		Rules                   []struct{ APIGroups, APIVersions, Operations, Resources []string }
	}
}

func TestWebhookManifest_IsNeverInTheWay(t *testing.T) {
	t.Parallel()
	for name, ca := range map[string]string{"with an authority": pem, "without one": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sample(t)
			e.WebhookCA = ca
			body, err := webhookManifest(e, "token")
			require.NoError(t, err)
			var got webhooks
			require.NoError(t, yaml.Unmarshal(body, &got))
			require.Equal(t, "ValidatingWebhookConfiguration", got.Kind)
			require.Len(t, got.Webhooks, 2)
			for _, w := range got.Webhooks {
				require.Equal(t, "Ignore", w.FailurePolicy, "R36")
				require.LessOrEqual(t, w.TimeoutSeconds, 2, "R36")
				require.Equal(t, "NoneOnDryRun", w.SideEffects)
				require.Equal(t, []string{"v1"}, w.AdmissionReviewVersions)
				require.Equal(t, strings.TrimSuffix(e.WebhookURL, "/")+"/demo/token", w.ClientConfig.URL)
				decoded, err := base64.StdEncoding.DecodeString(w.ClientConfig.CABundle)
				require.NoError(t, err)
				require.Equal(t, ca, string(decoded))
				require.NotEmpty(t, w.MatchConditions, "a webhook for every write would be in the way")
				for _, rule := range w.Rules {
					require.NotContains(t, rule.Resources, "pods")
					require.NotContains(t, rule.Resources, "*")
				}
			}
		})
	}
}

func TestRBAC_GivesNobodyMoreThanItNames(t *testing.T) {
	t.Parallel()
	body, err := manifests.ReadFile("manifests/rbac.yaml")
	require.NoError(t, err)
	roles, bound := map[string]bool{}, map[string]bool{}
	for doc := range strings.SplitSeq(string(body), "\n---\n") {
		var one struct {
			Kind     string
			Metadata struct{ Name string }
			RoleRef  struct{ Kind, Name string }
			Subjects []struct{ Kind, Name string }
			Rules    []struct{ APIGroups, Resources, Verbs []string }
		}
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &struct {
			APIVersion string
			Kind       string
			Metadata   map[string]any
			RoleRef    map[string]string
			Subjects   []map[string]string
			Rules      []map[string][]string
		}{}))
		require.NoError(t, yaml.Unmarshal([]byte(doc), &one))
		switch one.Kind {
		case "ClusterRole", "Role":
			roles[one.Kind+" "+one.Metadata.Name] = true
			for _, rule := range one.Rules {
				require.NotEmpty(t, rule.APIGroups)
				for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
					require.NotContains(t, list, "*", one.Metadata.Name)
				}
			}
		case "ClusterRoleBinding", "RoleBinding":
			bound[one.RoleRef.Kind+" "+one.RoleRef.Name] = true
			require.NotEmpty(t, one.Subjects)
			for _, s := range one.Subjects {
				require.Equal(t, "Group", s.Kind)
				require.True(t, strings.HasPrefix(s.Name, "treadle:"), s.Name)
			}
		default:
			require.Fail(t, "unexpected kind", one.Kind)
		}
	}
	require.NotEmpty(t, roles)
	require.Equal(t, roles, bound, "every role is bound, and every binding has its role")
}
