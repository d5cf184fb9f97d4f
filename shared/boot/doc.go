// Package boot starts a function: it reads the settings that a main declares, builds the AWS configuration and the logger, and
// runs the handler under Lambda, or once, on an event from standard input, when started outside of it.
//
// It is the only reader of the environment and the owner of the real clock; a test holds that. It links no SDK of an AWS
// service and not the SDK's config module: on Lambda, region and credentials are in the environment, and leaving the module
// out saves ten milliseconds of every cold start.
package boot
