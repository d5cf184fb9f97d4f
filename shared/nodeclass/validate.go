package nodeclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// validate finds what would make a launch fail, as far as that can be told without asking EC2 (C-041 to C-046). status is what
// the selectors found, conditions what came of them.
func validate(class cluster.NodeClass, status cluster.NodeClassStatus, conditions cluster.Conditions, facts Facts) error {
	if class.Invalid != "" {
		return ruleError{reasonInvalidClass, class.Invalid}
	}
	f := familyOf(class.Spec)
	if f == unknownFamily {
		return ruleError{reasonInvalidClass, "neither amiFamily nor an alias names a family that is known"}
	}
	if f == al2023 && facts.ServiceCIDR == "" {
		return ruleError{reasonCIDR, "AL2023 has to be told the service CIDR of the cluster, which is not known"}
	}
	for _, kind := range []string{
		cluster.ConditionSubnetsReady, cluster.ConditionSecurityGroupsReady,
		cluster.ConditionAMIsReady, cluster.ConditionInstanceProfileReady,
	} {
		if one := conditions.Get(kind); one.Status != "True" {
			return ruleError{reasonDependencies, fmt.Sprintf("%s is %s: %s", kind, one.Status, one.Message)}
		}
	}
	if key := restricted(class.Spec.Tags); key != "" {
		return ruleError{reasonTags, fmt.Sprintf("tag %q is reserved", key)}
	}
	return validateUserData(class, status, facts)
}

// restricted returns the first tag key that a class must not set (C-011), or "".
func restricted(tags map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		switch key {
		case "", "eks:eks-cluster-name", cluster.LabelNodePool, "karpenter.sh/nodeclaim", cluster.LabelNodeClass:
			return key
		}
		if strings.HasPrefix(key, "kubernetes.io/cluster/") {
			return key
		}
	}
	return ""
}

// validateUserData renders what a node would be told, with a pod limit of the usual length and no labels of a pool.
func validateUserData(class cluster.NodeClass, status cluster.NodeClassStatus, facts Facts) error {
	class.Status = status
	const pods = 110
	text, err := userData(boot(Order{Facts: facts, Class: class, Claim: plan.Claim{}}, &group{image: status.AMIs[0], maxPods: pods}))
	if err != nil {
		return ruleError{reasonInvalidUserData, err.Error()}
	}
	if len(text) > maxUserData {
		return ruleError{reasonUserDataSize, fmt.Sprintf("user data is %d bytes, EC2 takes %d", len(text), maxUserData)}
	}
	return nil
}
