package nodeclass

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/shared/cluster"
)

// parameterSeconds is how long the value of a parameter is believed (C-061, C-093).
const parameterSeconds = 5 * 60

type parameterValue struct {
	text     string // "" where there is no such parameter
	readUnix int64
}

// wanted is images to look for, with what each is for. A nil requirements means what the image's architecture says.
type wanted struct {
	in           *ec2.DescribeImagesInput
	requirements map[string][][]cluster.Expression // by image id; nil: any image will do
}

// amis returns the images of the class, newest first, each with the instance types that it is for (C-028, C-060 to C-065).
func (r *Resolver) amis(ctx context.Context, spec cluster.NodeClassSpec, facts Facts) ([]cluster.AMI, error) {
	var all []image
	asked, err := r.wanted(ctx, spec, facts)
	if err != nil {
		return nil, err
	}
	for _, w := range asked {
		found, err := r.images(ctx, w, facts.NowUnix)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, ruleError{reasonNoAMI, "no image matches " + describe(spec.AMISelectorTerms)}
	}
	return choose(all), nil
}

// image is a candidate.
type image struct {
	cluster.AMI
	created string // RFC 3339, which sorts as text
}

// choose keeps the best image for each set of requirements: one that is not deprecated, then the newest, then the first by
// name (C-063); the newest image comes first in the result.
func choose(all []image) []cluster.AMI {
	slices.SortFunc(all, func(a, b image) int {
		return cmp.Or(
			compareBool(a.Deprecated, b.Deprecated),
			cmp.Compare(b.created, a.created),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(key(a.AMI), key(b.AMI)))
	})
	taken := map[string]bool{}
	var kept []image
	for _, one := range all {
		if k := key(one.AMI); !taken[k] {
			taken[k] = true
			kept = append(kept, one)
		}
	}
	slices.SortStableFunc(kept, func(a, b image) int { return cmp.Compare(b.created, a.created) })
	out := make([]cluster.AMI, len(kept))
	for i := range kept {
		out[i] = kept[i].AMI
	}
	return out
}

func key(a cluster.AMI) string { return cluster.NewRequirements(nil, a.Requirements...).String() }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// wanted turns the terms of the class into queries; parameters are read on the way.
func (r *Resolver) wanted(ctx context.Context, spec cluster.NodeClassSpec, facts Facts) ([]wanted, error) {
	if f, version, given := alias(spec); given {
		return r.aliased(ctx, f, version, facts)
	}
	var ids []string
	var out []wanted
	for _, t := range spec.AMISelectorTerms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.SSMParameter != "":
			id, err := r.parameter(ctx, t.SSMParameter, facts)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		default:
			in := &ec2.DescribeImagesInput{Filters: tagFilters(t.Tags), IncludeDeprecated: aws.Bool(true)}
			if t.Name != "" {
				in.Filters = append(in.Filters, filter("name", t.Name))
			}
			switch {
			case t.Owner != "":
				in.Owners = []string{t.Owner}
			case t.Name != "":
				in.Owners = []string{"self", "amazon"}
			}
			out = append(out, wanted{in: in})
		}
	}
	if len(ids) > 0 {
		out = append(out, wanted{in: byIDs(ids)})
	}
	return out, nil
}

// aliased asks for the images that a family publishes. Variants that a region lacks are skipped (C-095).
func (r *Resolver) aliased(ctx context.Context, f family, version string, facts Facts) ([]wanted, error) {
	minor, kubernetes := facts.minor()
	if kubernetes == "" {
		return nil, ruleError{reasonNoAMI, "the cluster's version of Kubernetes is not known"}
	}
	switch {
	case f == al2 && minor >= 33:
		return nil, ruleError{reasonUnsupportedAlias, "AL2 has no images for Kubernetes " + kubernetes + "; the last with one is 1.32"}
	case f == windows2025 && minor < 35:
		return nil, ruleError{reasonUnsupportedAlias, "Windows2025 has no images for Kubernetes " + kubernetes + "; the first with one is 1.35"}
	case f == unknownFamily:
		return nil, ruleError{reasonNoAMI, "the alias names no family that is known"}
	}
	requirements := map[string][][]cluster.Expression{}
	var ids []string
	for _, v := range f.variants(kubernetes, version) {
		id, err := r.parameter(ctx, v.parameter, facts)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if requirements[id] == nil {
			ids = append(ids, id)
		}
		requirements[id] = append(requirements[id], v.requirements)
	}
	if len(ids) == 0 {
		return nil, ruleError{reasonNoAMI, fmt.Sprintf("no parameter gives an image of %s@%s for Kubernetes %s", f, version, kubernetes)}
	}
	return []wanted{{in: byIDs(ids), requirements: requirements}}, nil
}

// byIDs asks with a filter, because one unknown id would fail a call by ids.
func byIDs(ids []string) *ec2.DescribeImagesInput {
	return &ec2.DescribeImagesInput{Filters: []types.Filter{filter("image-id", ids...)}, IncludeDeprecated: aws.Bool(true)}
}

func (r *Resolver) images(ctx context.Context, w wanted, now int64) ([]image, error) {
	var out []image
	for {
		page, err := r.ec2.DescribeImages(ctx, w.in)
		if err != nil {
			return nil, fmt.Errorf("describe images: %w", Classify(err))
		}
		for i := range page.Images {
			out = append(out, candidates(&page.Images[i], w.requirements, now)...)
		}
		if aws.ToString(page.NextToken) == "" {
			return out, nil
		}
		w.in.NextToken = page.NextToken
	}
}

// candidates returns i once for each set of requirements that it serves.
func candidates(i *types.Image, requirements map[string][][]cluster.Expression, now int64) []image {
	if i.State != "" && i.State != types.ImageStateAvailable {
		return nil
	}
	id := aws.ToString(i.ImageId)
	sets := requirements[id]
	if sets == nil {
		arch := map[types.ArchitectureValues]string{types.ArchitectureValuesX8664: "amd64", types.ArchitectureValuesArm64: "arm64"}[i.Architecture]
		if arch == "" {
			return nil
		}
		sets = [][]cluster.Expression{{in(cluster.LabelArch, arch)}}
	}
	var out []image
	for _, set := range sets {
		out = append(out, image{
			AMI: cluster.AMI{
				ID: id, Name: aws.ToString(i.Name), Requirements: set, Deprecated: deprecated(i, now),
			},
			created: aws.ToString(i.CreationDate),
		})
	}
	return out
}

func deprecated(i *types.Image, now int64) bool {
	at, err := time.Parse(time.RFC3339, aws.ToString(i.DeprecationTime))
	return err == nil && at.Unix() <= now
}

// parameter returns the image id that a parameter holds. ErrNotFound: there is no such parameter.
func (r *Resolver) parameter(ctx context.Context, name string, facts Facts) (string, error) {
	r.mu.Lock()
	known, ok := r.values[name]
	r.mu.Unlock()
	if !ok || facts.NowUnix-known.readUnix >= parameterSeconds {
		text, err := r.parameters.Parameter(ctx, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return "", fmt.Errorf("read parameter %s: %w", name, err)
		}
		known = parameterValue{text, facts.NowUnix}
		r.mu.Lock()
		r.values[name] = known
		r.mu.Unlock()
	}
	if known.text == "" {
		return "", fmt.Errorf("read parameter %s: %w", name, ErrNotFound)
	}
	if !strings.HasPrefix(known.text, "ami-") {
		return "", ruleError{reasonNoAMI, fmt.Sprintf("parameter %s holds %q, which is no image id", name, known.text)}
	}
	return known.text, nil
}
