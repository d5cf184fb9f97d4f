package fault_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/fault"
)

// document uses every kind of rule and every act, with every member that it takes.
const document = `{
  "seed": 7,
  "rules": [
    {"id": "dry", "fault": "no-capacity", "type": "m5.*", "zone": "us-east-1a", "capacity": "spot", "stock": 3, "code": "UnfulfillableCapacity",
     "message": "none", "unnamed": true, "times": 2, "chance": 0.5, "for": "3m0s"},
    {"fault": "withdrawn", "type": "p5.48xlarge"},
    {"fault": "subnet-full", "subnet": "subnet-0aaa"},
    {"fault": "spot-price", "type": "m5.large", "factor": 2},
    {"fault": "spot-price", "type": "m5.large", "usd_per_hour": 0.2},
    {"fault": "throttle", "actions": ["CreateFleet", "RunInstances"], "burst": 5, "per_second": 2},
    {"fault": "throttle", "actions": ["Describe*"], "times": 3},
    {"fault": "deny", "actions": ["TerminateInstances"], "code": "UnauthorizedOperation", "message": "no", "unless_tag": "a=b"},
    {"fault": "fail", "actions": ["CreateTags"], "code": "InternalError", "message": "sorry", "status": 500},
    {"fault": "lost-reply", "actions": ["CreateFleet"], "status": 500},
    {"fault": "template-not-found", "times": 1},
    {"fault": "late", "actions": ["DescribeInstances"], "delay": "2s"},
    {"fault": "slow-boot", "delay": "1m0s"},
    {"fault": "never-registers", "zone": "us-east-1b"},
    {"fault": "not-ready", "capacity": "on-demand"},
    {"fault": "dies", "delay": "1s", "code": "Server.Odd", "message": "odd"},
    {"fault": "interrupt", "delay": "1m0s", "notice": "30s"}
  ],
  "acts": [
    {"act": "interrupt", "instance": "i-1", "notice": "30s", "copies": 2},
    {"act": "rebalance", "instance": "i-1"},
    {"act": "terminate", "instance": "i-1", "code": "Server.Odd", "message": "odd"},
    {"act": "impair", "instance": "i-1", "check": "system"},
    {"act": "schedule-event", "instance": "i-1", "code": "system-reboot", "notice": "1h0m0s"},
    {"act": "roll-images"}
  ]
}`

func TestDecode_ReadsAllThatADocumentCanSay(t *testing.T) {
	t.Parallel()
	doc, err := fault.Decode(strings.NewReader(document))
	require.NoError(t, err)
	require.EqualValues(t, 3*time.Minute, doc.Rules[0].For)
	require.Equal(t, 3, *doc.Rules[0].Stock)
	again, err := json.Marshal(doc)
	require.NoError(t, err)
	require.JSONEq(t, document, string(again), "nothing is lost or made up")

	in := fault.New(0)
	require.NoError(t, in.Replace(doc))
	require.Len(t, in.Rules(), 17)
}

func TestDecode_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for doc, says := range map[string]string{
		`{"rules":[{"fault":"deny"},{"fault":"dny"}]}`:                        `rule 1: unknown fault "dny"`,
		`{"rules":[{"fault":"deny","stock":1}]}`:                              "deny takes no stock",
		`{"rules":[{"fault":"withdrawn","type":"m5.["}]}`:                     "syntax error in pattern",
		`{"rules":[{"fault":"deny","times":-1}]}`:                             "cannot be negative",
		`{"rules":[{"fault":"no-capacity","stock":-1}]}`:                      "stock -1 is negative",
		`{"rules":[{"fault":"throttle","burst":1,"per_second":1,"times":1}]}`: "either a bucket or a number of times",
		`{"rules":[{"fault":"throttle","burst":-1,"per_second":1}]}`:          "cannot be negative",
		`{"rules":[{"fault":"spot-price","factor":1,"usd_per_hour":1}]}`:      "either factor or usd_per_hour",
		`{"rules":[{"fault":"spot-price"}]}`:                                  "either factor or usd_per_hour",
		`{"rules":[{"fault":"subnet-full"}]}`:                                 "needs a subnet",
		`{"rules":[{"fault":"interrupt"}]}`:                                   "interrupt needs a delay",
		`{"acts":[{"act":"impair","instance":"i-1","check":"soul"}]}`:         `no check "soul"`,
		`{"acts":[{"act":"interrupt"}]}`:                                      "act 0: interrupt needs an instance",
		`{"acts":[{"act":"schedule-event","instance":"i-1"}]}`:                "needs a code",
		`[]`: "cannot unmarshal",
	} {
		_, err := fault.Decode(strings.NewReader(doc))
		require.ErrorContains(t, err, says, doc)
	}
	_, err := fault.New(0).Add(fault.Rule{Kind: fault.Deny}, fault.Rule{Kind: "dny"})
	require.ErrorContains(t, err, "dny")
}

// pools are enough that chance can be told from luck.
func pools() []fault.Pool {
	var all []fault.Pool
	for n := range 400 {
		all = append(all, fault.Pool{Type: fmt.Sprintf("t%d.large", n), Zone: "us-east-1a", Capacity: "spot"})
	}
	return all
}

func dry(t *testing.T, seed uint64) map[fault.Pool]bool {
	t.Helper()
	in := fault.New(seed)
	_, err := in.Add(fault.Rule{ID: "dry", Kind: fault.NoCapacity, Chance: 0.25})
	require.NoError(t, err)
	hit := map[fault.Pool]bool{}
	for _, p := range pools() {
		_, refused := in.Take(p)
		_, again := in.Take(p)
		require.Equal(t, refused == nil, again == nil, "a pool stays as it is")
		if refused != nil {
			hit[p] = true
		}
	}
	return hit
}

func TestChance_ComesFromTheSeed(t *testing.T) {
	t.Parallel()
	one := dry(t, 1)
	require.InDelta(t, 100, len(one), 35)
	require.Equal(t, one, dry(t, 1))
	require.NotEqual(t, one, dry(t, 2))

	fares := func(seed uint64) string {
		in := fault.New(seed)
		_, err := in.Add(fault.Rule{Kind: fault.NeverRegisters, Chance: 0.5})
		require.NoError(t, err)
		var b strings.Builder
		for _, p := range pools() {
			fmt.Fprint(&b, in.Boot(p, "i-1").NeverRegisters, " ")
		}
		return b.String()
	}
	require.Equal(t, fares(1), fares(1))
	require.NotEqual(t, fares(1), fares(2))
}

func TestRule_EndsWithItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := fault.New(0)
		_, err := in.Add(fault.Rule{Kind: fault.Deny, For: fault.Duration(time.Minute)})
		require.NoError(t, err)
		time.Sleep(time.Minute - time.Nanosecond)
		require.NotNil(t, in.Call("CreateFleet", nil))
		time.Sleep(time.Nanosecond)
		require.Nil(t, in.Call("CreateFleet", nil))
		require.Empty(t, in.Rules())
		require.Len(t, in.Fired(), 1)
	})
}

func TestTake_GivesBackWhatDidNotComeAbout(t *testing.T) {
	t.Parallel()
	in := fault.New(0)
	_, err := in.Add(fault.Rule{ID: "a", Kind: fault.NoCapacity, Stock: new(1)}, fault.Rule{ID: "b", Kind: fault.NoCapacity, Stock: new(0)})
	require.NoError(t, err)
	p := pools()[0]
	_, refused := in.Take(p)
	require.NotNil(t, refused)
	require.Equal(t, 1, *in.Rules()[0].Stock, "a refused launch takes nothing")
	require.True(t, in.Remove("b"))
	stocks, refused := in.Take(p)
	require.Nil(t, refused)
	require.Zero(t, *in.Rules()[0].Stock)
	in.Give(stocks, false)
	require.Equal(t, 1, *in.Rules()[0].Stock)
}

func TestDeny_UnlessEveryResourceIsTagged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tag     string
		touched fault.Tagged
		denied  bool
	}{
		"the tag is there":              {"team", fault.Tagged{{"team": "a"}}, false},
		"the value is right":            {"team=a", fault.Tagged{{"team": "a"}}, false},
		"the value is another":          {"team=b", fault.Tagged{{"team": "a"}}, true},
		"one of two lacks it":           {"team", fault.Tagged{{"team": "a"}, {}}, true},
		"one does not exist":            {"team", fault.Tagged{{"team": "a"}, nil}, true},
		"no tag makes an exception":     {"", fault.Tagged{{"team": "a"}}, true},
		"nothing is touched, by any id": {"team", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := fault.New(0)
			_, err := in.Add(fault.Rule{Kind: fault.Deny, UnlessTag: c.tag})
			require.NoError(t, err)
			require.Equal(t, c.denied, in.Call("TerminateInstances", c.touched) != nil)
		})
	}
}

func TestLog_FindsTokensOfSeveralLaunches(t *testing.T) {
	t.Parallel()
	var l fault.Log
	l.Add(fault.Call{Action: "CreateFleet", ClientToken: "once", Launched: []string{"i-1"}})
	l.Add(fault.Call{Action: "CreateFleet", ClientToken: "once", Launched: []string{"i-1"}, Replayed: true})
	l.Add(fault.Call{Action: "CreateFleet", ClientToken: "refused", Code: "RequestLimitExceeded"})
	l.Add(fault.Call{Action: "CreateFleet", ClientToken: "refused", Launched: []string{"i-2"}})
	require.Empty(t, l.TokensOfSeveralLaunches())
	l.Add(fault.Call{Action: "RunInstances", ClientToken: "once", Launched: []string{"i-3"}})
	require.Equal(t, []string{"once"}, l.TokensOfSeveralLaunches())
	require.Equal(t, map[string]int{"CreateFleet": 4, "RunInstances": 1}, l.Counts())
	require.Len(t, l.Calls("RunInstances"), 1)
}

func TestLog_ForgetsOldCallsButCountsThem(t *testing.T) {
	t.Parallel()
	var l fault.Log
	for n := range 200_001 {
		l.Add(fault.Call{Action: "DescribeInstances", RequestID: fmt.Sprint(n)})
	}
	calls := l.Calls()
	require.Len(t, calls, 100_001)
	require.Equal(t, "200000", calls[len(calls)-1].RequestID)
	require.Equal(t, 200_001, l.Counts()["DescribeInstances"])
}
