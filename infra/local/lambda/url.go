package lambda

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"treadle/infra/local/aws/rpc"
)

// urlServer is the Function URL of one function.
type urlServer struct {
	f      *function
	url    string
	server *http.Server
}

// URL returns the Function URL of a function, with a slash at its end, and opens it on first use. It needs no
// authentication and has a port of its own; its certificate is signed by the service's authority.
func (s *Service) URL(name string) (string, error) {
	f, err := s.function(name)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return "", ErrStopped
	}
	if f.url == nil {
		if f.url, err = f.listen(); err != nil {
			return "", fmt.Errorf("open url of %s: %w", name, err)
		}
	}
	return f.url.url, nil
}

func (f *function) listen() (*urlServer, error) {
	cert, err := f.service.options.Authority.Server()
	if err != nil {
		return nil, err
	}
	addr := f.URLAddr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	u := &urlServer{f: f, url: "https://" + listener.Addr().String() + "/"}
	u.server = &http.Server{
		Handler:           u,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that go away during the handshake are no news
	}
	f.service.wait.Go(func() { _ = u.server.ServeTLS(listener, "", "") })
	return u, nil
}

func (u *urlServer) close() { _ = u.server.Close() }

// ServeHTTP turns the request into an event, runs the function, and turns its answer into the response.
func (u *urlServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	if err != nil {
		writeURLError(w, http.StatusBadRequest, "Bad Request")
		return
	}
	event, err := json.Marshal(u.event(r, body))
	if err != nil {
		writeURLError(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	result, err := u.f.service.Invoke(r.Context(), u.f.Name, event)
	switch {
	case errors.Is(err, ErrTooLarge):
		writeURLError(w, http.StatusRequestEntityTooLarge, "Request Entity Too Large")
	case errors.Is(err, ErrThrottled):
		writeURLError(w, http.StatusTooManyRequests, "Rate Exceeded.")
	case err != nil:
		writeURLError(w, http.StatusServiceUnavailable, "Service Unavailable")
	case result.FunctionError != "":
		writeURLError(w, http.StatusBadGateway, "Internal Server Error")
	default:
		respond(w, result.Payload)
	}
}

// event is the request in payload format 2.0.
func (u *urlServer) event(r *http.Request, body []byte) events.LambdaFunctionURLRequest {
	now := time.Now().UTC()
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	path := r.URL.EscapedPath()
	id := strings.ToLower(u.f.Name)
	event := events.LambdaFunctionURLRequest{
		Version:        "2.0",
		RawPath:        path,
		RawQueryString: r.URL.RawQuery,
		Headers:        map[string]string{"host": r.Host},
		RequestContext: events.LambdaFunctionURLRequestContext{
			AccountID:    "anonymous",
			RequestID:    rpc.NewID(),
			APIID:        id,
			DomainName:   r.Host,
			DomainPrefix: id,
			Time:         now.Format("02/Jan/2006:15:04:05 -0700"),
			TimeEpoch:    now.UnixMilli(),
			HTTP: events.LambdaFunctionURLRequestContextHTTPDescription{
				Method: r.Method, Path: path, Protocol: r.Proto, SourceIP: host, UserAgent: r.UserAgent(),
			},
		},
	}
	for name, values := range r.Header {
		if name == "Cookie" {
			for _, c := range r.Cookies() {
				event.Cookies = append(event.Cookies, c.Name+"="+c.Value)
			}
			continue
		}
		event.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	for name, values := range r.URL.Query() {
		if event.QueryStringParameters == nil {
			event.QueryStringParameters = map[string]string{}
		}
		event.QueryStringParameters[name] = strings.Join(values, ",")
	}
	event.Body, event.IsBase64Encoded = string(body), false
	if len(body) > 0 && (!isText(r.Header.Get("Content-Type")) || !utf8.Valid(body)) {
		event.Body, event.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return event
}

func isText(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	switch media {
	case "application/json", "application/javascript", "application/xml":
		return true
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}

// respond writes a function's answer: a response object if it has a status, else the answer itself as JSON.
func respond(w http.ResponseWriter, payload []byte) {
	var shape struct{ StatusCode json.RawMessage }
	if json.Unmarshal(payload, &shape) != nil || shape.StatusCode == nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(payload) // the client may have gone, which is its own affair
		return
	}
	var response events.LambdaFunctionURLResponse
	err := json.Unmarshal(payload, &response)
	body := []byte(response.Body)
	if err == nil && response.IsBase64Encoded {
		body, err = base64.StdEncoding.DecodeString(response.Body)
	}
	if err != nil || response.StatusCode < 200 || response.StatusCode > 599 {
		writeURLError(w, http.StatusBadGateway, "Internal Server Error")
		return
	}
	for name, value := range response.Headers {
		w.Header().Set(name, value)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	for _, cookie := range response.Cookies {
		w.Header().Add("Set-Cookie", cookie)
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(body) // the client may have gone, which is its own affair
}

func writeURLError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Message": message}) // as above
}
