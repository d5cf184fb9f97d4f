package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"treadle/infra/deployment"
)

// rights holds the calls that functions have made against what the table of functions lets them do.
func (s *scene) rights(t *testing.T) {
	t.Helper()
	allowed := map[string]bool{}
	for _, f := range deployment.Functions() {
		if len(f.Wakes) > 0 || f.Quarantines {
			allowed[f.Name+" sqs:SendMessage"] = true
		}
		for _, r := range f.Rights {
			for _, action := range r.Actions {
				allowed[f.Name+" "+action] = true
			}
		}
	}
	seen := map[string]bool{}
	for _, c := range s.Calls.Calls() {
		seen[c.AccessKeyID+" "+action(c.Service, c.Action)] = true
	}
	for _, c := range s.EC2.Calls().Calls() {
		seen[c.AccessKeyID+" "+action(c.Service, c.Action)] = true
	}
	functions := 0
	for call := range seen {
		key, action, _ := strings.Cut(call, " ")
		name, isFunction := strings.CutPrefix(key, "ASIA")
		if isFunction && action != "" {
			functions++
			assert.True(t, allowed[strings.ToLower(name)+" "+action], "function %s calls %s, for which the table gives it no right", strings.ToLower(name), action)
		}
	}
	assert.Positive(t, functions, "calls are logged by their caller")
}

// action returns the action of IAM that a call needs, "" for one that needs none.
func action(service, name string) string {
	switch {
	case service == "sts":
		return ""
	case service == "s3" && strings.HasPrefix(name, "ListObjects"):
		return "s3:ListBucket"
	case service == "api.pricing":
		return "pricing:" + name
	default:
		return service + ":" + name
	}
}
