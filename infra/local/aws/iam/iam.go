package iam

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"treadle/infra/local/aws/rpc"
	"treadle/infra/local/aws/sts"
)

// Service holds the roles and instance profiles of an account. Safe for concurrent use.
type Service struct {
	account string

	mu       sync.Mutex
	roles    map[string]types.Role
	profiles map[string]*types.InstanceProfile
}

// New returns an account without roles.
func New(account string) *Service {
	return &Service{account: account, roles: map[string]types.Role{}, profiles: map[string]*types.InstanceProfile{}}
}

// AddRole makes a role known. The path is "/" when empty; the trust policy may be empty.
func (s *Service) AddRole(name, path, trustPolicy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path = cmp.Or(path, "/")
	s.roles[name] = types.Role{
		Arn:                      aws.String("arn:aws:iam::" + s.account + ":role" + path + name),
		RoleName:                 aws.String(name),
		RoleId:                   aws.String(sts.RoleID(name)),
		Path:                     aws.String(path),
		CreateDate:               aws.Time(time.Now()),
		AssumeRolePolicyDocument: aws.String(trustPolicy),
	}
}

// Handler serves IAM over the query protocol.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return rpc.Query(rpc.Service{
		Name:   "iam",
		Errors: iam.TypeRegistry,
		Status: map[string]int{"AccessDenied": http.StatusForbidden},
		Hooks:  h,
		Actions: map[string]rpc.Action{
			"AddRoleToInstanceProfile":      rpc.Bind(s.AddRoleToInstanceProfile),
			"CreateInstanceProfile":         rpc.Bind(s.CreateInstanceProfile),
			"DeleteInstanceProfile":         rpc.Bind(s.DeleteInstanceProfile),
			"GetInstanceProfile":            rpc.Bind(s.GetInstanceProfile),
			"GetRole":                       rpc.Bind(s.GetRole),
			"ListInstanceProfiles":          rpc.Bind(s.ListInstanceProfiles),
			"ListInstanceProfilesForRole":   rpc.Bind(s.ListInstanceProfilesForRole),
			"RemoveRoleFromInstanceProfile": rpc.Bind(s.RemoveRoleFromInstanceProfile),
			"TagInstanceProfile":            rpc.Bind(s.TagInstanceProfile),
			"UntagInstanceProfile":          rpc.Bind(s.UntagInstanceProfile),
		},
	}, "https://iam.amazonaws.com/doc/2010-05-08/")
}

func (s *Service) profile(name *string) (*types.InstanceProfile, error) {
	p, ok := s.profiles[aws.ToString(name)]
	if !ok {
		return nil, noSuchEntity("Instance Profile " + aws.ToString(name) + " cannot be found.")
	}
	return p, nil
}

func noSuchEntity(message string) error {
	return &types.NoSuchEntityException{Message: aws.String(message)}
}

func invalidInput(message string) error { return rpc.Errorf("ValidationError", "%s", message) }

// GetRole returns a role.
func (s *Service) GetRole(_ context.Context, in *iam.GetRoleInput, _ ...func(*iam.Options)) (*iam.GetRoleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	role, ok := s.roles[aws.ToString(in.RoleName)]
	if !ok {
		return nil, noSuchEntity("The role with name " + aws.ToString(in.RoleName) + " cannot be found.")
	}
	return &iam.GetRoleOutput{Role: &role}, nil
}

var profileName = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)

// CreateInstanceProfile makes a profile without a role.
func (s *Service) CreateInstanceProfile(_ context.Context, in *iam.CreateInstanceProfileInput, _ ...func(*iam.Options)) (*iam.CreateInstanceProfileOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, path := aws.ToString(in.InstanceProfileName), cmp.Or(aws.ToString(in.Path), "/")
	switch {
	case !profileName.MatchString(name):
		return nil, invalidInput("The specified value for instanceProfileName is invalid.")
	case !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/"):
		return nil, invalidInput("The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.")
	case s.profiles[name] != nil:
		return nil, &types.EntityAlreadyExistsException{Message: aws.String("Instance Profile " + name + " already exists.")}
	}
	p := &types.InstanceProfile{
		Arn:                 aws.String("arn:aws:iam::" + s.account + ":instance-profile" + path + name),
		CreateDate:          aws.Time(time.Now()),
		InstanceProfileId:   aws.String("AIPA" + strings.TrimPrefix(sts.RoleID(path+name), "AROA")),
		InstanceProfileName: aws.String(name),
		Path:                aws.String(path),
		Roles:               []types.Role{},
		Tags:                slices.Clone(in.Tags),
	}
	s.profiles[name] = p
	return &iam.CreateInstanceProfileOutput{InstanceProfile: clone(p)}, nil
}

func clone(p *types.InstanceProfile) *types.InstanceProfile {
	c := *p
	c.Roles, c.Tags = slices.Clone(p.Roles), slices.Clone(p.Tags)
	return &c
}

// GetInstanceProfile returns a profile with its role.
func (s *Service) GetInstanceProfile(_ context.Context, in *iam.GetInstanceProfileInput, _ ...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	return &iam.GetInstanceProfileOutput{InstanceProfile: clone(p)}, nil
}

// DeleteInstanceProfile deletes a profile that holds no role.
func (s *Service) DeleteInstanceProfile(_ context.Context, in *iam.DeleteInstanceProfileInput, _ ...func(*iam.Options)) (*iam.DeleteInstanceProfileOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if len(p.Roles) > 0 {
		return nil, &types.DeleteConflictException{Message: aws.String("Cannot delete entity, must remove roles from instance profile first.")}
	}
	delete(s.profiles, *p.InstanceProfileName)
	return &iam.DeleteInstanceProfileOutput{}, nil
}

// ListInstanceProfiles returns the profiles below a path by name, without their tags, as IAM does.
func (s *Service) ListInstanceProfiles(_ context.Context, in *iam.ListInstanceProfilesInput, _ ...func(*iam.Options)) (*iam.ListInstanceProfilesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := int(cmp.Or(aws.ToInt32(in.MaxItems), 100))
	out := &iam.ListInstanceProfilesOutput{InstanceProfiles: []types.InstanceProfile{}}
	for _, name := range slices.Sorted(maps.Keys(s.profiles)) {
		p := s.profiles[name]
		if !strings.HasPrefix(*p.Path, aws.ToString(in.PathPrefix)) || name <= aws.ToString(in.Marker) {
			continue
		}
		if len(out.InstanceProfiles) == limit {
			out.IsTruncated, out.Marker = true, out.InstanceProfiles[limit-1].InstanceProfileName
			break
		}
		listed := clone(p)
		listed.Tags = nil
		out.InstanceProfiles = append(out.InstanceProfiles, *listed)
	}
	return out, nil
}

// ListInstanceProfilesForRole returns the profiles that hold a role, by name. It never pages.
func (s *Service) ListInstanceProfilesForRole(_ context.Context, in *iam.ListInstanceProfilesForRoleInput, _ ...func(*iam.Options)) (*iam.ListInstanceProfilesForRoleOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &iam.ListInstanceProfilesForRoleOutput{InstanceProfiles: []types.InstanceProfile{}}
	for _, name := range slices.Sorted(maps.Keys(s.profiles)) {
		p := s.profiles[name]
		if len(p.Roles) > 0 && *p.Roles[0].RoleName == aws.ToString(in.RoleName) {
			out.InstanceProfiles = append(out.InstanceProfiles, *clone(p))
		}
	}
	return out, nil
}

// AddRoleToInstanceProfile puts a role into a profile that holds none.
func (s *Service) AddRoleToInstanceProfile(_ context.Context, in *iam.AddRoleToInstanceProfileInput, _ ...func(*iam.Options)) (*iam.AddRoleToInstanceProfileOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	role, ok := s.roles[aws.ToString(in.RoleName)]
	if !ok {
		return nil, noSuchEntity("The role with name " + aws.ToString(in.RoleName) + " cannot be found.")
	}
	if len(p.Roles) > 0 {
		return nil, &types.LimitExceededException{Message: aws.String("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")}
	}
	p.Roles = []types.Role{role}
	return &iam.AddRoleToInstanceProfileOutput{}, nil
}

// RemoveRoleFromInstanceProfile takes the role out of a profile.
func (s *Service) RemoveRoleFromInstanceProfile(_ context.Context, in *iam.RemoveRoleFromInstanceProfileInput, _ ...func(*iam.Options)) (*iam.RemoveRoleFromInstanceProfileOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if len(p.Roles) == 0 || *p.Roles[0].RoleName != aws.ToString(in.RoleName) {
		return nil, noSuchEntity("Role " + aws.ToString(in.RoleName) + " is not in instance profile " + *p.InstanceProfileName + ".")
	}
	p.Roles = []types.Role{}
	return &iam.RemoveRoleFromInstanceProfileOutput{}, nil
}

// TagInstanceProfile sets tags of a profile.
func (s *Service) TagInstanceProfile(_ context.Context, in *iam.TagInstanceProfileInput, _ ...func(*iam.Options)) (*iam.TagInstanceProfileOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	for _, tag := range in.Tags {
		p.Tags = without(p.Tags, aws.ToString(tag.Key))
		p.Tags = append(p.Tags, tag)
	}
	return &iam.TagInstanceProfileOutput{}, nil
}

// UntagInstanceProfile drops tags of a profile.
func (s *Service) UntagInstanceProfile(_ context.Context, in *iam.UntagInstanceProfileInput, _ ...func(*iam.Options)) (*iam.UntagInstanceProfileOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	for _, key := range in.TagKeys {
		p.Tags = without(p.Tags, key)
	}
	return &iam.UntagInstanceProfileOutput{}, nil
}

func without(tags []types.Tag, key string) []types.Tag {
	return slices.DeleteFunc(tags, func(t types.Tag) bool { return aws.ToString(t.Key) == key })
}
