package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Cluster is a cluster that Treadle serves, and how to reach it. It holds nothing secret: of the webhook's tokens it knows
// only their SHA-256.
type Cluster struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"` // https URL of the API server
	// CA is the certificate authority of the API server in PEM.
	CA string `json:"ca"`
	// Version is the Kubernetes version as "major.minor".
	Version string `json:"version"`
	// ServiceCIDR and DNSIP are what nodes are told about the cluster's network; DNSIP may be empty.
	ServiceCIDR string `json:"serviceCIDR"`
	DNSIP       string `json:"dnsIP,omitempty"`
	// WebhookTokenSHA256 lists the hex SHA-256 of every token that the webhook may carry now: two while one is rotated.
	WebhookTokenSHA256 []string `json:"webhookTokenSHA256,omitempty"`
}

const clusterPrefix = "clusters/"

// CatalogueKey is the object that holds the catalogue of instance types.
const CatalogueKey = "catalog/catalog.json.gz"

// EKS' rule for cluster names; it also keeps a name from leaving its folder in the bucket.
var clusterName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`)

// ValidClusterName reports whether name can be the name of an EKS cluster.
func ValidClusterName(name string) bool { return clusterName.MatchString(name) }

// HashToken returns the form in which a Cluster keeps a webhook token.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Cluster reads the configuration of the cluster called name. ErrNotFound: Treadle does not serve it.
func (b *Bucket) Cluster(ctx context.Context, name string) (Cluster, error) {
	if !ValidClusterName(name) {
		return Cluster{}, fmt.Errorf("cluster name %q: %w", name, ErrNotFound)
	}
	body, _, err := b.Get(ctx, clusterPrefix+name+".json", "")
	if err != nil {
		return Cluster{}, fmt.Errorf("configuration of cluster %q: %w", name, err)
	}
	c, err := decodeCluster(body)
	if err == nil && c.Name != name {
		err = fmt.Errorf("field name: is %q", c.Name)
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("configuration of cluster %q: %w", name, err)
	}
	return c, nil
}

// PutCluster writes the configuration of a cluster.
func (b *Bucket) PutCluster(ctx context.Context, c Cluster) error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("configuration of cluster %q: %w", c.Name, err)
	}
	body, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("configuration of cluster %q: %w", c.Name, err)
	}
	_, err = b.Put(ctx, clusterPrefix+c.Name+".json", body, "")
	return err
}

// DeleteCluster ends the service of a cluster; one that is not served is no error.
func (b *Bucket) DeleteCluster(ctx context.Context, name string) error {
	if !ValidClusterName(name) {
		return nil
	}
	return b.Delete(ctx, clusterPrefix+name+".json")
}

// Clusters returns the names of all clusters that Treadle serves, sorted.
func (b *Bucket) Clusters(ctx context.Context) ([]string, error) {
	keys, err := b.List(ctx, clusterPrefix)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, key := range keys {
		name := strings.TrimSuffix(strings.TrimPrefix(key, clusterPrefix), ".json")
		if ValidClusterName(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func decodeCluster(body []byte) (Cluster, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var c Cluster
	if err := dec.Decode(&c); err != nil {
		return Cluster{}, err
	}
	return c, c.validate()
}

func (c Cluster) validate() error {
	var errs []error
	if !ValidClusterName(c.Name) {
		errs = append(errs, fmt.Errorf("field name: %q is not the name of an EKS cluster", c.Name))
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "https" || u.Host == "" {
		errs = append(errs, fmt.Errorf("field endpoint: %q is not an https URL", c.Endpoint))
	}
	if !strings.Contains(c.CA, "BEGIN CERTIFICATE") {
		errs = append(errs, errors.New("field ca: no certificate in PEM"))
	}
	if !regexp.MustCompile(`^\d+\.\d+$`).MatchString(c.Version) {
		errs = append(errs, fmt.Errorf("field version: %q is not major.minor", c.Version))
	}
	for _, sum := range c.WebhookTokenSHA256 {
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			errs = append(errs, errors.New("field webhookTokenSHA256: an entry is not 64 hex digits"))
		}
	}
	return errors.Join(errs...)
}
