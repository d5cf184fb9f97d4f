package notice_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/events"
	"treadle/shared/notice"
)

func TestDecodeAdmission(t *testing.T) {
	t.Parallel()
	sample, err := events.Samples.ReadFile("admission-failedscheduling.json")
	require.NoError(t, err)
	got, err := notice.DecodeAdmission(sample)
	require.NoError(t, err)
	require.Equal(t, "events", got.Resource)
	require.Equal(t, "CREATE", got.Operation)
	require.Equal(t, "system:kube-scheduler", got.User)
	require.False(t, got.DryRun)
	require.NotEmpty(t, got.UID)
	require.JSONEq(t, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"`+got.UID+`","allowed":true}}`,
		string(notice.Allow(got.UID)))
}

func TestDecodeAdmission_NamesTheFieldAtFault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, want string }{
		"no JSON":                  {`hello`, "invalid character"},
		"another version":          {`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}`, "field apiVersion"},
		"another kind":             {`{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}`, "field kind"},
		"a review with no request": {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, "field request: missing"},
		"a request with no uid":    {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`, "field request.uid"},
		"a request about nothing":  {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}`, "request.resource.resource"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := notice.DecodeAdmission([]byte(tt.body))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestDecodeWake(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want notice.Wake
		err  string
	}{
		"a cluster and why":              {`{"cluster":"demo","why":"sweep"}`, notice.Wake{Cluster: "demo", Why: "sweep"}, ""},
		"a body that is no JSON":         {`abcd`, notice.Wake{}, "invalid character"},
		"a body that names no cluster":   {`{"why":"sweep"}`, notice.Wake{}, "field cluster: missing"},
		"a field that nobody knows":      {`{"cluster":"demo","node":"n"}`, notice.Wake{}, `unknown field "node"`},
		"a second value after the first": {`{"cluster":"demo"}{}`, notice.Wake{}, "more than one JSON value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := notice.DecodeWake([]byte(tt.body))
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			again, err := notice.DecodeWake(got.Encode())
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

func FuzzDecodeAdmission(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"resource":"pods"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := notice.DecodeAdmission(body); err == nil {
			require.NotEmpty(t, got.UID)
			require.NotEmpty(t, got.Resource)
		}
	})
}

func FuzzDecodeWake(f *testing.F) {
	f.Add([]byte(`{"cluster":"demo"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := notice.DecodeWake(body); err == nil {
			require.NotEmpty(t, got.Cluster)
		}
	})
}
