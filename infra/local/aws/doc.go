// Package aws is the AWS of the local stack: every service that Treadle calls, in one process, behind one HTTP handler
// that real SDKs and the AWS CLI reach by endpoint URL.
//
// The handler finds the service by the header X-Amz-Target, by the signature's scope, or by the version of a form;
// never by the host name, so one address and port serve all. Signatures are not checked.
//
// New builds the services beside EC2 and Lambda, which come as handlers of their own, and wires what EventBridge and
// Scheduler deliver to. Each service can also be called in process, through methods that have the signatures of the SDK's client.
package aws
