package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/rpc"
)

// shape has a member of each kind that SDK types have.
type shape struct {
	Text    *string
	Enum    kind
	Whole   int32
	Wide    *int64
	Part    *float64
	Yes     *bool
	Bytes   []byte
	When    *time.Time
	List    []inner
	Map     map[string]string
	Choice  choice
	Hidden  string `json:"-"`
	private int
}

type kind string

type inner struct{ Name *string }

type choice interface{ isChoice() }

type choiceMemberA struct{ Value string }

func (*choiceMemberA) isChoice() {}

type choiceMemberB struct{ Value []inner }

func (*choiceMemberB) isChoice() {}

func (*shape) echo(_ context.Context, in *shape, _ ...func()) (*shape, error) {
	if in.Text != nil && *in.Text == "fail" {
		return nil, errors.New("broken inside")
	}
	if in.Text != nil && *in.Text == "refuse" {
		return nil, &smithy.GenericAPIError{Code: "Refused", Message: "no", Fault: smithy.FaultServer}
	}
	in.private = 1
	return in, nil
}

func service() rpc.Service {
	return rpc.Service{
		Name:    "test",
		Actions: map[string]rpc.Action{"Echo": rpc.Bind((&shape{}).echo)},
		Unions:  rpc.Union[choice](&choiceMemberA{}, &choiceMemberB{}),
		Status:  map[string]int{"Refused": http.StatusTeapot},
	}
}

func call(t *testing.T, h http.Handler, method, target, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "Test.Echo")
	if strings.HasPrefix(body, "Action=") {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

func TestJSON_CarriesEveryKindOfMember(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"all members":      `{"Text":"a","Enum":"E","Whole":1,"Wide":9007199254740993,"Part":0.5,"Yes":false,"Bytes":"AAE=","When":1500000000.25,"List":[{"Name":"x"}],"Map":{"k":"v"},"Choice":{"B":[{"Name":"y"}]},"Hidden":"h"}`,
		"no members":       `{"Whole":0}`,
		"empty lists stay": `{"Whole":0,"List":[],"Map":{}}`,
		"another choice":   `{"Whole":0,"Choice":{"A":"z"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, got := call(t, rpc.JSON(service(), "1.0"), http.MethodPost, "/", body)
			require.Equal(t, http.StatusOK, status)
			require.JSONEq(t, body, got)
		})
	}
	_, got := call(t, rpc.JSON(service(), "1.0"), http.MethodPost, "/", `{"Text":null}`)
	require.JSONEq(t, `{"Whole":0}`, got)
}

func TestJSON_RefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"Other":1}`:                   "Other is no known member",
		`{"ResultMetadata":{}}`:         "ResultMetadata is no known member",
		`{"private":1}`:                 "private is no known member",
		`{"List":[{"Name":"a","X":1}]}`: "List[0].X is no known member",
		`{"List":{}}`:                   "List must be a list",
		`{"Map":[]}`:                    "Map must be a map",
		`{"Text":1}`:                    "Text must be a string",
		`{"Whole":"1"}`:                 "Whole must be a whole number",
		`{"Whole":1.5}`:                 "Whole must be a whole number",
		`{"Whole":2147483648}`:          "Whole must be a whole number",
		`{"Part":"x"}`:                  "Part must be a number",
		`{"Yes":"true"}`:                "Yes must be true or false",
		`{"Bytes":"?"}`:                 "Bytes must be a base64 string",
		`{"When":"soon"}`:               "When must be a timestamp",
		`{"Choice":{"C":1}}`:            "Choice.C is no known member",
		`{"Choice":{"A":"x","B":[]}}`:   "Choice must be exactly one member of a union",
		`[]`:                            "must be a structure",
		`{"Text":`:                      "the request is no JSON",
	} {
		status, got := call(t, rpc.JSON(service(), "1.0"), http.MethodPost, "/", body)
		require.Equal(t, http.StatusBadRequest, status, body)
		var e struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		require.NoError(t, json.Unmarshal([]byte(got), &e))
		require.Equal(t, "com.amazonaws.test#SerializationException", e.Type, body)
		require.Contains(t, e.Message, want)
	}
}

func TestJSON_TellsErrorsApart(t *testing.T) {
	t.Parallel()
	status, got := call(t, rpc.JSON(service(), "1.1"), http.MethodPost, "/", `{"Text":"fail"}`)
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, got, "InternalFailure")
	status, got = call(t, rpc.JSON(service(), "1.1"), http.MethodPost, "/", `{"Text":"refuse"}`)
	require.Equal(t, http.StatusTeapot, status)
	require.Contains(t, got, "Refused")
	status, _ = call(t, rpc.JSON(service(), "1.1"), http.MethodPost, "/", strings.Repeat(" ", 17<<20))
	require.Equal(t, http.StatusBadRequest, status)
}

func TestREST_TakesMembersFromThePathAndTheQuery(t *testing.T) {
	t.Parallel()
	h := rpc.REST(service(), true, rpc.Route{Pattern: "POST /things/{text}", Action: "Echo", Query: map[string]string{"wide": "Wide", "when": "When"}})
	status, got := call(t, h, http.MethodPost, "/things/a%2Fb?wide=7&when=2026-01-01T00:00:00Z", `{"enum":"E"}`)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"text":"a/b","wide":7,"when":1767225600,"enum":"E","whole":0}`, got)
	status, got = call(t, h, http.MethodPost, "/things/a?other=1", ``)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, got, "other is no known member")
	status, got = call(t, h, http.MethodPost, "/things/a?wide=x", ``)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, got, "wide must be a whole number")
	status, got = call(t, h, http.MethodGet, "/others", ``)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, got, "UnknownOperationException")
}

func TestQuery_TakesFormsAndWritesXML(t *testing.T) {
	t.Parallel()
	h := rpc.Query(service(), "urn:test")
	status, got := call(t, h, http.MethodPost, "/", "Action=Echo&Version=1&Text=a%26b&Wide=3&Yes=true&List.member.2.Name=y&List.member.10.Name=z&List.member.1.Name=x&When=2026-01-01T00:00:00Z")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, got, `<EchoResponse xmlns="urn:test"><EchoResult><Text>a&amp;b</Text><Whole>0</Whole><Wide>3</Wide><Yes>true</Yes>`+
		`<When>2026-01-01T00:00:00Z</When><List><member><Name>x</Name></member><member><Name>y</Name></member><member><Name>z</Name></member></List></EchoResult>`)
	for form, want := range map[string]string{
		"Action=Echo&Other=1":        "Other is no known member",
		"Action=Echo&List.member=x":  "List must be a list",
		"Action=Echo&List.member.x=": "List must be a list",
		"Action=Fly":                 "<Code>InvalidAction</Code>",
	} {
		status, got := call(t, h, http.MethodPost, "/", form)
		require.Equal(t, http.StatusBadRequest, status, form)
		require.Contains(t, got, want)
	}
	status, got = call(t, h, http.MethodPost, "/", "Action=Echo&Text=refuse")
	require.Equal(t, http.StatusTeapot, status)
	require.Contains(t, got, "<Code>Refused</Code><Message>no</Message>")
}
