// Package fleet launches, describes, tags and ends EC2 instances: the only importer of the calls that cost money.
//
// Launch makes one CreateFleet request of type instant for a group of equal claims and returns every instance id in the
// answer, also of an answer that reports errors; the errors are refusals, news about capacity. What EC2's error codes mean is
// in one table, in errors.go; nothing above this package reads a code.
//
// The package never decides what to launch or end, and it never repeats a throttled call: a throttle is "not tried".
package fleet
