package eks

import (
	"cmp"
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"treadle/infra/local/aws/rpc"
)

// Options say where a Service stands.
type Options struct {
	Region  string // us-east-1 when empty
	Account string // 123456789012 when empty
}

// Cluster is a running control plane.
type Cluster struct {
	Name        string
	Endpoint    string // https://…
	CA          []byte // PEM
	Version     string // such as 1.37
	ServiceCIDR string // 10.100.0.0/16 when empty
	VPCID       string
	SubnetIDs   []string
	// SecurityGroupID is the cluster's own security group.
	SecurityGroupID string
	Tags            map[string]string
}

// Service holds clusters and their access entries. Safe for concurrent use.
type Service struct {
	region, account string

	mu       sync.Mutex
	clusters map[string]*cluster
}

type cluster struct {
	described types.Cluster
	entries   map[string]*entry // by principal ARN
}

type entry struct {
	types.AccessEntry
	policies map[string]types.AssociatedAccessPolicy // by policy ARN
}

// New returns a service without clusters.
func New(o Options) *Service {
	return &Service{
		region:   cmp.Or(o.Region, "us-east-1"),
		account:  cmp.Or(o.Account, "123456789012"),
		clusters: map[string]*cluster{},
	}
}

// AddCluster makes a cluster known, or replaces the description of a known one and keeps its access entries.
func (s *Service) AddCluster(c Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.clusters[c.Name]
	if !ok {
		known = &cluster{entries: map[string]*entry{}}
		s.clusters[c.Name] = known
	}
	known.described = types.Cluster{
		Name:                 aws.String(c.Name),
		Arn:                  aws.String(s.clusterARN(c.Name)),
		Endpoint:             aws.String(c.Endpoint),
		Version:              aws.String(c.Version),
		PlatformVersion:      aws.String("eks.1"),
		Status:               types.ClusterStatusActive,
		CreatedAt:            aws.Time(time.Now()),
		CertificateAuthority: &types.Certificate{Data: aws.String(base64.StdEncoding.EncodeToString(c.CA))},
		AccessConfig:         &types.AccessConfigResponse{AuthenticationMode: types.AuthenticationModeApi},
		KubernetesNetworkConfig: &types.KubernetesNetworkConfigResponse{
			IpFamily:        types.IpFamilyIpv4,
			ServiceIpv4Cidr: aws.String(cmp.Or(c.ServiceCIDR, "10.100.0.0/16")),
		},
		ResourcesVpcConfig: &types.VpcConfigResponse{
			VpcId:                  aws.String(c.VPCID),
			SubnetIds:              c.SubnetIDs,
			ClusterSecurityGroupId: aws.String(c.SecurityGroupID),
			EndpointPublicAccess:   true,
			PublicAccessCidrs:      []string{"0.0.0.0/0"},
		},
		Tags: maps.Clone(c.Tags),
	}
}

func (s *Service) clusterARN(name string) string {
	return "arn:aws:eks:" + s.region + ":" + s.account + ":cluster/" + name
}

// Handler serves EKS over REST-JSON.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	page := map[string]string{"maxResults": "MaxResults", "nextToken": "NextToken"}
	return rpc.REST(rpc.Service{
		Name:   "eks",
		Errors: eks.TypeRegistry,
		Hooks:  h,
		Actions: map[string]rpc.Action{
			"AssociateAccessPolicy":        rpc.Bind(s.AssociateAccessPolicy),
			"CreateAccessEntry":            rpc.Bind(s.CreateAccessEntry),
			"DeleteAccessEntry":            rpc.Bind(s.DeleteAccessEntry),
			"DescribeAccessEntry":          rpc.Bind(s.DescribeAccessEntry),
			"DescribeCluster":              rpc.Bind(s.DescribeCluster),
			"DisassociateAccessPolicy":     rpc.Bind(s.DisassociateAccessPolicy),
			"ListAccessEntries":            rpc.Bind(s.ListAccessEntries),
			"ListAssociatedAccessPolicies": rpc.Bind(s.ListAssociatedAccessPolicies),
			"ListClusters":                 rpc.Bind(s.ListClusters),
		},
	}, true,
		rpc.Route{Pattern: "GET /clusters", Action: "ListClusters", Query: map[string]string{
			"maxResults": "MaxResults", "nextToken": "NextToken", "include": "Include"}},
		rpc.Route{Pattern: "GET /clusters/{name}", Action: "DescribeCluster"},
		rpc.Route{Pattern: "GET /clusters/{clusterName}/access-entries", Action: "ListAccessEntries", Query: map[string]string{
			"maxResults": "MaxResults", "nextToken": "NextToken", "associatedPolicyArn": "AssociatedPolicyArn"}},
		rpc.Route{Pattern: "POST /clusters/{clusterName}/access-entries", Action: "CreateAccessEntry"},
		rpc.Route{Pattern: "GET /clusters/{clusterName}/access-entries/{principalArn}", Action: "DescribeAccessEntry"},
		rpc.Route{Pattern: "DELETE /clusters/{clusterName}/access-entries/{principalArn}", Action: "DeleteAccessEntry"},
		rpc.Route{Pattern: "GET /clusters/{clusterName}/access-entries/{principalArn}/access-policies", Action: "ListAssociatedAccessPolicies", Query: page},
		rpc.Route{Pattern: "POST /clusters/{clusterName}/access-entries/{principalArn}/access-policies", Action: "AssociateAccessPolicy"},
		rpc.Route{Pattern: "DELETE /clusters/{clusterName}/access-entries/{principalArn}/access-policies/{policyArn}", Action: "DisassociateAccessPolicy"},
	)
}

// cluster returns a known cluster. The lock must be held.
func (s *Service) cluster(name *string) (*cluster, error) {
	c, ok := s.clusters[aws.ToString(name)]
	if !ok {
		return nil, notFound("No cluster found for name: " + aws.ToString(name) + ".")
	}
	return c, nil
}

func (s *Service) entry(clusterName, principal *string) (*cluster, *entry, error) {
	c, err := s.cluster(clusterName)
	if err != nil {
		return nil, nil, err
	}
	e, ok := c.entries[aws.ToString(principal)]
	if !ok {
		return nil, nil, notFound("The specified principalArn could not be found: " + aws.ToString(principal))
	}
	return c, e, nil
}

func notFound(message string) error {
	return &types.ResourceNotFoundException{Message: aws.String(message)}
}

func invalid(message string) error {
	return &types.InvalidParameterException{Message: aws.String(message)}
}

// ListClusters returns the names of the clusters. It never pages.
func (s *Service) ListClusters(context.Context, *eks.ListClustersInput, ...func(*eks.Options)) (*eks.ListClustersOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &eks.ListClustersOutput{Clusters: slices.Sorted(maps.Keys(s.clusters))}, nil
}

// DescribeCluster returns how to reach a cluster.
func (s *Service) DescribeCluster(_ context.Context, in *eks.DescribeClusterInput, _ ...func(*eks.Options)) (*eks.DescribeClusterOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.cluster(in.Name)
	if err != nil {
		return nil, err
	}
	described := c.described
	return &eks.DescribeClusterOutput{Cluster: &described}, nil
}

// CreateAccessEntry lets a principal into a cluster. Groups that begin with system: are refused, as EKS does.
func (s *Service) CreateAccessEntry(_ context.Context, in *eks.CreateAccessEntryInput, _ ...func(*eks.Options)) (*eks.CreateAccessEntryOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.cluster(in.ClusterName)
	if err != nil {
		return nil, err
	}
	principal := aws.ToString(in.PrincipalArn)
	part := strings.SplitN(principal, ":", 6)
	if len(part) != 6 || part[2] != "iam" {
		return nil, invalid("The principalArn parameter format is not valid")
	}
	for _, group := range in.KubernetesGroups {
		if strings.HasPrefix(group, "system:") {
			return nil, invalid("The kubernetes group name " + group + " is invalid, it cannot start with system:")
		}
	}
	if _, ok := c.entries[principal]; ok {
		return nil, &types.ResourceInUseException{Message: aws.String("The specified access entry resource is already in use on this cluster.")}
	}
	role := part[5][strings.LastIndexByte(part[5], '/')+1:]
	now := aws.Time(time.Now())
	e := &entry{policies: map[string]types.AssociatedAccessPolicy{}, AccessEntry: types.AccessEntry{
		AccessEntryArn:   aws.String("arn:aws:eks:" + s.region + ":" + s.account + ":access-entry/" + *in.ClusterName + "/role/" + s.account + "/" + role + "/" + rpc.NewID()),
		ClusterName:      in.ClusterName,
		PrincipalArn:     in.PrincipalArn,
		KubernetesGroups: slices.Clone(in.KubernetesGroups),
		Type:             aws.String(cmp.Or(aws.ToString(in.Type), "STANDARD")),
		Username:         aws.String(cmp.Or(aws.ToString(in.Username), "arn:aws:sts::"+part[4]+":assumed-role/"+role+"/{{SessionName}}")),
		Tags:             maps.Clone(in.Tags),
		CreatedAt:        now,
		ModifiedAt:       now,
	}}
	c.entries[principal] = e
	copied := e.AccessEntry
	return &eks.CreateAccessEntryOutput{AccessEntry: &copied}, nil
}

// DescribeAccessEntry returns an access entry.
func (s *Service) DescribeAccessEntry(_ context.Context, in *eks.DescribeAccessEntryInput, _ ...func(*eks.Options)) (*eks.DescribeAccessEntryOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, e, err := s.entry(in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	copied := e.AccessEntry
	return &eks.DescribeAccessEntryOutput{AccessEntry: &copied}, nil
}

// DeleteAccessEntry shuts a principal out of a cluster.
func (s *Service) DeleteAccessEntry(_ context.Context, in *eks.DeleteAccessEntryInput, _ ...func(*eks.Options)) (*eks.DeleteAccessEntryOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, _, err := s.entry(in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	delete(c.entries, *in.PrincipalArn)
	return &eks.DeleteAccessEntryOutput{}, nil
}

// ListAccessEntries returns the principals that have an entry. It never pages.
func (s *Service) ListAccessEntries(_ context.Context, in *eks.ListAccessEntriesInput, _ ...func(*eks.Options)) (*eks.ListAccessEntriesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.cluster(in.ClusterName)
	if err != nil {
		return nil, err
	}
	out := &eks.ListAccessEntriesOutput{AccessEntries: []string{}}
	for _, principal := range slices.Sorted(maps.Keys(c.entries)) {
		_, has := c.entries[principal].policies[aws.ToString(in.AssociatedPolicyArn)]
		if in.AssociatedPolicyArn == nil || has {
			out.AccessEntries = append(out.AccessEntries, principal)
		}
	}
	return out, nil
}

const policyPrefix = "arn:aws:eks::aws:cluster-access-policy/"

// AssociateAccessPolicy gives an entry one of EKS's policies.
func (s *Service) AssociateAccessPolicy(_ context.Context, in *eks.AssociateAccessPolicyInput, _ ...func(*eks.Options)) (*eks.AssociateAccessPolicyOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, e, err := s.entry(in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(aws.ToString(in.PolicyArn), policyPrefix) {
		return nil, invalid("The policyArn parameter format is not valid")
	}
	if in.AccessScope == nil {
		return nil, invalid("accessScope is required")
	}
	now := aws.Time(time.Now())
	policy := types.AssociatedAccessPolicy{PolicyArn: in.PolicyArn, AccessScope: in.AccessScope, AssociatedAt: now, ModifiedAt: now}
	e.policies[*in.PolicyArn] = policy
	return &eks.AssociateAccessPolicyOutput{ClusterName: in.ClusterName, PrincipalArn: in.PrincipalArn, AssociatedAccessPolicy: &policy}, nil
}

// DisassociateAccessPolicy takes a policy from an entry.
func (s *Service) DisassociateAccessPolicy(_ context.Context, in *eks.DisassociateAccessPolicyInput, _ ...func(*eks.Options)) (*eks.DisassociateAccessPolicyOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, e, err := s.entry(in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	if _, ok := e.policies[aws.ToString(in.PolicyArn)]; !ok {
		return nil, notFound("The specified policyArn could not be found: " + aws.ToString(in.PolicyArn))
	}
	delete(e.policies, *in.PolicyArn)
	return &eks.DisassociateAccessPolicyOutput{}, nil
}

// ListAssociatedAccessPolicies returns the policies of an entry. It never pages.
func (s *Service) ListAssociatedAccessPolicies(_ context.Context, in *eks.ListAssociatedAccessPoliciesInput, _ ...func(*eks.Options)) (*eks.ListAssociatedAccessPoliciesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, e, err := s.entry(in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	out := &eks.ListAssociatedAccessPoliciesOutput{ClusterName: in.ClusterName, PrincipalArn: in.PrincipalArn, AssociatedAccessPolicies: []types.AssociatedAccessPolicy{}}
	for _, arn := range slices.Sorted(maps.Keys(e.policies)) {
		out.AssociatedAccessPolicies = append(out.AssociatedAccessPolicies, e.policies[arn])
	}
	return out, nil
}
