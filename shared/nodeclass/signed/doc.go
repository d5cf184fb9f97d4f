// Package signed makes the few calls to SSM and IAM that node classes need, as signed HTTP.
//
// The SDKs of the two services would add about 12 ms and 3 MB to every cold start of a function for four calls; signing and
// the HTTP client are in the SDK's core, which every function links anyway. A Client is a nodeclass.Parameters and a
// nodeclass.Profiles.
package signed
