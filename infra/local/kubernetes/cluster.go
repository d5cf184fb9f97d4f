package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	api "k8s.io/client-go/tools/clientcmd/api/v1"
)

const (
	bootTimeout = 60 * time.Second
	pollEvery   = 50 * time.Millisecond

	etcd        = "etcd"
	apiServer   = "kube-apiserver"
	scheduler   = "kube-scheduler"
	controllers = "kube-controller-manager"
)

// Options say how a control plane is started. The zero value is a complete one with free ports, in a temporary folder.
type Options struct {
	Binary string // from Build; empty: Start calls Build
	Dir    string // certificates, logs and etcd's data, kept by Stop; empty: a temporary one, removed by Stop
	Port   int    // of the API server on 127.0.0.1; 0: a free one

	ServiceCIDR string // default 10.100.0.0/16

	// TokenWebhookURL is asked who the bearer of a token is (TokenReview, authentication.k8s.io/v1), as EKS asks its
	// IAM authenticator; TokenWebhookCA (PEM) signed its certificate. Empty: no tokens but those of service accounts.
	TokenWebhookURL string
	TokenWebhookCA  []byte

	// Requests a second and their burst. No rate: 50 for the scheduler, which is upstream's default, and 200 for each
	// controller, which is far above upstream's so that tests do not wait. No burst: twice the rate.
	SchedulerQPS    float32
	SchedulerBurst  int
	ControllerQPS   float32
	ControllerBurst int

	Controllers    []string // as in kube-controller-manager --controllers; empty: all there are
	SkipScheduler  bool
	SkipController bool // Start then makes the default service account of namespace default itself

	NodeMonitorGrace time.Duration // silence after which a node counts as unreachable; 0: upstream's 50 s

	AuditLog bool // write logs/audit.log under Dir, at the level of EKS
	Fsync    bool // let etcd wait for the disk; off, a crash of the machine may lose objects

	Progress io.Writer // one line for each step, and for the build if there is one; nil: nobody is told
}

// Cluster is a running control plane. Its methods are safe for concurrent use.
type Cluster struct {
	dir       string
	temporary bool
	endpoint  string
	ca        *authority
	admin     pair
	processes []*process // in the order of their start

	stopping chan struct{}
	stopOnce sync.Once
	stopErr  error
	done     chan struct{}
	doneOnce sync.Once
	deathErr error
}

// Start starts a control plane and returns once the API server is ready and pods can be created. It gives up after 60
// seconds, when ctx ends, or as soon as a process dies, and leaves no process behind then. ctx ends nothing afterwards.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	o = o.withDefaults()
	if o.Binary == "" {
		if o.Binary, err = Build(ctx, o.Progress); err != nil {
			return nil, err
		}
	}
	c := &Cluster{dir: o.Dir, stopping: make(chan struct{}), done: make(chan struct{})}
	if c.dir == "" {
		c.temporary = true
		if c.dir, err = os.MkdirTemp("", "treadle-kubernetes-"); err != nil {
			return nil, err
		}
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil { // it stands in kubeconfig files and flags
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.kill())
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("control plane not ready after %s, see %s", bootTimeout, c.logs()))
	defer cancel()

	// 1. Certificates and configuration files.
	l, err := c.layOut(o)
	if err != nil {
		return nil, fmt.Errorf("lay out %s: %w", c.dir, err)
	}
	// 2. Storage and API server; the server waits for etcd by itself.
	say(o.Progress, "starting etcd and kube-apiserver")
	if err := c.run(o.Binary, etcd, l.etcd...); err != nil {
		return nil, err
	}
	if err := c.run(o.Binary, apiServer, l.apiServer...); err != nil {
		return nil, err
	}
	if err := c.await(ctx, "/readyz"); err != nil {
		return nil, err
	}
	// 3. What works on the API. Pods are admitted once their service account exists.
	if !o.SkipScheduler {
		say(o.Progress, "starting kube-scheduler")
		if err := c.run(o.Binary, scheduler, l.scheduler...); err != nil {
			return nil, err
		}
	}
	if o.SkipController {
		err = c.createDefaultAccount(ctx)
	} else {
		say(o.Progress, "starting kube-controller-manager")
		err = c.run(o.Binary, controllers, l.controllers...)
	}
	if err != nil {
		return nil, err
	}
	if err := c.await(ctx, "/api/v1/namespaces/default/serviceaccounts/default"); err != nil {
		return nil, err
	}
	say(o.Progress, "ready at %s", c.endpoint)
	return c, nil
}

func (o Options) withDefaults() Options {
	o.ServiceCIDR = cmp.Or(o.ServiceCIDR, "10.100.0.0/16")
	o.SchedulerQPS = cmp.Or(o.SchedulerQPS, 50)
	o.SchedulerBurst = cmp.Or(o.SchedulerBurst, int(2*o.SchedulerQPS))
	o.ControllerQPS = cmp.Or(o.ControllerQPS, 200)
	o.ControllerBurst = cmp.Or(o.ControllerBurst, int(2*o.ControllerQPS))
	o.NodeMonitorGrace = cmp.Or(o.NodeMonitorGrace, 50*time.Second)
	if len(o.Controllers) == 0 {
		o.Controllers = []string{"*"}
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o
}

// run starts a component and watches over it.
func (c *Cluster) run(binary, name string, args ...string) error {
	p, err := startProcess(binary, name, c.logs(), args...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	go func() {
		<-p.exit
		select {
		case <-c.stopping:
		default:
			c.doneOnce.Do(func() {
				c.deathErr = p.death()
				close(c.done)
			})
		}
	}()
	return nil
}

// await polls a path of the API server until it answers 200.
func (c *Cluster) await(ctx context.Context, path string) error {
	client, err := c.adminClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.endpoint+path, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil { // refused until it listens
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-c.done:
			return c.deathErr
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", path, context.Cause(ctx))
		}
	}
}

// createDefaultAccount does what the service account controller would do for namespace default, which the API server
// makes by itself a moment after it is ready.
func (c *Cluster) createDefaultAccount(ctx context.Context) error {
	if err := c.await(ctx, "/api/v1/namespaces/default"); err != nil {
		return err
	}
	client, err := c.adminClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	const account = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`
	url := c.endpoint + "/api/v1/namespaces/default/serviceaccounts"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(account))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("create default service account: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusConflict { // a folder used before has it
		return fmt.Errorf("create default service account: %s", resp.Status)
	}
	return nil
}

// Endpoint returns the URL of the API server, https://127.0.0.1:port.
func (c *Cluster) Endpoint() string { return c.endpoint }

// CA returns the PEM certificate that signed the API server's.
func (c *Cluster) CA() []byte { return slices.Clone(c.ca.pem) }

// Dir returns the folder of the certificates, the data and the logs.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig returns the path of a kubeconfig file (mode 0600) for the administrator.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// WriteKubeconfig writes the administrator's kubeconfig to path, mode 0600.
func (c *Cluster) WriteKubeconfig(path string) error {
	return writeKubeconfig(path, c.AdminConfig())
}

// AdminConfig returns a client configuration that may do everything and has no limit of its own on requests.
func (c *Cluster) AdminConfig() *rest.Config { return c.config(c.admin) }

// UserConfig returns a client configuration for a user with groups, by a client certificate made for it. RBAC and, for
// system:node: users in group system:nodes, the Node authorizer judge it.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	p, err := c.ca.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return c.config(p), nil
}

func (c *Cluster) config(p pair) *rest.Config {
	return &rest.Config{
		Host:            c.endpoint,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA(), CertData: p.cert, KeyData: p.key},
		QPS:             -1,
	}
}

// Done is closed when a process has ended that should run. Stop does not close it.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err returns which process ended by itself, with the last lines of its log; nil as long as all is well.
func (c *Cluster) Err() error {
	select {
	case <-c.done:
		return c.deathErr
	default:
		return nil
	}
}

// Stop ends all processes in order and removes a temporary folder. A process that has not ended when ctx does is
// killed; either way none is left. Only the first call acts, later ones wait for it and return the same.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() {
		close(c.stopping)
		var errs []error
		// The API server hangs in its own shutdown once etcd is gone, so the reverse of the start it is. The two that
		// only use the API end together.
		const etcdAndAPI = 2
		servers := c.processes[:min(len(c.processes), etcdAndAPI)]
		users := c.processes[len(servers):]
		results := make(chan error, len(users))
		for _, p := range users {
			go func() { results <- p.stop(ctx) }()
		}
		for range users {
			errs = append(errs, <-results)
		}
		for _, p := range slices.Backward(servers) {
			errs = append(errs, p.stop(ctx))
		}
		if c.temporary {
			errs = append(errs, os.RemoveAll(c.dir))
		}
		c.stopErr = errors.Join(errs...)
	})
	return c.stopErr
}

// kill ends what a failed start has started. It keeps the logs, also of a temporary folder: the error names them.
func (c *Cluster) kill() error {
	c.temporary = false
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Stop(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *Cluster) logs() string { return filepath.Join(c.dir, "logs") }

func (c *Cluster) adminClient() (*http.Client, error) { return rest.HTTPClientFor(c.AdminConfig()) }

// writeKubeconfig writes JSON, which every reader of kubeconfig files takes as the YAML that it is.
func writeKubeconfig(path string, c *rest.Config) error {
	const name = "local"
	text, err := json.MarshalIndent(api.Config{
		APIVersion: "v1",
		Kind:       "Config",
		Clusters: []api.NamedCluster{{Name: name, Cluster: api.Cluster{
			Server: c.Host, CertificateAuthorityData: c.CAData,
		}}},
		AuthInfos: []api.NamedAuthInfo{{Name: name, AuthInfo: api.AuthInfo{
			ClientCertificateData: c.CertData, ClientKeyData: c.KeyData,
		}}},
		Contexts:       []api.NamedContext{{Name: name, Context: api.Context{Cluster: name, AuthInfo: name}}},
		CurrentContext: name,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// say writes one line of progress; that it cannot be shown is no reason to stop.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "control plane: "+format+"\n", args...)
}
