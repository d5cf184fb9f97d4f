package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
)

// document is a JSON object as data.
type document = map[string]any

// asDocument turns a value into what its JSON says. The values here are this package's own wire structs, which always encode.
func asDocument(v any) document {
	var d document
	if err := json.Unmarshal(encode(v), &d); err != nil {
		panic("kube: decode own JSON: " + err.Error())
	}
	return d
}

// difference is the merge patch (RFC 7386) that makes next out of old; nil where they are equal. A list is replaced as a
// whole, which lists reports: the writer then has to be sure that nobody else changed it.
func difference(old, next document) (patch document, lists bool) {
	set := func(key string, v any) {
		if patch == nil {
			patch = document{}
		}
		patch[key] = v
	}
	for key, was := range old {
		if is, stays := next[key]; stays {
			if !reflect.DeepEqual(was, is) {
				one, list := change(was, is)
				lists = lists || list
				set(key, one)
			}
			continue
		}
		// An object goes field by field, so that fields of others in it stay.
		gone, list := change(was, nil)
		lists = lists || list
		set(key, gone)
	}
	for key, is := range next {
		if _, had := old[key]; !had {
			_, list := is.([]any)
			lists = lists || list
			set(key, is)
		}
	}
	return patch, lists
}

// change is the part of a merge patch that turns one value into another; nil takes the value out.
func change(was, is any) (patch any, lists bool) {
	from, fromObject := was.(document)
	to, toObject := is.(document)
	if fromObject && (toObject || is == nil) {
		return difference(from, to)
	}
	_, wasList := was.([]any)
	_, isList := is.([]any)
	return is, wasList || isList
}

// target is the object that a patch is for.
type target struct {
	path    string
	uid     string
	version string // "" where a change of lists is safe without it
}

// patch sends the difference between two wire values and reads the answer into out, if that is not nil. It makes no call,
// and reports so, where there is none. The object must still be the one with target's UID and, where a list changes, have
// target's version: ErrConflict otherwise.
func (c *Client) patch(ctx context.Context, t target, old, next, out any) (sent bool, err error) {
	diff, lists := difference(asDocument(old), asDocument(next))
	if diff == nil {
		return false, nil
	}
	meta, ok := diff["metadata"].(document)
	if !ok {
		meta = map[string]any{}
	}
	if t.uid != "" {
		meta["uid"] = t.uid
	}
	if lists && t.version != "" {
		meta["resourceVersion"] = t.version
	}
	if len(meta) > 0 {
		diff["metadata"] = meta
	}
	r := request{method: http.MethodPatch, path: t.path, contentType: mimeMergePatch}
	if err := c.do(ctx, r, diff, out); err != nil {
		return false, err
	}
	return true, nil
}

// remove deletes an object. It must still be the one with the given UID, if that is not empty: ErrConflict otherwise.
func (c *Client) remove(ctx context.Context, path, uid string, graceSeconds *int64) error {
	options := document{"apiVersion": "v1", "kind": "DeleteOptions"}
	if uid != "" {
		options["preconditions"] = document{"uid": uid}
	}
	if graceSeconds != nil {
		options["gracePeriodSeconds"] = *graceSeconds
	}
	return c.do(ctx, request{method: http.MethodDelete, path: path}, options, nil)
}

func wrap(err error, verb, kind, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: %w", verb, kind, name, err)
}

// encode writes one of the nouns as JSON, which cannot fail: they hold no channels, functions or cycles.
func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic("kube: encode a noun: " + err.Error())
	}
	return out
}
