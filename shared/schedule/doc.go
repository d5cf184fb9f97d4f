// Package schedule makes EventBridge Scheduler call the function expiry at the instant at which a NodeClaim expires: one schedule for
// each claim, named after the claim's UID, which deletes itself once it has fired.
//
// The requests are signed and sent as they are: the service's SDK would add a third of a megabyte to a function, for three calls.
package schedule
