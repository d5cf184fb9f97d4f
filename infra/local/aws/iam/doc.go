// Package iam is the part of AWS IAM that instances need: roles, which AddRole makes known, and instance profiles with
// their paths, tags and the one role that each may hold. Policies are neither kept nor evaluated.
package iam
