package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	fieldManager = "treadle"
	kindCRD      = "CustomResourceDefinition"
	// discoveryMime asks for all resources of all groups in one answer.
	discoveryMime = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	// A new custom resource is served a moment after its definition was written.
	establishedWithin = 20 * time.Second
	establishedPoll   = 100 * time.Millisecond
)

// manifest is one document of a YAML file.
type manifest struct {
	typeMeta
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	body []byte // JSON
}

func (m *manifest) String() string { return m.Kind + " " + m.Metadata.Name }

// Apply writes every document of a YAML file by server-side apply, in their order, and takes over fields that others own. A
// CustomResourceDefinition is waited for, so that objects of its kind may follow. Applying the same file again changes nothing.
func (c *Client) Apply(ctx context.Context, file []byte) error {
	docs, err := manifests(file)
	if err != nil {
		return err
	}
	served, err := c.discover(ctx)
	if err != nil {
		return err
	}
	defined := false // a definition was applied, so new kinds are on their way
	for _, m := range docs {
		path, err := served.path(m)
		if errors.Is(err, errUnserved) && defined {
			path, err = c.await(ctx, m)
		}
		if err != nil {
			return fmt.Errorf("apply %s: %w", m, err)
		}
		r := request{
			method: http.MethodPatch, path: path, contentType: mimeApply, body: m.body,
			query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}},
		}
		if err := c.do(ctx, r, nil, nil); err != nil {
			return fmt.Errorf("apply %s: %w", m, err)
		}
		if m.Kind == kindCRD {
			if err := c.established(ctx, path); err != nil {
				return fmt.Errorf("apply %s: %w", m, err)
			}
			defined = true
		}
	}
	return nil
}

// Delete deletes every object of a YAML file, the last document first. What is gone already, or of a kind that the API does not have
// any more, counts as deleted. It does not wait for finalizers.
func (c *Client) Delete(ctx context.Context, file []byte) error {
	docs, err := manifests(file)
	if err != nil {
		return err
	}
	served, err := c.discover(ctx)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(docs) {
		path, err := served.path(m)
		if errors.Is(err, errUnserved) {
			continue
		}
		if err == nil {
			err = c.do(ctx, request{method: http.MethodDelete, path: path}, document{"propagationPolicy": "Background"}, nil)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("delete %s: %w", m, err)
		}
	}
	return nil
}

// StripFinalizers takes the finalizers with the given names off every Node, NodeClaim, NodePool and EC2NodeClass, so that nothing waits for
// Treadle once it is gone. It returns the number of objects changed; it goes on after an error.
func (c *Client) StripFinalizers(ctx context.Context, finalizers ...string) (int, error) {
	var (
		changed int
		errs    []error
	)
	for _, collection := range []string{"/api/v1/nodes", claimsPath, poolsPath, classesPath} {
		n, err := c.stripAll(ctx, collection, finalizers)
		changed += n
		if !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return changed, errors.Join(errs...)
}

func (c *Client) stripAll(ctx context.Context, collection string, finalizers []string) (int, error) {
	var list struct {
		Items []metaOnly `json:"items"`
	}
	if err := c.do(ctx, request{method: http.MethodGet, path: collection, accept: metadataMime}, nil, &list); err != nil {
		return 0, err
	}
	var (
		changed int
		errs    []error
	)
	for _, item := range list.Items {
		m := item.Metadata
		kept := slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return slices.Contains(finalizers, f) })
		sent, err := c.patch(ctx, target{collection + "/" + m.Name, m.UID, m.ResourceVersion},
			ownMeta(nil, nil, m.Finalizers), ownMeta(nil, nil, kept), nil)
		if sent {
			changed++
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, fmt.Errorf("strip finalizers of %s: %w", m.Name, err))
		}
	}
	return changed, errors.Join(errs...)
}

// metadataMime asks for the metadata of objects only.
const metadataMime = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// established waits until a custom resource is served.
func (c *Client) established(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, establishedWithin)
	defer cancel()
	for {
		var crd struct {
			Status struct {
				Conditions []struct{ Type, Status string } `json:"conditions"`
			} `json:"status"`
		}
		if err := c.do(ctx, request{method: http.MethodGet, path: path}, nil, &crd); err != nil {
			return err
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == "Established" && cond.Status == "True" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not established: %w", ctx.Err())
		case <-time.After(establishedPoll):
		}
	}
}

// await asks what the API serves until it serves the kind of m, and returns the path of m.
func (c *Client) await(ctx context.Context, m *manifest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, establishedWithin)
	defer cancel()
	for {
		served, err := c.discover(ctx)
		if err != nil {
			return "", err
		}
		path, err := served.path(m)
		if !errors.Is(err, errUnserved) {
			return path, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(establishedPoll):
		}
	}
}

// manifests splits a YAML file into its documents; empty ones are skipped.
func manifests(file []byte) ([]*manifest, error) {
	var out []*manifest
	for i, doc := range splitYAML(file) {
		body, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w: %w", i+1, ErrInvalid, err)
		}
		if string(body) == "null" {
			continue
		}
		m := &manifest{body: body}
		if err := json.Unmarshal(body, m); err != nil {
			return nil, fmt.Errorf("document %d: %w: %w", i+1, ErrInvalid, err)
		}
		if m.APIVersion == "" || m.Kind == "" || m.Metadata.Name == "" {
			return nil, fmt.Errorf("document %d: %w: no apiVersion, kind or name", i+1, ErrInvalid)
		}
		out = append(out, m)
	}
	return out, nil
}

// splitYAML cuts at the lines that separate documents.
func splitYAML(file []byte) [][]byte {
	var (
		out  [][]byte
		from int
	)
	for at := 0; at < len(file); {
		end := len(file)
		if n := bytes.IndexByte(file[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		line := bytes.TrimRight(file[at:end], " \t\r\n")
		if bytes.Equal(line, []byte("---")) || bytes.HasPrefix(line, []byte("--- ")) {
			out = append(out, file[from:at])
			from = at + len("---")
		}
		at = end
	}
	return append(out, file[from:])
}

// errUnserved says that the API has no such kind.
var errUnserved = errors.New("kind is not served")

// serving maps "group/version Kind" to how the API serves it.
type serving map[string]served

type served struct {
	prefix     string // /api/v1 or /apis/GROUP/VERSION
	plural     string
	namespaced bool
}

func (s serving) path(m *manifest) (string, error) {
	k, ok := s[m.APIVersion+" "+m.Kind]
	if !ok {
		return "", fmt.Errorf("%s %s: %w", m.APIVersion, m.Kind, errUnserved)
	}
	path := k.prefix
	if k.namespaced {
		path += "/namespaces/" + url.PathEscape(orElse(m.Metadata.Namespace, "default"))
	}
	return path + "/" + k.plural + "/" + url.PathEscape(m.Metadata.Name), nil
}

// discover asks what the API serves.
func (c *Client) discover(ctx context.Context) (serving, error) {
	out := serving{}
	for _, root := range []string{"/api", "/apis"} {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Versions []struct {
					Version   string
					Resources []struct {
						Resource     string
						ResponseKind struct{ Kind string }
						Scope        string
					}
				}
			}
		}
		if err := c.do(ctx, request{method: http.MethodGet, path: root, accept: discoveryMime}, nil, &list); err != nil {
			return nil, fmt.Errorf("discover cluster %s: %w", c.cluster, err)
		}
		for _, group := range list.Items {
			for _, v := range group.Versions {
				name := strings.TrimPrefix(group.Metadata.Name+"/"+v.Version, "/")
				for _, r := range v.Resources {
					out[name+" "+r.ResponseKind.Kind] = served{root + "/" + name, r.Resource, r.Scope == "Namespaced"}
				}
			}
		}
	}
	return out, nil
}
