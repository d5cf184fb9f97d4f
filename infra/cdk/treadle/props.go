package treadle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"treadle/infra/deployment"
)

// Props says what to deploy. The zero value serves no cluster.
type Props struct {
	// Clusters are the EKS clusters of the account and region that are served.
	Clusters []Cluster `json:"clusters,omitempty"`
	// Build is the folder with the functions, as `make build ARCH=arm64` leaves it: NAME/bootstrap. Default: build.
	Build string `json:"build,omitempty"`
	// Architecture is that of the functions: arm64, the default, or x86_64.
	Architecture string `json:"architecture,omitempty"`
	// NodeRoles are the ARNs of the roles that nodes may be given; "*" stands for a part of a name. Default: the account's roles whose
	// names start with KarpenterNodeRole-.
	NodeRoles []string `json:"nodeRoles,omitempty"`
	// ImageParameters are ARNs of SSM parameters that EC2NodeClasses name, beside the public ones of AWS.
	ImageParameters []string `json:"imageParameters,omitempty"`
	// SpotToSpotConsolidation, NodeRepair, CapacityBuffer and NodeOverlay are Karpenter's feature gates of those names.
	SpotToSpotConsolidation bool `json:"spotToSpotConsolidation,omitempty"`
	NodeRepair              bool `json:"nodeRepair,omitempty"`
	CapacityBuffer          bool `json:"capacityBuffer,omitempty"`
	NodeOverlay             bool `json:"nodeOverlay,omitempty"`
	// LogRetentionDays is how long logs are kept: a number of days that CloudWatch knows. Default: 30.
	LogRetentionDays float64 `json:"logRetentionDays,omitempty"`
	// KMSKeyARN encrypts the bucket, the table and the queues with a key of yours; default: AWS's own. Its policy has to let
	// events.amazonaws.com use kms:Decrypt and kms:GenerateDataKey, or EventBridge cannot deliver notices.
	KMSKeyARN string `json:"kmsKeyARN,omitempty"`
	// WebhookConcurrency reserves, and so bounds, how many calls of the webhook are answered at once: what a stranger can run up. Zero: no
	// bound but the account's, which may be too small to reserve from.
	WebhookConcurrency float64 `json:"webhookConcurrency,omitempty"`
	// VPC has the functions that talk to clusters run in subnets of yours, for clusters whose endpoint is private.
	VPC *VPC `json:"vpc,omitempty"`
	// PermissionsBoundary is the ARN of a policy, RolePath a path such as "/platform/", for every role.
	PermissionsBoundary string `json:"permissionsBoundary,omitempty"`
	RolePath            string `json:"rolePath,omitempty"`
	// AlarmTopicARN is the SNS topic that alarms go to; empty: they only show.
	AlarmTopicARN string `json:"alarmTopicARN,omitempty"`
	// Tags go on everything that can be tagged.
	Tags map[string]string `json:"tags,omitempty"`
}

// Cluster is an EKS cluster with access entries (authentication mode API or API_AND_CONFIG_MAP).
type Cluster struct {
	Name string `json:"name"`
}

// VPC is where functions run.
type VPC struct {
	SubnetIDs        []string `json:"subnetIDs"`
	SecurityGroupIDs []string `json:"securityGroupIDs"`
}

// Decode reads Props from JSON, nothing but a null or an object. A field that is not known is an error.
func Decode(body []byte, props *Props) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(props); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

var (
	clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	arn         = regexp.MustCompile(`^arn:[a-z-]+:[a-z0-9-]+:`)
)

// complete fills in what is not given and says everything that is wrong.
func (p *Props) complete() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	seen := map[string]bool{}
	for i, c := range p.Clusters {
		if !clusterName.MatchString(c.Name) {
			wrong(fmt.Sprintf("clusters[%d].name", i), "%q is no name of an EKS cluster", c.Name)
		}
		if seen[c.Name] {
			wrong(fmt.Sprintf("clusters[%d].name", i), "%q is there twice", c.Name)
		}
		seen[c.Name] = true
	}
	switch p.Architecture {
	case "":
		p.Architecture = "arm64"
	case "arm64", "x86_64":
	default:
		wrong("architecture", "%q is neither arm64 nor x86_64", p.Architecture)
	}
	for field, values := range map[string][]string{
		"nodeRoles": p.NodeRoles, "imageParameters": p.ImageParameters, "kmsKeyARN": some(p.KMSKeyARN),
		"permissionsBoundary": some(p.PermissionsBoundary), "alarmTopicARN": some(p.AlarmTopicARN),
	} {
		for _, v := range values {
			if !arn.MatchString(v) {
				wrong(field, "%q is no ARN", v)
			}
		}
	}
	if p.RolePath != "" && (p.RolePath[0] != '/' || p.RolePath[len(p.RolePath)-1] != '/') {
		wrong("rolePath", "%q does not start and end with a slash", p.RolePath)
	}
	if p.VPC != nil && (len(p.VPC.SubnetIDs) == 0 || len(p.VPC.SecurityGroupIDs) == 0) {
		wrong("vpc", "needs subnetIDs and securityGroupIDs")
	}
	if p.LogRetentionDays == 0 {
		p.LogRetentionDays = 30
	}
	if p.Build == "" {
		p.Build = "build"
	}
	for _, f := range deployment.Functions() {
		if _, err := os.Stat(filepath.Join(p.Build, f.Name, "bootstrap")); err != nil {
			wrong("build", "function %s is not there; run make build ARCH=arm64 first (%w)", f.Name, err)
		}
	}
	return errors.Join(errs...)
}

func some(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// gate is a switch, as the functions that have it know it.
type gate struct {
	name string
	on   bool
	of   []string
}

func (p *Props) gates() []gate {
	return []gate{
		{"NODE_REPAIR", p.NodeRepair, []string{"lifecycle"}},
		{"SPOT_TO_SPOT_CONSOLIDATION", p.SpotToSpotConsolidation, []string{"disruption"}},
		{"CAPACITY_BUFFER", p.CapacityBuffer, []string{"provision", "lifecycle", "disruption", "sweep"}},
		{"NODE_OVERLAY", p.NodeOverlay, []string{"provision", "disruption"}},
	}
}
