package sts

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"treadle/infra/local/aws/rpc"
)

// Identity is a role session and the credentials it acts with.
type Identity struct {
	AccessKeyID  string
	Secret       string
	SessionToken string // empty for a long-lived key
	RoleARN      string // arn:aws:iam::ACCOUNT:role/NAME
	SessionName  string // the access key id when empty
}

// ARN returns what STS calls the caller: arn:aws:sts::ACCOUNT:assumed-role/NAME/SESSION.
func (i Identity) ARN() string {
	account, role := i.split()
	return "arn:aws:sts::" + account + ":assumed-role/" + role + "/" + i.SessionName
}

// Account returns the account of the role.
func (i Identity) Account() string {
	account, _ := i.split()
	return account
}

// UserID returns the role's unique id and the session name.
func (i Identity) UserID() string { return i.RoleID() + ":" + i.SessionName }

// RoleID returns a unique id of the role, the same each time.
func (i Identity) RoleID() string {
	_, role := i.split()
	return RoleID(role)
}

func (i Identity) split() (account, role string) {
	part := strings.SplitN(i.RoleARN, ":", 6)
	if len(part) != 6 {
		return "", ""
	}
	return part[4], part[5][strings.LastIndexByte(part[5], '/')+1:]
}

// Service knows the identities. Safe for concurrent use.
type Service struct {
	region string
	hosts  map[string]bool

	mu         sync.RWMutex
	identities map[string]Identity
}

// New returns a service without identities. Besides the two hosts that STS has for the region, presigned requests may
// name one of hosts, each with its port: the local stack's own endpoint.
func New(region string, hosts ...string) *Service {
	s := &Service{region: region, identities: map[string]Identity{}, hosts: map[string]bool{
		"sts.amazonaws.com":                true,
		"sts." + region + ".amazonaws.com": true,
	}}
	for _, host := range hosts {
		s.hosts[host] = true
	}
	return s
}

// Register adds identities, or replaces those of the same access key id.
func (s *Service) Register(identities ...Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range identities {
		if i.SessionName == "" {
			i.SessionName = i.AccessKeyID
		}
		s.identities[i.AccessKeyID] = i
	}
}

// Identity returns the identity of an access key id.
func (s *Service) Identity(accessKeyID string) (Identity, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, ok := s.identities[accessKeyID]
	return i, ok
}

// Handler serves STS over the query protocol.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return rpc.Query(rpc.Service{
		Name:    "sts",
		Errors:  sts.TypeRegistry,
		Status:  map[string]int{"InvalidClientTokenId": http.StatusForbidden, "AccessDenied": http.StatusForbidden},
		Hooks:   h,
		Actions: map[string]rpc.Action{"GetCallerIdentity": rpc.Bind(s.GetCallerIdentity)},
	}, "https://sts.amazonaws.com/doc/2011-06-15/")
}

// GetCallerIdentity says who signed the request.
func (s *Service) GetCallerIdentity(ctx context.Context, _ *sts.GetCallerIdentityInput, _ ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error) {
	i, ok := s.Identity(rpc.AccessKeyID(ctx))
	if !ok {
		return nil, rpc.Errorf("InvalidClientTokenId", "The security token included in the request is invalid.")
	}
	return &sts.GetCallerIdentityOutput{Account: aws.String(i.Account()), Arn: aws.String(i.ARN()), UserId: aws.String(i.UserID())}, nil
}
