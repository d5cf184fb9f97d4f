package main

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"treadle/shared/cluster"
	"treadle/shared/store"
)

// Event asks for Treadle to be put into a cluster, or taken out of it.
type Event struct {
	// Action is install or uninstall.
	Action  string `json:"action"`
	Cluster string `json:"cluster"`
	// WebhookURL is the Function URL of wake; WebhookCA its certificate authority in PEM, empty where the API server trusts it anyway.
	WebhookURL string `json:"webhookURL,omitempty"`
	WebhookCA  string `json:"webhookCA,omitempty"`
}

// Summary is what was done.
type Summary struct {
	Cluster string `json:"cluster"`
	Action  string `json:"action"`
	// FinalizersRemoved counts the objects that no longer wait for Treadle.
	FinalizersRemoved int `json:"finalizersRemoved,omitempty"`
}

// Clusters describes clusters as EKS knows them. The result has no webhook tokens.
type Clusters interface {
	Describe(ctx context.Context, name string) (store.Cluster, error)
}

// Registry keeps which clusters are served. store.ErrNotFound: the cluster is not.
type Registry interface {
	Cluster(ctx context.Context, name string) (store.Cluster, error)
	PutCluster(ctx context.Context, c store.Cluster) error
	DeleteCluster(ctx context.Context, name string) error
}

// API applies manifests to one cluster; applying one again changes nothing, deleting what is gone is no error.
type API interface {
	Apply(ctx context.Context, manifest []byte) error
	Delete(ctx context.Context, manifest []byte) error
	StripFinalizers(ctx context.Context, names ...string) (int, error)
}

// Handler puts Treadle into clusters and takes it out again.
type Handler struct {
	EKS      Clusters
	Registry Registry
	Connect  func(c store.Cluster) (API, error)
	// CRDs holds the CustomResourceDefinitions as Karpenter publishes them.
	CRDs fs.FS
	Log  *slog.Logger
}

//go:embed manifests/*.yaml
var manifests embed.FS

// Handle does what the event asks for. It may be repeated at any time: each step first looks at what is there, or does not mind.
func (h *Handler) Handle(ctx context.Context, e Event) (Summary, error) {
	if err := e.validate(); err != nil {
		return Summary{}, err
	}
	c, err := h.EKS.Describe(ctx, e.Cluster)
	if err != nil {
		return Summary{}, fmt.Errorf("describe cluster %q: %w", e.Cluster, err)
	}
	api, err := h.Connect(c)
	if err != nil {
		return Summary{}, err
	}
	out := Summary{Cluster: e.Cluster, Action: e.Action}
	if e.Action == "install" {
		err = h.install(ctx, api, c, e)
	} else {
		out.FinalizersRemoved, err = h.uninstall(ctx, api, e)
	}
	if err != nil {
		return Summary{}, fmt.Errorf("%s cluster %q: %w", e.Action, e.Cluster, err)
	}
	h.Log.InfoContext(ctx, "done", "cluster", e.Cluster, "action", e.Action, "finalizers_removed", out.FinalizersRemoved)
	return out, nil
}

// install is in an order in which a webhook never carries a token that is not known yet, and no function is woken for a cluster
// that cannot be reached. While the webhook is changed over, the old tokens are good as well.
func (h *Handler) install(ctx context.Context, api API, c store.Cluster, e Event) error {
	if err := h.definitions(ctx, api); err != nil {
		return err
	}
	rbac, err := manifests.ReadFile("manifests/rbac.yaml")
	if err != nil {
		return err
	}
	if err := api.Apply(ctx, rbac); err != nil {
		return err
	}
	token := newToken()
	c.WebhookTokenSHA256 = []string{store.HashToken(token)}
	both := c
	old, err := h.Registry.Cluster(ctx, e.Cluster)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	// All of them: where an installation was stopped half-way, any may be the one that the webhook carries.
	both.WebhookTokenSHA256 = slices.Concat(c.WebhookTokenSHA256, old.WebhookTokenSHA256)
	if err := h.Registry.PutCluster(ctx, both); err != nil {
		return err
	}
	webhook, err := webhookManifest(e, token)
	if err != nil {
		return err
	}
	if err := api.Apply(ctx, webhook); err != nil {
		return err
	}
	return h.Registry.PutCluster(ctx, c)
}

func (h *Handler) definitions(ctx context.Context, api API) error {
	files, err := fs.Glob(h.CRDs, "*.yaml")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("no CustomResourceDefinitions beside the function: it was built without its folder crds")
	}
	for _, name := range files {
		body, err := fs.ReadFile(h.CRDs, name)
		if err != nil {
			return err
		}
		if err := api.Apply(ctx, body); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// uninstall stops the wake-ups first, then the service, and takes the finalizers last, when nobody puts them on any more. The
// definitions stay: with them would go every NodePool that somebody wrote. Nodes stay too; nobody manages them any more.
func (h *Handler) uninstall(ctx context.Context, api API, e Event) (int, error) {
	webhook, err := webhookManifest(Event{Cluster: e.Cluster, WebhookURL: "https://removed.invalid/"}, "removed")
	if err != nil {
		return 0, err
	}
	if err := api.Delete(ctx, webhook); err != nil {
		return 0, err
	}
	if err := h.Registry.DeleteCluster(ctx, e.Cluster); err != nil {
		return 0, err
	}
	removed, err := api.StripFinalizers(ctx, cluster.FinalizerTermination, cluster.FinalizerNodeClass)
	if err != nil {
		return removed, err
	}
	rbac, err := manifests.ReadFile("manifests/rbac.yaml")
	if err != nil {
		return removed, err
	}
	return removed, api.Delete(ctx, rbac)
}

func (e Event) validate() error {
	var errs []error
	if e.Action != "install" && e.Action != "uninstall" {
		errs = append(errs, fmt.Errorf("field action: is %q, want install or uninstall", e.Action))
	}
	if !store.ValidClusterName(e.Cluster) {
		errs = append(errs, fmt.Errorf("field cluster: %q is not the name of an EKS cluster", e.Cluster))
	}
	if e.Action == "install" {
		// The API server's own rule for webhook addresses: no user, query or fragment, so that the token has to ride in the path.
		u, err := url.Parse(e.WebhookURL)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			errs = append(errs, fmt.Errorf("field webhookURL: %q is not a plain https URL", e.WebhookURL))
		}
		if e.WebhookCA != "" && !strings.Contains(e.WebhookCA, "BEGIN CERTIFICATE") {
			errs = append(errs, errors.New("field webhookCA: no certificate in PEM"))
		}
	}
	return errors.Join(errs...)
}

// webhookManifest fills in the manifest's two fields by plain replacement: a template engine finds methods by their names, so that the linker
// would have to keep every method of the binary.
func webhookManifest(e Event, token string) ([]byte, error) {
	text, err := manifests.ReadFile("manifests/webhook.yaml")
	if err != nil {
		return nil, err
	}
	fields := map[string]string{
		"URL": strings.TrimSuffix(e.WebhookURL, "/") + "/" + e.Cluster + "/" + token,
		"CA":  base64.StdEncoding.EncodeToString([]byte(e.WebhookCA)), // empty: the API server trusts what its host trusts
	}
	return []byte(os.Expand(string(text), func(name string) string { return strconv.Quote(fields[name]) })), nil
}

func newToken() string {
	raw := make([]byte, 24)
	_, _ = rand.Read(raw) // never fails; it ends the process instead
	return hex.EncodeToString(raw)
}
