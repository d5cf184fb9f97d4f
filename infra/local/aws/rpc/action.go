package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/traits"
)

// ErrLostReply, returned by a Fault, lets the call take effect and then drops the connection without an answer.
var ErrLostReply = errors.New("lost reply")

// unknownOperation is the code for an action that is not served, except in the query protocol.
const unknownOperation = "UnknownOperationException"

// Fault decides which calls fail.
type Fault interface {
	// Fault returns the error that the call must end with, or nil. ErrLostReply is special; any other error is sent in
	// the service's format, with its code if it is a smithy.APIError. Safe for concurrent use.
	Fault(service, action string) error
}

// Log keeps the calls that were made.
type Log interface {
	// Record is called once a call has ended. Safe for concurrent use.
	Record(Call)
}

// Call is one request that reached a service.
type Call struct {
	Time        time.Time // when the request arrived
	Service     string    // signing name, such as sqs
	Action      string    // such as SendMessage
	AccessKeyID string    // empty when the request was not signed
	Code        string    // error code, empty on success
}

// Hooks are what every front does around a call. Nil members do nothing.
type Hooks struct {
	Fault Fault
	Log   Log
}

// Service describes what a front serves.
type Service struct {
	Name    string               // signing name
	Actions map[string]Action    // by action name
	Errors  *smithy.TypeRegistry // the SDK's; gives errors their status. May be nil.
	Status  map[string]int       // HTTP status by error code, where the registry knows none
	Unions  Unions               // union types of the service's shapes
	Hooks   Hooks
}

// Action is one operation, detached from its types. Make it with Bind.
type Action struct {
	input func() any
	call  func(ctx context.Context, in any) (any, error)
}

// Bind makes an action of a method that has the signature of an SDK client's.
func Bind[I, O, F any](f func(context.Context, *I, ...F) (*O, error)) Action {
	return Action{
		input: func() any { return new(I) },
		call:  func(ctx context.Context, in any) (any, error) { return f(ctx, in.(*I)) },
	}
}

// Errorf makes a client error with a code that the SDK has no type for.
func Errorf(code, format string, args ...any) error {
	return &smithy.GenericAPIError{Code: code, Message: fmt.Sprintf(format, args...), Fault: smithy.FaultClient}
}

type keyIDContext struct{}

// WithAccessKeyID returns a context that says which key signed the request.
func WithAccessKeyID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, keyIDContext{}, id)
}

// AccessKeyID returns the access key id that signed the request, or "".
func AccessKeyID(ctx context.Context) string {
	id, _ := ctx.Value(keyIDContext{}).(string)
	return id
}

// Credential returns the access key id and the signing name from a request's SigV4 scope, wherever the signature is.
// Both are empty for a request that is not signed. The signature itself is not looked at.
func Credential(r *http.Request) (keyID, service string) {
	scope := r.URL.Query().Get("X-Amz-Credential")
	if _, after, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok {
		scope, _, _ = strings.Cut(after, ",")
	}
	part := strings.Split(strings.TrimSpace(scope), "/")
	if len(part) != 5 {
		return "", ""
	}
	return part[0], part[3]
}

// do runs one action with the hooks around it.
func (s *Service) do(r *http.Request, name string, decode func(in any) error) (any, error) {
	keyID, _ := Credential(r)
	return Around(s.Hooks, Call{Service: s.Name, Action: name, AccessKeyID: keyID}, func() (any, error) {
		action, ok := s.Actions[name]
		if !ok {
			return nil, Errorf(unknownOperation, "%s is not served here", name)
		}
		in := action.input()
		if err := decode(in); err != nil {
			return nil, err
		}
		return action.call(WithAccessKeyID(r.Context(), keyID), in)
	})
}

// Around runs f as the call c, with the hooks' fault and log. A lost reply ends the handler by panicking with
// http.ErrAbortHandler, as net/http wants it.
func Around(h Hooks, c Call, f func() (any, error)) (any, error) {
	c.Time = time.Now()
	lost := false
	var out any
	var err error
	if h.Fault != nil {
		err = h.Fault.Fault(c.Service, c.Action)
		if lost = errors.Is(err, ErrLostReply); lost {
			err = nil
		}
	}
	if err == nil {
		out, err = f()
	}
	if h.Log != nil {
		if err != nil {
			c.Code = code(err)
		} else if lost {
			c.Code = "LostReply"
		}
		h.Log.Record(c)
	}
	if lost {
		panic(http.ErrAbortHandler)
	}
	return out, err
}

func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return "InternalFailure"
}

// status returns the HTTP status of an error, and the code and sender that SQS's older protocol knew it by.
func (s *Service) status(err error) (status int, queryError string) {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return http.StatusInternalServerError, "InternalFailure;Receiver"
	}
	status, queryError = http.StatusBadRequest, api.ErrorCode()+";Sender"
	if api.ErrorFault() == smithy.FaultServer {
		status, queryError = http.StatusInternalServerError, api.ErrorCode()+";Receiver"
	}
	if n, ok := s.Status[api.ErrorCode()]; ok {
		return n, queryError
	}
	if s.Errors == nil {
		return status, queryError
	}
	entry, ok := s.Errors.LookupEntry(api.ErrorCode())
	if !ok {
		return status, queryError
	}
	if t, ok := smithy.SchemaTrait[*traits.HTTPError](entry.Schema); ok {
		status = t.Code
	}
	if t, ok := smithy.SchemaTrait[*traits.AWSQueryError](entry.Schema); ok {
		status, queryError = t.StatusCode, t.ErrorCode+";Sender"
	}
	return status, queryError
}
