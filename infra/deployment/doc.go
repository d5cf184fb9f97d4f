// Package deployment is the one table of Treadle's functions: what starts each, what it is given, and what it may do. The CDK app deploys
// it into an account, the local stack deploys it on one machine, and tests hold the calls that functions make against the rights that
// it gives them.
package deployment
