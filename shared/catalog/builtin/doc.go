// Package builtin is a catalogue that comes with the functions: for the first minutes of a deployment, before the function catalog
// has stored one, and for networks without a way to S3.
//
// It is of us-east-1, and its prices are those of the day that it was made. In another region the types are right and the zones are
// not, so nothing is offered from it there, and pods wait for the stored one. README.md names its source; the test beside the
// emulator's makes and checks it.
package builtin
