package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"treadle/shared/plan"
)

// The errors of this package, to be matched with errors.Is; all but ErrNoAddresses are those of plan. Any other error says that
// AWS was out of reach or in trouble.
var (
	ErrThrottled = plan.ErrThrottled
	ErrNotFound  = plan.ErrNotFound // the parameter, profile or role does not exist
	ErrDenied    = plan.ErrDenied
	ErrInvalid   = plan.ErrInvalid // the class cannot be launched as it is written; its author has to change it
	// ErrNoAddresses: no subnet of a zone that the claim may use has a free address for it.
	ErrNoAddresses = errors.New("no free addresses")
)

// Facts is what is known of the cluster that nodes join.
type Facts struct {
	Cluster           string // its name
	Region            string
	KubernetesVersion string // of the control plane, such as 1.36
	Endpoint          string // URL of the API server
	CA                string // certificate authority as EKS gives it: PEM in base64
	ServiceCIDR       string // "" if it could not be found out
	DNSIP             string // of the cluster's DNS service; an IPv6 address makes the nodes IPv6 nodes; "": not known
	NowUnix           int64
}

func (f Facts) ipv6() bool { return strings.Contains(f.DNSIP, ":") }

// minor returns the minor version of Kubernetes and the text major.minor; 0 and "" where the version makes no sense.
func (f Facts) minor() (int, string) {
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(f.KubernetesVersion, "v"), "%d.%d", &major, &minor); err != nil {
		return 0, ""
	}
	return minor, fmt.Sprintf("%d.%d", major, minor)
}

// Parameters reads public and private parameters.
type Parameters interface {
	// Parameter returns the value of the SSM parameter with the given name or ARN. ErrNotFound: there is none.
	Parameter(ctx context.Context, name string) (string, error)
}

// Profiles keeps the instance profiles that Treadle makes for classes with a role.
type Profiles interface {
	// EnsureProfile makes the profile, or finds it, and puts its role in. Repeating it is harmless. ErrNotFound: the role does
	// not exist.
	EnsureProfile(ctx context.Context, p Profile) error
	// DeleteProfile takes the roles out of a profile and deletes it; no error if it is gone.
	DeleteProfile(ctx context.Context, name string) error
	// ListProfiles returns the names of the profiles under a path prefix.
	ListProfiles(ctx context.Context, pathPrefix string) ([]string, error)
}

// Profile is an instance profile.
type Profile struct {
	Name string
	Path string
	Role string // name without path
	Tags map[string]string
}

// Classify puts the sentinel of an AWS error's code into its chain, and its reason into few words. Trouble of AWS and of the
// network comes back as it is.
func Classify(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	kind := kindOf(api.ErrorCode())
	if kind == nil {
		return err
	}
	// What follows are kilobytes that only the holder of another right can decode.
	message, _, _ := strings.Cut(api.ErrorMessage(), "Encoded authorization failure message")
	return &answerError{kind, err, strings.TrimSuffix(api.ErrorCode()+": "+strings.TrimSpace(message), ": ")}
}

func kindOf(code string) error {
	if _, throttle := retry.DefaultThrottleErrorCodes[code]; throttle {
		return ErrThrottled
	}
	switch {
	case code == "UnauthorizedOperation" || strings.HasPrefix(code, "AccessDenied") || strings.HasPrefix(code, "AuthFailure"):
		return ErrDenied
	case strings.Contains(code, "NotFound") || code == "NoSuchEntity":
		return ErrNotFound
	case strings.HasPrefix(code, "Invalid") || strings.HasPrefix(code, "Missing") || strings.HasPrefix(code, "UserData"):
		return ErrInvalid
	}
	return nil
}

// answerError is what AWS answered, less the SDK's words about HTTP around it.
type answerError struct {
	kind, cause error
	text        string
}

func (e *answerError) Error() string   { return e.kind.Error() + ": " + e.text }
func (e *answerError) Unwrap() []error { return []error{e.kind, e.cause} }
