// Package rpc lets a Go value that has the methods of an SDK client be called over HTTP by that SDK.
//
// A service lists its methods with Bind, and one of three fronts serves them: JSON (SQS, SSM, EventBridge, DynamoDB,
// Pricing), REST (EKS, Scheduler) or Query (IAM, STS). One reflective codec turns wire values into the SDK's own
// input types and its output types back; a member that the input type lacks is refused, so drift shows at once.
//
// Every request passes the Hooks: the fault hook may fail it before or after it took effect, and the log keeps
// who called what with which result. Calls made in process bypass both.
//
// The package never checks signatures and never looks at the host name.
package rpc
