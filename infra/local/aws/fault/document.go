package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"time"
)

// Kind names what a rule does.
type Kind string

// The kinds of rules. In brackets: the members of Rule that a kind needs (*) or takes, beside id, times, chance and for.
const (
	// NoCapacity refuses launches from a pool once Stock instances were launched from it [pool, stock, code, message, unnamed].
	// Without stock the pool is dry at once. Chance picks the pools that are hit, once and for all.
	NoCapacity Kind = "no-capacity"
	// Withdrawn takes a type out of a zone: no offering, no launch [pool].
	Withdrawn Kind = "withdrawn"
	// SubnetFull leaves a subnet without a free address [subnet*].
	SubnetFull Kind = "subnet-full"
	// SpotPrice changes the Spot price of a pool [pool, factor or usd_per_hour].
	SpotPrice Kind = "spot-price"

	// Throttle lets calls through a token bucket, of 5 and 2 a second unless given, or refuses the next Times calls
	// [actions, burst and per_second, or times]. One rule is one bucket, shared by its actions.
	Throttle Kind = "throttle"
	// Deny refuses calls as IAM would; with UnlessTag only those that touch a resource without that tag, which a resource that is
	// gone never carries [actions, code, message, unless_tag].
	Deny Kind = "deny"
	// Fail answers calls with an error before they do anything [actions, code, message, status].
	Fail Kind = "fail"
	// LostReply carries a call out and then drops the connection, or answers Status [actions, status].
	LostReply Kind = "lost-reply"
	// TemplateNotFound denies that a launch template exists when it is used [].
	TemplateNotFound Kind = "template-not-found"
	// Late hides a fresh instance from Actions until Delay after its launch [pool, actions, delay*].
	Late Kind = "late"

	// SlowBoot adds Delay to an instance's boot [pool, delay*].
	SlowBoot Kind = "slow-boot"
	// NeverRegisters boots an instance whose kubelet never reaches the cluster [pool].
	NeverRegisters Kind = "never-registers"
	// NotReady registers a node that does not become ready [pool].
	NotReady Kind = "not-ready"
	// Dies ends an instance Delay after its launch with a state reason; without Delay it never runs [pool, delay, code, message].
	Dies Kind = "dies"
	// Interrupt warns a Spot instance Delay after its launch and takes it Notice later; a Notice below zero takes it without
	// a warning [pool, delay*, notice].
	Interrupt Kind = "interrupt"
)

// Document is what an operator writes: the seed of all chance, rules to hold, and acts to carry out once.
type Document struct {
	Seed  uint64 `json:"seed,omitempty"`
	Rules []Rule `json:"rules,omitempty"`
	Acts  []Act  `json:"acts,omitempty"`
}

// Pool names pools by type, zone and capacity type (spot, on-demand, reserved). In a rule each is a shell pattern, and empty
// means any.
type Pool struct {
	Type     string `json:"type,omitempty"`
	Zone     string `json:"zone,omitempty"`
	Capacity string `json:"capacity,omitempty"`
}

// Rule is one fault in force. Which members mean something depends on Kind.
type Rule struct {
	ID     string   `json:"id,omitempty"` // names the rule in Fired and for removal; given when empty
	Kind   Kind     `json:"fault"`
	Times  int      `json:"times,omitempty"`  // acts this often, then never again; 0 is always
	Chance float64  `json:"chance,omitempty"` // share of the occasions on which it acts, 0 to 1; 0 is all of them
	For    Duration `json:"for,omitempty"`    // in force this long from when it was added; 0 is until removed
	Pool

	Actions []string `json:"actions,omitempty"` // shell patterns such as Describe*; none means the kind's default
	Subnet  string   `json:"subnet,omitempty"`

	Code      string `json:"code,omitempty"`
	Message   string `json:"message,omitempty"`
	Status    int    `json:"status,omitempty"`
	Unnamed   bool   `json:"unnamed,omitempty"` // the fleet error names no pool
	UnlessTag string `json:"unless_tag,omitempty"`

	Stock      *int     `json:"stock,omitempty"`
	Burst      float64  `json:"burst,omitempty"`
	PerSecond  float64  `json:"per_second,omitempty"`
	Delay      Duration `json:"delay,omitempty"`
	Notice     Duration `json:"notice,omitempty"` // 0 is EC2's two minutes
	Factor     float64  `json:"factor,omitempty"`
	USDPerHour float64  `json:"usd_per_hour,omitempty"`
}

// Duration is written as Go writes durations, such as "1m30s".
type Duration time.Duration

// MarshalText writes d as a Go duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a Go duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Decode reads one Document. It refuses members it does not know, anything after the document, and rules or acts that say
// nothing or too much; the error names which one.
func Decode(r io.Reader) (Document, error) {
	var doc Document
	if err := strict(r, &doc); err != nil {
		return Document{}, fmt.Errorf("decode fault document: %w", err)
	}
	for i, rule := range doc.Rules {
		if err := rule.check(); err != nil {
			return Document{}, fmt.Errorf("decode fault document: rule %d: %w", i, err)
		}
	}
	for i, act := range doc.Acts {
		if err := act.check(); err != nil {
			return Document{}, fmt.Errorf("decode fault document: act %d: %w", i, err)
		}
	}
	return doc, nil
}

func strict(r io.Reader, into any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// members says which members of Rule a kind may set beside those that all rules share.
func (k Kind) members() (allowed []string, known bool) {
	switch k {
	case NoCapacity:
		return []string{"pool", "stock", "code", "message", "unnamed"}, true
	case Withdrawn, NeverRegisters, NotReady:
		return []string{"pool"}, true
	case SubnetFull:
		return []string{"subnet"}, true
	case SpotPrice:
		return []string{"pool", "factor", "usd_per_hour"}, true
	case Throttle:
		return []string{"actions", "burst", "per_second"}, true
	case Deny:
		return []string{"actions", "code", "message", "unless_tag"}, true
	case Fail:
		return []string{"actions", "code", "message", "status"}, true
	case LostReply:
		return []string{"actions", "status"}, true
	case TemplateNotFound:
		return nil, true
	case Late:
		return []string{"pool", "actions", "delay"}, true
	case SlowBoot:
		return []string{"pool", "delay"}, true
	case Dies:
		return []string{"pool", "delay", "code", "message"}, true
	case Interrupt:
		return []string{"pool", "delay", "notice"}, true
	default:
		return nil, false
	}
}

// set lists the members of r that are not zero, in the names that Kind.members uses.
func (r Rule) set() map[string]bool {
	all := map[string]bool{
		"pool": r.Pool != Pool{}, "actions": len(r.Actions) > 0, "subnet": r.Subnet != "", "code": r.Code != "",
		"message": r.Message != "", "status": r.Status != 0, "unnamed": r.Unnamed, "unless_tag": r.UnlessTag != "",
		"stock": r.Stock != nil, "burst": r.Burst != 0, "per_second": r.PerSecond != 0, "delay": r.Delay != 0,
		"notice": r.Notice != 0, "factor": r.Factor != 0, "usd_per_hour": r.USDPerHour != 0,
	}
	for name, set := range all {
		if !set {
			delete(all, name)
		}
	}
	return all
}

func (r Rule) check() error {
	allowed, known := r.Kind.members()
	if !known {
		return fmt.Errorf("unknown fault %q", r.Kind)
	}
	set := r.set()
	extra := r.set()
	for _, name := range allowed {
		delete(extra, name)
	}
	for name := range extra {
		return fmt.Errorf("%s takes no %s", r.Kind, name)
	}
	for _, pattern := range append([]string{r.Type, r.Zone, r.Capacity}, r.Actions...) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	switch {
	case r.Times < 0 || r.For < 0 || r.Delay < 0:
		return errors.New("times, for and delay cannot be negative")
	case r.Chance < 0 || r.Chance > 1:
		return fmt.Errorf("chance %v is not between 0 and 1", r.Chance)
	case r.Stock != nil && *r.Stock < 0:
		return fmt.Errorf("stock %d is negative", *r.Stock)
	case r.Kind == Throttle && set["burst"] != set["per_second"]:
		return errors.New("a throttle needs burst and per_second together")
	case r.Kind == Throttle && set["burst"] && r.Times > 0:
		return errors.New("a throttle is either a bucket or a number of times")
	case r.Burst < 0 || r.PerSecond < 0 || r.Factor < 0 || r.USDPerHour < 0:
		return errors.New("burst, per_second, factor and usd_per_hour cannot be negative")
	case r.Kind == SpotPrice && set["factor"] == set["usd_per_hour"]:
		return errors.New("spot-price needs either factor or usd_per_hour")
	case r.Kind == SubnetFull && r.Subnet == "":
		return errors.New("subnet-full needs a subnet")
	case (r.Kind == Late || r.Kind == SlowBoot || r.Kind == Interrupt) && r.Delay == 0:
		return fmt.Errorf("%s needs a delay", r.Kind)
	}
	return nil
}

// matches says whether p is one of the pools that the patterns in r name.
func (r Pool) matches(p Pool) bool {
	return like(r.Type, p.Type) && like(r.Zone, p.Zone) && like(r.Capacity, p.Capacity)
}

func like(pattern, s string) bool {
	if pattern == "" || pattern == "*" {
		return true
	}
	ok, err := path.Match(pattern, s)
	return ok && err == nil
}
