package ec2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// ChangeKind says what happened to an instance.
type ChangeKind string

// The kinds of changes: the states an instance goes through, and what EC2 announces of a running one.
const (
	Pending      ChangeKind = "pending"
	Running      ChangeKind = "running"
	ShuttingDown ChangeKind = "shutting-down"
	Terminated   ChangeKind = "terminated"

	SpotInterruption ChangeKind = "spot-interruption-warning" // EC2 takes the instance at Change.At
	Rebalance        ChangeKind = "rebalance-recommendation"
	ScheduledEvent   ChangeKind = "scheduled-event" // maintenance named by Change.Code at Change.At
)

// Change tells of one thing that happened to one instance.
type Change struct {
	Kind     ChangeKind
	Time     time.Time
	At       time.Time // when what is announced comes about; zero for states
	Code     string    // of a ScheduledEvent
	Instance Instance  // as it is right after the change; a copy
}

// Instance is what others may know of an instance.
type Instance struct {
	ID             string
	Type           string
	Zone           string
	ZoneID         string
	ImageID        string
	SubnetID       string
	PrivateIP      string
	PrivateDNSName string
	CapacityType   string // spot, on-demand or reserved
	State          string
	StateReason    string // code and message of a shutting-down or terminated one
	UserData       []byte // decoded; do not change
	Profile        string // name of the instance profile
	SpotRequestID  string
	ReservationID  string // capacity reservation
	Tags           map[string]string
	LaunchTime     time.Time
	Boot           fault.Boot // how it shall fare
}

// ProviderID is how a kubelet names the instance to Kubernetes.
func (i Instance) ProviderID() string { return "aws:///" + i.Zone + "/" + i.ID }

// instance is one as the Service keeps it.
type instance struct {
	id            string
	seq           int
	pool          fault.Pool
	typ           *Type
	shown         types.Instance // without state, reason and tags
	reservationID string         // of the launch that it came from
	userData      []byte
	profile       string
	tags          map[string]string
	state         types.InstanceStateName
	reason        *types.StateReason
	transition    string
	launched      time.Time
	ended         time.Time
	stocks        []string
	subnet        *subnet
	addr          netip.Addr
	addresses     int
	reserved      *reservation
	boot          fault.Boot
	impaired      map[string]time.Time // failed checks: instance, system or ebs
	events        []types.InstanceStatusEvent
	warned        bool
}

func (i *instance) copied() Instance {
	v := Instance{
		ID: i.id, Type: i.typ.Name, Zone: i.pool.Zone, ZoneID: zoneIDs[i.pool.Zone], ImageID: *i.shown.ImageId,
		SubnetID: i.subnet.ID, PrivateIP: i.addr.String(), PrivateDNSName: privateDNSName(i.addr), CapacityType: i.pool.Capacity,
		State: string(i.state), UserData: i.userData, Profile: i.profile, SpotRequestID: deref(i.shown.SpotInstanceRequestId),
		ReservationID: deref(i.shown.CapacityReservationId), Tags: maps.Clone(i.tags), LaunchTime: i.launched, Boot: i.boot,
	}
	if i.reason != nil {
		v.StateReason = deref(i.reason.Message)
	}
	return v
}

func (i *instance) live() bool {
	return i.state == types.InstanceStateNamePending || i.state == types.InstanceStateNameRunning
}

// Observe calls f for each change from now on, one at a time and in order. f may call the Service, and must not block: it holds
// up the call, or the timer, that made the change. The returned function ends it.
func (s *Service) Observe(f func(Change)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed++
	key := s.observed
	s.observers[key] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.observers, key)
	}
}

// announce queues a change for the observers; deliver, called without the lock, hands it on.
func (s *Service) announce(c Change, i *instance) {
	c.Time, c.Instance = time.Now(), i.copied()
	s.changes = append(s.changes, c)
}

// deliver hands queued changes to the observers. One goroutine at a time does so, and it also takes what others queue meanwhile:
// so changes arrive in order even if an observer makes new ones.
func (s *Service) deliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivering {
		return
	}
	s.delivering = true
	defer func() { s.delivering = false }()
	for len(s.changes) > 0 {
		c := s.changes[0]
		s.changes = s.changes[1:]
		var to []func(Change)
		for _, key := range slices.Sorted(maps.Keys(s.observers)) {
			to = append(to, s.observers[key])
		}
		func() {
			s.mu.Unlock()
			defer s.mu.Lock()
			for _, f := range to {
				f(c)
			}
		}()
	}
}

// after runs do on a live instance once d is over.
func (s *Service) after(d time.Duration, i *instance, do func()) {
	time.AfterFunc(d, func() {
		s.mu.Lock()
		if i.state != types.InstanceStateNameTerminated {
			do()
		}
		s.mu.Unlock()
		s.deliver()
	})
}

// begin starts the life of an instance that was just launched.
func (s *Service) begin(i *instance) {
	s.announce(Change{Kind: Pending}, i)
	if d := i.boot.Death; d != nil {
		die := func() { s.end(i, d.Code, d.Message, d.Code) }
		s.after(d.After, i, die)
		if d.After == 0 {
			return
		}
	}
	s.after(s.cfg.PendingFor, i, func() {
		if i.state == types.InstanceStateNamePending {
			i.state = types.InstanceStateNameRunning
			s.announce(Change{Kind: Running}, i)
		}
	})
	if n := i.boot.Interruption; n != nil {
		s.after(n.After, i, func() { s.interrupt(i, n.Notice, 1) })
	}
}

// interrupt warns a Spot instance, copies times, and ends it when notice is over. A notice below zero ends it right away.
func (s *Service) interrupt(i *instance, notice time.Duration, copies int) {
	if !i.live() {
		return
	}
	taken := func() {
		s.end(i, "Server.SpotInstanceTermination", "Spot instance termination", "Server.SpotInstanceTermination")
	}
	if notice < 0 {
		taken()
		return
	}
	i.warned = true
	for range max(copies, 1) {
		s.announce(Change{Kind: SpotInterruption, At: time.Now().Add(notice)}, i)
	}
	s.after(notice, i, taken)
}

// end takes an instance down with a state reason. One that is on its way down already stays on it.
func (s *Service) end(i *instance, code, message, transition string) {
	if !i.live() {
		return
	}
	if !strings.HasPrefix(message, code) {
		message = code + ": " + message
	}
	i.state = types.InstanceStateNameShuttingDown
	i.reason = &types.StateReason{Code: new(code), Message: new(message)}
	i.transition = transition
	s.announce(Change{Kind: ShuttingDown}, i)
	s.after(s.cfg.ShutdownFor, i, func() {
		if i.state != types.InstanceStateNameShuttingDown {
			return
		}
		i.state = types.InstanceStateNameTerminated
		i.ended = time.Now()
		i.subnet.give(i.addr, i.addresses)
		if i.reserved != nil {
			i.reserved.used--
		}
		s.cfg.Faults.Give(i.stocks, true)
		s.ended = append(s.ended, i)
		s.announce(Change{Kind: Terminated}, i)
	})
}

// forget drops terminated instances that nobody shall see any more.
func (s *Service) forget(now time.Time) {
	n := 0
	for n < len(s.ended) && now.Sub(s.ended[n].ended) >= s.cfg.KeepFor {
		delete(s.instances, s.ended[n].id)
		n++
	}
	if n == 0 {
		return
	}
	s.ended = slices.Delete(s.ended, 0, n)
	s.order = slices.DeleteFunc(s.order, func(i *instance) bool { return s.instances[i.id] == nil })
}

// hidden says whether a fault keeps an instance from an action's eyes for now.
func (s *Service) hidden(action string, i *instance) bool {
	return i.boot.Hides(action, time.Since(i.launched))
}

// Instances returns all instances that can be described, oldest first.
func (s *Service) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(time.Now())
	all := make([]Instance, len(s.order))
	for n, i := range s.order {
		all[n] = i.copied()
	}
	return all
}

func instanceNotFound(ids ...string) *wire.Error {
	if len(ids) == 1 {
		return wire.Errorf("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", ids[0])
	}
	return wire.Errorf("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(ids, ", "))
}

// named returns the instances with the given ids in the order asked, each once.
func (s *Service) named(action string, ids []string) ([]*instance, error) {
	var found []*instance
	var unknown []string
	seen := map[string]bool{}
	for _, id := range ids {
		if rest, ok := strings.CutPrefix(id, "i-"); !ok || strings.Trim(rest, "0123456789abcdef") != "" || rest == "" {
			return nil, wire.Errorf("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
		i, ok := s.instances[id]
		switch {
		case !ok || s.hidden(action, i):
			unknown = append(unknown, id)
		case !seen[id]:
			seen[id] = true
			found = append(found, i)
		}
	}
	if len(unknown) > 0 {
		return nil, instanceNotFound(unknown...)
	}
	return found, nil
}

func (s *Service) describeInstances(_ *fault.Call, in *sdk.DescribeInstancesInput) (*sdk.DescribeInstancesOutput, error) {
	picked, next, err := s.pick("DescribeInstances", in.InstanceIds, in.Filters, in.MaxResults, in.NextToken, nil)
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeInstancesOutput{NextToken: next, Reservations: []types.Reservation{}}
	for _, i := range picked {
		last := len(out.Reservations) - 1
		if last < 0 || *out.Reservations[last].ReservationId != i.reservationID {
			out.Reservations = append(out.Reservations, types.Reservation{
				ReservationId: new(i.reservationID), OwnerId: new(s.cfg.Account), Groups: []types.GroupIdentifier{},
			})
			last++
		}
		out.Reservations[last].Instances = append(out.Reservations[last].Instances, i.show())
	}
	return out, nil
}

// pick chooses instances by id or page by page, and by filters. also, if not nil, must hold as well.
func (s *Service) pick(action string, ids []string, asked []types.Filter, maxResults *int32, token *string, also func(*instance) bool) ([]*instance, *string, error) {
	pass, err := instanceFilters.compile(asked, func(i *instance) map[string]string { return i.tags })
	if err != nil {
		return nil, nil, err
	}
	if also == nil {
		also = func(*instance) bool { return true }
	}
	if len(ids) > 0 {
		if maxResults != nil {
			return nil, nil, wire.Errorf("InvalidParameterCombination",
				"The parameter instancesSet cannot be used with the parameter maxResults")
		}
		found, err := s.named(action, ids)
		if err != nil {
			return nil, nil, err
		}
		return keep(found, func(i *instance) bool { return pass(i) && also(i) }), nil, nil
	}
	size := 1000
	if maxResults != nil {
		size = int(*maxResults)
		if size < 5 || size > 1000 {
			return nil, nil, invalid("Value ( %d ) for parameter maxResults is invalid. Expecting a value between 5 and 1000.", size)
		}
	}
	// A token names the launch number of the last instance seen, so that instances that go meanwhile do not shift the pages.
	after, err := readToken(token)
	if err != nil {
		return nil, nil, err
	}
	start, _ := slices.BinarySearchFunc(s.order, after+1, func(i *instance, seq int) int { return i.seq - seq })
	var picked []*instance
	for _, i := range s.order[start:] {
		if !pass(i) || !also(i) || s.hidden(action, i) {
			continue
		}
		if len(picked) == size {
			return picked, writeToken(picked[size-1].seq), nil
		}
		picked = append(picked, i)
	}
	return picked, nil, nil
}

func (i *instance) show() types.Instance {
	v := i.shown
	v.State, v.StateReason, v.StateTransitionReason, v.Tags = stateOf(i.state), i.reason, new(i.transition), tagList(i.tags)
	if i.state == types.InstanceStateNameTerminated {
		// EC2 takes the addresses away with the instance.
		v.PrivateIpAddress, v.PrivateDnsName, v.NetworkInterfaces = nil, new(""), []types.InstanceNetworkInterface{}
		v.SubnetId, v.VpcId, v.SecurityGroups = nil, nil, []types.GroupIdentifier{}
	}
	return v
}

func stateOf(name types.InstanceStateName) *types.InstanceState {
	codes := map[types.InstanceStateName]int32{
		types.InstanceStateNamePending: 0, types.InstanceStateNameRunning: 16, types.InstanceStateNameShuttingDown: 32,
		types.InstanceStateNameTerminated: 48,
	}
	return &types.InstanceState{Name: name, Code: new(codes[name])}
}

//nolint:gochecknoglobals // a table
var instanceFilters = filters[*instance]{
	"instance-id":                   func(i *instance) []string { return one(i.id) },
	"instance-type":                 func(i *instance) []string { return one(i.typ.Name) },
	"instance-state-name":           func(i *instance) []string { return one(string(i.state)) },
	"instance-state-code":           func(i *instance) []string { return one(strconv.Itoa(int(*stateOf(i.state).Code))) },
	"instance-lifecycle":            func(i *instance) []string { return some(string(i.shown.InstanceLifecycle)) },
	"availability-zone":             func(i *instance) []string { return one(i.pool.Zone) },
	"availability-zone-id":          func(i *instance) []string { return one(zoneIDs[i.pool.Zone]) },
	"client-token":                  func(i *instance) []string { return some(deref(i.shown.ClientToken)) },
	"image-id":                      func(i *instance) []string { return one(*i.shown.ImageId) },
	"architecture":                  func(i *instance) []string { return one(string(i.shown.Architecture)) },
	"subnet-id":                     func(i *instance) []string { return one(i.subnet.ID) },
	"vpc-id":                        func(i *instance) []string { return one(i.subnet.VPC) },
	"private-dns-name":              func(i *instance) []string { return one(privateDNSName(i.addr)) },
	"private-ip-address":            func(i *instance) []string { return one(i.addr.String()) },
	"reservation-id":                func(i *instance) []string { return one(i.reservationID) },
	"spot-instance-request-id":      func(i *instance) []string { return some(deref(i.shown.SpotInstanceRequestId)) },
	"capacity-reservation-id":       func(i *instance) []string { return some(deref(i.shown.CapacityReservationId)) },
	"iam-instance-profile.name":     func(i *instance) []string { return some(i.profile) },
	"network-interface.subnet-id":   func(i *instance) []string { return one(i.subnet.ID) },
	"state-reason-code":             func(i *instance) []string { return some(reasonCode(i)) },
	"launch-time":                   func(i *instance) []string { return one(i.launched.UTC().Format(stampLayout)) },
	"instance.group-id":             groupsOf,
	"network-interface.group-id":    groupsOf,
	"placement-group-name":          func(i *instance) []string { return some(deref(i.shown.Placement.GroupName)) },
	"tenancy":                       func(i *instance) []string { return one(string(i.shown.Placement.Tenancy)) },
	"metadata-options.http-tokens":  func(i *instance) []string { return one(string(i.shown.MetadataOptions.HttpTokens)) },
	"root-device-type":              func(*instance) []string { return one("ebs") },
	"owner-id":                      func(i *instance) []string { return one(*i.shown.NetworkInterfaces[0].OwnerId) },
	"block-device-mapping.status":   func(*instance) []string { return one("attached") },
	"network-interface.status":      func(*instance) []string { return one("in-use") },
	"hypervisor":                    func(i *instance) []string { return one(string(i.shown.Hypervisor)) },
	"virtualization-type":           func(*instance) []string { return one("hvm") },
	"network-interface.vpc-id":      func(i *instance) []string { return one(i.subnet.VPC) },
	"network-interface.description": func(i *instance) []string { return some(deref(i.shown.NetworkInterfaces[0].Description)) },
}

// some wraps the value of a filter that a resource may lack.
func some(s string) []string {
	if s == "" {
		return nil
	}
	return one(s)
}

func reasonCode(i *instance) string {
	if i.reason == nil {
		return ""
	}
	return *i.reason.Code
}

func groupsOf(i *instance) []string {
	var ids []string
	for _, g := range i.shown.SecurityGroups {
		ids = append(ids, *g.GroupId)
	}
	return ids
}

func (s *Service) terminateInstances(_ *fault.Call, in *sdk.TerminateInstancesInput) (*sdk.TerminateInstancesOutput, error) {
	if len(in.InstanceIds) == 0 {
		return nil, missing("InstanceIds")
	}
	found, err := s.named("TerminateInstances", in.InstanceIds)
	if err != nil {
		return nil, err
	}
	if dryRun(in) {
		return nil, errDryRun()
	}
	out := &sdk.TerminateInstancesOutput{TerminatingInstances: []types.InstanceStateChange{}}
	for _, i := range found {
		before := i.state
		s.end(i, "Client.UserInitiatedShutdown", "User initiated shutdown",
			fmt.Sprintf("User initiated (%s GMT)", time.Now().UTC().Format(time.DateTime)))
		out.TerminatingInstances = append(out.TerminatingInstances, types.InstanceStateChange{
			InstanceId: new(i.id), PreviousState: stateOf(before), CurrentState: stateOf(i.state),
		})
	}
	return out, nil
}
