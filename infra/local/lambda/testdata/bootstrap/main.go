// Command bootstrap is a Lambda function that does what its event says.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

// order is what a plain event asks for.
type order struct {
	Do    string `json:"do"`
	Bytes int    `json:"bytes"`
}

func main() {
	switch os.Getenv("INIT") {
	case "exit":
		os.Exit(7)
	case "panic":
		panic("no start")
	case "hang":
		time.Sleep(time.Hour) // an empty select would be a deadlock, with nothing else running
	}
	lambda.Start(handle)
}

func handle(ctx context.Context, event json.RawMessage) (any, error) {
	var url events.LambdaFunctionURLRequest
	if json.Unmarshal(event, &url) == nil && url.Version == "2.0" {
		return handleURL(url, event)
	}
	var batch events.SQSEvent
	if json.Unmarshal(event, &batch) == nil && len(batch.Records) > 0 {
		return handleBatch(batch)
	}
	var o order
	if err := json.Unmarshal(event, &o); err != nil {
		return nil, err
	}
	switch o.Do {
	case "context":
		lc, _ := lambdacontext.FromContext(ctx)
		deadline, _ := ctx.Deadline()
		return map[string]any{
			"pid": os.Getpid(), "id": lc.AwsRequestID, "arn": lc.InvokedFunctionArn, "left_ms": time.Until(deadline).Milliseconds(),
			"name": lambdacontext.FunctionName, "memory": lambdacontext.MemoryLimitInMB, "own": os.Getenv("OWN"),
			"handler": os.Getenv("_HANDLER"), "format": os.Getenv("AWS_LAMBDA_LOG_FORMAT"), "trace": os.Getenv("_X_AMZN_TRACE_ID"),
		}, nil
	case "fail":
		return nil, errors.New("as ordered")
	case "panic":
		panic("as ordered")
	case "exit":
		os.Exit(3)
	case "hang":
		select {}
	case "sleep":
		time.Sleep(200 * time.Millisecond)
		return os.Getpid(), nil
	case "count":
		file, err := os.OpenFile(os.Getenv("COUNT_FILE"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		fmt.Fprintln(file, "once")
		return nil, errors.New("counted")
	case "large":
		return strings.Repeat("x", o.Bytes), nil
	case "allocate":
		held := make([]byte, o.Bytes)
		for i := 0; i < len(held); i += 4096 {
			held[i] = 1
		}
		return len(held), nil
	case "log":
		fmt.Println("a line of output")
	}
	return "done", nil
}

func handleURL(r events.LambdaFunctionURLRequest, event json.RawMessage) (any, error) {
	switch r.RawPath {
	case "/fail":
		return nil, errors.New("as ordered")
	case "/plain":
		return map[string]string{"plain": "yes"}, nil
	case "/sleep":
		time.Sleep(200 * time.Millisecond)
	}
	return events.LambdaFunctionURLResponse{
		StatusCode: 201, Headers: map[string]string{"X-Echo": "yes"}, Cookies: []string{"a=b"}, Body: string(event),
	}, nil
}

// handleBatch writes down each message. One whose body begins with "fail" is given back the first two times, one
// whose body begins with "hang" hangs the first time; "crash" fails the whole batch the first time.
func handleBatch(batch events.SQSEvent) (any, error) {
	file, err := os.OpenFile(os.Getenv("COUNT_FILE"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var response events.SQSEventResponse
	group := map[string]bool{}
	for _, r := range batch.Records {
		receives := r.Attributes["ApproximateReceiveCount"]
		id := r.Attributes["MessageGroupId"]
		failed := strings.HasPrefix(r.Body, "fail") && (receives == "1" || receives == "2") || group[id]
		switch {
		case strings.HasPrefix(r.Body, "hang") && receives == "1":
			fmt.Fprintln(file, "began", r.Body)
			select {}
		case strings.HasPrefix(r.Body, "crash") && receives == "1":
			return nil, errors.New("whole batch")
		case failed:
			group[id] = id != ""
			response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: r.MessageId})
		default:
			fmt.Fprintln(file, r.Body)
		}
	}
	return response, nil
}
