package aws

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"treadle/infra/local/aws/rpc"
)

// targets is the signing name behind each prefix of X-Amz-Target.
var targets = map[string]string{
	"AmazonSQS":           "sqs",
	"AmazonSSM":           "ssm",
	"AWSEvents":           "events",
	"AWSPriceListService": "pricing",
	"DynamoDB_20120810":   "dynamodb",
}

// versions is the signing name behind each API version of the services that take forms.
var versions = map[string]string{
	"2016-11-15": "ec2",
	"2010-05-08": "iam",
	"2011-06-15": "sts",
}

// maxForm is how much of an unsigned request is read to find its version.
const maxForm = 1 << 20

// Router serves each request by the service that it is meant for. Services go by their signing name.
func Router(services map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := serviceOf(r)
		service, ok := services[name]
		if !ok {
			w.Header().Set("Content-Type", "text/xml")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>MissingAuthenticationToken</Code>"+
				"<Message>no service here for this request (%q)</Message></Error></ErrorResponse>", name)
			return
		}
		service.ServeHTTP(w, r)
	})
}

func serviceOf(r *http.Request) string {
	if prefix, _, ok := strings.Cut(r.Header.Get("X-Amz-Target"), "."); ok {
		return targets[prefix]
	}
	if _, name := rpc.Credential(r); name != "" {
		return name
	}
	form := r.URL.Query()
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		head, err := io.ReadAll(io.LimitReader(r.Body, maxForm))
		if err != nil {
			return ""
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
		if form, err = url.ParseQuery(string(head)); err != nil {
			return ""
		}
	}
	return versions[form.Get("Version")]
}
