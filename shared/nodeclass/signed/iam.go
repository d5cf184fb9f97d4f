package signed

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"treadle/shared/nodeclass"
)

// EnsureProfile makes an instance profile, or finds it, and puts its role in. A profile that is made for a role that does not
// exist is taken back, because it would be in the way of nothing but a quota (C-080).
func (c *Client) EnsureProfile(ctx context.Context, p nodeclass.Profile) error {
	form := url.Values{"InstanceProfileName": {p.Name}, "Path": {p.Path}}
	for i, key := range slices.Sorted(maps.Keys(p.Tags)) {
		member := "Tags.member." + strconv.Itoa(i+1)
		form.Set(member+".Key", key)
		form.Set(member+".Value", p.Tags[key])
	}
	_, err := c.iam(ctx, "CreateInstanceProfile", form)
	made := err == nil
	if err != nil && !hasCode(err, "EntityAlreadyExists") {
		return fmt.Errorf("create instance profile %s: %w", p.Name, err)
	}
	if !made {
		roles, err := c.roles(ctx, p.Name)
		if err != nil {
			return err
		}
		if slices.Equal(roles, []string{p.Role}) {
			return nil
		}
		if err := c.removeRoles(ctx, p.Name, roles); err != nil {
			return err
		}
	}
	_, err = c.iam(ctx, "AddRoleToInstanceProfile", url.Values{"InstanceProfileName": {p.Name}, "RoleName": {p.Role}})
	if err != nil && made && errors.Is(err, nodeclass.ErrNotFound) {
		_, undo := c.iam(ctx, "DeleteInstanceProfile", url.Values{"InstanceProfileName": {p.Name}})
		err = errors.Join(err, undo)
	}
	if err != nil {
		return fmt.Errorf("add role %s to instance profile %s: %w", p.Role, p.Name, err)
	}
	return nil
}

// DeleteProfile takes the roles out of a profile and deletes it; no error if it is gone.
func (c *Client) DeleteProfile(ctx context.Context, name string) error {
	roles, err := c.roles(ctx, name)
	if err == nil {
		err = c.removeRoles(ctx, name, roles)
	}
	if err == nil {
		_, err = c.iam(ctx, "DeleteInstanceProfile", url.Values{"InstanceProfileName": {name}})
	}
	if err != nil && !errors.Is(err, nodeclass.ErrNotFound) {
		return fmt.Errorf("delete instance profile %s: %w", name, err)
	}
	return nil
}

// ListProfiles returns the names of the profiles under a path prefix.
func (c *Client) ListProfiles(ctx context.Context, pathPrefix string) ([]string, error) {
	var out []string
	form := url.Values{"PathPrefix": {pathPrefix}}
	for {
		body, err := c.iam(ctx, "ListInstanceProfiles", form)
		if err != nil {
			return nil, fmt.Errorf("list instance profiles under %s: %w", pathPrefix, err)
		}
		var page struct {
			Names  []string `xml:"ListInstanceProfilesResult>InstanceProfiles>member>InstanceProfileName"`
			More   bool     `xml:"ListInstanceProfilesResult>IsTruncated"`
			Marker string   `xml:"ListInstanceProfilesResult>Marker"`
		}
		if err := xml.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("list instance profiles under %s: %w", pathPrefix, err)
		}
		out = append(out, page.Names...)
		if !page.More {
			return out, nil
		}
		form.Set("Marker", page.Marker)
	}
}

func (c *Client) roles(ctx context.Context, profile string) ([]string, error) {
	body, err := c.iam(ctx, "GetInstanceProfile", url.Values{"InstanceProfileName": {profile}})
	if err != nil {
		return nil, fmt.Errorf("get instance profile %s: %w", profile, err)
	}
	var out struct {
		Roles []string `xml:"GetInstanceProfileResult>InstanceProfile>Roles>member>RoleName"`
	}
	if err := xml.Unmarshal(body, &out); err != nil {
		return nil, fmt.Errorf("get instance profile %s: %w", profile, err)
	}
	return out.Roles, nil
}

func (c *Client) removeRoles(ctx context.Context, profile string, roles []string) error {
	for _, role := range roles {
		_, err := c.iam(ctx, "RemoveRoleFromInstanceProfile", url.Values{"InstanceProfileName": {profile}, "RoleName": {role}})
		if err != nil && !errors.Is(err, nodeclass.ErrNotFound) {
			return fmt.Errorf("remove role %s from instance profile %s: %w", role, profile, err)
		}
	}
	return nil
}

func (c *Client) iam(ctx context.Context, action string, form url.Values) ([]byte, error) {
	form.Set("Action", action)
	form.Set("Version", "2010-05-08")
	host, region := iamPlace(c.cfg.Region)
	return c.do(ctx, call{
		service: "iam",
		region:  region,
		url:     c.endpoint(host),
		headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
		body:    form.Encode(),
		failure: xmlFailure,
	})
}

// iamPlace returns the host of IAM and the region that its calls are signed for: there is one of each in a partition.
func iamPlace(region string) (host, signingRegion string) {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "iam.cn-north-1.amazonaws.com.cn", "cn-north-1"
	case strings.HasPrefix(region, "us-gov-"):
		return "iam.us-gov.amazonaws.com", "us-gov-west-1"
	case strings.HasPrefix(region, "us-iso-"):
		return "iam.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"
	case strings.HasPrefix(region, "us-isob-"):
		return "iam.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1"
	default:
		return "iam.amazonaws.com", "us-east-1"
	}
}

func xmlFailure(_ http.Header, body []byte) (code, message string) {
	var out struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	if xml.Unmarshal(body, &out) != nil {
		return "", string(body)
	}
	return out.Code, out.Message
}

func hasCode(err error, code string) bool {
	var api interface{ ErrorCode() string }
	return errors.As(err, &api) && api.ErrorCode() == code
}
