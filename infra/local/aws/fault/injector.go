package fault

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"treadle/infra/local/aws/wire"
)

// Injector holds the rules in force and answers whether one acts. The zero value is not usable; New makes one that lets
// everything pass. It is safe for concurrent use.
type Injector struct {
	mu    sync.Mutex
	seed  uint64
	dice  *rand.Rand
	next  int
	rules []*rule
	fired []Event
	once  map[string]bool // steady rules already recorded, by rule and action
}

// rule is a Rule in force with what it has used up.
type rule struct {
	Rule
	added  time.Time
	acted  int
	tokens float64
	filled time.Time
}

// Event records that a rule acted.
type Event struct {
	Time     time.Time `json:"time"`
	Rule     string    `json:"rule"`
	Kind     Kind      `json:"fault"`
	Action   string    `json:"action,omitempty"`
	Pool     Pool      `json:"pool,omitzero"`
	Instance string    `json:"instance,omitempty"`
	Code     string    `json:"code,omitempty"`
}

// Status is a rule and how often it acted.
type Status struct {
	Rule
	Acted int `json:"acted"`
}

// New returns an Injector without rules whose chance comes from seed.
func New(seed uint64) *Injector {
	in := &Injector{once: map[string]bool{}}
	in.reseed(seed)
	return in
}

func (in *Injector) reseed(seed uint64) {
	in.seed = seed
	in.dice = rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable chance is the point
}

// Replace puts doc's seed and rules in the place of all that were in force. Records stay.
func (in *Injector) Replace(doc Document) error {
	for _, r := range doc.Rules {
		if err := r.check(); err != nil {
			return fmt.Errorf("add rule: %w", err)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.reseed(doc.Seed)
	in.rules = nil
	in.add(doc.Rules)
	return nil
}

// Add puts rules in force beside the others and returns their ids, in order. A rule with the id of one in force takes its place.
// On an error none is added.
func (in *Injector) Add(rules ...Rule) ([]string, error) {
	for _, r := range rules {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("add rule: %w", err)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.add(rules), nil
}

// The bucket of a throttle that names none: EC2's for launching.
const (
	defaultBurst     = 5
	defaultPerSecond = 2
)

func (in *Injector) add(rules []Rule) []string {
	ids := make([]string, len(rules))
	now := time.Now()
	for i, r := range rules {
		if r.ID == "" {
			in.next++
			r.ID = fmt.Sprintf("r%d", in.next)
		}
		if r.Stock != nil {
			r.Stock = new(*r.Stock)
		}
		if r.Kind == Throttle && r.Burst == 0 && r.Times == 0 {
			r.Burst, r.PerSecond = defaultBurst, defaultPerSecond
		}
		in.rules = slices.DeleteFunc(in.rules, func(old *rule) bool { return old.ID == r.ID })
		in.rules = append(in.rules, &rule{Rule: r, added: now, tokens: r.Burst, filled: now})
		ids[i] = r.ID
	}
	return ids
}

// Remove takes a rule out of force and says whether it was.
func (in *Injector) Remove(id string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := len(in.rules)
	in.rules = slices.DeleteFunc(in.rules, func(r *rule) bool { return r.ID == id })
	return len(in.rules) < before
}

// Clear takes all rules out of force. Records stay.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.rules = nil
}

// Rules returns the rules in force, oldest first, with stock as it is now.
func (in *Injector) Rules() []Status {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := []Status{}
	for _, r := range in.rules {
		if !r.over(time.Now()) {
			s := Status{Rule: r.Rule, Acted: r.acted}
			if s.Stock != nil {
				s.Stock = new(*s.Stock)
			}
			all = append(all, s)
		}
	}
	return all
}

// Fired returns what acted of late, oldest first: all of it, up to 100,000 events. Of rules that act on every reading (withdrawn, subnet-full, spot-price) it has
// the first time for each action.
func (in *Injector) Fired() []Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.fired)
}

// ForgetFired empties the record.
func (in *Injector) ForgetFired() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.fired = nil
	clear(in.once)
}

func (r *rule) over(now time.Time) bool { return r.For > 0 && now.Sub(r.added) >= time.Duration(r.For) }

// acting yields the rules of a kind in force now.
func (in *Injector) acting(kind Kind) []*rule {
	now := time.Now()
	var all []*rule
	for _, r := range in.rules {
		if r.Kind == kind && !r.over(now) && (r.Times == 0 || r.acted < r.Times) {
			all = append(all, r)
		}
	}
	return all
}

// lucky says whether chance lets r act on this occasion.
func (in *Injector) lucky(r *rule) bool { return r.Chance == 0 || in.dice.Float64() < r.Chance }

// hits says whether chance picked p as one of r's pools: the same answer each time.
func (in *Injector) hits(r *rule, p Pool) bool {
	if !r.matches(p) {
		return false
	}
	if r.Chance == 0 {
		return true
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%s/%s/%s", in.seed, r.ID, p.Type, p.Zone, p.Capacity)
	return rand.New(rand.NewPCG(h.Sum64(), in.seed)).Float64() < r.Chance //nolint:gosec // repeatable chance is the point
}

func (in *Injector) record(r *rule, e Event) {
	r.acted++
	e.Time, e.Rule, e.Kind = time.Now(), r.ID, r.Kind
	if len(in.fired) >= 2*kept {
		in.fired = slices.Clone(in.fired[len(in.fired)-kept:])
	}
	in.fired = append(in.fired, e)
}

// recordOnce records a rule that acts on every reading.
func (in *Injector) recordOnce(r *rule, e Event) {
	key := r.ID + "/" + e.Action
	if !in.once[key] {
		in.once[key] = true
		in.record(r, e)
	}
}

func (r *rule) covers(action string, byDefault ...string) bool {
	patterns := r.Actions
	if len(patterns) == 0 {
		patterns = byDefault
	}
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return like(p, action) })
}

// Tagged says, for each resource that a call touches, what tags it carries; nil for one that does not exist.
type Tagged []map[string]string

// Call says whether a call is refused before it does anything. touched is what the call would act on.
func (in *Injector) Call(action string, touched Tagged) *wire.Error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.acting(Deny) {
		if r.covers(action) && !touched.allow(r.UnlessTag) && in.lucky(r) {
			return in.refuse(r, action, "UnauthorizedOperation",
				"You are not authorized to perform this operation. No policy allows the ec2:"+action+" action.", http.StatusForbidden)
		}
	}
	for _, r := range in.acting(Throttle) {
		if r.covers(action) && !r.admit(time.Now()) && in.lucky(r) {
			return in.refuse(r, action, "RequestLimitExceeded",
				"Request limit exceeded. Account 123456789012 has been throttled on ec2:"+action+
					" because it exceeded its request rate limit.", http.StatusServiceUnavailable)
		}
	}
	for _, r := range in.acting(Fail) {
		if r.covers(action) && in.lucky(r) {
			return in.refuse(r, action, "InternalError", "An internal error has occurred", http.StatusInternalServerError)
		}
	}
	return nil
}

func (in *Injector) refuse(r *rule, action, code, message string, status int) *wire.Error {
	e := &wire.Error{Code: code, Message: message, Status: status}
	if r.Code != "" && r.Code != code {
		e.Code = r.Code
		e.Message = r.Code
		if r.Kind == Fail {
			e.Status = http.StatusBadRequest
		}
	}
	if r.Message != "" {
		e.Message = r.Message
	}
	if r.Status != 0 {
		e.Status = r.Status
	}
	in.record(r, Event{Action: action, Code: e.Code})
	return e
}

// allow says whether each touched resource carries the tag, given as key or key=value.
func (t Tagged) allow(tag string) bool {
	if tag == "" {
		return false
	}
	key, value, valued := strings.Cut(tag, "=")
	for _, tags := range t {
		if got, ok := tags[key]; !ok || valued && got != value {
			return false
		}
	}
	return true
}

// admit takes a token, if the rule is a bucket and has one.
func (r *rule) admit(now time.Time) bool {
	if r.Burst == 0 {
		return false
	}
	r.tokens = min(r.Burst, r.tokens+now.Sub(r.filled).Seconds()*r.PerSecond)
	r.filled = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// LostReply says whether the reply to a call that was carried out gets lost: with status 0 by a dropped connection.
func (in *Injector) LostReply(action string) (lost bool, status int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.acting(LostReply) {
		if r.covers(action) && in.lucky(r) {
			in.record(r, Event{Action: action})
			return true, r.Status
		}
	}
	return false, 0
}

// TemplateNotFound says whether a launch template is denied to exist this time.
func (in *Injector) TemplateNotFound(action string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.acting(TemplateNotFound) {
		if in.lucky(r) {
			in.record(r, Event{Action: action})
			return true
		}
	}
	return false
}

// Refusal is why a pool gave no instance.
type Refusal struct {
	Code, Message string
	Unnamed       bool // the error says nothing of which pool it was
}

// Take takes one instance from a pool's stocks. It returns either the rules whose stock went down, for Give, or why there is
// none to be had.
func (in *Injector) Take(p Pool) (stocks []string, refused *Refusal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var from []*rule
	for _, r := range in.acting(NoCapacity) {
		if !in.hits(r, p) {
			continue
		}
		if r.Stock == nil || *r.Stock == 0 {
			refused := r.refusal(p)
			in.record(r, Event{Pool: p, Code: refused.Code})
			return nil, refused
		}
		from = append(from, r)
	}
	for _, r := range from {
		*r.Stock--
		stocks = append(stocks, r.ID)
	}
	return stocks, nil
}

// Give puts back what a launch took that did not come about, and, when ended, what a quota counts of an instance that is gone.
// Capacity that EC2 ran out of does not come back that way: its pool stays dry until it is restocked.
func (in *Injector) Give(stocks []string, ended bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.rules {
		quota := r.Code == "MaxSpotInstanceCountExceeded" || r.Code == "VcpuLimitExceeded"
		if r.Stock != nil && slices.Contains(stocks, r.ID) && (!ended || quota) {
			*r.Stock++
		}
	}
}

func (r *rule) refusal(p Pool) *Refusal {
	code := r.Code
	if code == "" {
		code = "InsufficientInstanceCapacity"
	}
	message := r.Message
	if message == "" {
		message = fleetMessage(code, p)
	}
	return &Refusal{Code: code, Message: message, Unnamed: r.Unnamed}
}

func fleetMessage(code string, p Pool) string {
	switch code {
	case "InsufficientInstanceCapacity":
		return fmt.Sprintf("We currently do not have sufficient %s capacity in the Availability Zone you requested (%s).", p.Type, p.Zone)
	case "MaxSpotInstanceCountExceeded":
		return "Max spot instance count exceeded"
	case "VcpuLimitExceeded":
		return "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket of this type."
	case "UnfulfillableCapacity":
		return "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again."
	case "Unsupported":
		return fmt.Sprintf("Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", p.Type, p.Zone)
	case "AuthFailure.ServiceLinkedRoleCreationNotPermitted":
		return "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."
	case "ReservationCapacityExceeded":
		return "The requested reservation does not have sufficient available capacity."
	case "MaxFleetCountExceeded":
		return "The maximum number of fleets has been reached."
	default:
		return code
	}
}

// Withdrawn says whether a type is not offered in a zone.
func (in *Injector) Withdrawn(action string, p Pool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.acting(Withdrawn) {
		if in.hits(r, p) {
			in.recordOnce(r, Event{Action: action, Pool: p})
			return true
		}
	}
	return false
}

// SubnetFull says whether a subnet has no address left.
func (in *Injector) SubnetFull(action, subnet string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.acting(SubnetFull) {
		if like(r.Subnet, subnet) {
			in.recordOnce(r, Event{Action: action})
			return true
		}
	}
	return false
}

// SpotPrice returns the price of a pool whose price would be usd.
func (in *Injector) SpotPrice(p Pool, usd float64) float64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.acting(SpotPrice) {
		if !in.hits(r, p) {
			continue
		}
		in.recordOnce(r, Event{Pool: p})
		if r.USDPerHour > 0 {
			usd = r.USDPerHour
		} else {
			usd *= r.Factor
		}
	}
	return usd
}

// Boot says how an instance fares. The zero value is one that comes up and stays.
type Boot struct {
	Delay          time.Duration // beyond the usual, before the kubelet registers
	NeverRegisters bool
	NotReady       bool
	Death          *Death
	Interruption   *Interruption // Spot only
	hidden         []hiding
}

// Death is an instance ending by itself.
type Death struct {
	After         time.Duration // since launch; 0: it never runs
	Code, Message string        // state reason
}

// Interruption is EC2 taking a Spot instance back.
type Interruption struct {
	After  time.Duration // since launch
	Notice time.Duration // from the warning to the end; below zero there is no warning
}

type hiding struct {
	rule    string
	actions []string
	until   time.Duration
}

// SpotNotice is how long before taking a Spot instance EC2 warns.
const SpotNotice = 2 * time.Minute

// Boot decides how an instance just launched from a pool fares.
func (in *Injector) Boot(p Pool, instance string) Boot {
	in.mu.Lock()
	defer in.mu.Unlock()
	var b Boot
	for _, kind := range []Kind{SlowBoot, NeverRegisters, NotReady, Dies, Interrupt, Late} {
		if kind == Interrupt && p.Capacity != "spot" {
			continue
		}
		for _, r := range in.acting(kind) {
			if !r.matches(p) || !in.lucky(r) {
				continue
			}
			b.apply(r.Rule)
			in.record(r, Event{Pool: p, Instance: instance})
		}
	}
	return b
}

func (b *Boot) apply(r Rule) {
	delay := time.Duration(r.Delay)
	switch r.Kind {
	case SlowBoot:
		b.Delay += delay
	case NeverRegisters:
		b.NeverRegisters = true
	case NotReady:
		b.NotReady = true
	case Dies:
		b.Death = &Death{After: delay, Code: r.Code, Message: r.Message}
		if r.Code == "" {
			b.Death.Code = "Server.InternalError"
		}
		if r.Message == "" {
			b.Death.Message = b.Death.Code + ": Internal error on launch"
		}
	case Interrupt:
		b.Interruption = &Interruption{After: delay, Notice: time.Duration(r.Notice)}
		if r.Notice == 0 {
			b.Interruption.Notice = SpotNotice
		}
	case Late:
		b.hidden = append(b.hidden, hiding{r.ID, r.Actions, delay})
	default: // no other kind is about an instance's life
	}
}

// Hides says whether action does not see the instance yet, age after its launch.
func (b Boot) Hides(action string, age time.Duration) bool {
	for _, h := range b.hidden {
		r := rule{Rule: Rule{Actions: h.actions}}
		if age < h.until && r.covers(action, "Describe*", "CreateTags", "DeleteTags") {
			return true
		}
	}
	return false
}

// Counts returns how often each kind acted among what Fired returns.
func (in *Injector) Counts() map[Kind]int {
	in.mu.Lock()
	defer in.mu.Unlock()
	counts := map[Kind]int{}
	for _, e := range in.fired {
		counts[e.Kind]++
	}
	return counts
}
