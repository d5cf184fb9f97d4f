package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"treadle/shared/plan"
)

// Settings say where schedules are kept and what they call.
type Settings struct {
	Group     string // of schedules
	TargetARN string // of the function expiry
	RoleARN   string // with which Scheduler calls it
}

// Expiry is what the function is called with.
type Expiry struct {
	Cluster      string `json:"cluster"`
	NodeClaim    string `json:"nodeClaim"`
	NodeClaimUID string `json:"nodeClaimUID"`
}

// Scheduler keeps the schedules of an account and region. It is safe for concurrent use.
type Scheduler struct {
	cfg      aws.Config
	signer   *v4.Signer
	settings Settings
	now      func() time.Time
}

// New returns a Scheduler that uses the region, credentials, HTTP client and, where one is set, the endpoint of cfg. It dials nothing.
func New(cfg aws.Config, s Settings, now func() time.Time) *Scheduler {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = http.DefaultClient
	}
	return &Scheduler{cfg: cfg, signer: v4.NewSigner(), settings: s, now: now}
}

// prefix starts the names of a cluster's schedules. A cluster's own name may be longer than the name of a schedule.
func prefix(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return hex.EncodeToString(sum[:8]) + "-"
}

// Create has the function called at the given instant. A schedule that is there already is left as it is: when a claim expires
// never changes.
func (s *Scheduler) Create(ctx context.Context, e Expiry, atUnix int64) error {
	input, err := json.Marshal(e)
	if err != nil {
		return err
	}
	type object = map[string]any
	body, err := json.Marshal(object{
		"GroupName":                  s.settings.Group,
		"ScheduleExpression":         "at(" + time.Unix(atUnix, 0).UTC().Format("2006-01-02T15:04:05") + ")",
		"ScheduleExpressionTimezone": "UTC",
		"FlexibleTimeWindow":         object{"Mode": "OFF"},
		"ActionAfterCompletion":      "DELETE",
		"Target": object{
			"Arn": s.settings.TargetARN, "RoleArn": s.settings.RoleARN, "Input": string(input),
			"RetryPolicy": object{"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 5},
		},
	})
	if err != nil {
		return err
	}
	_, err = s.do(ctx, http.MethodPost, "/schedules/"+prefix(e.Cluster)+e.NodeClaimUID, nil, body)
	if err != nil && !errors.Is(err, plan.ErrExists) {
		return fmt.Errorf("schedule expiry of nodeclaim %s: %w", e.NodeClaim, err)
	}
	return nil
}

// Delete takes back the schedule of the claim with the given UID. One that is gone is no error.
func (s *Scheduler) Delete(ctx context.Context, cluster, uid string) error {
	_, err := s.do(ctx, http.MethodDelete, "/schedules/"+prefix(cluster)+uid, url.Values{"groupName": {s.settings.Group}}, nil)
	if err != nil && !errors.Is(err, plan.ErrNotFound) {
		return fmt.Errorf("delete schedule of nodeclaim %s: %w", uid, err)
	}
	return nil
}

// List returns the UIDs of a cluster's claims that have a schedule.
func (s *Scheduler) List(ctx context.Context, cluster string) ([]string, error) {
	query := url.Values{"ScheduleGroup": {s.settings.Group}, "NamePrefix": {prefix(cluster)}, "MaxResults": {"100"}}
	var uids []string
	for {
		body, err := s.do(ctx, http.MethodGet, "/schedules", query, nil)
		if err != nil {
			return nil, fmt.Errorf("list schedules of cluster %s: %w", cluster, err)
		}
		var page struct {
			Schedules []struct{ Name string }
			NextToken string
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("list schedules of cluster %s: %w", cluster, err)
		}
		for _, one := range page.Schedules {
			uids = append(uids, strings.TrimPrefix(one.Name, prefix(cluster)))
		}
		if page.NextToken == "" {
			return uids, nil
		}
		query.Set("NextToken", page.NextToken)
	}
}
