// Package signed makes the few calls to SSM and IAM that node classes need, as signed HTTP.
//
// The SDKs of the two services would make the binary 2 MB larger and double the time that it takes to start, for a handful of
// calls; signing and the HTTP client are in the SDK's core, which every function links anyway. A Client is a nodeclass.Parameters and a
// nodeclass.Profiles.
package signed
