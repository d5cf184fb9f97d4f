package fleet

import (
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"treadle/shared/plan"
)

// errorOf returns the error that a kind stands for, nil where nothing is known.
func errorOf(k plan.RefusalKind) error {
	switch k {
	case plan.RefusedCapacity, plan.RefusedAddresses:
		return plan.ErrNoCapacity
	case plan.RefusedQuota, plan.RefusedTypeQuota:
		return plan.ErrQuota
	case plan.RefusedConfiguration:
		return plan.ErrInvalid
	case plan.RefusedDenied:
		return plan.ErrDenied
	case plan.RefusedThrottled:
		return plan.ErrThrottled
	case plan.RefusedGone:
		return plan.ErrNotFound
	case plan.RefusedMismatch:
		return plan.ErrMismatch
	}
	return nil
}

// codes says what EC2's error codes mean, whether they come as the answer to a call or beside instances in a fleet's answer.
//
//nolint:gochecknoglobals // a table
var codes = map[string]plan.RefusalKind{
	"InsufficientInstanceCapacity":         plan.RefusedCapacity,
	"InsufficientHostCapacity":             plan.RefusedCapacity,
	"InsufficientReservedInstanceCapacity": plan.RefusedCapacity,
	"InsufficientCapacityOnHost":           plan.RefusedCapacity,
	"InsufficientFreeAddressesInSubnet":    plan.RefusedAddresses,
	"ReservationCapacityExceeded":          plan.RefusedCapacity,
	"InvalidCapacityReservationState":      plan.RefusedCapacity,
	"SpotMaxPriceTooLow":                   plan.RefusedCapacity,
	"UnfulfillableCapacity":                plan.RefusedCapacity,
	"Unsupported":                          plan.RefusedCapacity, // the type is not offered in the zone

	"InstanceLimitExceeded":         plan.RefusedTypeQuota,
	"MaxSpotInstanceCountExceeded":  plan.RefusedQuota,
	"VcpuLimitExceeded":             plan.RefusedTypeQuota,
	"MaxFleetCountExceeded":         plan.RefusedQuota,
	"VolumeLimitExceeded":           plan.RefusedQuota,
	"MaxIOPSLimitExceeded":          plan.RefusedQuota,
	"NetworkInterfaceLimitExceeded": plan.RefusedQuota,

	// Without its role there is no Spot at all until somebody makes the role: like a quota of zero (L-055).
	"AuthFailure.ServiceLinkedRoleCreationNotPermitted": plan.RefusedQuota,
	"ServiceLinkedRoleCreationNotPermitted":             plan.RefusedQuota,

	"UnauthorizedOperation": plan.RefusedDenied,
	"AccessDenied":          plan.RefusedDenied,
	"AccessDeniedException": plan.RefusedDenied,
	"AuthFailure":           plan.RefusedDenied,
	"Blocked":               plan.RefusedDenied,
	"OptInRequired":         plan.RefusedDenied,
	"PendingVerification":   plan.RefusedDenied,
	"OperationNotPermitted": plan.RefusedDenied,
	"InvalidClientTokenId":  plan.RefusedDenied,
	"ExpiredToken":          plan.RefusedDenied,
	"RequestExpired":        plan.RefusedDenied,

	"RequestLimitExceeded":       plan.RefusedThrottled,
	"EC2ThrottledException":      plan.RefusedThrottled,
	"ClientRequestLimitExceeded": plan.RefusedThrottled,

	"IdempotentParameterMismatch":  plan.RefusedMismatch,
	"IdempotentInstanceTerminated": plan.RefusedMismatch, // the token belongs to an instance that is gone: it can launch nothing more

	"InvalidInstanceID.NotFound":                  plan.RefusedGone,
	"InvalidLaunchTemplateId.NotFound":            plan.RefusedGone,
	"InvalidLaunchTemplateName.NotFoundException": plan.RefusedGone,
	"InvalidLaunchTemplateName.NotFound":          plan.RefusedGone,
	"InvalidLaunchTemplateId.VersionNotFound":     plan.RefusedGone,
	"InvalidCapacityReservationId.NotFound":       plan.RefusedGone,
}

// KindOf returns what an error code of EC2 means. Codes that the table lacks but that start with Invalid, Missing or Malformed
// blame the request.
func KindOf(code string) plan.RefusalKind {
	if kind, known := codes[code]; known {
		return kind
	}
	if _, throttle := retry.DefaultThrottleErrorCodes[code]; throttle {
		return plan.RefusedThrottled
	}
	for _, prefix := range []string{"Invalid", "Missing", "Malformed", "UnknownParameter", "Unsupported", "IncorrectState", "Validation"} {
		if strings.HasPrefix(code, prefix) {
			return plan.RefusedConfiguration
		}
	}
	return ""
}

// translate puts the sentinel of an API error's code into its chain, and its reason into few words; other errors come back as
// they are.
func translate(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	sentinel := errorOf(KindOf(api.ErrorCode()))
	if sentinel == nil {
		return err
	}
	return &answerError{sentinel, err, api.ErrorCode() + ": " + reason(api.ErrorMessage())}
}

// answerError is what EC2 answered, less the SDK's words about HTTP around it.
type answerError struct {
	kind, cause error
	text        string
}

func (e *answerError) Error() string   { return e.kind.Error() + ": " + e.text }
func (e *answerError) Unwrap() []error { return []error{e.kind, e.cause} }

// reason returns a message of EC2 without the kilobytes that only the holder of another right can decode.
func reason(message string) string {
	plain, _, _ := strings.Cut(message, "Encoded authorization failure message")
	return strings.TrimSpace(plain)
}
