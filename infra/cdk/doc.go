// Command cdk is the CDK app that puts Treadle into an account: `cdk deploy` at the top of the repository runs it. What it deploys is the
// construct in package treadle, which fits into other apps as well.
package main
