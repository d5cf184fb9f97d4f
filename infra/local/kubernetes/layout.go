package kubernetes

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// auditPolicy logs what EKS is documented to log, at the level at which it does.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// layout is the arguments of each component.
type layout struct {
	etcd, apiServer, scheduler, controllers []string
}

// layOut fills the folder with certificates and configuration files, chooses ports, and sets the cluster's endpoint,
// authority and administrator. Files of an earlier start are replaced, etcd's data is kept.
func (c *Cluster) layOut(o Options) (layout, error) {
	for _, dir := range []string{c.logs(), c.path("pki"), c.path("etcd")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return layout{}, err
		}
	}
	ports, err := freePorts(3)
	if err != nil {
		return layout{}, err
	}
	if o.Port != 0 {
		ports[0] = o.Port
	}
	c.endpoint = local(ports[0])
	client, peer := local(ports[1]), local(ports[2])

	if err := c.makePKI(o); err != nil {
		return layout{}, err
	}
	if err := c.writeJSON("etcd.json", c.etcdConfig(client, peer, !o.Fsync)); err != nil {
		return layout{}, err
	}
	if err := c.writeJSON("scheduler.json", c.schedulerConfig(o)); err != nil {
		return layout{}, err
	}
	if err := os.WriteFile(c.path("audit-policy.yaml"), auditPolicy, 0o600); err != nil {
		return layout{}, err
	}
	return layout{
		etcd:      []string{"--config-file=" + c.path("etcd.json")},
		apiServer: c.apiServerArgs(o, ports[0], client),
		scheduler: []string{
			"--config=" + c.path("scheduler.json"),
			"--secure-port=0", // its metrics would need delegated authentication, and nobody reads them
		},
		controllers: []string{
			"--kubeconfig=" + c.path("controllers.kubeconfig"),
			"--controllers=" + strings.Join(o.Controllers, ","),
			fmt.Sprintf("--kube-api-qps=%g", o.ControllerQPS),
			fmt.Sprintf("--kube-api-burst=%d", o.ControllerBurst),
			fmt.Sprintf("--node-monitor-grace-period=%s", o.NodeMonitorGrace),
			fmt.Sprintf("--node-startup-grace-period=%s", o.NodeMonitorGrace*6/5),
			fmt.Sprintf("--node-monitor-period=%s", o.NodeMonitorGrace/10),
		},
	}, nil
}

// makePKI makes two authorities, so that no certificate of a Kubernetes user opens etcd.
func (c *Cluster) makePKI(o Options) error {
	storage, err := newAuthority("treadle-local-etcd")
	if err != nil {
		return err
	}
	if c.ca, err = newAuthority("treadle-local"); err != nil {
		return err
	}
	serviceIP, err := firstAddress(o.ServiceCIDR)
	if err != nil {
		return err
	}
	_, accountKey, err := newKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{"pki/ca.crt": c.ca.pem, "pki/etcd-ca.crt": storage.pem, "pki/accounts.key": accountKey}
	issue := func(name string, p pair, err error) error {
		files["pki/"+name+".crt"], files["pki/"+name+".key"] = p.cert, p.key
		return err
	}
	var controllers, scheduler pair
	server, serverErr := c.ca.server(apiServer, serviceIP, "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	etcdServer, etcdErr := storage.server(etcd)
	etcdClient, clientErr := storage.client(apiServer)
	var errs []error
	errs = append(errs, issue("apiserver", server, serverErr), issue("etcd", etcdServer, etcdErr), issue("etcd-client", etcdClient, clientErr))
	c.admin, err = c.ca.client("treadle-admin", "system:masters")
	errs = append(errs, err)
	// The controllers impersonate their service accounts, which their bootstrap role does not allow.
	controllers, err = c.ca.client("system:kube-controller-manager", "system:masters")
	errs = append(errs, err)
	scheduler, err = c.ca.client("system:kube-scheduler")
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	for name, p := range map[string]pair{
		"kubeconfig": c.admin, "controllers.kubeconfig": controllers, "scheduler.kubeconfig": scheduler,
	} {
		if err := writeKubeconfig(c.path(name), c.config(p)); err != nil {
			return err
		}
	}
	if o.TokenWebhookURL == "" {
		return nil
	}
	return writeKubeconfig(c.path("token-webhook.kubeconfig"), &rest.Config{
		Host: o.TokenWebhookURL, TLSClientConfig: rest.TLSClientConfig{CAData: o.TokenWebhookCA},
	})
}

func (c *Cluster) etcdConfig(client, peer string, noFsync bool) map[string]any {
	tls := map[string]any{
		"cert-file": c.path("pki/etcd.crt"), "key-file": c.path("pki/etcd.key"),
		"client-cert-auth": true, "trusted-ca-file": c.path("pki/etcd-ca.crt"),
	}
	return map[string]any{
		"name": "local", "data-dir": c.path("etcd"), "log-level": "warn",
		"listen-client-urls": client, "advertise-client-urls": client, "client-transport-security": tls,
		"listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "peer-transport-security": tls,
		"initial-cluster":     "local=" + peer,
		"unsafe-no-fsync":     noFsync,
		"quota-backend-bytes": 8 << 30, // fifty thousand pods and their history pass etcd's own 2 GiB
	}
}

func (c *Cluster) schedulerConfig(o Options) map[string]any {
	return map[string]any{
		"apiVersion":     "kubescheduler.config.k8s.io/v1",
		"kind":           "KubeSchedulerConfiguration",
		"leaderElection": map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{
			"kubeconfig": c.path("scheduler.kubeconfig"), "qps": o.SchedulerQPS, "burst": o.SchedulerBurst,
		},
	}
}

func (c *Cluster) apiServerArgs(o Options, port int, etcdURL string) []string {
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--etcd-cafile=" + c.path("pki/etcd-ca.crt"),
		"--etcd-certfile=" + c.path("pki/etcd-client.crt"),
		"--etcd-keyfile=" + c.path("pki/etcd-client.key"),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--endpoint-reconciler-type=none", // loopback may not be an endpoint
		"--tls-cert-file=" + c.path("pki/apiserver.crt"),
		"--tls-private-key-file=" + c.path("pki/apiserver.key"),
		"--client-ca-file=" + c.path("pki/ca.crt"),
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("pki/accounts.key"),
		"--service-account-signing-key-file=" + c.path("pki/accounts.key"),
		"--service-cluster-ip-range=" + o.ServiceCIDR,
		"--profiling=false",
		// Ten thousand simulated kubelets share one machine with the server: queue their requests, refuse none.
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
	}
	if o.TokenWebhookURL != "" {
		args = append(args,
			"--authentication-token-webhook-config-file="+c.path("token-webhook.kubeconfig"),
			"--authentication-token-webhook-version=v1",
			"--authentication-token-webhook-cache-ttl=10s") // a test changes access entries and wants to see it
	}
	if o.AuditLog {
		args = append(args,
			"--audit-policy-file="+c.path("audit-policy.yaml"),
			"--audit-log-path="+filepath.Join(c.logs(), "audit.log"))
	}
	return args
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path(name), text, 0o600)
}

func local(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// firstAddress returns the address that the service "kubernetes" gets: the first one of the range.
func firstAddress(cidr string) (string, error) {
	_, ipNet, err := net.ParseCIDR(cidr)
	if err != nil {
		return "", fmt.Errorf("service range: %w", err)
	}
	ip := ipNet.IP
	ip[len(ip)-1]++
	return ip.String(), nil
}
