// Package simtest is a cluster and its EC2 account in memory, for tests of what is decided about them and written to them.
//
// World answers as the API server and EC2 do where that decides something: finalizers hold deleted objects, a changed list with
// an old resource version is a conflict, a repeated client token answers as the first time. It can be stopped after any
// write, as a killed function is, and runs on a clock of its own.
package simtest
