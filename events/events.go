package events

import "embed"

// Samples holds the sample events by file name.
//
//go:embed *.json
var Samples embed.FS

// Patterns holds, below patterns/, the EventBridge patterns of the rules that feed the function interruption.
//
//go:embed patterns/*.json
var Patterns embed.FS
