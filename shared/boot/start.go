package boot

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

// Logger returns the logger of a function: one JSON line a record on standard output, with Lambda's request id and the
// function's name.
func Logger(function string) *slog.Logger {
	handler := lambdacontext.NewLogHandler()
	if os.Getenv("AWS_LAMBDA_LOG_FORMAT") != "JSON" {
		handler = slog.NewJSONHandler(os.Stdout, nil)
	}
	return slog.New(handler).With("function", function)
}

// Start runs handler for each event that Lambda delivers and does not return. Outside of Lambda it runs handler once, on the event read
// from standard input, prints the answer, and ends the process with status 0, or 1 where handler failed.
//
// build makes the handler. It runs in Lambda's init phase; its error ends the process, which Lambda reports as a failed init.
func Start[E, R any](build func() (func(context.Context, E) (R, error), error)) {
	handler, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		lambda.Start(handler)
		return
	}
	if err := once(context.Background(), handler, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func once[E, R any](ctx context.Context, handler func(context.Context, E) (R, error), in io.Reader, out io.Writer) error {
	var event E
	if err := json.NewDecoder(in).Decode(&event); err != nil {
		return fmt.Errorf("read event from standard input: %w", err)
	}
	answer, err := handler(ctx, event)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// Sleep waits for d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
