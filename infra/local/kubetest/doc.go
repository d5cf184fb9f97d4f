// Package kubetest holds the tests of package kube against a real API server: what the server accepts, refuses and sends
// is its word, not a fake's. It starts etcd and kube-apiserver once for all tests.
package kubetest
