package notice_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/cluster"
	"treadle/shared/notice"
)

const (
	ours   = cluster.InstanceID("i-0c5e1a9d72b4f8036")
	theirs = cluster.InstanceID("i-07b3d95ce81f2a640")
)

func TestDecodeEvent_Samples(t *testing.T) {
	t.Parallel()
	one := []cluster.InstanceID{ours}
	for name, tt := range map[string]struct {
		kind      notice.Kind
		instances []cluster.InstanceID
	}{
		"ec2-spot-interruption":               {notice.SpotInterrupted, one},
		"ec2-spot-interruption-stop":          {notice.SpotInterrupted, one},
		"ec2-rebalance":                       {notice.RebalanceRecommended, one},
		"ec2-state-stopping":                  {notice.InstanceStopped, one},
		"ec2-state-stopped":                   {notice.InstanceStopped, one},
		"ec2-state-shutting-down":             {notice.InstanceTerminated, one},
		"ec2-state-terminated":                {notice.InstanceTerminated, one},
		"ec2-reservation-interruption":        {notice.ReservationInterrupted, one},
		"ec2-reservation-interruption-string": {notice.ReservationInterrupted, one},
		"ec2-capacity-block-expiration":       {notice.BlockExpiring, nil},
		"ec2-capacity-block-expiration-short": {notice.BlockExpiring, nil},
		"health-instance-retirement":          {notice.ScheduledChange, []cluster.InstanceID{ours, theirs}},
		"health-network-maintenance":          {notice.ScheduledChange, one},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := events.Samples.ReadFile(name + ".json")
			require.NoError(t, err)
			got, err := notice.DecodeEvent(body)
			require.NoError(t, err)
			require.Equal(t, tt.kind, got.Kind)
			require.Equal(t, tt.instances, got.Instances)
			require.NotEmpty(t, got.ID)
			require.NotEmpty(t, got.Detail)
			require.Equal(t, int64(1_796_117_412), got.TimeUnix)
			require.Equal(t, tt.kind == notice.BlockExpiring, got.Reservation == "cr-0d84b6f1a2937ce55")
		})
	}
}

func event(source, detailType, detail string) string {
	return `{"version":"0","id":"e","source":"` + source + `","detail-type":"` + detailType + `","time":"2026-12-01T09:30:12Z","detail":` + detail + `}`
}

func TestDecodeEvent_IgnoresWhatMeansNothing(t *testing.T) {
	t.Parallel()
	health := func(service, category, status, entities string) string {
		return event("aws.health", "AWS Health Event", `{"service":"`+service+`","eventTypeCategory":"`+category+`","statusCode":"`+status+`","affectedEntities":`+entities+`}`)
	}
	for name, body := range map[string]string{
		"an event that nobody knows, whatever else it lacks": `{"version":"0","source":"aws.ec2","detail-type":"Something New","detail":{}}`,
		"an event of another service with a name of EC2's":   event("shop", "EC2 Spot Instance Interruption Warning", `{}`),
		"an instance that starts":                            event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"running"}`),
		"an issue":                                           health("EC2", "issue", "open", `[]`),
		"a change of another service":                        health("RDS", "scheduledChange", "upcoming", `[{"entityValue":"db-1"}]`),
		"a change that is over":                              health("EC2", "scheduledChange", "closed", `[{"entityValue":"i-1"}]`),
		"a change to an instance that is well again":         health("EC2", "scheduledChange", "upcoming", `[{"entityValue":"i-1","status":"RESOLVED"}]`),
		"a change to a volume":                               health("EC2", "scheduledChange", "upcoming", `[{"entityValue":"vol-1"}]`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := notice.DecodeEvent([]byte(body))
			require.NoError(t, err)
			require.Equal(t, notice.Ignored, got.Kind)
			require.Empty(t, got.Instances)
			require.NotEmpty(t, got.Detail)
		})
	}
}

func TestDecodeEvent_NamesTheFieldAtFault(t *testing.T) {
	t.Parallel()
	spot := func(detail string) string { return event("aws.ec2", "EC2 Spot Instance Interruption Warning", detail) }
	whole := spot(`{"instance-id":"i-1","instance-action":"stop"}`)
	for name, tt := range map[string]struct{ body, want string }{
		"no JSON":                            {`abcd`, "invalid character"},
		"no source":                          {`{"detail-type":"x"}`, "field source: missing"},
		"no kind":                            {`{"source":"aws.ec2"}`, "field detail-type: missing"},
		"another version":                    {strings.Replace(whole, `"0"`, `"1"`, 1), "field version"},
		"no id":                              {strings.Replace(whole, `"e"`, `""`, 1), "field id: missing"},
		"no time":                            {strings.Replace(whole, "2026-12-01T09:30:12Z", "noon", 1), "field time"},
		"no detail":                          {spot(`null`), "field detail: missing"},
		"a detail of another shape":          {spot(`[]`), "field detail: json"},
		"no instance":                        {spot(`{"instance-action":"stop"}`), "field detail.instance-id: missing"},
		"an instance that is none":           {spot(`{"instance-id":"i-XYZ","instance-action":"stop"}`), "field detail.instance-id"},
		"no action":                          {spot(`{"instance-id":"i-1"}`), "field detail.instance-action: missing"},
		"an action that nobody knows":        {spot(`{"instance-id":"i-1","instance-action":"paint"}`), "field detail.instance-action"},
		"no state":                           {event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1"}`), "field detail.state: missing"},
		"a state that nobody knows":          {event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"odd"}`), "field detail.state"},
		"a Health event of no service":       {event("aws.health", "AWS Health Event", `{}`), "field detail.service: missing"},
		"a Health event of no category":      {event("aws.health", "AWS Health Event", `{"service":"EC2"}`), "field detail.eventTypeCategory: missing"},
		"a Health event about nobody":        {event("aws.health", "AWS Health Event", `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{}]}`), "affectedEntities[0].entityValue"},
		"a capacity block without a name":    {event("aws.ec2", "Capacity Block Expiration Warning", `{}`), "field detail.capacity-reservation-id: missing"},
		"a rebalance about no instance":      {event("aws.ec2", "EC2 Instance Rebalance Recommendation", `{}`), "field detail.instance-id: missing"},
		"a second value after the event":     {whole + `{}`, "invalid character"},
		"a capacity block of another shape":  {event("aws.ec2", "Capacity Block Expiration Warning", `7`), "field detail: json"},
		"a Health event of another shape":    {event("aws.health", "AWS Health Event", `7`), "field detail: json"},
		"a state change of no instance":      {event("aws.ec2", "EC2 Instance State-change Notification", `{"state":"stopped"}`), "field detail.instance-id: missing"},
		"an interruption that is cut in two": {whole[:len(whole)/2], "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := notice.DecodeEvent([]byte(tt.body))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzDecodeEvent(f *testing.F) {
	names, err := fs.Glob(events.Samples, "*.json")
	require.NoError(f, err)
	for _, name := range names {
		body, err := events.Samples.ReadFile(name)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := notice.DecodeEvent(body)
		if err != nil {
			require.Empty(t, got)
			return
		}
		require.NotEmpty(t, got.Kind)
		require.Equal(t, got.Kind == notice.Ignored || got.Kind == notice.BlockExpiring, len(got.Instances) == 0)
		require.Equal(t, got.Kind == notice.BlockExpiring, got.Reservation != "")
		for _, id := range got.Instances {
			require.True(t, strings.HasPrefix(string(id), "i-"))
		}
	})
}
