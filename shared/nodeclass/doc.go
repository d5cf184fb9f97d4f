// Package nodeclass turns an EC2NodeClass into things of EC2: it resolves the selectors of a class into subnets, security
// groups, images, reservations and an instance profile, and it makes the launch templates that instances start from.
//
// Resolver.Resolve reads and yields a status; every condition that is not True names the rule that failed. Templates.Prepare
// yields the plan.LaunchConfigs of a claim: templates named after a hash of their content, so that making one twice is
// harmless, and for each zone the subnet with the most free addresses, launches in flight counted in.
//
// SSM and IAM are reached through two small interfaces. Package signed, below this one, serves both with signed HTTP, because
// their SDKs would make each cold start longer for the sake of a few calls.
//
// Terms: a family is a kind of image with its way of being told about the cluster (AL2, AL2023, Bottlerocket, Windows, Custom).
package nodeclass
