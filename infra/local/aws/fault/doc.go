// Package fault decides what goes wrong in the emulated cloud: pools without capacity, throttled and denied calls, replies
// that get lost, instances that come up late, badly or not at all.
//
// A Document lists Rules; an Injector holds those in force, and the emulator asks it at each point where a rule could act.
// Nothing fails unless a rule says so, all chance comes from the document's seed, and each rule that acts is recorded in
// Fired, so that a test can hold that its fault really happened. Log keeps the calls that were made, for tests that count them.
//
// Terms: a pool is one instance type in one zone of one capacity type (spot, on-demand, reserved). An act is something that
// happens to the world once (a Spot interruption, a new image), as against a rule, which stays in force.
//
// Handler is the HTTP side of all this. A document that takes large Spot instances away in one zone and throttles launching:
//
//	{"seed": 7, "rules": [
//	  {"fault": "no-capacity", "type": "*.?xlarge", "zone": "us-east-1a", "capacity": "spot", "stock": 2},
//	  {"fault": "throttle", "actions": ["CreateFleet"]}]}
package fault
