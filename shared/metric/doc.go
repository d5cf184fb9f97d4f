// Package metric counts what a function does, as CloudWatch metrics in the embedded metric format: a JSON line on standard
// output that CloudWatch Logs turns into metrics. No call, no agent, no SDK.
package metric
