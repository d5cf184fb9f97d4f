// Package awstest holds the adapters of the product against the emulated AWS: catalogue, node classes and launches through the real
// SDK, over HTTP, with the faults that EC2 has. It has tests only.
package awstest
