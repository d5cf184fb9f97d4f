package nodeclass

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"treadle/shared/cluster"
)

// resolveAPI is the part of EC2 that a Resolver uses; *ec2.Client is one.
type resolveAPI interface {
	DescribeSubnets(context.Context, *ec2.DescribeSubnetsInput, ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error)
	DescribeSecurityGroups(context.Context, *ec2.DescribeSecurityGroupsInput, ...func(*ec2.Options)) (*ec2.DescribeSecurityGroupsOutput, error)
	DescribeImages(context.Context, *ec2.DescribeImagesInput, ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error)
	DescribeCapacityReservations(context.Context, *ec2.DescribeCapacityReservationsInput, ...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error)
	DescribePlacementGroups(context.Context, *ec2.DescribePlacementGroupsInput, ...func(*ec2.Options)) (*ec2.DescribePlacementGroupsOutput, error)
	RunInstances(context.Context, *ec2.RunInstancesInput, ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error) // dry runs only
}

// Resolver finds what classes select. A warm function keeps one, because it remembers parameters and profiles. It is safe for
// concurrent use.
type Resolver struct {
	ec2        resolveAPI
	parameters Parameters
	profiles   Profiles

	mu       sync.Mutex
	values   map[string]parameterValue // by parameter
	profiled map[string]bool           // names of profiles known to exist
}

// NewResolver returns a Resolver that reaches EC2 through client, which is an *ec2.Client.
func NewResolver(client resolveAPI, parameters Parameters, profiles Profiles) *Resolver {
	return &Resolver{
		ec2: client, parameters: parameters, profiles: profiles,
		values: map[string]parameterValue{}, profiled: map[string]bool{},
	}
}

// The reasons of conditions that are False (C-032 to C-044).
const (
	reasonNoAMI           = "AMINotFound"
	reasonNoSubnets       = "SubnetsNotFound"
	reasonNoGroups        = "SecurityGroupsNotFound"
	reasonNoProfile       = "InstanceProfileNotReady"
	reasonNoPlacement     = "PlacementGroupNotFound"
	reasonDenied          = "Unauthorized"
	reasonDependencies    = "DependenciesNotReady"
	reasonCIDR            = "ClusterCIDRResolutionFailed"
	reasonTags            = "TagValidationFailed"
	reasonUserDataSize    = "UserDataSizeLimitExceeded"
	reasonInvalidUserData = "InvalidUserData"
	reasonInvalidClass    = "InvalidClass"
)

// ruleError is why a condition is False.
type ruleError struct{ reason, message string }

func (e ruleError) Error() string { return e.message }

// Resolve returns the status that class should have now: what its selectors find, and every condition with a reason and a
// message that names the rule that failed. Free addresses and the room of reservations are in it too.
//
// The error says that AWS throttled, refused to talk or was out of reach; then nothing is known and the old status stays. A right that
// the caller lacks is a condition, not an error. A condition is Unknown while EC2 does not see a new instance profile yet, for
// some seconds. Beside reads, Resolve makes the instance profile of a class with a role, and one dry run of a launch for a class that
// is new, changed or not valid.
func (r *Resolver) Resolve(ctx context.Context, class cluster.NodeClass, facts Facts) (cluster.NodeClassStatus, error) {
	status := cluster.NodeClassStatus{InstanceProfile: class.Status.InstanceProfile}
	conditions := class.Status.Conditions
	steps := []struct {
		condition string
		run       func() error
	}{
		{cluster.ConditionSubnetsReady, func() (err error) {
			status.Subnets, err = r.subnets(ctx, class.Spec)
			return err
		}},
		{cluster.ConditionSecurityGroupsReady, func() (err error) {
			status.SecurityGroups, err = r.securityGroups(ctx, class.Spec)
			return err
		}},
		{cluster.ConditionAMIsReady, func() (err error) {
			status.AMIs, err = r.amis(ctx, class.Spec, facts)
			return err
		}},
		{cluster.ConditionReservationsReady, func() (err error) {
			status.Reservations, err = r.reservations(ctx, class.Spec, facts)
			return err
		}},
		{cluster.ConditionPlacementGroupReady, func() error { return r.placementGroup(ctx, class.Spec) }},
		{cluster.ConditionInstanceProfileReady, func() (err error) {
			status.InstanceProfile, err = r.profile(ctx, class, facts)
			return err
		}},
		{cluster.ConditionValidationSucceeded, func() error {
			if err := validate(class, status, conditions, facts); err != nil {
				return err
			}
			return r.dryRun(ctx, class, status, facts)
		}},
	}
	var kinds []string
	for _, step := range steps {
		one := cluster.Condition{
			Type: step.condition, Status: "True", Reason: step.condition,
			TransitionUnix: facts.NowUnix, ObservedGeneration: class.Generation,
		}
		err := step.run()
		var failed ruleError
		var waiting waitingError
		switch {
		case errors.As(err, &failed):
			one.Status, one.Reason, one.Message = "False", failed.reason, failed.message
		case errors.As(err, &waiting):
			one.Status, one.Reason, one.Message = "Unknown", waiting.reason, waiting.message
		case errors.Is(err, ErrDenied):
			one.Status, one.Reason, one.Message = "False", reasonDenied, err.Error()
		case errors.Is(err, ErrInvalid), errors.Is(err, ErrNotFound):
			one.Status, one.Reason, one.Message = "False", reasonInvalidClass, err.Error()
		case err != nil:
			return class.Status, fmt.Errorf("resolve class %s: %w", class.Name, err)
		}
		conditions = conditions.With(one)
		kinds = append(kinds, step.condition)
	}
	conditions = conditions.WithReady(facts.NowUnix, kinds...)
	ready := conditions.Get(cluster.ConditionReady)
	ready.ObservedGeneration = class.Generation
	status.Conditions = conditions.With(ready)
	return status, nil
}

// Release gives back what was made for a class that is going: its instance profiles (C-040). Repeating it is harmless.
func (r *Resolver) Release(ctx context.Context, class cluster.NodeClass, facts Facts) error {
	if class.Spec.Role == "" {
		return nil
	}
	names, err := r.profiles.ListProfiles(ctx, profilePath(class, facts))
	if err != nil {
		return fmt.Errorf("list instance profiles of class %s: %w", class.Name, err)
	}
	var errs []error
	for _, name := range names {
		if err := r.profiles.DeleteProfile(ctx, name); err != nil {
			errs = append(errs, err)
		}
		r.mu.Lock()
		delete(r.profiled, name)
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

// profile returns the name of the profile that instances of the class get: the one given, or one made for its role (C-077 to
// C-084). The name follows from class and role, so that a repeated or interrupted call finds what it made, and a new role gets
// a new profile while old nodes keep theirs.
func (r *Resolver) profile(ctx context.Context, class cluster.NodeClass, facts Facts) (string, error) {
	if class.Spec.InstanceProfile != "" {
		return class.Spec.InstanceProfile, nil
	}
	if class.Spec.Role == "" {
		return "", ruleError{reasonNoProfile, "neither role nor instanceProfile is given"}
	}
	role := class.Spec.Role[strings.LastIndex(class.Spec.Role, "/")+1:]
	sum := sha256.Sum256([]byte(strings.Join([]string{facts.Region, class.UID, class.Name, role}, "\n")))
	name := facts.Cluster + "_" + hex.EncodeToString(sum[:8])
	r.mu.Lock()
	known := r.profiled[name]
	r.mu.Unlock()
	if known {
		return name, nil
	}
	tags := tagsOf(facts.Cluster, class)
	tags["topology.kubernetes.io/region"] = facts.Region
	err := r.profiles.EnsureProfile(ctx, Profile{Name: name, Path: profilePath(class, facts), Role: role, Tags: tags})
	switch {
	case errors.Is(err, ErrNotFound):
		return "", ruleError{reasonNoProfile, fmt.Sprintf("role %s does not exist", role)}
	case errors.Is(err, ErrInvalid):
		return "", ruleError{reasonNoProfile, err.Error()}
	case err != nil:
		return "", err
	}
	r.mu.Lock()
	r.profiled[name] = true
	r.mu.Unlock()
	return name, nil
}

func profilePath(class cluster.NodeClass, facts Facts) string {
	return "/karpenter/" + facts.Region + "/" + facts.Cluster + "/" + class.UID + "/"
}
