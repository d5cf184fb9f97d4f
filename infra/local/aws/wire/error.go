package wire

import (
	"encoding/xml"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"
)

// Error is a refusal as EC2 answers it. It is a smithy.APIError, so code that matches on the SDK's errors sees the same codes
// from a fake called in process.
type Error struct {
	Code    string
	Message string
	Status  int // HTTP status; 0 is 400
}

var _ smithy.APIError = (*Error)(nil)

// Errorf returns an Error with status 400.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns the code and the message.
func (e *Error) Error() string { return "api error " + e.Code + ": " + e.Message }

// ErrorCode returns the code.
func (e *Error) ErrorCode() string { return e.Code }

// ErrorMessage returns the message.
func (e *Error) ErrorMessage() string { return e.Message }

// ErrorFault says whose fault the status speaks of.
func (e *Error) ErrorFault() smithy.ErrorFault {
	if e.Status >= http.StatusInternalServerError {
		return smithy.FaultServer
	}
	return smithy.FaultClient
}

// WriteTo answers a request with e.
func (e *Error) WriteTo(w http.ResponseWriter, requestID string) error {
	type body struct {
		XMLName   xml.Name `xml:"Response"`
		Code      string   `xml:"Errors>Error>Code"`
		Message   string   `xml:"Errors>Error>Message"`
		RequestID string   `xml:"RequestID"`
	}
	b, err := xml.Marshal(body{Code: e.Code, Message: e.Message, RequestID: requestID})
	if err != nil {
		return fmt.Errorf("encode error %s: %w", e.Code, err)
	}
	status := e.Status
	if status == 0 {
		status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, err = w.Write(append([]byte(xml.Header), b...))
	return err
}
