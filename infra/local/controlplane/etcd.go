package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// newEtcdCommand returns etcd with one flag: everything it needs stands in etcd's own configuration file format.
func newEtcdCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:  "etcd",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runEtcd(file) },
	}
	cmd.Flags().StringVar(&file, "config-file", "", "etcd configuration file (required)")
	if err := cmd.MarkFlagRequired("config-file"); err != nil {
		panic(err) // the flag is declared one line above
	}
	return cmd
}

func runEtcd(file string) error {
	cfg, err := embed.ConfigFromFile(file)
	if err != nil {
		return fmt.Errorf("read etcd configuration %s: %w", file, err)
	}
	ctx, stop := signalled()
	defer stop()
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return nil
	case <-server.Server.StopNotify():
		return fmt.Errorf("etcd stopped by itself")
	case err := <-server.Err():
		return fmt.Errorf("serve etcd: %w", err)
	}
}
