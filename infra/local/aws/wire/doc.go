// Package wire speaks EC2's query protocol with the SDK's own shapes: Decode turns a posted form into an input struct, Encode
// turns an output struct into the XML answer, and Error is a failure as EC2 writes it, which is also the smithy.APIError that
// the SDK's callers match on. So a fake written against the SDK's types serves in process and over HTTP alike.
//
// The names on the wire come from the pinned SDK module: go generate reads them out of its serializers into names.go.
//
// wire knows no operation: it never looks into a request beyond its names and types.
package wire

//go:generate go run ./gennames -out names.go CreateFleet CreateLaunchTemplate CreateTags DeleteLaunchTemplate DeleteTags DescribeAvailabilityZones DescribeCapacityReservations DescribeImages DescribeInstanceStatus DescribeInstanceTypeOfferings DescribeInstanceTypes DescribeInstances DescribeLaunchTemplateVersions DescribeLaunchTemplates DescribePlacementGroups DescribeSecurityGroups DescribeSpotPriceHistory DescribeSubnets DescribeTags RunInstances TerminateInstances
