// Package lambda is AWS Lambda on one machine: it runs the very bootstrap binaries that are deployed and speaks the
// Lambda Runtime API to them.
//
// An execution environment is one process that handles one invocation at a time, stays warm for the next one, and is
// killed when its function's time is up. A function has as many environments as its concurrency allows. Each
// invocation leaves a Report with its duration, init time and peak memory.
//
// Functions are called by Invoke, InvokeAsync (two retries), a Function URL over TLS, and event source mappings from
// SQS; Deliver fits EventBridge and Scheduler. Kill and KillAfter end environments at a bad moment on purpose.
//
// What it leaves out: enforcing the memory size, CPU shares, extensions, layers, and response streaming.
package lambda
