package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	build  string        // folder of local-run and of what is written
	suite  string        // regression or performance
	specs  string        // regular expression over the specs' names; empty: all
	vcpus  int           // of every node; zero: any
	table  bool          // only write docs, from what was run before
	docs   string        // file for the table in Markdown; empty: none
	boot   time.Duration // of an instance
	limit  time.Duration // of the whole suite
	passes int           // how often the suite is run, on one stack
}

func main() {
	var o options
	flag.StringVar(&o.build, "build", "../../build", "folder of local-run and the functions; conformance.json goes there")
	flag.StringVar(&o.suite, "suite", "regression", "regression or performance")
	flag.StringVar(&o.specs, "specs", "", "regular expression over the names of specs; the others are left out")
	flag.IntVar(&o.vcpus, "vcpus", 0, "size of every node; the CapacityBuffer specs count on 2")
	flag.BoolVar(&o.table, "table", false, "run nothing: write -docs from the results of earlier runs")
	flag.StringVar(&o.docs, "docs", "", "file for the table in Markdown")
	flag.DurationVar(&o.boot, "boot", 5*time.Second, "how long an instance takes to boot")
	flag.DurationVar(&o.limit, "limit", 5*time.Hour, "limit for one run of the suite")
	flag.IntVar(&o.passes, "passes", 1, "how often to run the suite")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.suite != "regression" && o.suite != "performance" {
		return fmt.Errorf("-suite %q: it is regression or performance", o.suite)
	}
	build, err := filepath.Abs(o.build)
	if err != nil {
		return err
	}
	results := filepath.Join(build, "conformance.json")
	if o.table {
		var all report
		if err := all.remember(results); err != nil {
			return err
		}
		return all.write(results, o.docs)
	}
	dir := filepath.Join(build, "conformance")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	suite, err := compile(ctx, dir, o.suite, o.vcpus)
	if err != nil {
		return err
	}
	stack, err := startStack(ctx, build, o.boot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.stop()) }()
	var all report
	for pass := range o.passes {
		file := filepath.Join(dir, fmt.Sprintf("%s-%d", o.suite, pass+1))
		specs, err := suite.run(ctx, stack.kubeconfig, file, o)
		if err != nil {
			return err
		}
		all.add(specs)
	}
	all.print(os.Stdout)
	failed := all.Failed
	if err := all.remember(results); err != nil {
		return err
	}
	if err := all.write(results, o.docs); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d specs failed", failed)
	}
	return nil
}
