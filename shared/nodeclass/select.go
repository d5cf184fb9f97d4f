package nodeclass

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/shared/cluster"
)

// subnets returns the subnets that any term selects, the one with the most free addresses first (C-026, C-055).
func (r *Resolver) subnets(ctx context.Context, spec cluster.NodeClassSpec) ([]cluster.Subnet, error) {
	var out []cluster.Subnet
	for _, q := range queries(spec.SubnetSelectorTerms, "subnet-id", "") {
		in := &ec2.DescribeSubnetsInput{Filters: q}
		for {
			page, err := r.ec2.DescribeSubnets(ctx, in)
			if err != nil {
				return nil, fmt.Errorf("describe subnets: %w", Classify(err))
			}
			for _, s := range page.Subnets {
				out = append(out, cluster.Subnet{
					ID:      aws.ToString(s.SubnetId),
					Zone:    aws.ToString(s.AvailabilityZone),
					ZoneID:  aws.ToString(s.AvailabilityZoneId),
					FreeIPs: int(aws.ToInt32(s.AvailableIpAddressCount)),
				})
			}
			if aws.ToString(page.NextToken) == "" {
				break
			}
			in.NextToken = page.NextToken
		}
	}
	slices.SortFunc(out, func(a, b cluster.Subnet) int {
		return cmp.Or(cmp.Compare(b.FreeIPs, a.FreeIPs), cmp.Compare(a.ID, b.ID))
	})
	out = slices.CompactFunc(out, func(a, b cluster.Subnet) bool { return a.ID == b.ID })
	if len(out) == 0 {
		return nil, ruleError{reasonNoSubnets, "no subnet matches " + describe(spec.SubnetSelectorTerms)}
	}
	return out, nil
}

// securityGroups returns the groups that any term selects, by id (C-027, C-056).
func (r *Resolver) securityGroups(ctx context.Context, spec cluster.NodeClassSpec) ([]cluster.SecurityGroup, error) {
	var out []cluster.SecurityGroup
	for _, q := range queries(spec.SecurityGroupSelectorTerms, "group-id", "group-name") {
		in := &ec2.DescribeSecurityGroupsInput{Filters: q}
		for {
			page, err := r.ec2.DescribeSecurityGroups(ctx, in)
			if err != nil {
				return nil, fmt.Errorf("describe security groups: %w", Classify(err))
			}
			for _, g := range page.SecurityGroups {
				out = append(out, cluster.SecurityGroup{ID: aws.ToString(g.GroupId), Name: aws.ToString(g.GroupName)})
			}
			if aws.ToString(page.NextToken) == "" {
				break
			}
			in.NextToken = page.NextToken
		}
	}
	slices.SortFunc(out, func(a, b cluster.SecurityGroup) int { return cmp.Compare(a.ID, b.ID) })
	out = slices.CompactFunc(out, func(a, b cluster.SecurityGroup) bool { return a.ID == b.ID })
	if len(out) == 0 {
		return nil, ruleError{reasonNoGroups, "no security group matches " + describe(spec.SecurityGroupSelectorTerms)}
	}
	return out, nil
}

// expiringSeconds is how long before its end a capacity block is about to take its instances away (C-059).
const expiringSeconds = 40 * 60

// reservations returns the active capacity reservations that any term selects, by id (C-029, C-057). That none is found is
// nothing to complain of.
func (r *Resolver) reservations(ctx context.Context, spec cluster.NodeClassSpec, facts Facts) ([]cluster.Reservation, error) {
	var out []cluster.Reservation
	for _, in := range reservationQueries(spec.ReservationSelectorTerms) {
		for {
			page, err := r.ec2.DescribeCapacityReservations(ctx, in)
			err = Classify(err)
			if errors.Is(err, ErrNotFound) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("describe capacity reservations: %w", err)
			}
			for i := range page.CapacityReservations {
				one := toReservation(&page.CapacityReservations[i], facts.NowUnix)
				if one.EndUnix == 0 || one.EndUnix > facts.NowUnix {
					out = append(out, one)
				}
			}
			if aws.ToString(page.NextToken) == "" {
				break
			}
			in.NextToken = page.NextToken
		}
	}
	slices.SortFunc(out, func(a, b cluster.Reservation) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b cluster.Reservation) bool { return a.ID == b.ID }), nil
}

func toReservation(c *types.CapacityReservation, now int64) cluster.Reservation {
	out := cluster.Reservation{
		ID:            aws.ToString(c.CapacityReservationId),
		InstanceType:  aws.ToString(c.InstanceType),
		Zone:          aws.ToString(c.AvailabilityZone),
		MatchCriteria: string(c.InstanceMatchCriteria),
		OwnerID:       aws.ToString(c.OwnerId),
		Kind:          cmp.Or(string(c.ReservationType), "default"),
		State:         "active",
		Interruptible: aws.ToBool(c.Interruptible),
		Available:     int(aws.ToInt32(c.AvailableInstanceCount)),
	}
	if c.EndDate != nil {
		out.EndUnix = c.EndDate.Unix()
	}
	if out.Kind == "capacity-block" && out.EndUnix != 0 && now >= out.EndUnix-expiringSeconds {
		out.State = "expiring"
	}
	return out
}

// reservationQueries has a query for each term: there is no filter by id, and one unknown id fails a call for several.
func reservationQueries(terms []cluster.SelectorTerm) []*ec2.DescribeCapacityReservationsInput {
	active := filter("state", "active")
	var out []*ec2.DescribeCapacityReservationsInput
	for _, t := range terms {
		if t.ID != "" {
			out = append(out, &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{t.ID}, Filters: []types.Filter{active}})
			continue
		}
		filters := append(tagFilters(t.Tags), active)
		if t.Owner != "" {
			filters = append(filters, filter("owner-id", t.Owner))
		}
		if t.InstanceMatchCriteria != "" {
			filters = append(filters, filter("instance-match-criteria", t.InstanceMatchCriteria))
		}
		out = append(out, &ec2.DescribeCapacityReservationsInput{Filters: filters})
	}
	return out
}

// placementGroup checks that the group of the class can be used (C-037, C-058).
func (r *Resolver) placementGroup(ctx context.Context, spec cluster.NodeClassSpec) error {
	term := spec.PlacementGroup
	if term == nil {
		return nil
	}
	in := &ec2.DescribePlacementGroupsInput{}
	if term.ID != "" {
		in.GroupIds = []string{term.ID}
	} else {
		in.GroupNames = []string{term.Name}
	}
	missing := ruleError{reasonNoPlacement, "no placement group matches " + describe([]cluster.SelectorTerm{*term})}
	out, err := r.ec2.DescribePlacementGroups(ctx, in)
	err = Classify(err)
	switch {
	case errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid): // InvalidPlacementGroup.Unknown
		return missing
	case err != nil:
		return fmt.Errorf("describe placement group: %w", err)
	case len(out.PlacementGroups) == 0:
		return missing
	case out.PlacementGroups[0].State != types.PlacementGroupStateAvailable:
		return ruleError{reasonNoPlacement, fmt.Sprintf("placement group %s is %s",
			aws.ToString(out.PlacementGroups[0].GroupName), out.PlacementGroups[0].State)}
	}
	return nil
}

// queries turns selector terms into filters, one list a call: ids share one call, and so do names; each term with tags has its
// own. An id wins over all else in its term, a name over tags (C-054). byName is "" where a selector has no names.
func queries(terms []cluster.SelectorTerm, byID, byName string) [][]types.Filter {
	var ids, names []string
	var out [][]types.Filter
	for _, t := range terms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.Name != "" && byName != "":
			names = append(names, t.Name)
		case len(t.Tags) > 0:
			out = append(out, tagFilters(t.Tags))
		}
	}
	if len(ids) > 0 {
		out = append(out, []types.Filter{filter(byID, ids...)})
	}
	if len(names) > 0 {
		out = append(out, []types.Filter{filter(byName, names...)})
	}
	return out
}

// tagFilters asks for all of the tags; the value * asks only for the key.
func tagFilters(tags map[string]string) []types.Filter {
	out := make([]types.Filter, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if tags[key] == "*" {
			out = append(out, filter("tag-key", key))
			continue
		}
		out = append(out, filter("tag:"+key, tags[key]))
	}
	return out
}

// describe writes selector terms for a person: "tags team=a and env=prod, or id subnet-1".
func describe(terms []cluster.SelectorTerm) string {
	var out []string
	for _, t := range terms {
		var parts []string
		for _, field := range []struct{ name, value string }{
			{"id", t.ID}, {"name", t.Name}, {"owner", t.Owner}, {"alias", t.Alias}, {"parameter", t.SSMParameter},
			{"tags", strings.ReplaceAll(pairs(t.Tags, " and "), "=*", " with any value")},
		} {
			if field.value != "" {
				parts = append(parts, field.name+" "+field.value)
			}
		}
		out = append(out, strings.Join(parts, " and "))
	}
	if len(out) == 0 {
		return "an empty selector"
	}
	return strings.Join(out, ", or ")
}
