package nodeclass

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"treadle/shared/cluster"
	"treadle/shared/plan"
)

// templateAPI is the part of EC2 that Templates uses; *ec2.Client is one.
type templateAPI interface {
	CreateLaunchTemplate(context.Context, *ec2.CreateLaunchTemplateInput, ...func(*ec2.Options)) (*ec2.CreateLaunchTemplateOutput, error)
	DescribeLaunchTemplates(context.Context, *ec2.DescribeLaunchTemplatesInput, ...func(*ec2.Options)) (*ec2.DescribeLaunchTemplatesOutput, error)
	DeleteLaunchTemplate(context.Context, *ec2.DeleteLaunchTemplateInput, ...func(*ec2.Options)) (*ec2.DeleteLaunchTemplateOutput, error)
}

// Templates makes launch templates. A warm function keeps one, because it remembers which templates exist. It is safe for
// concurrent use.
type Templates struct {
	ec2 templateAPI

	mu    sync.Mutex
	known map[string]bool // names
}

// NewTemplates returns Templates that reach EC2 through client, which is an *ec2.Client.
func NewTemplates(client templateAPI) *Templates {
	return &Templates{ec2: client, known: map[string]bool{}}
}

// Order asks for nodes of one shape.
type Order struct {
	Facts Facts
	Class cluster.NodeClass // resolved: what its Status holds is used
	Pool  cluster.NodePool
	Claim plan.Claim
	// Count is how many claims of this shape there are.
	Count int
	// Types are the instance types as Class sees them; only those among the claim's options are read.
	Types []cluster.InstanceType
	// Addresses is the book of free addresses; what Prepare hands out is booked in it. nil: addresses do not count.
	Addresses *Addresses
}

// Prepared is a launch that is ready to be asked for.
type Prepared struct {
	Configs []plan.LaunchConfig
	// Count is for how many of the claims there are addresses, from 1 to Order.Count.
	Count int

	need   int
	booked []string // subnets
}

// Prepare makes sure that the templates of o exist and returns what a launch needs. Options are split by image, pod limit, EFA
// and reservation (L-040), each group with a template of its own; each zone gets the subnet with the most free addresses, and
// zones without room are left out. One call to EC2 for each template that this process has not seen.
//
// ErrNoAddresses: no zone has room for a single node. ErrInvalid: the class cannot be made into a template, or no option has
// an image. ErrThrottled, ErrDenied: as EC2 says.
func (t *Templates) Prepare(ctx context.Context, o Order) (Prepared, error) {
	groups := split(o)
	if len(groups) == 0 {
		return Prepared{}, fmt.Errorf("prepare launch of class %s: %w: no option has an image", o.Class.Name, ErrInvalid)
	}
	out, subnets, err := place(o)
	if err != nil {
		return Prepared{}, fmt.Errorf("prepare launch of class %s: %w", o.Class.Name, err)
	}
	for _, g := range groups {
		overrides := g.overrides(subnets)
		if len(overrides) == 0 {
			continue
		}
		in, err := template(o, g)
		if err != nil {
			return Prepared{}, fmt.Errorf("prepare launch of class %s: %w", o.Class.Name, err)
		}
		if err := t.ensure(ctx, in); err != nil {
			return Prepared{}, fmt.Errorf("prepare launch of class %s: %w", o.Class.Name, err)
		}
		out.Configs = append(out.Configs, plan.LaunchConfig{Template: *in.LaunchTemplateName, Overrides: overrides})
	}
	if o.Addresses != nil {
		for _, id := range out.booked {
			o.Addresses.Take(id, out.need*out.Count)
		}
	}
	return out, nil
}

// Settle corrects the book after a launch: instances that were launched keep their addresses, all else is given back (L-021).
func (p Prepared) Settle(book *Addresses, launched []cluster.Instance) {
	for _, id := range p.booked {
		book.Take(id, -p.need*p.Count)
	}
	for _, i := range launched {
		book.Take(i.SubnetID, p.need)
	}
}

// Forget drops what is known about templates, so that the next Prepare makes them again: EC2 said that one is gone (L-030).
func (t *Templates) Forget(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		delete(t.known, name)
	}
}

// Delete deletes the launch templates of a class (L-100).
func (t *Templates) Delete(ctx context.Context, clusterName, class string) error {
	return t.deleteIf(ctx, clusterName, func(types.LaunchTemplate) bool { return true }, filter("tag:"+cluster.LabelNodeClass, class))
}

// Prune deletes the launch templates of a cluster that were made before an instant and for which used is false. Images roll
// and classes change, so templates that nobody needs any more pile up, and EC2 has a quota of them. One that is deleted too
// early is made again by the next Prepare that needs it.
func (t *Templates) Prune(ctx context.Context, clusterName string, madeBefore time.Time, used func(name string) bool) error {
	return t.deleteIf(ctx, clusterName, func(one types.LaunchTemplate) bool {
		return one.CreateTime != nil && one.CreateTime.Before(madeBefore) && !used(aws.ToString(one.LaunchTemplateName))
	})
}

// deleteIf deletes those of the cluster's templates that pass the filters and are doomed; all that it can.
func (t *Templates) deleteIf(ctx context.Context, clusterName string, doomed func(types.LaunchTemplate) bool, more ...types.Filter) error {
	in := &ec2.DescribeLaunchTemplatesInput{Filters: append(more, filter("tag:kubernetes.io/cluster/"+clusterName, "owned"))}
	var errs []error
	for {
		page, err := t.ec2.DescribeLaunchTemplates(ctx, in)
		if err != nil {
			return fmt.Errorf("list launch templates of cluster %s: %w", clusterName, Classify(err))
		}
		for _, one := range page.LaunchTemplates {
			if !doomed(one) {
				continue
			}
			_, err := t.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: one.LaunchTemplateId})
			if err := Classify(err); err != nil && !errors.Is(err, ErrNotFound) {
				errs = append(errs, fmt.Errorf("delete launch template %s: %w", aws.ToString(one.LaunchTemplateName), err))
			}
			t.Forget(aws.ToString(one.LaunchTemplateName))
		}
		if aws.ToString(page.NextToken) == "" {
			return errors.Join(errs...)
		}
		in.NextToken = page.NextToken
	}
}

func (t *Templates) ensure(ctx context.Context, in *ec2.CreateLaunchTemplateInput) error {
	name := *in.LaunchTemplateName
	t.mu.Lock()
	known := t.known[name]
	t.mu.Unlock()
	if known {
		return nil
	}
	_, err := t.ec2.CreateLaunchTemplate(ctx, in)
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "InvalidLaunchTemplateName.AlreadyExistsException" {
		err = nil // the name is a hash of the content, so this is the template that was wanted
	}
	if err != nil {
		return fmt.Errorf("create launch template %s: %w", name, Classify(err))
	}
	t.mu.Lock()
	t.known[name] = true
	t.mu.Unlock()
	return nil
}

// group is the options of a claim that one template serves.
type group struct {
	image       cluster.AMI
	maxPods     int64
	efas        int64
	reservation cluster.Reservation
	options     []plan.Option
}

// split sorts the options of o into groups, in the order in which they first appear (L-040). Options that no image runs on are
// left out.
func split(o Order) []*group {
	types := make(map[string]*cluster.InstanceType, len(o.Types))
	for i := range o.Types {
		types[o.Types[i].Name] = &o.Types[i]
	}
	reservations := make(map[string]cluster.Reservation, len(o.Class.Status.Reservations))
	for _, r := range o.Class.Status.Reservations {
		reservations[r.ID] = r
	}
	type key struct {
		image, reservation string
		maxPods, efas      int64
	}
	var out []*group
	index := map[key]*group{}
	for _, option := range o.Claim.Options {
		it := types[option.InstanceType]
		if it == nil {
			continue
		}
		image, ok := imageFor(o.Class.Status.AMIs, it.Labels)
		if !ok {
			continue
		}
		k := key{image: image.ID, reservation: option.ReservationID, maxPods: it.Capacity.Pods}
		if o.Claim.Requests.Extended[resourceEFA] > 0 {
			k.efas = it.Capacity.Extended[resourceEFA]
		}
		g := index[k]
		if g == nil {
			g = &group{image: image, maxPods: k.maxPods, efas: k.efas, reservation: reservations[option.ReservationID]}
			index[k] = g
			out = append(out, g)
		}
		g.options = append(g.options, option)
	}
	return out
}

// imageFor returns the newest image that runs on a type with the given labels (C-064).
func imageFor(amis []cluster.AMI, labels map[string]string) (cluster.AMI, bool) {
	for _, ami := range amis {
		if _, ok := cluster.NewRequirements(nil, ami.Requirements...).MeetsLabels(labels); ok {
			return ami, true
		}
	}
	return cluster.AMI{}, false
}

// place chooses a subnet for each zone of the claim and how many nodes there are addresses for. Zones with room for all are
// preferred; where no zone has that, those with the most room are taken and the count is cut.
func place(o Order) (Prepared, map[string]string, error) {
	out := Prepared{Count: o.Count, need: need(o)}
	book := o.Addresses
	if book == nil {
		book = &Addresses{}
	}
	rooms, chosen := map[string]int{}, map[string]string{}
	most := 0
	for _, option := range o.Claim.Options {
		if _, seen := chosen[option.Zone]; seen {
			continue
		}
		id, room := book.best(o.Class.Status.Subnets, option.Zone, out.need)
		chosen[option.Zone], rooms[option.Zone] = id, room
		most = max(most, room)
	}
	if most == 0 {
		return Prepared{}, nil, fmt.Errorf("%w: no subnet has %d left", ErrNoAddresses, out.need)
	}
	out.Count = min(out.Count, most)
	for zone, id := range chosen {
		if rooms[zone] < out.Count {
			delete(chosen, zone)
			continue
		}
		out.booked = append(out.booked, id)
	}
	slices.Sort(out.booked)
	return out, chosen, nil
}

// need is how many addresses a node of o takes: its own and one for each pod that is planned for it, daemons included, but no
// more than the pods that the smallest type holds.
func need(o Order) int {
	n := o.Claim.Requests.Pods + 1
	for i := range o.Types {
		taken := slices.ContainsFunc(o.Claim.Options, func(p plan.Option) bool { return p.InstanceType == o.Types[i].Name })
		if taken {
			n = min(n, o.Types[i].Capacity.Pods)
		}
	}
	return int(max(n, 1))
}

func (g *group) overrides(subnets map[string]string) []plan.Override {
	var out []plan.Override
	for _, option := range g.options {
		subnet, ok := subnets[option.Zone]
		if !ok {
			continue
		}
		out = append(out, plan.Override{
			InstanceType:         option.InstanceType,
			SubnetID:             subnet,
			Zone:                 option.Zone,
			ImageID:              g.image.ID,
			PriceMicroUSDPerHour: option.PriceMicroUSDPerHour,
		})
	}
	slices.SortFunc(out, func(a, b plan.Override) int {
		return cmp.Or(
			cmp.Compare(a.PriceMicroUSDPerHour, b.PriceMicroUSDPerHour),
			cmp.Compare(a.InstanceType, b.InstanceType),
			cmp.Compare(a.Zone, b.Zone))
	})
	return out
}

// named returns in with a name that is a hash of all else in it (L-037).
func named(in *ec2.CreateLaunchTemplateInput) (*ec2.CreateLaunchTemplateInput, error) {
	body, err := json.Marshal(in) //nolint:gosec // a client token is no secret, and is not set here
	if err != nil {
		return nil, fmt.Errorf("hash launch template: %w", err)
	}
	sum := sha256.Sum256(body)
	in.LaunchTemplateName = aws.String("karpenter.k8s.aws/" + hex.EncodeToString(sum[:16]))
	return in, nil
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}
