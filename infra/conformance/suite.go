package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// What the suites make their pools and classes from.
var (
	//go:embed nodepool.yaml
	nodePool []byte
	//go:embed nodeclass.yaml
	nodeClass []byte
)

// suite is one of Karpenter's suites, compiled.
type suite struct {
	binary, pool, class string
}

// compile builds the suite's test binary from Karpenter's module.
func compile(ctx context.Context, dir, name string, vcpus int) (*suite, error) {
	s := &suite{
		binary: filepath.Join(dir, name+".test"), pool: filepath.Join(dir, "nodepool.yaml"), class: filepath.Join(dir, "nodeclass.yaml"),
	}
	pools := nodePool
	if vcpus > 0 {
		pools = fmt.Appendf(pools, "        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [%q]}\n", strconv.Itoa(vcpus))
	}
	if err := errors.Join(os.WriteFile(s.pool, pools, 0o644), os.WriteFile(s.class, nodeClass, 0o644)); err != nil {
		return nil, err
	}
	fmt.Println("building Karpenter's suite", name)
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", s.binary, "sigs.k8s.io/karpenter/test/suites/"+name)
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build suite %s: %w", name, err)
	}
	return s, nil
}

// run runs the specs that were asked for and returns how they went. What the suite prints goes to file.log, its report to file.json. A
// spec that fails is a result, not an error.
func (s *suite) run(ctx context.Context, kubeconfig, file string, o options) ([]types.SpecReport, error) {
	log, err := os.Create(file + ".log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	args := []string{
		"-test.v", "-test.timeout=0", "-ginkgo.v", "-ginkgo.no-color", "-ginkgo.timeout=" + o.limit.String(),
		"-ginkgo.json-report=" + file + ".json", "-default-nodepool=" + s.pool, "-default-nodeclass=" + s.class,
	}
	if o.specs != "" {
		args = append(args, "-ginkgo.focus="+o.specs)
	}
	for name := range inapplicable() {
		args = append(args, "-ginkgo.skip="+name)
	}
	fmt.Printf("running suite %s; its output goes to %s.log\n", o.suite, file)
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Dir = filepath.Dir(file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	runErr := cmd.Run()
	body, err := os.ReadFile(file + ".json")
	if err != nil {
		return nil, fmt.Errorf("suite %s ended without a report, see %s.log: %w", o.suite, file, errors.Join(runErr, err))
	}
	var reports []types.Report
	if err := json.Unmarshal(body, &reports); err != nil {
		return nil, fmt.Errorf("read %s.json: %w", file, err)
	}
	var specs []types.SpecReport
	for _, one := range reports {
		specs = append(specs, one.SpecReports...)
	}
	return specs, ctx.Err()
}

// stack is the local stack in a process of its own: its Kubernetes is newer than the one that Karpenter is built for, and one program
// cannot hold both.
type stack struct {
	process    *exec.Cmd
	kubeconfig string
}

// startStack starts the local stack with an empty cluster and returns when that is ready.
func startStack(ctx context.Context, build string, boot time.Duration) (*stack, error) {
	s := &stack{process: exec.CommandContext(ctx, filepath.Join(build, "local-run"), "-build", build, "-empty", "-boot", boot.String())}
	s.process.Stderr = os.Stderr
	s.process.Cancel = func() error { return s.process.Process.Signal(syscall.SIGTERM) }
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start the local stack: %w", err)
	}
	lines := bufio.NewScanner(out)
	for s.kubeconfig == "" && lines.Scan() {
		_, s.kubeconfig, _ = strings.Cut(lines.Text(), "export KUBECONFIG=")
		if s.kubeconfig == "" {
			fmt.Println(lines.Text())
		}
	}
	if s.kubeconfig == "" {
		return nil, errors.Join(errors.New("the local stack ended before it was ready"), lines.Err(), s.process.Wait())
	}
	go func() { // or it blocks on a full pipe
		for lines.Scan() {
			continue
		}
	}()
	return s, nil
}

func (s *stack) stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the local stack: %w", err)
	}
	if err := s.process.Wait(); err != nil && s.process.ProcessState == nil {
		return fmt.Errorf("stop the local stack: %w", err)
	}
	return nil
}
