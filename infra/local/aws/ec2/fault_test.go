package ec2_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/aws/fault"
)

// Each refusal of a pool must come back as the fleet error that EC2 gives, and in no other way.
func TestFault_PoolsRefuseAsEC2Does(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capacity string
		rule     fault.Rule
		code     string
		says     string
		unnamed  bool
	}{
		"no capacity":        {"on-demand", fault.Rule{Kind: fault.NoCapacity}, "InsufficientInstanceCapacity", "m5.large", false},
		"the Spot quota":     {"spot", fault.Rule{Kind: fault.NoCapacity, Code: "MaxSpotInstanceCountExceeded"}, "MaxSpotInstanceCountExceeded", "Max spot", false},
		"the vCPU quota":     {"on-demand", fault.Rule{Kind: fault.NoCapacity, Code: "VcpuLimitExceeded"}, "VcpuLimitExceeded", "vCPU", false},
		"the fleet quota":    {"on-demand", fault.Rule{Kind: fault.NoCapacity, Code: "MaxFleetCountExceeded"}, "MaxFleetCountExceeded", "fleets", false},
		"no type named":      {"spot", fault.Rule{Kind: fault.NoCapacity, Code: "UnfulfillableCapacity", Unnamed: true}, "UnfulfillableCapacity", "Unable to fulfill", true},
		"a type withdrawn":   {"spot", fault.Rule{Kind: fault.Withdrawn}, "Unsupported", "us-east-1a", false},
		"a type unsupported": {"spot", fault.Rule{Kind: fault.NoCapacity, Code: "Unsupported"}, "Unsupported", "m5.large", false},
		"no role for Spot":   {"spot", fault.Rule{Kind: fault.NoCapacity, Code: "AuthFailure.ServiceLinkedRoleCreationNotPermitted"}, "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "service-linked role", false},
		"its own words":      {"spot", fault.Rule{Kind: fault.NoCapacity, Code: "Odd", Message: "An odd error"}, "Odd", "An odd error", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.add(t, c.rule)
			out, err := s.client.CreateFleet(t.Context(), s.fleet(t, s.template(t), c.capacity, 1, over("m5.large", "a")))
			require.NoError(t, err)
			require.Empty(t, out.Instances)
			require.Equal(t, []string{c.code}, errorCodes(out))
			require.Contains(t, *out.Errors[0].ErrorMessage, c.says)
			require.EqualValues(t, c.capacity, out.Errors[0].Lifecycle)
			require.Equal(t, c.unnamed, out.Errors[0].LaunchTemplateAndOverrides.Overrides == nil)
			require.Equal(t, 1, s.Faults().Counts()[c.rule.Kind])
		})
	}
}

func TestFault_PoolsStayDryUntilRestocked(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.template(t)
	s.add(t, fault.Rule{ID: "m5", Kind: fault.NoCapacity, Pool: fault.Pool{Type: "m5.*", Zone: "us-east-1a", Capacity: "spot"}, Stock: new(1)})
	launch := func(capacity, zone string) *sdk.CreateFleetOutput {
		out, err := s.client.CreateFleet(t.Context(), s.fleet(t, id, capacity, 1, over("m5.large", zone)))
		require.NoError(t, err)
		return out
	}
	kept := launch("spot", "a")
	require.Len(t, ids(kept), 1)
	require.Empty(t, ids(launch("spot", "a")))
	require.Len(t, ids(launch("spot", "b")), 1, "another zone has its own")
	require.Len(t, ids(launch("on-demand", "a")), 1, "so has On-Demand")

	terminate(t, s, ids(kept)...)
	require.Empty(t, ids(launch("spot", "a")), "what ends does not fill a dry pool")
	s.add(t, fault.Rule{ID: "m5", Kind: fault.NoCapacity, Pool: fault.Pool{Type: "m5.*", Zone: "us-east-1a", Capacity: "spot"}, Stock: new(1)})
	require.Len(t, ids(launch("spot", "a")), 1)
}

func TestFault_QuotasCountWhatRuns(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.template(t)
	s.add(t, fault.Rule{Kind: fault.NoCapacity, Pool: fault.Pool{Capacity: "spot"}, Code: "MaxSpotInstanceCountExceeded", Stock: new(2)})
	out, err := s.client.CreateFleet(t.Context(), s.fleet(t, id, "spot", 3, over("m5.large", "a")))
	require.NoError(t, err)
	require.Len(t, ids(out), 2)
	require.Equal(t, []string{"MaxSpotInstanceCountExceeded"}, errorCodes(out))
	gone := watch(t, s, ec2.Terminated)
	terminate(t, s, ids(out)[0])
	<-gone
	out, err = s.client.CreateFleet(t.Context(), s.fleet(t, id, "spot", 1, over("r5.large", "b")))
	require.NoError(t, err)
	require.Len(t, ids(out), 1)
}

// D12: a subnet without room is passed over with the right error, and addresses go down with each launch and come back.
func TestFault_SubnetsRunOutOfAddresses(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *ec2.Config) { c.AddressesPer = func(*ec2.Type) int { return 16 } })
	id := s.template(t)
	small, err := s.AddSubnet(ec2.Subnet{Zone: "us-east-1a", CIDR: "10.1.0.0/24"})
	require.NoError(t, err)
	require.NoError(t, s.SetFreeAddresses(small, 50))
	in := s.fleet(t, id, "on-demand", 40, over("m5.large", "a"))
	first(in).SubnetId = new(small)
	out, err := s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, ids(out), 3)
	require.Equal(t, []string{"InsufficientFreeAddressesInSubnet"}, errorCodes(out))
	require.Contains(t, *out.Errors[0].ErrorMessage, small)
	require.EqualValues(t, 2, free(t, s, small))
	gone := watch(t, s, ec2.Terminated)
	terminate(t, s, ids(out)[0])
	<-gone
	require.EqualValues(t, 18, free(t, s, small))

	s.add(t, fault.Rule{Kind: fault.SubnetFull, Subnet: small})
	require.Zero(t, free(t, s, small))
	in.ClientToken = nil
	out, err = s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, ids(out))
}

// D17: a bucket of five, two a second: what is admitted in a time is exactly that.
func TestFault_ThrottleIsATokenBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := ec2.New(ec2.Config{Cluster: "demo"})
		_, err := s.Faults().Add(fault.Rule{Kind: fault.Throttle, Actions: []string{"CreateFleet", "RunInstances", "TerminateInstances"}})
		require.NoError(t, err)
		admitted := 0
		for range 122 {
			for range 3 {
				_, err := s.TerminateInstances(t.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{"i-0123"}})
				if code(t, err) == "InvalidInstanceID.NotFound" {
					admitted++
				} else {
					require.Equal(t, "RequestLimitExceeded", code(t, err))
				}
			}
			time.Sleep(500 * time.Millisecond)
		}
		require.Equal(t, 5+121, admitted)
		_, err = s.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{})
		require.NoError(t, err, "other actions have buckets of their own")
	})
}

func TestFault_CallsFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule   fault.Rule
		code   string
		status int
		times  int // calls that fail; below zero: all
	}{
		"denied":          {fault.Rule{Kind: fault.Deny, Actions: []string{"DescribeSubnets"}}, "UnauthorizedOperation", 403, -1},
		"denied by a SCP": {fault.Rule{Kind: fault.Deny, Message: "with an explicit deny in a service control policy"}, "UnauthorizedOperation", 403, -1},
		"throttled twice": {fault.Rule{Kind: fault.Throttle, Actions: []string{"Describe*"}, Times: 2}, "RequestLimitExceeded", 503, 2},
		"broken inside":   {fault.Rule{Kind: fault.Fail, Times: 1}, "InternalError", 500, 1},
		"its own error":   {fault.Rule{Kind: fault.Fail, Code: "OptInRequired", Status: 401, Times: 1}, "OptInRequired", 401, 1},
		"another action":  {fault.Rule{Kind: fault.Deny, Actions: []string{"Create*"}}, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.add(t, c.rule)
			for n := range 4 {
				_, err := s.client.DescribeSubnets(t.Context(), &sdk.DescribeSubnetsInput{})
				if c.times >= 0 && n >= c.times {
					require.NoError(t, err)
					continue
				}
				require.Equal(t, c.code, code(t, err))
				var response interface{ HTTPStatusCode() int }
				require.ErrorAs(t, err, &response)
				require.Equal(t, c.status, response.HTTPStatusCode())
			}
			require.Len(t, s.Calls().Calls("DescribeSubnets"), 4)
		})
	}
}

// D19: a right that depends on a tag is no right for an instance that no longer exists.
func TestFault_DeniedWhereTheTagIsMissing(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add(t, fault.Rule{Kind: fault.Deny, Actions: []string{"TerminateInstances"}, UnlessTag: "from=template"})
	out, err := s.client.CreateFleet(t.Context(), s.fleet(t, s.template(t), "on-demand", 1, over("m5.large", "a")))
	require.NoError(t, err)
	_, err = s.client.TerminateInstances(t.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{"i-0a1b2c3d4e5f60718"}})
	require.Equal(t, "UnauthorizedOperation", code(t, err))
	_, err = s.client.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{InstanceIds: []string{"i-0a1b2c3d4e5f60718"}})
	require.Equal(t, "InvalidInstanceID.NotFound", code(t, err))
	terminate(t, s, ids(out)...)
}

func TestFault_LaunchTemplateIsNotFoundOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add(t, fault.Rule{Kind: fault.TemplateNotFound, Times: 1})
	in := s.fleet(t, s.template(t), "on-demand", 1, over("m5.large", "a"))
	in.ClientToken = new("same")
	_, err := s.client.CreateFleet(t.Context(), in)
	require.Equal(t, "InvalidLaunchTemplateId.NotFound", code(t, err))
	_, err = s.client.CreateFleet(t.Context(), in)
	require.NoError(t, err)
}

func TestFault_LostReplyLeavesTheInstance(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"the connection drops": 0, "the answer is a 500": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.add(t, fault.Rule{Kind: fault.LostReply, Actions: []string{"CreateFleet"}, Times: 1, Status: status})
			in := s.fleet(t, s.template(t), "spot", 1, over("m5.large", "a"))
			in.ClientToken = new("claim-7")
			_, err := s.client.CreateFleet(t.Context(), in)
			require.Error(t, err)
			require.Len(t, s.Instances(), 1)
			out, err := s.client.CreateFleet(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, s.Instances()[0].ID, ids(out)[0])
			require.Len(t, s.Instances(), 1, "the token finds the instance that the first call made")
			require.True(t, s.Calls().Calls("CreateFleet")[0].LostReply)
		})
	}
}

func TestFault_FreshInstancesAreSeenLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := stack{Service: ec2.New(ec2.Config{Cluster: "demo"})}
		s.add(t, fault.Rule{Kind: fault.Late, Delay: fault.Duration(3 * time.Second)})
		id := run(t, s, nil)
		byID := func() error {
			_, err := s.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{InstanceIds: []string{id}})
			return err
		}
		tag := func() error {
			_, err := s.CreateTags(t.Context(), &sdk.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: new("Name"), Value: new("n")}}})
			return err
		}
		listed := func() int {
			out, err := s.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{
				Filters: []types.Filter{{Name: new("instance-id"), Values: []string{id}}},
			})
			require.NoError(t, err)
			return len(out.Reservations)
		}
		require.Equal(t, "InvalidInstanceID.NotFound", code(t, byID()))
		require.Equal(t, "InvalidInstanceID.NotFound", code(t, tag()))
		require.Zero(t, listed())
		time.Sleep(3 * time.Second)
		require.NoError(t, byID())
		require.NoError(t, tag())
		require.Equal(t, 1, listed())
	})
}

func TestFault_PricesAndOffersChange(t *testing.T) {
	t.Parallel()
	s := start(t)
	price := func() string {
		out, err := s.client.DescribeSpotPriceHistory(t.Context(), &sdk.DescribeSpotPriceHistoryInput{
			InstanceTypes: []types.InstanceType{"m5.large"}, AvailabilityZone: new("us-east-1a"), ProductDescriptions: []string{"Linux/UNIX"},
		})
		require.NoError(t, err)
		require.Len(t, out.SpotPriceHistory, 1)
		return *out.SpotPriceHistory[0].SpotPrice
	}
	require.NoError(t, s.SetSpotPrice("m5.large", "us-east-1a", 0.04))
	require.Equal(t, "0.040000", price())
	s.add(t, fault.Rule{ID: "double", Kind: fault.SpotPrice, Pool: fault.Pool{Type: "m5.*"}, Factor: 2})
	require.Equal(t, "0.080000", price())
	require.True(t, s.Faults().Remove("double"))
	require.Equal(t, "0.040000", price())

	offered := func() int {
		out, err := s.client.DescribeInstanceTypeOfferings(t.Context(), &sdk.DescribeInstanceTypeOfferingsInput{
			LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{{Name: new("instance-type"), Values: []string{"m5.large"}}},
		})
		require.NoError(t, err)
		return len(out.InstanceTypeOfferings)
	}
	before := offered()
	s.add(t, fault.Rule{Kind: fault.Withdrawn, Pool: fault.Pool{Type: "m5.large", Zone: "us-east-1a"}})
	require.Equal(t, before-1, offered())
}

func TestFault_IsSteeredOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t)
	control := httptest.NewServer(fault.Handler(s.Faults(), s.Calls(), s.Service))
	defer control.Close()
	send := func(method, path, body string) (int, map[string]any) {
		request, err := http.NewRequestWithContext(t.Context(), method, control.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { require.NoError(t, response.Body.Close()) }()
		var b bytes.Buffer
		_, err = b.ReadFrom(response.Body)
		require.NoError(t, err)
		answer := map[string]any{}
		if response.StatusCode == http.StatusOK {
			require.NoError(t, json.Unmarshal(b.Bytes(), &answer))
		} else {
			answer["text"] = b.String()
		}
		return response.StatusCode, answer
	}

	status, answer := send("POST", "/faults", `{"rules":[{"id":"dry","fault":"no-capacity","type":"m5.large","capacity":"spot","stock":1}]}`)
	require.Equal(t, 200, status)
	require.Equal(t, []any{"dry"}, answer["ids"])
	out, err := s.client.CreateFleet(t.Context(), s.fleet(t, s.template(t), "spot", 2, over("m5.large", "a")))
	require.NoError(t, err)
	require.Len(t, ids(out), 1)
	_, answer = send("GET", "/fired", "")
	require.Equal(t, map[string]any{"no-capacity": 1.0}, answer["counts"])
	_, answer = send("GET", "/faults", "")
	require.EqualValues(t, 0, answer["rules"].([]any)[0].(map[string]any)["stock"])
	_, answer = send("GET", "/calls?action=CreateFleet", "")
	require.Len(t, answer["calls"], 1)

	warned := watch(t, s, ec2.SpotInterruption)
	status, answer = send("POST", "/acts", `{"act":"interrupt","instance":"`+ids(out)[0]+`","notice":"1h"}`)
	require.Equal(t, 204, status, answer)
	require.Equal(t, ids(out)[0], (<-warned).Instance.ID)
	status, answer = send("POST", "/acts", `{"act":"interrupt","instance":"i-0123"}`)
	require.Equal(t, 404, status)
	require.Contains(t, answer["text"], "i-0123")

	for body, says := range map[string]string{
		`{"rules":[{"fault":"no-capacity","colour":"blue"}]}`: "colour",
		`{"rules":[{"fault":"earthquake"}]}`:                  "earthquake",
		`{"rules":[{"fault":"withdrawn","delay":"2s"}]}`:      "withdrawn takes no delay",
		`{"rules":[{"fault":"throttle","burst":5}]}`:          "burst and per_second",
		`{"rules":[{"fault":"late"}]}`:                        "late needs a delay",
		`{"rules":[{"fault":"no-capacity","chance":1.5}]}`:    "chance",
		`{"rules":[{"fault":"slow-boot","delay":"soon"}]}`:    "soon",
		`{"rules":[]} {"rules":[]}`:                           "something follows",
		`{"acts":[{"act":"dance"}]}`:                          "dance",
	} {
		status, answer = send("POST", "/faults", body)
		require.Equal(t, 400, status, body)
		require.Contains(t, answer["text"], says, body)
	}
	require.Len(t, s.Faults().Rules(), 1, "a document that is refused changes nothing")

	status, _ = send("DELETE", "/faults/dry", "")
	require.Equal(t, 204, status)
	status, _ = send("DELETE", "/faults/dry", "")
	require.Equal(t, 404, status)
	status, answer = send("PUT", "/faults", `{"seed":7,"rules":[{"fault":"deny"}],"acts":[{"act":"roll-images"}]}`)
	require.Equal(t, 200, status, answer)
	_, err = s.client.DescribeSubnets(t.Context(), &sdk.DescribeSubnetsInput{})
	require.Equal(t, "UnauthorizedOperation", code(t, err))
	status, _ = send("DELETE", "/faults", "")
	require.Equal(t, 204, status)
	for _, path := range []string{"/fired", "/calls"} {
		status, _ = send("DELETE", path, "")
		require.Equal(t, 204, status)
	}
	require.Empty(t, s.Calls().Calls())
	require.Empty(t, s.Faults().Fired())
}

// terminate ends instances and fails the test if EC2 would not.
func terminate(t *testing.T, s stack, ids ...string) {
	t.Helper()
	_, err := s.TerminateInstances(t.Context(), &sdk.TerminateInstancesInput{InstanceIds: ids})
	require.NoError(t, err)
}

// watch returns a channel that gets each change of a kind from now on.
func watch(t *testing.T, s stack, kind ec2.ChangeKind) <-chan ec2.Change {
	t.Helper()
	changes := make(chan ec2.Change, 100)
	t.Cleanup(s.Observe(func(c ec2.Change) {
		if c.Kind == kind {
			changes <- c
		}
	}))
	return changes
}

func free(t *testing.T, s stack, subnet string) int32 {
	t.Helper()
	out, err := s.DescribeSubnets(t.Context(), &sdk.DescribeSubnetsInput{SubnetIds: []string{subnet}})
	require.NoError(t, err)
	return *out.Subnets[0].AvailableIpAddressCount
}

// run launches one m5.large without a template, in process.
func run(t *testing.T, s stack, change func(*sdk.RunInstancesInput)) string {
	t.Helper()
	subnets, _ := network(t, s.Service)
	in := &sdk.RunInstancesInput{
		MinCount: new(int32(1)), MaxCount: new(int32(1)), InstanceType: types.InstanceTypeM5Large,
		ImageId: new(image(t, s.Service, "x86_64/standard")), SubnetId: new(subnets["us-east-1a"]),
	}
	if change != nil {
		change(in)
	}
	out, err := s.RunInstances(t.Context(), in)
	require.NoError(t, err)
	return *out.Instances[0].InstanceId
}

func asSpot(in *sdk.RunInstancesInput) {
	in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot}
}

// record keeps the changes in the order in which they come.
type record struct {
	mu  sync.Mutex
	all []ec2.Change
}

func (r *record) add(c ec2.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, c)
}

func (r *record) kinds() []ec2.ChangeKind {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kinds []ec2.ChangeKind
	for _, c := range r.all {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}
