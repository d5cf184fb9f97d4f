package lambda

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// Handler serves Lambda's own Invoke call, for SDKs and the AWS CLI. Nothing else of Lambda's API is there: functions
// are deployed by Create.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", s.serveInvoke)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeAPIError(w, http.StatusNotFound, "UnknownOperationException", r.Method+" "+r.URL.Path+" is not served here")
	})
	return mux
}

func (s *Service) serveInvoke(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	if err != nil {
		writeAPIError(w, http.StatusBadRequest, "InvalidRequestContentException", err.Error())
		return
	}
	if len(payload) > maxPayload {
		writeAPIError(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", ErrTooLarge.Error())
		return
	}
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	if !json.Valid(payload) {
		writeAPIError(w, http.StatusBadRequest, "InvalidRequestContentException", "Could not parse request body into json")
		return
	}
	name := r.PathValue("name")
	var result Result
	status := http.StatusOK
	switch kind := r.Header.Get("X-Amz-Invocation-Type"); kind {
	case "", "RequestResponse":
		result, err = s.Invoke(r.Context(), name, payload)
	case "Event":
		status = http.StatusAccepted
		_, err = s.InvokeAsync(name, payload)
	case "DryRun":
		status = http.StatusNoContent
		_, err = s.function(name)
	default:
		writeAPIError(w, http.StatusBadRequest, "InvalidParameterValueException", "unknown invocation type "+kind)
		return
	}
	switch {
	case errors.Is(err, ErrNotFound):
		writeAPIError(w, http.StatusNotFound, "ResourceNotFoundException", "Function not found: "+name)
	case errors.Is(err, ErrThrottled):
		writeAPIError(w, http.StatusTooManyRequests, "TooManyRequestsException", "Rate Exceeded.")
	case errors.Is(err, ErrTooLarge):
		writeAPIError(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", err.Error())
	case err != nil:
		writeAPIError(w, http.StatusInternalServerError, "ServiceException", err.Error())
	default:
		w.Header().Set("X-Amz-Executed-Version", "$LATEST")
		if result.FunctionError != "" {
			w.Header().Set("X-Amz-Function-Error", result.FunctionError)
		}
		w.WriteHeader(status)
		_, _ = w.Write(result.Payload) // the caller may have gone, which is its own affair
	}
}

func writeAPIError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", code)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Type": "User", "Message": message}) // as above
}
