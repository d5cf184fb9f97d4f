package ec2

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

const maxTags = 50

func tagList(tags map[string]string) []types.Tag {
	list := make([]types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: new(key), Value: new(tags[key])})
	}
	return list
}

func tagMap(list []types.Tag) map[string]string {
	tags := map[string]string{}
	for _, t := range list {
		tags[deref(t.Key)] = deref(t.Value)
	}
	return tags
}

func checkTags(tags map[string]string) error {
	for key := range tags {
		if strings.HasPrefix(strings.ToLower(key), "aws:") {
			return invalid("Tag keys starting with 'aws:' are reserved for internal use")
		}
		if key == "" || len(key) > 128 || len(tags[key]) > 256 {
			return invalid("Tag key or value is too long or empty: '%s'", key)
		}
	}
	if len(tags) > maxTags {
		return wire.Errorf("TagLimitExceeded", "More than %d tags specified", maxTags)
	}
	return nil
}

// tagSpecs sorts the tags of a request by the kind of resource they are for. allowed lists the kinds that the call takes.
func tagSpecs(specs []types.TagSpecification, allowed ...types.ResourceType) (map[types.ResourceType]map[string]string, error) {
	byType := map[types.ResourceType]map[string]string{}
	for _, spec := range specs {
		if !slices.Contains(allowed, spec.ResourceType) {
			return nil, notTaggable(spec.ResourceType)
		}
		if byType[spec.ResourceType] == nil {
			byType[spec.ResourceType] = map[string]string{}
		}
		maps.Copy(byType[spec.ResourceType], tagMap(spec.Tags))
		if err := checkTags(byType[spec.ResourceType]); err != nil {
			return nil, err
		}
	}
	return byType, nil
}

func notTaggable(kind types.ResourceType) *wire.Error {
	return invalid("'%s' is not a valid taggable resource type for this operation.", kind)
}

// resource is anything with an id that carries tags. tags is its own map: to write to is to tag.
type resource struct {
	id   string
	kind types.ResourceType
	tags map[string]string
}

// find returns the resource with an id, if there is one.
func (s *Service) find(id string) (resource, bool) {
	prefix, _, _ := strings.Cut(id, "-")
	switch prefix {
	case "i":
		if i, ok := s.instances[id]; ok {
			return resource{id, types.ResourceTypeInstance, i.tags}, true
		}
	case "subnet":
		if v, ok := s.subnets.byID[id]; ok {
			return resource{id, types.ResourceTypeSubnet, v.tags}, true
		}
	case "sg":
		if v, ok := s.groups.byID[id]; ok {
			return resource{id, types.ResourceTypeSecurityGroup, v.tags}, true
		}
	case "ami":
		if v, ok := s.images.byID[id]; ok {
			return resource{id, types.ResourceTypeImage, v.tags}, true
		}
	case "lt":
		if v, ok := s.templates.byID[id]; ok {
			return resource{id, types.ResourceTypeLaunchTemplate, v.tags}, true
		}
	case "cr":
		if v, ok := s.reservations.byID[id]; ok {
			return resource{id, types.ResourceTypeCapacityReservation, v.tags}, true
		}
	case "pg":
		if v, ok := s.placements.byID[id]; ok {
			return resource{id, types.ResourceTypePlacementGroup, v.tags}, true
		}
	}
	return resource{}, false
}

// errNotFound is what EC2 says of an id that stands for nothing.
func errNotFound(id string) *wire.Error {
	prefix, _, _ := strings.Cut(id, "-")
	switch prefix {
	case "i":
		return instanceNotFound(id)
	case "subnet":
		return subnetNotFound(id)
	case "sg":
		return groupNotFound(id)
	case "ami":
		return imageNotFound(id)
	case "lt":
		return templateIDNotFound(id)
	case "cr":
		return reservationNotFound(id)
	case "pg":
		return placementGroupNotFound(id)
	default:
		return wire.Errorf("InvalidID", "The ID '%s' is not valid", id)
	}
}

func (s *Service) createTags(_ *fault.Call, in *sdk.CreateTagsInput) (*sdk.CreateTagsOutput, error) {
	tags := tagMap(in.Tags)
	found, err := s.taggable("CreateTags", in.Resources)
	if err != nil {
		return nil, err
	}
	if len(tags) == 0 {
		return nil, missing("Tag")
	}
	if err := checkTags(tags); err != nil {
		return nil, err
	}
	for _, r := range found {
		all := maps.Clone(r.tags)
		maps.Copy(all, tags)
		if len(all) > maxTags {
			return nil, wire.Errorf("TagLimitExceeded", "The maximum number of Tags for resource %s has been reached.", r.id)
		}
	}
	if dryRun(in) {
		return nil, errDryRun()
	}
	for _, r := range found {
		maps.Copy(r.tags, tags)
	}
	return &sdk.CreateTagsOutput{}, nil
}

func (s *Service) deleteTags(_ *fault.Call, in *sdk.DeleteTagsInput) (*sdk.DeleteTagsOutput, error) {
	found, err := s.taggable("DeleteTags", in.Resources)
	if err != nil {
		return nil, err
	}
	if dryRun(in) {
		return nil, errDryRun()
	}
	for _, r := range found {
		if len(in.Tags) == 0 {
			maps.DeleteFunc(r.tags, func(key, _ string) bool { return !strings.HasPrefix(key, "aws:") })
		}
		for _, t := range in.Tags {
			if t.Value == nil || *t.Value == r.tags[deref(t.Key)] {
				delete(r.tags, deref(t.Key))
			}
		}
	}
	return &sdk.DeleteTagsOutput{}, nil
}

func (s *Service) taggable(action string, ids []string) ([]resource, error) {
	if len(ids) == 0 {
		return nil, missing("resourceIdSet")
	}
	var found []resource
	for _, id := range ids {
		r, ok := s.find(id)
		if i := s.instances[id]; i != nil && s.hidden(action, i) {
			ok = false
		}
		if !ok {
			return nil, errNotFound(id)
		}
		found = append(found, r)
	}
	return found, nil
}

func (s *Service) describeTags(_ *fault.Call, in *sdk.DescribeTagsInput) (*sdk.DescribeTagsOutput, error) {
	pass, err := tagFilters.compile(in.Filters, func(t types.TagDescription) map[string]string {
		return map[string]string{*t.Key: *t.Value}
	})
	if err != nil {
		return nil, err
	}
	all := []types.TagDescription{}
	for _, id := range s.taggedIDs() {
		r, ok := s.find(id)
		if i := s.instances[id]; !ok || i != nil && s.hidden("DescribeTags", i) {
			continue
		}
		for _, t := range tagList(r.tags) {
			d := types.TagDescription{Key: t.Key, Value: t.Value, ResourceId: new(r.id), ResourceType: r.kind}
			if pass(d) {
				all = append(all, d)
			}
		}
	}
	all, next, err := page(all, in.MaxResults, in.NextToken, limits{5, 1000, 1000})
	return &sdk.DescribeTagsOutput{Tags: all, NextToken: next}, err
}

//nolint:gochecknoglobals // a table
var tagFilters = filters[types.TagDescription]{
	"key":           func(t types.TagDescription) []string { return one(*t.Key) },
	"value":         func(t types.TagDescription) []string { return one(*t.Value) },
	"resource-id":   func(t types.TagDescription) []string { return one(*t.ResourceId) },
	"resource-type": func(t types.TagDescription) []string { return one(string(t.ResourceType)) },
}

func (s *Service) taggedIDs() []string {
	ids := slices.Concat(s.subnets.ids, s.groups.ids, s.images.ids, s.templates.ids, s.reservations.ids, s.placements.ids)
	for _, i := range s.order {
		ids = append(ids, i.id)
	}
	return ids
}

// touched lists the resources that a call acts on by id.
func (s *Service) touched(in any) ([]Resource, fault.Tagged) {
	var ids []string
	switch in := in.(type) {
	case *sdk.TerminateInstancesInput:
		ids = in.InstanceIds
	case *sdk.CreateTagsInput:
		ids = in.Resources
	case *sdk.DeleteTagsInput:
		ids = in.Resources
	case *sdk.DeleteLaunchTemplateInput:
		ids = []string{deref(in.LaunchTemplateId)}
		if in.LaunchTemplateName != nil {
			if t := s.templateNamed(*in.LaunchTemplateName); t != nil {
				ids = []string{t.id}
			}
		}
	}
	resources, tagged := []Resource{}, fault.Tagged{}
	for _, id := range ids {
		r, _ := s.find(id)
		tags := maps.Clone(r.tags)
		kind := cmp.Or(string(r.kind), "instance")
		resources = append(resources, Resource{ARN: s.arn(kind, id), Tags: tags})
		tagged = append(tagged, tags)
	}
	return resources, tagged
}

// requestTags are the tags that a call would put on instances, for conditions on aws:RequestTag.
func requestTags(in any) map[string]string {
	switch in := in.(type) {
	case *sdk.CreateTagsInput:
		return tagMap(in.Tags)
	case *sdk.CreateFleetInput:
		return specTags(in.TagSpecifications)
	case *sdk.RunInstancesInput:
		return specTags(in.TagSpecifications)
	case *sdk.CreateLaunchTemplateInput:
		return specTags(in.TagSpecifications)
	default:
		return nil
	}
}

func specTags(specs []types.TagSpecification) map[string]string {
	tags := map[string]string{}
	for _, spec := range specs {
		maps.Copy(tags, tagMap(spec.Tags))
	}
	return tags
}

func (s *Service) arn(kind, id string) string {
	return "arn:aws:ec2:" + region + ":" + s.cfg.Account + ":" + kind + "/" + id
}
