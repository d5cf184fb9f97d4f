// Package plan holds what a decision will change and what it refused, as data.
//
// A Plan says on which node each pod is expected to run, which node claims to make for the rest, and why a pod fits nowhere.
// A Launch is the request to EC2 that a claim stands for. Ids and tokens are functions of their content, so the same
// decision has the same id wherever it is made.
package plan
