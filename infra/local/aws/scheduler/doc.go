// Package scheduler is Amazon EventBridge Scheduler in memory: schedules that fire once (at) or again and again (rate),
// in groups, to a target by its ARN.
//
// Schedules really fire, within a moment of their time rather than within their minute. A delivery that fails is tried
// again for a while, then goes to the dead-letter queue. A schedule made for a time that is more than a minute past is
// refused. New must be followed by Close.
//
// Left out: cron expressions, flexible windows, and permission checks of the execution role.
package scheduler
