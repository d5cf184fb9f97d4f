package ec2

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// template is a launch template. It has one version: what is created, as the calls that make others are not served.
type template struct {
	id, name    string
	description *string
	created     time.Time
	data        types.RequestLaunchTemplateData
	tags        map[string]string
}

func (t *template) key() string { return t.id }

// maxUserData is EC2's limit on user data before base64.
const maxUserData = 16 << 10

func templateIDNotFound(id string) *wire.Error {
	return wire.Errorf("InvalidLaunchTemplateId.NotFound",
		"The specified launch template, with template ID %s, does not exist.", id)
}

func templateNameNotFound(name string) *wire.Error {
	return wire.Errorf("InvalidLaunchTemplateName.NotFoundException",
		"The specified launch template, with template name %s, does not exist.", name)
}

func (s *Service) createLaunchTemplate(entry *fault.Call, in *sdk.CreateLaunchTemplateInput) (*sdk.CreateLaunchTemplateOutput, error) {
	name := deref(in.LaunchTemplateName)
	switch {
	case name == "":
		return nil, missing("LaunchTemplateName")
	case len(name) < 3 || len(name) > 128:
		return nil, wire.Errorf("InvalidLaunchTemplateName.MalformedException", "The launch template name '%s' is invalid", name)
	case in.LaunchTemplateData == nil:
		return nil, missing("LaunchTemplateData")
	}
	tags, err := tagSpecs(in.TagSpecifications, types.ResourceTypeLaunchTemplate)
	if err != nil {
		return nil, err
	}
	if err := checkTemplate(in.LaunchTemplateData); err != nil {
		return nil, err
	}
	if dryRun(in) {
		return nil, errDryRun()
	}
	return idempotent(s, entry, in.ClientToken, in, func() (*sdk.CreateLaunchTemplateOutput, error) {
		if s.templateNamed(name) != nil {
			return nil, wire.Errorf("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
		}
		t := &template{
			id: s.mint("lt-"), name: name, description: in.VersionDescription, created: time.Now(),
			data: convert[types.RequestLaunchTemplateData](in.LaunchTemplateData), tags: tags[types.ResourceTypeLaunchTemplate],
		}
		if t.tags == nil {
			t.tags = map[string]string{}
		}
		s.templates.add(t)
		s.templateIDs[name] = t.id
		return &sdk.CreateLaunchTemplateOutput{LaunchTemplate: new(t.show(s.cfg.Account))}, nil
	})
}

func checkTemplate(d *types.RequestLaunchTemplateData) error {
	for _, spec := range d.TagSpecifications {
		if !slices.Contains(templateTaggable, spec.ResourceType) {
			return notTaggable(spec.ResourceType)
		}
		if err := checkTags(tagMap(spec.Tags)); err != nil {
			return err
		}
	}
	if len(d.NetworkInterfaces) > 0 && len(d.SecurityGroupIds)+len(d.SecurityGroups) > 0 {
		return wire.Errorf("InvalidParameterCombination",
			"Network interfaces and an instance-level security groups may not be specified on the same request")
	}
	_, err := decodeUserData(d.UserData)
	return err
}

//nolint:gochecknoglobals // a table
var templateTaggable = []types.ResourceType{
	types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeNetworkInterface, types.ResourceTypeSpotInstancesRequest,
	types.ResourceTypeElasticGpu,
}

func decodeUserData(data *string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(deref(data))
	if err != nil {
		return nil, wire.Errorf("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(b) > maxUserData {
		return nil, invalid("User data is limited to %d bytes", maxUserData)
	}
	return b, nil
}

func (s *Service) templateNamed(name string) *template { return s.templates.byID[s.templateIDs[name]] }

// template finds the template that a request names by id or by name.
func (s *Service) template(id, name *string) (*template, error) {
	switch {
	case id != nil && name != nil:
		return nil, wire.Errorf("InvalidParameterCombination", "Only one of launch template id and launch template name may be specified.")
	case id != nil:
		if t, ok := s.templates.byID[*id]; ok {
			return t, nil
		}
		return nil, templateIDNotFound(*id)
	case name != nil:
		if t := s.templateNamed(*name); t != nil {
			return t, nil
		}
		return nil, templateNameNotFound(*name)
	default:
		return nil, missing("LaunchTemplateId or LaunchTemplateName")
	}
}

// launchTemplate finds the template for a launch, where a fault may deny that it exists.
func (s *Service) launchTemplate(action string, id, name, version *string) (*template, error) {
	t, err := s.template(id, name)
	if err != nil {
		return nil, err
	}
	if s.cfg.Faults.TemplateNotFound(action) {
		if id != nil {
			return nil, templateIDNotFound(*id)
		}
		return nil, templateNameNotFound(*name)
	}
	if !isVersion(version) {
		return nil, wire.Errorf("InvalidLaunchTemplateId.VersionNotFound",
			"Could not find launch template version: %s for launch template ID: %s", deref(version), t.id)
	}
	return t, nil
}

// isVersion says whether v names a template's one version.
func isVersion(v *string) bool {
	return v == nil || slices.Contains([]string{"1", "$Latest", "$Default"}, *v)
}

func (s *Service) deleteLaunchTemplate(_ *fault.Call, in *sdk.DeleteLaunchTemplateInput) (*sdk.DeleteLaunchTemplateOutput, error) {
	t, err := s.template(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}
	if dryRun(in) {
		return nil, errDryRun()
	}
	s.templates.remove(t.id)
	delete(s.templateIDs, t.name)
	return &sdk.DeleteLaunchTemplateOutput{LaunchTemplate: new(t.show(s.cfg.Account))}, nil
}

func (s *Service) describeLaunchTemplates(_ *fault.Call, in *sdk.DescribeLaunchTemplatesInput) (*sdk.DescribeLaunchTemplatesOutput, error) {
	pass, err := templateFilters.compile(in.Filters, func(t *template) map[string]string { return t.tags })
	if err != nil {
		return nil, err
	}
	all, err := s.templates.pick(in.LaunchTemplateIds, func(id string) error { return templateIDNotFound(id) })
	if err != nil {
		return nil, err
	}
	for _, name := range in.LaunchTemplateNames {
		if s.templateNamed(name) == nil {
			return nil, templateNameNotFound(name)
		}
	}
	if len(in.LaunchTemplateNames) > 0 {
		all = keep(all, func(t *template) bool { return slices.Contains(in.LaunchTemplateNames, t.name) })
	}
	all, next, err := page(keep(all, pass), in.MaxResults, in.NextToken, limits{1, 200, 200})
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeLaunchTemplatesOutput{NextToken: next, LaunchTemplates: []types.LaunchTemplate{}}
	for _, t := range all {
		out.LaunchTemplates = append(out.LaunchTemplates, t.show(s.cfg.Account))
	}
	return out, nil
}

//nolint:gochecknoglobals // a table
var templateFilters = filters[*template]{
	"launch-template-name": func(t *template) []string { return one(t.name) },
	"create-time":          func(t *template) []string { return one(t.created.UTC().Format(stampLayout)) },
}

func (s *Service) describeLaunchTemplateVersions(_ *fault.Call, in *sdk.DescribeLaunchTemplateVersionsInput) (*sdk.DescribeLaunchTemplateVersionsOutput, error) {
	if len(in.Filters) > 0 {
		return nil, unsupported("filters on launch template versions")
	}
	var all []*template
	if in.LaunchTemplateId != nil || in.LaunchTemplateName != nil {
		t, err := s.template(in.LaunchTemplateId, in.LaunchTemplateName)
		if err != nil {
			return nil, err
		}
		all = []*template{t}
		for _, v := range in.Versions {
			if !isVersion(&v) {
				return nil, wire.Errorf("InvalidLaunchTemplateId.VersionNotFound",
					"Could not find launch template version: %s for launch template ID: %s", v, t.id)
			}
		}
	} else if len(in.Versions) > 0 {
		all = s.templates.all()
	} else {
		return nil, missing("LaunchTemplateId or LaunchTemplateName")
	}
	all, next, err := page(all, in.MaxResults, in.NextToken, limits{1, 200, 200})
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeLaunchTemplateVersionsOutput{NextToken: next, LaunchTemplateVersions: []types.LaunchTemplateVersion{}}
	for _, t := range all {
		out.LaunchTemplateVersions = append(out.LaunchTemplateVersions, types.LaunchTemplateVersion{
			LaunchTemplateId: new(t.id), LaunchTemplateName: new(t.name), VersionNumber: new(int64(1)), DefaultVersion: new(true),
			VersionDescription: t.description, CreateTime: new(t.created), CreatedBy: new(creator(s.cfg.Account)),
			LaunchTemplateData: new(convert[types.ResponseLaunchTemplateData](t.data)),
		})
	}
	return out, nil
}

func (t *template) show(account string) types.LaunchTemplate {
	return types.LaunchTemplate{
		LaunchTemplateId: new(t.id), LaunchTemplateName: new(t.name), DefaultVersionNumber: new(int64(1)),
		LatestVersionNumber: new(int64(1)), CreateTime: new(t.created), CreatedBy: new(creator(account)), Tags: tagList(t.tags),
	}
}

func creator(account string) string { return "arn:aws:iam::" + account + ":root" }

// answered is what a client token was used for.
type answered struct {
	request [sha256.Size]byte // sum of the whole input
	answer  any
}

// idempotent makes a call once per client token: the same input again gets the same answer and does nothing, another input is
// refused. Calls that fail as a whole are not remembered; a fleet that got nothing did not fail as a whole.
func idempotent[Out any](s *Service, entry *fault.Call, token *string, in any, do func() (*Out, error)) (*Out, error) {
	if deref(token) == "" {
		return do()
	}
	b, err := json.Marshal(in)
	if err != nil {
		panic(err) // the SDK's shapes are plain data
	}
	key, request := entry.Action+"/"+*token, sha256.Sum256(b)
	if before, ok := s.tokens[key]; ok {
		if before.request != request {
			return nil, wire.Errorf("IdempotentParameterMismatch",
				"Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
		}
		entry.Replayed = true
		return before.answer.(*Out), nil
	}
	out, err := do()
	if err == nil {
		s.tokens[key] = answered{request, out}
	}
	return out, err
}

// templateVersion is the version that an answer names.
func templateVersion() *string { return new(strconv.Itoa(1)) }
