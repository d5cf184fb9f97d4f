// Package sqs is Amazon SQS in memory: standard and FIFO queues behind the methods of the SDK's client.
//
// What it keeps of the real service: a message group gives nothing more while any of its messages is in flight;
// a deduplication id is remembered for five minutes, also after its message was deleted; the delay of a FIFO queue is
// the queue's alone; a message that was received too often moves to the dead-letter queue when it is next asked for;
// receipt handles of FIFO messages expire with the visibility; a long poll ends as soon as there is a message.
//
// What it leaves out: encryption, queue policies, move tasks, and losing or repeating messages of its own accord.
//
// New is the entry point; Handler serves a Service to SDK clients.
package sqs
