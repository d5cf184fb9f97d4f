package ssm

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"treadle/infra/local/aws/rpc"
)

// Service holds parameters. Safe for concurrent use.
type Service struct {
	region, account string

	mu         sync.Mutex
	parameters map[string]types.Parameter
}

// New returns an empty store of the region and account.
func New(region, account string) *Service {
	return &Service{region: region, account: account, parameters: map[string]types.Parameter{}}
}

// Seed sets plain parameters of any name. Setting the same value again changes nothing.
func (s *Service) Seed(values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, value := range values {
		if aws.ToString(s.parameters[name].Value) != value {
			s.put(name, value, types.ParameterTypeString)
		}
	}
}

// put stores a value as the next version. The lock must be held.
func (s *Service) put(name, value string, typ types.ParameterType) types.Parameter {
	slash := "/"
	if strings.HasPrefix(name, "/") {
		slash = ""
	}
	p := types.Parameter{
		ARN:              aws.String("arn:aws:ssm:" + s.region + ":" + s.account + ":parameter" + slash + name),
		DataType:         aws.String("text"),
		LastModifiedDate: aws.Time(time.Now()),
		Name:             aws.String(name),
		Type:             typ,
		Value:            aws.String(value),
		Version:          s.parameters[name].Version + 1,
	}
	s.parameters[name] = p
	return p
}

// Handler serves the store over AWS JSON 1.1.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return rpc.JSON(rpc.Service{
		Name:   "ssm",
		Errors: ssm.TypeRegistry,
		Hooks:  h,
		Actions: map[string]rpc.Action{
			"DeleteParameter":     rpc.Bind(s.DeleteParameter),
			"GetParameter":        rpc.Bind(s.GetParameter),
			"GetParameters":       rpc.Bind(s.GetParameters),
			"GetParametersByPath": rpc.Bind(s.GetParametersByPath),
			"PutParameter":        rpc.Bind(s.PutParameter),
		},
	}, "1.1")
}

// get finds a parameter by name, ARN, or either with :VERSION. The lock must be held.
func (s *Service) get(name string, decrypt bool) (types.Parameter, bool) {
	selector := ""
	if _, after, ok := strings.Cut(name, ":parameter"); ok && strings.HasPrefix(name, "arn:") {
		name = after
	}
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name, selector = name[:i], name[i+1:]
	}
	p, ok := s.parameters[name]
	if !ok || selector != "" && selector != strconv.FormatInt(p.Version, 10) {
		return types.Parameter{}, false
	}
	return shown(p, decrypt), true
}

// shown hides the value of a secret from callers who did not ask to decrypt it.
func shown(p types.Parameter, decrypt bool) types.Parameter {
	if p.Type == types.ParameterTypeSecureString && !decrypt {
		p.Value = aws.String("encrypted:" + *p.Name)
	}
	return p
}

// GetParameter returns one parameter.
func (s *Service) GetParameter(_ context.Context, in *ssm.GetParameterInput, _ ...func(*ssm.Options)) (*ssm.GetParameterOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.get(aws.ToString(in.Name), aws.ToBool(in.WithDecryption))
	if !ok {
		return nil, &types.ParameterNotFound{}
	}
	return &ssm.GetParameterOutput{Parameter: &p}, nil
}

// GetParameters returns up to ten parameters and the names that there are none for.
func (s *Service) GetParameters(_ context.Context, in *ssm.GetParametersInput, _ ...func(*ssm.Options)) (*ssm.GetParametersOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(in.Names) == 0 || len(in.Names) > 10 {
		return nil, rpc.Errorf("ValidationException", "names must have 1 to 10 members, not %d", len(in.Names))
	}
	out := &ssm.GetParametersOutput{Parameters: []types.Parameter{}, InvalidParameters: []string{}}
	for _, name := range in.Names {
		if p, ok := s.get(name, aws.ToBool(in.WithDecryption)); ok {
			out.Parameters = append(out.Parameters, p)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
	}
	return out, nil
}

// GetParametersByPath returns the parameters below a path by name, ten a page.
func (s *Service) GetParametersByPath(_ context.Context, in *ssm.GetParametersByPathInput, _ ...func(*ssm.Options)) (*ssm.GetParametersByPathOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := aws.ToString(in.Path)
	if !strings.HasPrefix(path, "/") {
		return nil, rpc.Errorf("ValidationException", "The parameter doesn't meet the parameter name requirements: %q", path)
	}
	if !strings.HasSuffix(path, "/") {
		path += "/"
	}
	limit := int(cmp.Or(aws.ToInt32(in.MaxResults), 10))
	out := &ssm.GetParametersByPathOutput{Parameters: []types.Parameter{}}
	for _, name := range slices.Sorted(maps.Keys(s.parameters)) {
		rest, below := strings.CutPrefix(name, path)
		if !below || strings.Contains(rest, "/") && !aws.ToBool(in.Recursive) || name <= aws.ToString(in.NextToken) {
			continue
		}
		if len(out.Parameters) == limit {
			out.NextToken = out.Parameters[limit-1].Name
			break
		}
		out.Parameters = append(out.Parameters, shown(s.parameters[name], aws.ToBool(in.WithDecryption)))
	}
	return out, nil
}

// PutParameter sets a parameter that is not under /aws/.
func (s *Service) PutParameter(_ context.Context, in *ssm.PutParameterInput, _ ...func(*ssm.Options)) (*ssm.PutParameterOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := aws.ToString(in.Name)
	root := strings.ToLower(strings.TrimPrefix(name, "/"))
	old, exists := s.parameters[name]
	switch {
	case name == "" || in.Value == nil:
		return nil, rpc.Errorf("ValidationException", "name and value are required")
	case strings.HasPrefix(root, "aws") || strings.HasPrefix(root, "ssm"):
		return nil, rpc.Errorf("AccessDeniedException", "No access to reserved parameter name: %s.", name)
	case exists && !aws.ToBool(in.Overwrite):
		return nil, &types.ParameterAlreadyExists{Message: aws.String("The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")}
	}
	typ := cmp.Or(in.Type, old.Type)
	if typ == "" {
		return nil, rpc.Errorf("ValidationException", "A parameter type is required when you create a parameter.")
	}
	p := s.put(name, *in.Value, typ)
	return &ssm.PutParameterOutput{Version: p.Version, Tier: types.ParameterTierStandard}, nil
}

// DeleteParameter deletes a parameter.
func (s *Service) DeleteParameter(_ context.Context, in *ssm.DeleteParameterInput, _ ...func(*ssm.Options)) (*ssm.DeleteParameterOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.parameters[aws.ToString(in.Name)]; !ok {
		return nil, &types.ParameterNotFound{}
	}
	delete(s.parameters, *in.Name)
	return &ssm.DeleteParameterOutput{}, nil
}
