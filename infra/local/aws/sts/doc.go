// Package sts is the part of AWS STS that tells who a caller is. It knows the access keys of the local stack and the
// role that stands behind each; one key id names one role session.
//
// Verify checks a presigned GetCallerIdentity request the way STS does when an EKS token is presented: signature,
// scope, host and session token. It is the only place of the local stack that checks a signature.
package sts
