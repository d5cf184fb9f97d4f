// Package treadle is Treadle as a CDK construct: queues, functions, their rights, rules, schedules, what they remember, and alarms; and
// for each cluster its access entries and the installation into it. New adds it to a stack.
package treadle
