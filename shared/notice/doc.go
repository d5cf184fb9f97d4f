// Package notice decodes what wakes Treadle, from bytes to one typed value each: admission reviews of the webhook, wake-ups from a
// queue, and the events of EC2 and Health. It is strict: what it cannot read completely is an error that names the field, never a guess.
//
// Apart from interruptions a notice is only a hint to look at a cluster; it never carries the facts that a decision is made
// from.
package notice
