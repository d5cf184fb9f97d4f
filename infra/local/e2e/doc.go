// Package e2e tests Treadle as it is deployed: the functions' own binaries, on the local stack, with a real control plane and the
// real scheduler as the judge. It needs the folder build (make build).
//
// Starting a stack takes seconds, so tests take turns with one: turn gives a test the shared stack, empty, and sees to it that
// the test leaves it so. Whoever needs other options starts a stack of its own. Benchmarks are programs to be run by hand; they
// print figures.
package e2e
