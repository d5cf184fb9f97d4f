// Package eks is the part of Amazon EKS that describes clusters and says who may enter them: DescribeCluster, access
// entries and access policies, and the authenticator that turns an EKS token into a Kubernetes user.
//
// The authenticator speaks TokenReview, so a real API server asks it by webhook. A token is good if STS would accept
// it with this cluster's name in the header, and if the cluster has an access entry for the role behind it. An access
// policy of the entry shows as the group eks:access-policy:NAME, because the local stack has no EKS authorizer: bind
// RBAC to that group.
//
// New is the entry point; AddCluster makes a cluster known that somebody else runs.
package eks
