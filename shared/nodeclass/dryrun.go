package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"treadle/shared/cluster"
)

const (
	reasonLaunchDenied   = "RunInstancesAuthCheckFailed"
	reasonLaunchInvalid  = "RunInstancesCheckFailed"
	reasonProfileMissing = "InstanceProfileNotFound"
)

// waitingError is why a condition is Unknown: it will be known in a moment.
type waitingError struct{ reason, message string }

func (e waitingError) Error() string { return e.message }

// dryRun asks EC2 whether it would launch an instance of the class, without launching one (C-045, C-048). A class that passed
// before and has not changed since is not asked about again.
//
// It finds what no reading can: rights that are missing, security groups of another network, images that may not be used, and
// an instance profile that was made a moment ago and that EC2 does not see yet. Rendered user data is not part of it.
func (r *Resolver) dryRun(ctx context.Context, class cluster.NodeClass, status cluster.NodeClassStatus, facts Facts) error {
	last := class.Status.Conditions.Get(cluster.ConditionValidationSucceeded)
	if last.Status == "True" && last.ObservedGeneration == class.Generation && class.Status.InstanceProfile == status.InstanceProfile {
		return nil
	}
	class.Status = status
	_, err := r.ec2.RunInstances(ctx, sampleLaunch(class, facts))
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	err = Classify(err)
	switch code := api.ErrorCode(); {
	case code == "DryRunOperation", code == "Unsupported", strings.HasPrefix(code, "Insufficient"):
		return nil // EC2 would, or has none of just this type
	case strings.Contains(api.ErrorMessage(), "IAM Instance Profile"):
		if class.Spec.Role != "" {
			return waitingError{reasonProfileMissing, fmt.Sprintf("EC2 does not see instance profile %s yet", status.InstanceProfile)}
		}
		return ruleError{reasonProfileMissing, fmt.Sprintf("instance profile %s does not exist", status.InstanceProfile)}
	case errors.Is(err, ErrDenied):
		return ruleError{reasonLaunchDenied, err.Error()}
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrNotFound):
		return ruleError{reasonLaunchInvalid, err.Error()}
	}
	return fmt.Errorf("dry run of a launch: %w", err)
}

// sampleLaunch is the smallest launch that asks for all that the class names.
func sampleLaunch(class cluster.NodeClass, facts Facts) *ec2.RunInstancesInput {
	image := class.Status.AMIs[0]
	instanceType := types.InstanceTypeM5Large
	if cluster.NewRequirements(nil, image.Requirements...).Allows(cluster.LabelArch, "arm64") {
		instanceType = types.InstanceTypeM6gLarge
	}
	o := Order{Facts: facts, Class: class, Pool: cluster.NodePool{Name: class.Name}}
	in := &ec2.RunInstancesInput{
		DryRun:             aws.Bool(true),
		MinCount:           aws.Int32(1),
		MaxCount:           aws.Int32(1),
		ImageId:            aws.String(image.ID),
		InstanceType:       instanceType,
		SubnetId:           aws.String(class.Status.Subnets[0].ID),
		SecurityGroupIds:   groupIDs(&class),
		IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: aws.String(class.Status.InstanceProfile)},
	}
	for _, kind := range []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeNetworkInterface} {
		in.TagSpecifications = append(in.TagSpecifications, types.TagSpecification{ResourceType: kind, Tags: tags(o)})
	}
	return in
}
