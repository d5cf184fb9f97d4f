package eks

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"treadle/infra/local/aws/sts"
)

const (
	tokenPrefix   = "k8s-aws-v1."
	clusterHeader = "X-K8s-Aws-Id"
	maxReview     = 64 << 10
)

// Verifier tells who signed a presigned GetCallerIdentity URL that comes with the headers; sts.Service is one.
type Verifier interface {
	Verify(presigned string, headers http.Header, now time.Time) (sts.Identity, error)
}

// User is who a token stands for in Kubernetes.
type User struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// Authenticate tells whom a token of the cluster stands for. The error says why it stands for nobody.
func (s *Service) Authenticate(clusterName, token string, v Verifier, now time.Time) (User, error) {
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return User{}, fmt.Errorf("token does not begin with %s", tokenPrefix)
	}
	presigned, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return User{}, fmt.Errorf("token is not base64: %w", err)
	}
	// The header is part of what was signed, so a token made for another cluster does not verify with this one's name.
	// A URL that does not sign it could be replayed anywhere.
	if !signsClusterHeader(string(presigned)) {
		return User{}, fmt.Errorf("token does not sign %s", clusterHeader)
	}
	identity, err := v.Verify(string(presigned), http.Header{clusterHeader: {clusterName}}, now)
	if err != nil {
		return User{}, fmt.Errorf("verify token: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, e, err := s.entry(&clusterName, &identity.RoleARN)
	if err != nil {
		return User{}, fmt.Errorf("find access entry: %w", err)
	}
	groups := slices.Clone(e.KubernetesGroups)
	for _, arn := range slices.Sorted(maps.Keys(e.policies)) {
		groups = append(groups, "eks:access-policy:"+strings.TrimPrefix(arn, policyPrefix))
	}
	return User{
		Username: strings.ReplaceAll(aws.ToString(e.Username), "{{SessionName}}", identity.SessionName),
		UID:      "aws-iam-authenticator:" + identity.Account() + ":" + identity.RoleID(),
		Groups:   groups,
		Extra: map[string][]string{
			"accessKeyId":  {identity.AccessKeyID},
			"arn":          {identity.ARN()},
			"canonicalArn": {identity.RoleARN},
			"principalId":  {identity.RoleID()},
			"sessionName":  {identity.SessionName},
		},
	}, nil
}

func signsClusterHeader(presigned string) bool {
	_, query, _ := strings.Cut(presigned, "?")
	for param := range strings.SplitSeq(query, "&") {
		if list, ok := strings.CutPrefix(param, "X-Amz-SignedHeaders="); ok {
			list = strings.ReplaceAll(list, "%3B", ";")
			return slices.Contains(strings.Split(list, ";"), strings.ToLower(clusterHeader))
		}
	}
	return false
}

// tokenReview is authentication.k8s.io/v1 TokenReview, as far as it is used.
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token string `json:"token,omitempty"`
	} `json:"spec"`
	Status struct {
		Authenticated bool   `json:"authenticated,omitempty"`
		User          *User  `json:"user,omitempty"`
		Error         string `json:"error,omitempty"`
	} `json:"status"`
}

// Authenticator answers the TokenReviews of one cluster's API server. Serve it over HTTPS.
func (s *Service) Authenticator(clusterName string, v Verifier) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review tokenReview
		body, err := io.ReadAll(io.LimitReader(r.Body, maxReview))
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil || r.Method != http.MethodPost || review.Kind != "TokenReview" {
			http.Error(w, "the body must be a TokenReview", http.StatusBadRequest)
			return
		}
		user, err := s.Authenticate(clusterName, review.Spec.Token, v, time.Now())
		review.Spec.Token = ""
		if err != nil {
			review.Status.Error = err.Error()
		} else {
			review.Status.Authenticated, review.Status.User = true, &user
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the API server may have gone, which is its own affair
	})
}
