// Package stack assembles the local stack: the emulated AWS, a real Kubernetes control plane that trusts its tokens, simulated
// kubelets on its instances, and Treadle's own bootstrap binaries run by a Lambda service, wired as they are deployed.
//
// Start returns a running stack with Treadle in it; everything in it talks over loopback, through the same protocols as in an
// account. Nothing of Treadle's code is linked here.
package stack
