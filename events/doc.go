// Package events embeds one sample of every event that Treadle reacts to. Tests decode them, and the local stack and
// sam local invoke send the same files.
package events
