package notice

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"treadle/shared/cluster"
)

// Kind is what an event of EC2 or Health means for the instances that it names, as metrics have it.
type Kind string

// The kinds of events (I-012 to I-018, I-032).
const (
	SpotInterrupted        Kind = "spot_interrupted"
	RebalanceRecommended   Kind = "rebalance_recommendation"
	ReservationInterrupted Kind = "capacity_reservation_interrupted"
	BlockExpiring          Kind = "capacity_block_expiring"
	ScheduledChange        Kind = "scheduled_change"
	InstanceStopped        Kind = "instance_stopped"    // or stopping
	InstanceTerminated     Kind = "instance_terminated" // or shutting down
	Ignored                Kind = "no_op"
)

// Notice is an event of EC2 or Health. Unlike a wake-up it carries a fact that is nowhere else: what is about to happen to
// instances.
type Notice struct {
	ID       string // of the event; a repeated delivery has the same
	Kind     Kind
	TimeUnix int64
	// Instances are those that it happens to, in the event's order, each once; empty for Ignored and BlockExpiring.
	Instances []cluster.InstanceID
	// Reservation is the capacity block that ends, for BlockExpiring.
	Reservation string
	// Detail says in few words what EC2 or Health announced. For Ignored it is why the event means nothing here.
	Detail string
}

// envelope is what EventBridge puts around every event. Its resources are not read: the detail names them too, and in one shape.
type envelope struct {
	Version    string          `json:"version"`
	ID         string          `json:"id"`
	DetailType string          `json:"detail-type"`
	Source     string          `json:"source"`
	Time       string          `json:"time"`
	Detail     json.RawMessage `json:"detail"`
}

// DecodeEvent reads an event as EventBridge delivers it. Fields that it does not need are AWS's to add. An event of a kind that says
// nothing about instances is Ignored; the error names the field that is missing or wrong.
func DecodeEvent(body []byte) (Notice, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return Notice{}, fmt.Errorf("event: %w", err)
	}
	if e.Source == "" {
		return Notice{}, missing("source")
	}
	if e.DetailType == "" {
		return Notice{}, missing("detail-type")
	}
	read := reader(e.Source, e.DetailType)
	switch {
	case read == nil:
		return Notice{ID: e.ID, Kind: Ignored, Detail: fmt.Sprintf("%s %q is no event that Treadle reads", e.Source, e.DetailType)}, nil
	case e.Version != "0":
		return Notice{}, fmt.Errorf("event: field version: is %q, want 0", e.Version)
	case e.ID == "":
		return Notice{}, missing("id")
	case len(e.Detail) == 0 || string(e.Detail) == "null":
		return Notice{}, missing("detail")
	}
	at, err := time.Parse(time.RFC3339, e.Time)
	if err != nil {
		return Notice{}, fmt.Errorf("event: field time: %q is no instant", e.Time)
	}
	n, err := read(e.Detail)
	if err != nil {
		return Notice{}, err
	}
	n.ID, n.TimeUnix = e.ID, at.Unix()
	return n, nil
}

func missing(field string) error { return errors.New("event: field " + field + ": missing") }

// reader returns what reads the detail of an event, nil for an event that means nothing here.
func reader(source, detailType string) func(json.RawMessage) (Notice, error) {
	switch source + "/" + detailType {
	case "aws.ec2/EC2 Spot Instance Interruption Warning":
		return interruption(SpotInterrupted)
	case "aws.ec2/EC2 Capacity Reservation Instance Interruption Warning":
		return interruption(ReservationInterrupted)
	case "aws.ec2/EC2 Instance Rebalance Recommendation":
		return rebalance
	case "aws.ec2/EC2 Instance State-change Notification":
		return stateChange
	case "aws.health/AWS Health Event":
		return health
	case "aws.ec2/Capacity Block Expiration Warning", "aws.ec2/Capacity Block Reservation Expiration Warning": // AWS's pages have both
		return blockExpiration
	}
	return nil
}

// instanceDetail is what EC2 says about one instance.
type instanceDetail struct {
	ID     string `json:"instance-id"`
	Action string `json:"instance-action"`
	State  string `json:"state"`
}

func decodeInstance(raw json.RawMessage) (instanceDetail, []cluster.InstanceID, error) {
	var d instanceDetail
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, nil, fmt.Errorf("event: field detail: %w", err)
	}
	if d.ID == "" {
		return d, nil, missing("detail.instance-id")
	}
	if !instanceID(d.ID) {
		return d, nil, fmt.Errorf("event: field detail.instance-id: %q is no instance", d.ID)
	}
	return d, []cluster.InstanceID{cluster.InstanceID(d.ID)}, nil
}

// instanceID reports whether s has the form of an instance's id.
func instanceID(s string) bool {
	digits, ok := strings.CutPrefix(s, "i-")
	return ok && digits != "" && strings.Trim(digits, "0123456789abcdef") == ""
}

// interruption reads a warning that EC2 takes an instance back: it terminates, stops or hibernates it, and the node is lost either way.
func interruption(kind Kind) func(json.RawMessage) (Notice, error) {
	return func(raw json.RawMessage) (Notice, error) {
		d, ids, err := decodeInstance(raw)
		if err != nil {
			return Notice{}, err
		}
		switch d.Action {
		case "terminate", "stop", "hibernate":
			return Notice{Kind: kind, Instances: ids, Detail: "EC2 will " + d.Action + " the instance"}, nil
		case "":
			return Notice{}, missing("detail.instance-action")
		}
		return Notice{}, fmt.Errorf("event: field detail.instance-action: is %q, want terminate, stop or hibernate", d.Action)
	}
}

func rebalance(raw json.RawMessage) (Notice, error) {
	_, ids, err := decodeInstance(raw)
	if err != nil {
		return Notice{}, err
	}
	return Notice{Kind: RebalanceRecommended, Instances: ids, Detail: "the instance is at an elevated risk of interruption"}, nil
}

func stateChange(raw json.RawMessage) (Notice, error) {
	d, ids, err := decodeInstance(raw)
	if err != nil {
		return Notice{}, err
	}
	n := Notice{Instances: ids, Detail: "the instance is " + d.State}
	switch cluster.InstanceState(d.State) {
	case cluster.InstanceStopping, cluster.InstanceStopped:
		n.Kind = InstanceStopped
	case cluster.InstanceShuttingDown, cluster.InstanceTerminated:
		n.Kind = InstanceTerminated
	case cluster.InstancePending, cluster.InstanceRunning:
		n.Kind, n.Instances = Ignored, nil
	case "":
		return Notice{}, missing("detail.state")
	default:
		return Notice{}, fmt.Errorf("event: field detail.state: %q is no state of an instance", d.State)
	}
	return n, nil
}

// health reads an event of AWS Health. One about a change that is over, or about an entity that is well again, means nothing any more.
// It may lack an end, and speak of a Region other than the one that it was sent to; instances of another Region are simply not found.
func health(raw json.RawMessage) (Notice, error) {
	var d struct {
		Service  string `json:"service"`
		Code     string `json:"eventTypeCode"`
		Category string `json:"eventTypeCategory"`
		Status   string `json:"statusCode"`
		Entities []struct {
			Value  string `json:"entityValue"`
			Status string `json:"status"`
		} `json:"affectedEntities"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return Notice{}, fmt.Errorf("event: field detail: %w", err)
	}
	switch {
	case d.Service == "":
		return Notice{}, missing("detail.service")
	case d.Category == "":
		return Notice{}, missing("detail.eventTypeCategory")
	case d.Service != "EC2" || d.Category != "scheduledChange":
		return Notice{Kind: Ignored, Detail: "AWS Health reports " + d.Category + " of " + d.Service}, nil
	case d.Status == "closed":
		return Notice{Kind: Ignored, Detail: "the scheduled change is over"}, nil
	}
	n := Notice{Kind: ScheduledChange, Detail: "AWS Health announces " + d.Code}
	seen := map[string]bool{}
	for i, e := range d.Entities {
		if e.Value == "" {
			return Notice{}, missing(fmt.Sprintf("detail.affectedEntities[%d].entityValue", i))
		}
		if e.Status == "RESOLVED" || seen[e.Value] || !instanceID(e.Value) { // volumes and others have entities too
			continue
		}
		seen[e.Value] = true
		n.Instances = append(n.Instances, cluster.InstanceID(e.Value))
	}
	if len(n.Instances) == 0 {
		return Notice{Kind: Ignored, Detail: "the scheduled change concerns no instance"}, nil
	}
	return n, nil
}

func blockExpiration(raw json.RawMessage) (Notice, error) {
	var d struct {
		ID  string `json:"capacity-reservation-id"`
		End string `json:"end-date"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return Notice{}, fmt.Errorf("event: field detail: %w", err)
	}
	if d.ID == "" {
		return Notice{}, missing("detail.capacity-reservation-id")
	}
	detail := "capacity block " + d.ID + " ends"
	if d.End != "" {
		detail += " at " + d.End
	}
	return Notice{Kind: BlockExpiring, Reservation: d.ID, Detail: detail}, nil
}
