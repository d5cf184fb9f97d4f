package wire_test

import (
	"bytes"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/wire"
)

// input makes the input shape of an operation, read off the client's method of that name.
func input(t *testing.T, operation string) any {
	t.Helper()
	method, ok := reflect.TypeFor[*sdk.Client]().MethodByName(operation)
	require.True(t, ok, operation)
	return reflect.New(method.Type.In(2).Elem()).Interface()
}

// module returns the folder of the pinned SDK module.
func module(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/service/ec2").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(dir))
}

// The SDK's module comes with one recorded request per operation that has every member set: each must decode whole, to the
// values that the recording stands for.
func TestDecode_ReadsEveryMemberOfTheSDKsRecordedRequests(t *testing.T) {
	t.Parallel()
	dir := module(t)
	require.NotEmpty(t, wire.Operations())
	for _, operation := range wire.Operations() {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			snap, err := os.ReadFile(filepath.Join(dir, "request_snapshot", operation+".request.snap"))
			require.NoError(t, err)
			_, body, ok := bytes.Cut(snap, []byte("Action="))
			require.True(t, ok)
			form, err := url.ParseQuery("Action=" + strings.TrimSpace(string(body)))
			require.NoError(t, err)
			in := input(t, operation)
			require.NoError(t, wire.Decode(form, in))
			requireWhole(t, reflect.ValueOf(in).Elem(), operation)
		})
	}
}

// requireWhole fails on a member that is not set: the recordings set all.
func requireWhole(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Pointer:
		require.False(t, v.IsNil(), path)
		requireWhole(t, v.Elem(), path)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		require.NotZero(t, v.Len(), path)
		requireWhole(t, v.Index(0), path)
	case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				requireWhole(t, v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		}
	default:
		require.False(t, v.IsZero(), path)
	}
}

func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ form, code, says string }{
		"a parameter that the shape does not have":   {"Colour=blue", "UnknownParameter", "Colour"},
		"a member that a nested shape does not have": {"LaunchTemplateConfigs.1.Overrides.2.Colour=blue", "UnknownParameter", "LaunchTemplateConfigs.1.Overrides.2.Colour"},
		"a list index that is no number":             {"LaunchTemplateConfigs.first.Overrides.1.InstanceType=a", "UnknownParameter", "LaunchTemplateConfigs.first"},
		"a member below a plain value":               {"ClientToken.1=a", "UnknownParameter", "ClientToken.1"},
		"a plain value for a structure":              {"SpotOptions=all", "InvalidParameterValue", "SpotOptions"},
		"a number that is none":                      {"TargetCapacitySpecification.TotalTargetCapacity=many", "InvalidParameterValue", "many"},
		"a number that does not fit":                 {"TargetCapacitySpecification.TotalTargetCapacity=99999999999", "InvalidParameterValue", "99999999999"},
		"a boolean that is none":                     {"DryRun=perhaps", "InvalidParameterValue", "perhaps"},
		"a time that is none":                        {"ValidFrom=noon", "InvalidParameterValue", "noon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			form, err := url.ParseQuery(c.form)
			require.NoError(t, err)
			err = wire.Decode(form, &sdk.CreateFleetInput{})
			var e smithy.APIError
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.code, e.ErrorCode())
			require.Contains(t, e.ErrorMessage(), c.says)
		})
	}
}

func TestDecode_KeepsTheOrderOfIndexes(t *testing.T) {
	t.Parallel()
	in := &sdk.TerminateInstancesInput{}
	require.NoError(t, wire.Decode(url.Values{"InstanceId.10": {"j"}, "InstanceId.2": {"b"}, "InstanceId.1": {"a"}}, in))
	require.Equal(t, []string{"a", "b", "j"}, in.InstanceIds)
}

// fill sets every member of v to something that a mix-up would show, depth levels down.
func fill(v reflect.Value, next *int, depth int) {
	*next++
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next, depth)
	case v.Type().PkgPath() == "time":
		v.Set(reflect.ValueOf(*aws.Time(sometime(*next))))
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), next, depth)
		fill(v.Index(1), next, depth)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "ResultMetadata" && depth > 0 {
				fill(v.Field(i), next, depth-1)
			}
		}
	case v.Kind() == reflect.String:
		v.SetString("<&> " + string(rune('a'+*next%26)) + strings.Repeat("x", *next%7))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Int32 || v.Kind() == reflect.Int64:
		v.SetInt(int64(*next))
	case v.Kind() == reflect.Float64:
		v.SetFloat(float64(*next) + 0.25)
	}
}

// Each answer, with every member set, must come back out of the SDK's own deserializer as it went in.
func TestEncode_IsReadBackByTheSDK(t *testing.T) {
	t.Parallel()
	for _, operation := range wire.Operations() {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			method, ok := reflect.TypeFor[*sdk.Client]().MethodByName(operation)
			require.True(t, ok)
			want := reflect.New(method.Type.Out(0).Elem())
			n := 0
			fill(want.Elem(), &n, 12)
			got := exchange(t, operation, wire.Encode(operation, "request-1", want.Interface()))
			require.Equal(t, want.Interface(), withoutMetadata(got))
		})
	}
}

func TestEncode_WritesEmptyListsAndLeavesOutNil(t *testing.T) {
	t.Parallel()
	body := string(wire.Encode("DescribeInstances", "request-1", &sdk.DescribeInstancesOutput{Reservations: []types.Reservation{}}))
	require.Contains(t, body, "<reservationSet></reservationSet>")
	require.NotContains(t, body, "nextToken")
	require.Contains(t, body, "<requestId>request-1</requestId>")
}

func TestError_IsReadBackByTheSDK(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	e := &wire.Error{Code: "RequestLimitExceeded", Message: "Slow <down> & wait", Status: 503}
	require.NoError(t, e.WriteTo(w, "request-1"))
	require.Equal(t, 503, w.Code)
	err := exchangeError(t, w)
	var api smithy.APIError
	require.ErrorAs(t, err, &api)
	require.Equal(t, e.Code, api.ErrorCode())
	require.Equal(t, e.Message, api.ErrorMessage())
	require.Equal(t, smithy.FaultServer, e.ErrorFault())
	require.Equal(t, smithy.FaultClient, wire.Errorf("Any", "at %d", 1).ErrorFault())
}

// The table in the repository is the one that the pinned SDK gives.
func TestNames_AreWhatTheGeneratorWrites(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "names.go")
	args := append([]string{"run", "./gennames", "-out", out}, wire.Operations()...)
	b, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, string(b))
	want, err := os.ReadFile(out)
	require.NoError(t, err)
	got, err := os.ReadFile("names.go")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run go generate ./aws/wire")
}
