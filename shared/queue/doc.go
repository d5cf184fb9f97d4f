// Package queue sends wake-ups and takes batches of them apart, over SQS FIFO queues whose message group is the cluster.
//
// A queue delays each message by one second and drops a message whose deduplication id it saw before; the id is the cluster
// and the second of sending. So a burst of a thousand hints is one message, delivered only after the second that it stands
// for is over: whatever was dropped is a fact that the woken function will find in the API. Delay and id must stay equal.
package queue
