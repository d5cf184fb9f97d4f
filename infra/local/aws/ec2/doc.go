// Package ec2 is an EC2 that lives in one process: the calls that a node autoscaler makes, with the SDK's own shapes, EC2's
// error codes and instances that boot, run, get interrupted and end.
//
// A Service is used in two ways. Its methods have the signatures of the SDK's client, so it stands in for one in a test; and it
// is an http.Handler for the query protocol, so that any SDK or the AWS CLI can be pointed at it. Both are the same calls:
// faults, throttles, authorization and the call log apply to both.
//
// The world holds a catalogue of real instance types with real On-Demand prices (see data/README.md), Spot prices that are
// synthetic, and, if asked for, a VPC with subnets, security group and EKS images for one cluster. Observe tells of each
// change in an instance's life; simulated kubelets and event buses hang on it.
//
// What is not emulated is refused, never ignored in silence: an unknown action, parameter or filter is an error. There are no
// volumes, addresses or attached interfaces beyond what describing an instance shows.
//
// Time is the standard library's, so a testing/synctest bubble has it in hand.
package ec2
