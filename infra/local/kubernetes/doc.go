// Package kubernetes builds, starts and stops the real Kubernetes control plane of the local stack: etcd,
// kube-apiserver, kube-scheduler and the controllers, each in a process of its own on 127.0.0.1.
//
// [Build] compiles module treadle/infra/local/controlplane once into the user's cache folder. [Start] makes
// certificates and a data folder, starts the processes and returns a [Cluster] that accepts pods. Nodes are not part
// of it: whoever plays the kubelet registers them as a client.
//
// It never restarts a process: one that dies closes [Cluster.Done] and is explained by [Cluster.Err]. All of them end
// when the process that called Start ends, however that happens.
package kubernetes
