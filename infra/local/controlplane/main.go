package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // request metrics of the component's own client
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// leash is the environment variable that ties the process to its parent: with the value "stdin" it ends as soon as its
// standard input is closed, which the operating system does even when the parent is killed.
const leash = "CONTROLPLANE_LEASH"

func main() {
	if os.Getenv(leash) == "stdin" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // an error, too, means that the parent is gone
			os.Exit(1)
		}()
	}
	name := filepath.Base(os.Args[0])
	if !known(name) && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	os.Exit(run(name))
}

func known(name string) bool {
	switch name {
	case "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager":
		return true
	}
	return false
}

// run runs one component until it is told to stop and returns its exit code.
func run(name string) int {
	var cmd *cobra.Command
	switch name {
	case "etcd":
		cmd = newEtcdCommand()
	case "kube-apiserver":
		cmd = apiserver.NewAPIServerCommand()
	case "kube-scheduler":
		cmd = scheduler.NewSchedulerCommand()
	case "kube-controller-manager":
		cmd = newControllersCommand()
	default:
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-scheduler|kube-controller-manager [flags]")
		return 2
	}
	return cli.Run(cmd)
}

// signalled returns a context that ends at the first SIGTERM or SIGINT; the second one kills, as no handler is left.
func signalled() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
