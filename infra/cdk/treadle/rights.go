package treadle

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"treadle/infra/deployment"
)

// clusterTag and poolTag are on everything that a launch makes (L-026, O-041); one condition on the first serves any number of clusters.
const (
	clusterTag = "eks:eks-cluster-name"
	poolTag    = "karpenter.sh/nodepool"
	classTag   = "karpenter.k8s.aws/ec2nodeclass"
)

// statement turns a right into a statement of a policy. The conditions are those of Karpenter's own policies (O-039 to O-056).
func (t *Treadle) statement(r deployment.Right) awsiam.PolicyStatement {
	resources, conditions := t.scope(r.On)
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings(r.Actions...), Resources: jsii.Strings(resources...), Conditions: &conditions,
	})
}

// scope returns the resources of a scope, and the conditions under which they are meant.
func (t *Treadle) scope(s deployment.Scope) (resources []string, conditions map[string]any) {
	tagged := func(kind, tag string) map[string]any {
		return map[string]any{
			"StringEquals": map[string]any{"aws:" + kind + "/" + clusterTag: t.clusters()},
			"StringLike":   map[string]any{"aws:" + kind + "/" + tag: "*"},
		}
	}
	inRegion := map[string]any{"StringEquals": map[string]any{"aws:RequestedRegion": t.region}}
	none := map[string]any{}
	switch s {
	case deployment.Clusters:
		return []string{*t.bucket.ArnForObjects(jsii.String("clusters/*"))}, none
	case deployment.Catalogue:
		return []string{*t.bucket.ArnForObjects(jsii.String("catalog/*"))}, none
	case deployment.Bucket:
		return []string{*t.bucket.BucketArn()}, none // a condition on the prefix would not hold for a GET
	case deployment.Table:
		return []string{*t.table.TableArn()}, none
	case deployment.Region:
		return []string{"*"}, inRegion
	case deployment.LaunchInputs:
		return t.ec2("image", "snapshot", "security-group", "subnet", "capacity-reservation", "placement-group"), none
	case deployment.Launched:
		return t.ec2("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"), tagged("RequestTag", poolTag)
	case deployment.Tagging:
		conditions = tagged("RequestTag", poolTag)
		conditions["StringEquals"].(map[string]any)["ec2:CreateAction"] = []string{"RunInstances", "CreateFleet", "CreateLaunchTemplate"}
		return t.ec2("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"), conditions
	case deployment.Templates:
		return t.ec2("launch-template"), tagged("ResourceTag", poolTag)
	case deployment.Instances:
		return t.ec2("instance"), tagged("ResourceTag", poolTag)
	case deployment.Names:
		conditions = tagged("ResourceTag", poolTag)
		conditions["ForAllValues:StringEquals"] = map[string]any{"aws:TagKeys": []string{clusterTag, "karpenter.sh/nodeclaim", "Name"}}
		return t.ec2("instance"), conditions
	case deployment.NodeRoles:
		return t.nodeRoles(), map[string]any{"StringEquals": map[string]any{"iam:PassedToService": "ec2.amazonaws.com"}}
	case deployment.NewProfiles:
		return []string{t.arn("iam", "", "instance-profile/*")}, tagged("RequestTag", classTag)
	case deployment.Profiles:
		return []string{t.arn("iam", "", "instance-profile/*")}, tagged("ResourceTag", classTag)
	case deployment.AllProfiles:
		return []string{t.arn("iam", "", "instance-profile/*")}, none
	case deployment.Images:
		return append([]string{fmt.Sprintf("arn:%s:ssm:%s::parameter/aws/service/*", t.partition, t.region)}, t.props.ImageParameters...), none
	case deployment.Prices, deployment.ProfileList:
		return []string{"*"}, none
	case deployment.Schedules:
		return []string{t.arn("scheduler", t.region, "schedule/"+t.group+"/*")}, none
	case deployment.SchedulerRole:
		return []string{*t.schedulerRole.RoleArn()}, map[string]any{"StringEquals": map[string]any{"iam:PassedToService": "scheduler.amazonaws.com"}}
	case deployment.EKS:
		return []string{t.arn("eks", t.region, "cluster/*")}, none
	}
	panic("no such scope: " + string(s)) // a scope that the table has and this function lacks; a test goes through them all
}

// clusters names the served clusters; a name that no cluster can have where there are none, because an empty list is no condition.
func (t *Treadle) clusters() []string {
	if len(t.props.Clusters) == 0 {
		return []string{"-"}
	}
	names := make([]string, 0, len(t.props.Clusters))
	for _, c := range t.props.Clusters {
		names = append(names, c.Name)
	}
	return names
}

// ec2 returns the ARNs of all resources of some kinds in the region. Images and snapshots may be another account's.
func (t *Treadle) ec2(kinds ...string) []string {
	out := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		out = append(out, fmt.Sprintf("arn:%s:ec2:%s:*:%s/*", t.partition, t.region, kind))
	}
	return out
}

func (t *Treadle) nodeRoles() []string {
	if len(t.props.NodeRoles) > 0 {
		return t.props.NodeRoles
	}
	return []string{t.arn("iam", "", "role/KarpenterNodeRole-*")}
}

// arn returns the ARN of something in the account.
func (t *Treadle) arn(service, region, resource string) string {
	return fmt.Sprintf("arn:%s:%s:%s:%s:%s", t.partition, service, region, t.account, resource)
}
