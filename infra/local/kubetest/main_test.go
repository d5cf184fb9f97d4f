package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientgo "k8s.io/client-go/kubernetes"

	"treadle/infra/local/kubernetes"
	"treadle/shared/kube"
)

// server is the control plane of all tests; it is set before the first one runs.
var server *kubernetes.Cluster

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubetest:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	server, err = kubernetes.Start(ctx, kubernetes.Options{
		SkipScheduler: true, Controllers: []string{"serviceaccount-controller"}, Progress: os.Stderr,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	files, err := definitions()
	if err != nil {
		return 0, err
	}
	c, err := admin()
	if err != nil {
		return 0, err
	}
	if err := c.Apply(ctx, files); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

func stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return server.Stop(ctx)
}

// definitions returns Karpenter's CustomResourceDefinitions as one file.
func definitions() ([]byte, error) {
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "run", ".", "-out", dir)
	cmd.Dir = filepath.Join("..", "..", "karpenter")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("fetch definitions: %w: %s", err, out)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return bytes.Join(all, []byte("\n---\n")), nil
}

// admin returns a client of package kube that may do everything.
func admin() (*kube.Client, error) {
	c := server.AdminConfig()
	return kube.New(kube.Config{
		Cluster: "demo", Endpoint: c.Host, CA: c.CAData, ClientCert: c.CertData, ClientKey: c.KeyData, UserAgent: "kubetest",
	})
}

func client(tb testing.TB) *kube.Client {
	tb.Helper()
	c, err := admin()
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// upstream returns Kubernetes' own client, to make what the tests read.
func upstream(tb testing.TB) *clientgo.Clientset {
	tb.Helper()
	config := server.AdminConfig()
	config.QPS, config.Burst = 1000, 1000
	c, err := clientgo.NewForConfig(config)
	require.NoError(tb, err)
	return c
}
