package signed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Parameter returns the value of an SSM parameter by name or ARN.
func (c *Client) Parameter(ctx context.Context, name string) (string, error) {
	body, err := json.Marshal(map[string]string{"Name": name})
	if err != nil {
		return "", fmt.Errorf("get parameter %s: %w", name, err)
	}
	answer, err := c.do(ctx, call{
		service: "ssm",
		region:  c.cfg.Region,
		url:     c.endpoint("ssm." + c.cfg.Region + "." + suffix(c.cfg.Region)),
		headers: map[string]string{"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AmazonSSM.GetParameter"},
		body:    string(body),
		failure: jsonFailure,
	})
	if err != nil {
		return "", fmt.Errorf("get parameter %s: %w", name, err)
	}
	var out struct{ Parameter struct{ Value string } }
	if err := json.Unmarshal(answer, &out); err != nil {
		return "", fmt.Errorf("get parameter %s: %w", name, err)
	}
	return out.Parameter.Value, nil
}

func jsonFailure(header http.Header, body []byte) (code, message string) {
	var out struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &out) != nil {
		return "", string(body)
	}
	if out.Type == "" {
		out.Type = header.Get("X-Amzn-Errortype")
	}
	// The type may have a namespace before it and a URL behind it.
	code, _, _ = strings.Cut(out.Type[strings.LastIndex(out.Type, "#")+1:], ":")
	return code, out.Message
}
