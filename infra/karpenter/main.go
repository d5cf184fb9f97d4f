package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// modules publish definitions, the provider's last: where both have a file, the provider's adds its own rules to it.
var modules = []string{"sigs.k8s.io/karpenter", "github.com/aws/karpenter-provider-aws"}

func main() {
	out := flag.String("out", "", "folder to write the definitions to")
	flag.Parse()
	if err := run(*out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "karpenter:", err)
		os.Exit(1)
	}
}

// run writes the definitions to the folder and prints the path of each.
func run(out string, log io.Writer) error {
	if out == "" {
		return errors.New("no folder given: -out")
	}
	files, err := definitions()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	for name, from := range files {
		text, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("read definition: %w", err)
		}
		to := filepath.Join(out, name)
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return fmt.Errorf("write definition: %w", err)
		}
		if _, err := fmt.Fprintln(log, to); err != nil {
			return err
		}
	}
	return nil
}

// definitions returns the paths of the published files by their names.
func definitions() (map[string]string, error) {
	files := map[string]string{}
	for _, module := range modules {
		dir, err := locate(module)
		if err != nil {
			return nil, err
		}
		found, err := filepath.Glob(filepath.Join(dir, "pkg", "apis", "crds", "*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("find definitions: %w", err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("module %s: no definitions in %s", module, dir)
		}
		for _, path := range found {
			files[filepath.Base(path)] = path
		}
	}
	return files, nil
}

// locate downloads a module, unless it is there already, and returns its folder in the module cache.
func locate(module string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Stderr = &stderr
	answer, err := cmd.Output()
	var m struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(answer, &m); jsonErr == nil && m.Error != "" {
		return "", fmt.Errorf("download module %s: %s", module, m.Error)
	}
	if err != nil {
		return "", fmt.Errorf("download module %s: %w: %s", module, err, stderr.Bytes())
	}
	return m.Dir, nil
}
