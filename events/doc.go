// Package events embeds one sample of every event that Treadle reacts to, and the EventBridge patterns that let events of EC2 and Health
// through. Tests decode the samples and hold them against the patterns, and the local stack and sam local invoke send the same files.
package events
