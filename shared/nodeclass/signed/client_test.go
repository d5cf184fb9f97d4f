package signed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"treadle/shared/nodeclass"
	"treadle/shared/nodeclass/signed"
)

var (
	_ nodeclass.Parameters = (*signed.Client)(nil)
	_ nodeclass.Profiles   = (*signed.Client)(nil)
)

// service serves SSM parameters and IAM profiles; the first trouble calls fail with status and code.
type service struct {
	parameters map[string]string
	profiles   map[string][]string // roles by profile
	roles      []string            // that exist
	trouble    int
	status     int
	code       string
	calls      []string
	signedFor  []string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	scope, _, _ := strings.Cut(credential, ",")
	s.signedFor = append(s.signedFor, strings.Join(strings.Split(scope, "/")[2:4], "/"))
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		s.ssm(w, target, body)
		return
	}
	form, _ := url.ParseQuery(string(body))
	s.iam(w, form)
}

func (s *service) ssm(w http.ResponseWriter, target string, body []byte) {
	s.calls = append(s.calls, target)
	if s.trouble > 0 {
		s.trouble--
		w.WriteHeader(s.status)
		fmt.Fprintf(w, `{"__type":"com.amazonaws.ssm#%s:http://x","message":"trouble"}`, s.code)
		return
	}
	var in struct{ Name string }
	_ = json.Unmarshal(body, &in)
	value, known := s.parameters[in.Name]
	if !known {
		w.Header().Set("X-Amzn-Errortype", "ParameterNotFound")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{}`)
		return
	}
	fmt.Fprintf(w, `{"Parameter":{"Name":%q,"Value":%q,"Type":"String","Version":3}}`, in.Name, value)
}

func (s *service) iam(w http.ResponseWriter, form url.Values) {
	action, name, role := form.Get("Action"), form.Get("InstanceProfileName"), form.Get("RoleName")
	s.calls = append(s.calls, strings.TrimSpace(action+" "+name+" "+role))
	fail := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `<ErrorResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><Error><Type>Sender</Type><Code>%s</Code><Message>no</Message></Error></ErrorResponse>`, code)
	}
	if s.trouble > 0 {
		s.trouble--
		fail(s.status, s.code)
		return
	}
	roles, known := s.profiles[name]
	switch action {
	case "CreateInstanceProfile":
		if known {
			fail(http.StatusConflict, "EntityAlreadyExists")
			return
		}
		s.profiles[name] = nil
	case "ListInstanceProfiles":
		all := slices.Sorted(maps.Keys(s.profiles))
		from := 0
		_, _ = fmt.Sscan(form.Get("Marker"), &from)
		fmt.Fprintf(w, `<R><ListInstanceProfilesResult><InstanceProfiles><member><InstanceProfileName>%s</InstanceProfileName></member></InstanceProfiles>`+
			`<IsTruncated>%t</IsTruncated><Marker>%d</Marker></ListInstanceProfilesResult></R>`, all[from], from+1 < len(all), from+1)
		return
	default:
		if !known {
			fail(http.StatusNotFound, "NoSuchEntity")
			return
		}
	}
	switch action {
	case "GetInstanceProfile":
		fmt.Fprint(w, `<R><GetInstanceProfileResult><InstanceProfile><Roles>`)
		for _, one := range roles {
			fmt.Fprintf(w, `<member><RoleName>%s</RoleName></member>`, one)
		}
		fmt.Fprint(w, `</Roles></InstanceProfile></GetInstanceProfileResult></R>`)
		return
	case "AddRoleToInstanceProfile":
		switch {
		case !slices.Contains(s.roles, role):
			fail(http.StatusNotFound, "NoSuchEntity")
			return
		case len(roles) > 0:
			fail(http.StatusConflict, "LimitExceeded")
			return
		}
		s.profiles[name] = []string{role}
	case "RemoveRoleFromInstanceProfile":
		s.profiles[name] = slices.DeleteFunc(roles, func(one string) bool { return one == role })
	case "DeleteInstanceProfile":
		if len(roles) > 0 {
			fail(http.StatusConflict, "DeleteConflict")
			return
		}
		delete(s.profiles, name)
	}
	fmt.Fprint(w, `<R/>`)
}

func client(t *testing.T, s *service) *signed.Client {
	t.Helper()
	if s.profiles == nil {
		s.profiles = map[string][]string{}
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return signed.New(aws.Config{
		Region: "eu-west-1", BaseEndpoint: aws.String(server.URL),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret", SessionToken: "session"}, nil
		}),
	}, func() time.Time { return time.Unix(1_800_000_000, 0) })
}

func TestParameter(t *testing.T) {
	t.Parallel()
	s := &service{parameters: map[string]string{"/a/b": `ami-"1"`}}
	c := client(t, s)
	value, err := c.Parameter(t.Context(), "/a/b")
	require.NoError(t, err)
	require.Equal(t, `ami-"1"`, value)
	_, err = c.Parameter(t.Context(), "/lost")
	require.ErrorIs(t, err, nodeclass.ErrNotFound)
	require.ErrorContains(t, err, "/lost")
	require.Equal(t, []string{"eu-west-1/ssm", "eu-west-1/ssm"}, s.signedFor)
}

func TestCalls_AreRepeatedAfterTroubleOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		trouble, status int
		code            string
		calls           int
		want            error
	}{
		"trouble that passes":      {trouble: 2, status: 500, code: "InternalServerError", calls: 3},
		"trouble that stays":       {trouble: 9, status: 503, code: "ServiceUnavailable", calls: 3},
		"a throttle is left alone": {trouble: 9, status: 400, code: "ThrottlingException", calls: 1, want: nodeclass.ErrThrottled},
		"a denial is left alone":   {trouble: 9, status: 400, code: "AccessDeniedException", calls: 1, want: nodeclass.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &service{parameters: map[string]string{"/a": "v"}, trouble: tt.trouble, status: tt.status, code: tt.code}
			_, err := client(t, s).Parameter(t.Context(), "/a")
			require.Len(t, s.calls, tt.calls)
			if tt.trouble < 3 {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.code)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
		})
	}
}

func TestCalls_EndWithTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client(t, &service{}).Parameter(ctx, "/a")
	require.ErrorIs(t, err, context.Canceled)
}

func TestEnsureProfile(t *testing.T) {
	t.Parallel()
	want := nodeclass.Profile{Name: "p", Path: "/x/", Role: "r", Tags: map[string]string{"b": "2", "a": "1"}}
	for name, tt := range map[string]struct {
		before map[string][]string
		calls  []string
	}{
		"a new one is made":         {nil, []string{"CreateInstanceProfile p", "AddRoleToInstanceProfile p r"}},
		"a complete one is left":    {map[string][]string{"p": {"r"}}, []string{"CreateInstanceProfile p", "GetInstanceProfile p"}},
		"a half-made one is filled": {map[string][]string{"p": nil}, []string{"CreateInstanceProfile p", "GetInstanceProfile p", "AddRoleToInstanceProfile p r"}},
		"a wrong role is replaced": {map[string][]string{"p": {"q"}}, []string{
			"CreateInstanceProfile p", "GetInstanceProfile p", "RemoveRoleFromInstanceProfile p q", "AddRoleToInstanceProfile p r",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &service{roles: []string{"r", "q"}, profiles: tt.before}
			require.NoError(t, client(t, s).EnsureProfile(t.Context(), want))
			require.Equal(t, map[string][]string{"p": {"r"}}, s.profiles)
			require.Equal(t, tt.calls, s.calls)
			require.Equal(t, "us-east-1/iam", s.signedFor[0], "IAM is in one region")
		})
	}
	t.Run("without its role it is taken back", func(t *testing.T) {
		t.Parallel()
		s := &service{}
		require.ErrorIs(t, client(t, s).EnsureProfile(t.Context(), want), nodeclass.ErrNotFound)
		require.Empty(t, s.profiles)
	})
	t.Run("a denial is told", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, client(t, &service{trouble: 1, status: 403, code: "AccessDenied"}).EnsureProfile(t.Context(), want), nodeclass.ErrDenied)
	})
}

func TestProfiles_AreListedAndDeleted(t *testing.T) {
	t.Parallel()
	s := &service{profiles: map[string][]string{"a": {"r"}, "b": nil, "c": nil}}
	c := client(t, s)
	names, err := c.ListProfiles(t.Context(), "/x/")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, names)
	require.NoError(t, c.DeleteProfile(t.Context(), "a"))
	require.NoError(t, c.DeleteProfile(t.Context(), "a"), "gone is gone")
	require.Len(t, s.profiles, 2)
}
