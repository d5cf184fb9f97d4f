package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/aws/smithy-go"
)

// Query serves the query protocol: a form in, XML in the given namespace out.
func Query(s Service, namespace string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		if err := r.ParseForm(); err != nil {
			s.writeXMLError(w, Errorf("MalformedInput", "the form does not parse: %v", err))
			return
		}
		action := r.Form.Get("Action")
		out, err := s.do(r, action, func(in any) error {
			return decoder{text: true}.set(reflect.ValueOf(in).Elem(), formTree(r.Form), "")
		})
		if err != nil {
			s.writeXMLError(w, err)
			return
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "<%sResponse xmlns=%q><%[1]sResult>", action, namespace)
		writeXML(&b, reflect.ValueOf(out))
		fmt.Fprintf(&b, "</%sResult><ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata></%[1]sResponse>",
			action, NewID())
		_, _ = w.Write(b.Bytes()) // the caller may have gone, which is its own affair
	})
}

// formTree turns dotted keys into nested maps. What belongs to the protocol or to a signature is left out.
func formTree(form url.Values) map[string]any {
	tree := map[string]any{}
	for key, values := range form {
		if key == "Action" || key == "Version" || strings.HasPrefix(key, "X-Amz-") {
			continue
		}
		at := tree
		path := strings.Split(key, ".")
		for _, name := range path[:len(path)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		at[path[len(path)-1]] = values[0]
	}
	return tree
}

// writeXML writes the content of v, without an element around it.
func writeXML(b *bytes.Buffer, v reflect.Value) {
	if v.Type() == timeType {
		b.WriteString(v.Interface().(time.Time).UTC().Format(time.RFC3339))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			writeXML(b, v.Elem())
		}
	case reflect.Struct:
		for field, value := range members(v) {
			writeElement(b, field.Name, value)
		}
	case reflect.Slice:
		if v.Type() == bytesType {
			b.WriteString(base64.StdEncoding.EncodeToString(v.Bytes()))
			return
		}
		for i := range v.Len() {
			writeElement(b, "member", v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			b.WriteString("<entry>")
			writeElement(b, "key", it.Key())
			writeElement(b, "value", it.Value())
			b.WriteString("</entry>")
		}
	default:
		_ = xml.EscapeText(b, fmt.Append(nil, v.Interface())) // a buffer takes everything
	}
}

func writeElement(b *bytes.Buffer, name string, v reflect.Value) {
	b.WriteString("<" + name + ">")
	writeXML(b, v)
	b.WriteString("</" + name + ">")
}

func (s *Service) writeXMLError(w http.ResponseWriter, err error) {
	status, queryError := s.status(err)
	name, _, _ := strings.Cut(queryError, ";") // models name some errors otherwise than this protocol does
	if name == unknownOperation {
		name = "InvalidAction"
	}
	message, sender := err.Error(), "Sender"
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		message = api.ErrorMessage()
	}
	if status >= http.StatusInternalServerError {
		sender = "Receiver"
	}
	var b bytes.Buffer
	b.WriteString("<ErrorResponse><Error><Type>" + sender + "</Type>")
	writeElement(&b, "Code", reflect.ValueOf(name))
	writeElement(&b, "Message", reflect.ValueOf(message))
	b.WriteString("</Error><RequestId>" + NewID() + "</RequestId></ErrorResponse>")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the caller may have gone, which is its own affair
}
