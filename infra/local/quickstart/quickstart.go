package quickstart

import "embed"

// Files holds the manifests: default.yaml and gpu.yaml.
//
//go:embed *.yaml
var Files embed.FS
