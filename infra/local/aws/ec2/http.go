package ec2

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"

	"treadle/infra/local/aws/wire"
)

// operation decodes a form, makes the call and returns what to encode.
type operation func(s *Service, ctx context.Context, form url.Values) (any, error)

func op[In, Out any](method func(*Service, context.Context, *In, ...options) (*Out, error)) operation {
	return func(s *Service, ctx context.Context, form url.Values) (any, error) {
		in := new(In)
		if err := wire.Decode(form, in); err != nil {
			return nil, err
		}
		return method(s, ctx, in)
	}
}

//nolint:gochecknoglobals // a table
var operations = map[string]operation{
	"CreateFleet":                    op((*Service).CreateFleet),
	"CreateLaunchTemplate":           op((*Service).CreateLaunchTemplate),
	"CreateTags":                     op((*Service).CreateTags),
	"DeleteLaunchTemplate":           op((*Service).DeleteLaunchTemplate),
	"DeleteTags":                     op((*Service).DeleteTags),
	"DescribeAvailabilityZones":      op((*Service).DescribeAvailabilityZones),
	"DescribeCapacityReservations":   op((*Service).DescribeCapacityReservations),
	"DescribeImages":                 op((*Service).DescribeImages),
	"DescribeInstanceStatus":         op((*Service).DescribeInstanceStatus),
	"DescribeInstanceTypeOfferings":  op((*Service).DescribeInstanceTypeOfferings),
	"DescribeInstanceTypes":          op((*Service).DescribeInstanceTypes),
	"DescribeInstances":              op((*Service).DescribeInstances),
	"DescribeLaunchTemplateVersions": op((*Service).DescribeLaunchTemplateVersions),
	"DescribeLaunchTemplates":        op((*Service).DescribeLaunchTemplates),
	"DescribePlacementGroups":        op((*Service).DescribePlacementGroups),
	"DescribeSecurityGroups":         op((*Service).DescribeSecurityGroups),
	"DescribeSpotPriceHistory":       op((*Service).DescribeSpotPriceHistory),
	"DescribeSubnets":                op((*Service).DescribeSubnets),
	"DescribeTags":                   op((*Service).DescribeTags),
	"RunInstances":                   op((*Service).RunInstances),
	"TerminateInstances":             op((*Service).TerminateInstances),
}

// maxBody is more than any form the SDK sends: a fleet of 300 overrides is about 100 KB.
const maxBody = 4 << 20

// ServeHTTP answers one call of the query protocol. A reply that a fault loses ends the connection without an answer.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	requestID := s.mintUUID()
	s.mu.Unlock()

	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		refuse(w, requestID, wire.Errorf("MalformedQueryString", "The request body cannot be parsed: %s", err))
		return
	}
	action := r.Form.Get("Action")
	do, ok := operations[action]
	if !ok {
		refuse(w, requestID, wire.Errorf("InvalidAction", "The action %s is not valid for this web service.", action))
		return
	}
	ctx := context.WithValue(r.Context(), callerKey{}, caller{accessKeyID: accessKeyID(r), requestID: requestID})
	// A presigned URL carries its signature among the parameters.
	maps.DeleteFunc(r.Form, func(key string, _ []string) bool { return strings.HasPrefix(key, "X-Amz-") })
	out, err := do(s, ctx, r.Form)
	if err != nil {
		refuse(w, requestID, err)
		return
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	// The caller going away is its own affair.
	_, _ = w.Write(wire.Encode(action, requestID, out))
}

func refuse(w http.ResponseWriter, requestID string, err error) {
	if errors.Is(err, ErrDropped) {
		panic(http.ErrAbortHandler)
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		e = &wire.Error{Code: "InternalError", Message: err.Error(), Status: http.StatusInternalServerError}
	}
	// As above.
	_ = e.WriteTo(w, requestID)
}

// accessKeyID reads who signed a request, from the header or a presigned URL. The signature is not looked at.
func accessKeyID(r *http.Request) string {
	credential := r.Form.Get("X-Amz-Credential")
	if _, rest, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok {
		credential = rest
	}
	id, _, _ := strings.Cut(credential, "/")
	return id
}

// Actions returns the actions served, sorted.
func Actions() []string {
	return slices.Sorted(maps.Keys(operations))
}

// CreateFleet launches instances from overrides; only instant fleets.
func (s *Service) CreateFleet(ctx context.Context, in *sdk.CreateFleetInput, _ ...options) (*sdk.CreateFleetOutput, error) {
	return call(ctx, s, in, s.createFleet)
}

// RunInstances launches instances of one type in one place.
func (s *Service) RunInstances(ctx context.Context, in *sdk.RunInstancesInput, _ ...options) (*sdk.RunInstancesOutput, error) {
	return call(ctx, s, in, s.runInstances)
}

// TerminateInstances ends instances: all of them, or none if one does not exist.
func (s *Service) TerminateInstances(ctx context.Context, in *sdk.TerminateInstancesInput, _ ...options) (*sdk.TerminateInstancesOutput, error) {
	return call(ctx, s, in, s.terminateInstances)
}

// DescribeInstances lists instances in the order of their launch.
func (s *Service) DescribeInstances(ctx context.Context, in *sdk.DescribeInstancesInput, _ ...options) (*sdk.DescribeInstancesOutput, error) {
	return call(ctx, s, in, s.describeInstances)
}

// DescribeInstanceStatus lists status checks and planned events.
func (s *Service) DescribeInstanceStatus(ctx context.Context, in *sdk.DescribeInstanceStatusInput, _ ...options) (*sdk.DescribeInstanceStatusOutput, error) {
	return call(ctx, s, in, s.describeInstanceStatus)
}

// CreateLaunchTemplate stores a template as its version 1.
func (s *Service) CreateLaunchTemplate(ctx context.Context, in *sdk.CreateLaunchTemplateInput, _ ...options) (*sdk.CreateLaunchTemplateOutput, error) {
	return call(ctx, s, in, s.createLaunchTemplate)
}

// DeleteLaunchTemplate removes a template.
func (s *Service) DeleteLaunchTemplate(ctx context.Context, in *sdk.DeleteLaunchTemplateInput, _ ...options) (*sdk.DeleteLaunchTemplateOutput, error) {
	return call(ctx, s, in, s.deleteLaunchTemplate)
}

// DescribeLaunchTemplates lists templates.
func (s *Service) DescribeLaunchTemplates(ctx context.Context, in *sdk.DescribeLaunchTemplatesInput, _ ...options) (*sdk.DescribeLaunchTemplatesOutput, error) {
	return call(ctx, s, in, s.describeLaunchTemplates)
}

// DescribeLaunchTemplateVersions shows what templates hold.
func (s *Service) DescribeLaunchTemplateVersions(ctx context.Context, in *sdk.DescribeLaunchTemplateVersionsInput, _ ...options) (*sdk.DescribeLaunchTemplateVersionsOutput, error) {
	return call(ctx, s, in, s.describeLaunchTemplateVersions)
}

// DescribeInstanceTypes lists the catalogue.
func (s *Service) DescribeInstanceTypes(ctx context.Context, in *sdk.DescribeInstanceTypesInput, _ ...options) (*sdk.DescribeInstanceTypesOutput, error) {
	return call(ctx, s, in, s.describeInstanceTypes)
}

// DescribeInstanceTypeOfferings lists where types are offered.
func (s *Service) DescribeInstanceTypeOfferings(ctx context.Context, in *sdk.DescribeInstanceTypeOfferingsInput, _ ...options) (*sdk.DescribeInstanceTypeOfferingsOutput, error) {
	return call(ctx, s, in, s.describeInstanceTypeOfferings)
}

// DescribeSpotPriceHistory lists the Spot prices of now.
func (s *Service) DescribeSpotPriceHistory(ctx context.Context, in *sdk.DescribeSpotPriceHistoryInput, _ ...options) (*sdk.DescribeSpotPriceHistoryOutput, error) {
	return call(ctx, s, in, s.describeSpotPriceHistory)
}

// DescribeSubnets lists subnets with their free addresses.
func (s *Service) DescribeSubnets(ctx context.Context, in *sdk.DescribeSubnetsInput, _ ...options) (*sdk.DescribeSubnetsOutput, error) {
	return call(ctx, s, in, s.describeSubnets)
}

// DescribeSecurityGroups lists security groups.
func (s *Service) DescribeSecurityGroups(ctx context.Context, in *sdk.DescribeSecurityGroupsInput, _ ...options) (*sdk.DescribeSecurityGroupsOutput, error) {
	return call(ctx, s, in, s.describeSecurityGroups)
}

// DescribeImages lists images.
func (s *Service) DescribeImages(ctx context.Context, in *sdk.DescribeImagesInput, _ ...options) (*sdk.DescribeImagesOutput, error) {
	return call(ctx, s, in, s.describeImages)
}

// DescribeAvailabilityZones lists the region's zones.
func (s *Service) DescribeAvailabilityZones(ctx context.Context, in *sdk.DescribeAvailabilityZonesInput, _ ...options) (*sdk.DescribeAvailabilityZonesOutput, error) {
	return call(ctx, s, in, s.describeAvailabilityZones)
}

// DescribeCapacityReservations lists capacity reservations.
func (s *Service) DescribeCapacityReservations(ctx context.Context, in *sdk.DescribeCapacityReservationsInput, _ ...options) (*sdk.DescribeCapacityReservationsOutput, error) {
	return call(ctx, s, in, s.describeCapacityReservations)
}

// DescribePlacementGroups lists placement groups.
func (s *Service) DescribePlacementGroups(ctx context.Context, in *sdk.DescribePlacementGroupsInput, _ ...options) (*sdk.DescribePlacementGroupsOutput, error) {
	return call(ctx, s, in, s.describePlacementGroups)
}

// CreateTags adds tags to resources or changes them.
func (s *Service) CreateTags(ctx context.Context, in *sdk.CreateTagsInput, _ ...options) (*sdk.CreateTagsOutput, error) {
	return call(ctx, s, in, s.createTags)
}

// DeleteTags takes tags off resources.
func (s *Service) DeleteTags(ctx context.Context, in *sdk.DeleteTagsInput, _ ...options) (*sdk.DeleteTagsOutput, error) {
	return call(ctx, s, in, s.deleteTags)
}

// DescribeTags lists tags by resource.
func (s *Service) DescribeTags(ctx context.Context, in *sdk.DescribeTagsInput, _ ...options) (*sdk.DescribeTagsOutput, error) {
	return call(ctx, s, in, s.describeTags)
}
