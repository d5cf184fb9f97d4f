package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/aws/smithy-go"
)

// maxBody is above what any of the services takes, so that a request is refused by the service's own rule.
const maxBody = 16 << 20

// JSON serves AWS JSON 1.0 or 1.1. The action is what follows the dot in the header X-Amz-Target.
func JSON(s Service, version string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-"+version)
		prefix, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		out, err := s.do(r, action, func(in any) error {
			tree, err := readTree(r)
			if err != nil {
				return err
			}
			return decoder{unions: s.Unions}.set(reflect.ValueOf(in).Elem(), tree, "")
		})
		if err != nil {
			s.writeJSONError(w, prefix, err, encoder{})
			return
		}
		writeJSON(w, http.StatusOK, encoder{}.value(reflect.ValueOf(out)))
	})
}

// Route is one operation of a REST service.
type Route struct {
	Pattern string            // as http.ServeMux has it; names in braces are members of the input
	Action  string            // key of Service.Actions
	Query   map[string]string // query parameter → member of the input
}

// REST serves REST-JSON. Member names begin in lower case on the wire if lower is set.
func REST(s Service, lower bool, routes ...Route) http.Handler {
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			out, err := s.do(r, route.Action, func(in any) error {
				return s.decodeREST(r, route, reflect.ValueOf(in).Elem())
			})
			if err != nil {
				s.writeJSONError(w, "", err, encoder{lower: lower})
				return
			}
			writeJSON(w, http.StatusOK, encoder{lower: lower}.value(reflect.ValueOf(out)))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		err := Errorf(unknownOperation, "%s %s is not served here", r.Method, r.URL.Path)
		s.writeJSONError(w, "", err, encoder{lower: lower})
	})
	return mux
}

func (s *Service) decodeREST(r *http.Request, route Route, in reflect.Value) error {
	tree, err := readTree(r)
	if err != nil {
		return err
	}
	if err := (decoder{unions: s.Unions}).set(in, tree, ""); err != nil {
		return err
	}
	text := decoder{text: true}
	for _, part := range strings.Split(route.Pattern, "{")[1:] {
		name, _, _ := strings.Cut(part, "}")
		if err := text.set(in.FieldByName(upperFirst(name)), r.PathValue(name), name); err != nil {
			return err
		}
	}
	for param, values := range r.URL.Query() {
		field, ok := route.Query[param]
		if !ok {
			return unknown("", param)
		}
		into := in.FieldByName(field)
		if into.Kind() == reflect.Slice {
			for _, value := range values {
				into.Set(reflect.Append(into, reflect.ValueOf(value).Convert(into.Type().Elem())))
			}
			continue
		}
		if err := text.set(into, values[0], param); err != nil {
			return err
		}
	}
	return nil
}

func readTree(r *http.Request) (any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if len(body) > maxBody {
		return nil, Errorf("RequestEntityTooLarge", "the request is longer than %d bytes", maxBody)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return map[string]any{}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, Errorf("SerializationException", "the request is no JSON: %v", err)
	}
	return tree, nil
}

func writeJSON(w http.ResponseWriter, status int, tree any) {
	body, err := json.Marshal(tree)
	if err != nil {
		panic(fmt.Sprintf("encode an SDK type: %v", err))
	}
	w.Header().Set("X-Amzn-Requestid", NewID())
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may have gone, which is its own affair
}

func (s *Service) writeJSONError(w http.ResponseWriter, namespace string, err error, e encoder) {
	status, queryError := s.status(err)
	tree := map[string]any{}
	message := err.Error()
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		message = api.ErrorMessage()
		if v := reflect.ValueOf(api); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
			if _, generic := api.(*smithy.GenericAPIError); !generic {
				tree = e.fields(v.Elem())
			}
		}
	}
	// Models disagree on the case of this one member, and clients read it as their model has it.
	tree["message"], tree["Message"] = message, message
	tree["__type"] = code(err)
	if namespace != "" {
		tree["__type"] = "com.amazonaws." + strings.ToLower(namespace) + "#" + code(err)
	}
	w.Header().Set("X-Amzn-Errortype", code(err))
	w.Header().Set("X-Amzn-Query-Error", queryError)
	writeJSON(w, status, tree)
}
