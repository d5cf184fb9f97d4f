package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
)

// input is what a target gets of an event: all of it, a constant, a part, or a template filled with parts.
func input(t types.Target, event []byte, ruleARN, ruleName string) ([]byte, error) {
	switch {
	case t.Input != nil:
		return []byte(*t.Input), nil
	case t.InputPath != nil:
		return part(event, *t.InputPath)
	case t.InputTransformer != nil:
		return transform(*t.InputTransformer, event, ruleARN, ruleName)
	}
	return event, nil
}

// part returns the value at a path such as $.detail.instance-id, as JSON; null where there is none.
func part(event []byte, path string) ([]byte, error) {
	rest, ok := strings.CutPrefix(path, "$")
	if !ok {
		return nil, fmt.Errorf("path %q does not begin with $", path)
	}
	at := json.RawMessage(event)
	for name := range strings.SplitSeq(strings.TrimPrefix(rest, "."), ".") {
		if name == "" {
			continue
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(at, &object) != nil || object[name] == nil {
			return []byte("null"), nil
		}
		at = object[name]
	}
	return at, nil
}

var placeholder = regexp.MustCompile(`<([A-Za-z0-9_.-]+)>`)

// transform fills a template. A value outside of quotes keeps its JSON; inside it loses its own quotes.
func transform(t types.InputTransformer, event []byte, ruleARN, ruleName string) ([]byte, error) {
	values := map[string][]byte{
		"aws.events.event":      event,
		"aws.events.event.json": event,
		"aws.events.rule-arn":   []byte(`"` + ruleARN + `"`),
		"aws.events.rule-name":  []byte(`"` + ruleName + `"`),
	}
	for name, path := range t.InputPathsMap {
		value, err := part(event, path)
		if err != nil {
			return nil, err
		}
		values[name] = value
	}
	template := []byte(aws.ToString(t.InputTemplate))
	var out bytes.Buffer
	last := 0
	for _, m := range placeholder.FindAllSubmatchIndex(template, -1) {
		value, ok := values[string(template[m[2]:m[3]])]
		if !ok {
			continue
		}
		out.Write(template[last:m[0]])
		if quoted(template[:m[0]]) {
			value = bytes.Trim(value, `"`)
		}
		out.Write(value)
		last = m[1]
	}
	out.Write(template[last:])
	return out.Bytes(), nil
}

// quoted reports whether a place in a template is within a JSON string.
func quoted(before []byte) bool {
	in := false
	for i, c := range before {
		if c == '"' && (i == 0 || before[i-1] != '\\') {
			in = !in
		}
	}
	return in
}
