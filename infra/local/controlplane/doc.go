// Command controlplane is the Kubernetes control plane of the local stack in one binary: etcd, kube-apiserver,
// kube-scheduler and a kube-controller-manager that carries only the controllers a node autoscaler meets.
//
// The first argument, or the name that the binary is started under, selects the component; the rest are its flags.
// One component runs per process, because the Kubernetes packages share feature gates and metrics in globals.
//
// API server and scheduler are the upstream commands and take the upstream flags. etcd takes one --config-file.
// The controller manager is assembled here, see controllers.go: the upstream command links volume plugins and
// kubelet code that nothing in the local stack uses.
//
// It is a module of its own, so that the Kubernetes servers and their replace lines stay out of every other go.mod.
// Package treadle/infra/local/kubernetes builds, starts and stops it.
package main
