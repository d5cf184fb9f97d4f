package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"reflect"
	"strconv"
	"time"
)

const namespace = "http://ec2.amazonaws.com/doc/2016-11-15/"

// Encode returns the XML answer to action for out, a pointer to an SDK output struct. Nil members are left out; an empty list
// that is not nil is an empty element, as EC2 writes it.
func Encode(action, requestID string, out any) []byte {
	var b bytes.Buffer
	b.WriteString(xml.Header)
	b.WriteString("<" + action + `Response xmlns="` + namespace + `">`)
	element(&b, "requestId", "item", reflect.ValueOf(requestID))
	structure(&b, reflect.ValueOf(out).Elem())
	b.WriteString("</" + action + "Response>")
	return b.Bytes()
}

func structure(b *bytes.Buffer, v reflect.Value) {
	for i, m := range members(v.Type()) {
		if m.name != "" {
			element(b, m.element, m.item, v.Field(i))
		}
	}
}

func element(b *bytes.Buffer, name, item string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		v = v.Elem()
	case reflect.Slice:
		if v.IsNil() {
			return
		}
	case reflect.String:
		if v.Len() == 0 { // an enumeration that is not set
			return
		}
	}
	b.WriteByte('<')
	b.WriteString(name)
	b.WriteByte('>')
	switch {
	case v.Type() == timeType:
		b.WriteString(v.Interface().(time.Time).UTC().Format("2006-01-02T15:04:05.000Z"))
	case v.Type() == bytesType:
		b.WriteString(base64.StdEncoding.EncodeToString(v.Bytes()))
	case v.Kind() == reflect.Struct:
		structure(b, v)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			element(b, item, "item", v.Index(i))
		}
	default:
		text(b, v)
	}
	b.WriteString("</")
	b.WriteString(name)
	b.WriteByte('>')
}

func text(b *bytes.Buffer, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Float64:
		b.WriteString(strconv.FormatFloat(v.Float(), 'f', -1, 64))
	default:
		// A bytes.Buffer does not fail, so neither does this.
		_ = xml.EscapeText(b, []byte(v.String()))
	}
}
