package events

import "embed"

// Samples holds the sample events by file name.
//
//go:embed *.json
var Samples embed.FS
