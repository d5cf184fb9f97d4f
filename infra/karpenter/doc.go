// Command karpenter copies the CustomResourceDefinitions that Karpenter publishes in its Go modules to a folder:
//
//	go run . -out ../../build/crds
//
// Treadle serves Karpenter's API and does not keep copies of its files. The versions are those in this module's go.mod. The tests
// hold what package kube reads and writes of that API against the published schemas.
//
// Only the YAML files of the two modules are used and nothing of them is compiled, so nothing imports them: go mod tidy would
// take them out of go.mod.
package main
