// Package events is Amazon EventBridge in memory: the default bus, rules by pattern or rate, and targets.
//
// PutEvents takes what an account may send; Emit takes what only AWS itself sends, such as EC2's notices. A target gets
// each event through the Deliverer; a delivery that fails is tried again for a while, and then goes to the target's
// dead-letter queue. New must be followed by Close when rules fire by rate.
//
// Left out: other buses, archives, pipes, cron expressions, and permission checks.
package events
