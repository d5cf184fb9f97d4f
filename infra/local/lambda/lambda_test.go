package lambda_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/sqs"
	"treadle/infra/local/lambda"
)

// bootstrap builds the test function once and returns its folder.
var bootstrap = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bootstrap")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, "bootstrap"), "./testdata/bootstrap")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build bootstrap: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := bootstrap(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// start runs a service with one function named fn.
func start(t *testing.T, o lambda.Options, f lambda.Function) *lambda.Service {
	t.Helper()
	dir, err := bootstrap()
	require.NoError(t, err)
	s, err := lambda.New(o)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	f.Name, f.Dir = "fn", dir
	if f.Timeout == 0 {
		f.Timeout = 20 * time.Second
	}
	require.NoError(t, s.Create(f))
	return s
}

func invoke(t *testing.T, s *lambda.Service, event string) lambda.Result {
	t.Helper()
	result, err := s.Invoke(t.Context(), "fn", []byte(event))
	require.NoError(t, err)
	return result
}

func TestInvoke_GivesTheFunctionWhatLambdaGives(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{MemoryMB: 256, Env: map[string]string{"OWN": "mine"}})
	var got struct {
		PID                                        int
		ID, ARN, Name, Own, Handler, Format, Trace string
		Memory                                     int
		LeftMS                                     int64 `json:"left_ms"`
	}
	result := invoke(t, s, `{"do":"context"}`)
	require.Empty(t, result.FunctionError)
	require.NoError(t, json.Unmarshal(result.Payload, &got))
	require.Equal(t, result.Report.RequestID, got.ID)
	require.Equal(t, "arn:aws:lambda:us-east-1:123456789012:function:fn", got.ARN)
	require.Equal(t, "fn", got.Name)
	require.Equal(t, 256, got.Memory)
	require.Equal(t, "mine", got.Own)
	require.Equal(t, "bootstrap", got.Handler)
	require.Equal(t, "JSON", got.Format)
	require.True(t, strings.HasPrefix(got.Trace, "Root=1-"), got.Trace)
	require.InDelta(t, 20_000, got.LeftMS, 2_000)
	require.Positive(t, result.Report.Init)
	require.Positive(t, result.Report.MaxMemoryBytes)
	require.GreaterOrEqual(t, result.Report.Billed, result.Report.Duration+result.Report.Init)

	first := got.PID
	result = invoke(t, s, `{"do":"context"}`)
	require.NoError(t, json.Unmarshal(result.Payload, &got))
	require.Equal(t, first, got.PID, "the second invocation starts warm")
	require.Zero(t, result.Report.Init)
	require.Len(t, s.Reports("fn"), 2)
}

func TestInvoke_ReportsHowAFunctionFails(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		event, init, errorType, message string
	}{
		"an error is its type and message":           {`{"do":"fail"}`, "", "errorString", "as ordered"},
		"a panic is an error and ends the process":   {`{"do":"panic"}`, "", "string", "as ordered"},
		"an exit is a runtime error":                 {`{"do":"exit"}`, "", "Runtime.ExitError", "exit status 3"},
		"too much time is a timeout":                 {`{"do":"hang"}`, "", "Sandbox.Timedout", "Task timed out after 1.00 seconds"},
		"an answer above the limit is refused":       {`{"do":"large","bytes":7000000}`, "", "Function.ResponseSizeTooLarge", "6291556"},
		"an exit before the first event is reported": {`{}`, "exit", "Runtime.ExitError", "exit status 7"},
		"a panic before the first event is reported": {`{}`, "panic", "Runtime.ExitError", "exit status 2"},
		"a process that never gets ready times out":  {`{}`, "hang", "Sandbox.Timedout", "Task timed out after 1.50 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, lambda.Options{InitTimeout: 1500 * time.Millisecond}, lambda.Function{Timeout: time.Second, Env: map[string]string{"INIT": row.init}})
			result := invoke(t, s, row.event)
			require.Equal(t, "Unhandled", result.FunctionError)
			var body struct{ ErrorType, ErrorMessage string }
			require.NoError(t, json.Unmarshal(result.Payload, &body))
			require.Equal(t, row.errorType, body.ErrorType)
			require.Contains(t, body.ErrorMessage, row.message)
			require.Equal(t, row.errorType, result.Report.Error)
			if row.init == "" {
				require.Equal(t, `"done"`, string(invoke(t, s, `{}`).Payload), "the next invocation works")
			}
		})
	}
}

func TestInvoke_RefusesWhatLambdaRefuses(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{Concurrency: 1})
	_, err := s.Invoke(t.Context(), "other", nil)
	require.ErrorIs(t, err, lambda.ErrNotFound)
	_, err = s.Invoke(t.Context(), "fn", make([]byte, 10<<20))
	require.ErrorIs(t, err, lambda.ErrTooLarge)
	_, err = s.InvokeAsync("fn", make([]byte, 2<<20))
	require.ErrorIs(t, err, lambda.ErrTooLarge)
	require.ErrorIs(t, s.Create(lambda.Function{Name: "fn", Dir: mustBootstrap(t)}), lambda.ErrExists)
	require.Error(t, s.Create(lambda.Function{Name: "empty", Dir: t.TempDir()}))
}

func mustBootstrap(t *testing.T) string {
	t.Helper()
	dir, err := bootstrap()
	require.NoError(t, err)
	return dir
}

func TestInvoke_ScalesOutToTheConcurrencyAndNoFurther(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{Concurrency: 3})
	var mu sync.Mutex
	pids, throttled := map[string]bool{}, 0
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			result, err := s.Invoke(t.Context(), "fn", []byte(`{"do":"sleep"}`))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				throttled++
				return
			}
			pids[string(result.Payload)] = true
		})
	}
	wg.Wait()
	require.Len(t, pids, 3)
	require.Equal(t, 2, throttled)
}

func TestInvoke_MeasuresMemoryPerInvocation(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{Env: map[string]string{"GODEBUG": "madvdontneed=1"}})
	small := invoke(t, s, `{}`).Report.MaxMemoryBytes
	large := invoke(t, s, `{"do":"allocate","bytes":67108864}`).Report.MaxMemoryBytes
	require.Greater(t, large, small+60<<20)
}

func TestInvokeAsync_RetriesTwice(t *testing.T) {
	t.Parallel()
	count := filepath.Join(t.TempDir(), "count")
	s := start(t, lambda.Options{RetryDelays: []time.Duration{time.Millisecond, time.Millisecond}},
		lambda.Function{Concurrency: 1, Env: map[string]string{"COUNT_FILE": count}})
	require.NoError(t, s.Deliver(t.Context(), "arn:aws:lambda:us-east-1:123456789012:function:fn", []byte(`{"do":"count"}`), ""))
	require.Eventually(t, func() bool { return len(s.Reports("fn")) == 3 }, 20*time.Second, 10*time.Millisecond)
	id, err := s.InvokeAsync("fn", []byte(`{}`))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(s.Reports("fn")) == 4 }, 20*time.Second, 10*time.Millisecond)
	reports := s.Reports("fn")
	require.Equal(t, id, reports[3].RequestID)
	require.Equal(t, reports[0].RequestID, reports[2].RequestID, "tries share the request id")
	got, err := os.ReadFile(count)
	require.NoError(t, err)
	require.Equal(t, "once\nonce\nonce\n", string(got))
}

func TestOutput_GoesToTheLogFileAndTheWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var shared bytes.Buffer
	s := start(t, lambda.Options{LogDir: dir, Output: &shared}, lambda.Function{})
	invoke(t, s, `{"do":"log"}`)
	s.Stop()
	file, err := os.ReadFile(filepath.Join(dir, "fn.log"))
	require.NoError(t, err)
	require.Contains(t, string(file), "a line of output\n")
	require.Contains(t, string(file), `"type":"platform.report"`)
	require.Contains(t, shared.String(), "fn | a line of output\n")
}

func TestEnvironments_EndWhenIdleAndWithTheService(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{IdleAfter: 50 * time.Millisecond}, lambda.Function{Concurrency: 1})
	first := invoke(t, s, `{"do":"sleep"}`).Payload
	require.Eventually(t, func() bool { return !exists(t, first) }, 10*time.Second, 10*time.Millisecond)
	second := invoke(t, s, `{"do":"sleep"}`).Payload
	require.NotEqual(t, string(first), string(second))
	s.Stop()
	require.False(t, exists(t, second))
	_, err := s.Invoke(t.Context(), "fn", nil)
	require.ErrorIs(t, err, lambda.ErrStopped)
}

func exists(t *testing.T, pid []byte) bool {
	t.Helper()
	n, err := strconv.Atoi(string(pid))
	require.NoError(t, err)
	return syscall.Kill(n, 0) == nil
}

func TestFreeze_StopsIdleProcessesAndWakesThem(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{Freeze: true}, lambda.Function{})
	pid := string(invoke(t, s, `{"do":"sleep"}`).Payload)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ")
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, pid, string(invoke(t, s, `{"do":"sleep"}`).Payload))
}

func TestKill_EndsWhatRuns(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{})
	require.NoError(t, s.KillAfter("fn", 20*time.Millisecond))
	result := invoke(t, s, `{"do":"hang"}`)
	require.Equal(t, "Runtime.ExitError", result.Report.Error)
	require.Contains(t, string(result.Payload), "signal: killed")

	pid := invoke(t, s, `{"do":"sleep"}`).Payload
	require.Equal(t, 1, s.Kill("fn"))
	require.Eventually(t, func() bool { return !exists(t, pid) }, 10*time.Second, time.Millisecond)
	require.Equal(t, `"done"`, string(invoke(t, s, `{}`).Payload))
}

// client returns an HTTP client that trusts the service's Function URLs.
func client(t *testing.T, s *lambda.Service) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(s.CA()))
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestURL_CarriesTheRequestThere(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{})
	url, err := s.URL("fn")
	require.NoError(t, err)
	for name, row := range map[string]struct {
		contentType, body string
		base64            bool
	}{
		"JSON stays text":           {"application/json; charset=utf-8", `{"a":1}`, false},
		"bytes travel in base64":    {"application/octet-stream", "\x00\xff", true},
		"text that is no text, too": {"text/plain", "\xff", true},
		"no body is no body":        {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"hook/a%20b?x=1&x=2&y=", strings.NewReader(row.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", row.contentType)
			req.Header.Add("X-Two", "1")
			req.Header.Add("X-Two", "2")
			req.Header.Set("Cookie", "k=v; l=w")
			resp, err := client(t, s).Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, 201, resp.StatusCode)
			require.Equal(t, "yes", resp.Header.Get("X-Echo"))
			require.Equal(t, "a=b", resp.Header.Get("Set-Cookie"))
			var got events.LambdaFunctionURLRequest
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
			require.Equal(t, "/hook/a%20b", got.RawPath)
			require.Equal(t, "x=1&x=2&y=", got.RawQueryString)
			require.Equal(t, map[string]string{"x": "1,2", "y": ""}, got.QueryStringParameters)
			require.Equal(t, []string{"k=v", "l=w"}, got.Cookies)
			require.Equal(t, "1,2", got.Headers["x-two"])
			require.Equal(t, "POST", got.RequestContext.HTTP.Method)
			require.Equal(t, "127.0.0.1", got.RequestContext.HTTP.SourceIP)
			require.Equal(t, row.base64, got.IsBase64Encoded)
			body := got.Body
			if row.base64 {
				raw, err := base64.StdEncoding.DecodeString(body)
				require.NoError(t, err)
				body = string(raw)
			}
			require.Equal(t, row.body, body)
		})
	}
}

func TestURL_AnswersForTheFunction(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{Concurrency: 1})
	url, err := s.URL("fn")
	require.NoError(t, err)
	c := client(t, s)
	post := func(path string, body io.Reader) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, body)
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(got)
	}
	status, body := post("plain", nil)
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"plain":"yes"}`, body)
	status, _ = post("fail", nil)
	require.Equal(t, http.StatusBadGateway, status)
	status, _ = post("", bytes.NewReader(make([]byte, 10<<20)))
	require.Equal(t, http.StatusRequestEntityTooLarge, status)

	busy := make(chan int)
	go func() {
		result, err := s.Invoke(context.Background(), "fn", []byte(`{"do":"sleep"}`))
		if err != nil {
			busy <- 0
			return
		}
		busy <- len(result.Payload)
	}()
	require.Eventually(t, func() bool { status, _ := post("plain", nil); return status == http.StatusTooManyRequests }, 10*time.Second, time.Millisecond)
	<-busy
}

// queue is a queue mapped to fn, which writes into the file what it has dealt with.
type queue struct {
	*sqs.Service
	url  string
	file string
}

func (q queue) send(t *testing.T, body, group string) {
	t.Helper()
	in := &awssqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String(body)}
	if group != "" {
		in.MessageGroupId = aws.String(group)
	}
	_, err := q.SendMessage(t.Context(), in)
	require.NoError(t, err)
}

func (q queue) dealtWith() []string {
	got, _ := os.ReadFile(q.file)
	return strings.Fields(string(got))
}

func (q queue) left(t *testing.T) int {
	t.Helper()
	out, err := q.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	require.NoError(t, err)
	n := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		count, err := strconv.Atoi(out.Attributes[name])
		require.NoError(t, err)
		n += count
	}
	return n
}

func mapped(t *testing.T, f lambda.Function, source lambda.EventSource, name string, attributes map[string]string) (queue, *lambda.Service, *lambda.Mapping) {
	t.Helper()
	q := queue{Service: sqs.New(sqs.Options{}), file: filepath.Join(t.TempDir(), "file")}
	f.Env = map[string]string{"COUNT_FILE": q.file}
	s := start(t, lambda.Options{}, f)
	out, err := q.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(name), Attributes: attributes})
	require.NoError(t, err)
	q.url = *out.QueueUrl
	source.Queue, source.QueueURL, source.QueueARN, source.Function = q, q.url, "arn:aws:sqs:us-east-1:123456789012:"+name, "fn"
	m, err := s.Map(source)
	require.NoError(t, err)
	return q, s, m
}

func TestMap_DeletesWhatWasDealtWithAndBringsBackWhatFailed(t *testing.T) {
	t.Parallel()
	q, _, _ := mapped(t, lambda.Function{}, lambda.EventSource{ReportBatchItemFailures: true}, "standard", map[string]string{"VisibilityTimeout": "1"})
	for _, body := range []string{"a", "fail", "b", "crash"} {
		q.send(t, body, "")
	}
	require.Eventually(t, func() bool { return q.left(t) == 0 }, 20*time.Second, 10*time.Millisecond)
	require.ElementsMatch(t, []string{"a", "fail", "b", "crash"}, unique(q.dealtWith()))
}

func TestMap_KeepsTheOrderOfAGroupUnderFailures(t *testing.T) {
	t.Parallel()
	q, _, _ := mapped(t, lambda.Function{}, lambda.EventSource{ReportBatchItemFailures: true, BatchSize: 2}, "q.fifo",
		map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "1"})
	for i := range 3 {
		for _, group := range []string{"x", "y"} {
			body := fmt.Sprintf("%s%d", group, i)
			if i == 1 {
				body = "fail-" + body
			}
			q.send(t, body, group)
		}
	}
	require.Eventually(t, func() bool { return q.left(t) == 0 }, 30*time.Second, 10*time.Millisecond)
	for _, group := range []string{"x", "y"} {
		var got []string
		for _, body := range q.dealtWith() {
			if strings.Contains(body, group) {
				got = append(got, body)
			}
		}
		require.Equal(t, []string{group + "0", "fail-" + group + "1", group + "2"}, got)
	}
}

func TestMap_RedeliversAfterAKillInMidInvocation(t *testing.T) {
	t.Parallel()
	q, s, _ := mapped(t, lambda.Function{}, lambda.EventSource{}, "q.fifo",
		map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "2"})
	q.send(t, "hang", "x")
	require.Eventually(t, func() bool { return len(q.dealtWith()) == 2 }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, s.Kill("fn"))
	require.Eventually(t, func() bool { return q.left(t) == 0 }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{"began", "hang", "hang"}, q.dealtWith())
}

func TestMap_LosesNothingAndKeepsTheOrderUnderKillsAtAnyMoment(t *testing.T) {
	t.Parallel()
	q, s, _ := mapped(t, lambda.Function{}, lambda.EventSource{ReportBatchItemFailures: true, BatchSize: 3}, "q.fifo",
		map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "1"})
	const groups, each = 4, 25
	kills := time.NewTicker(5 * time.Millisecond)
	defer kills.Stop()
	for i := range groups * each {
		group := strconv.Itoa(i % groups)
		q.send(t, group+"-"+strconv.Itoa(i/groups), group)
		<-kills.C
		s.Kill("fn")
	}
	require.Eventually(t, func() bool { return q.left(t) == 0 }, 60*time.Second, 10*time.Millisecond)
	killed := slices.ContainsFunc(s.Reports("fn"), func(r lambda.Report) bool { return r.Error == "Runtime.ExitError" })
	require.True(t, killed, "some invocations were cut off")
	first := map[string][]string{}
	for _, body := range unique(q.dealtWith()) {
		group, n, _ := strings.Cut(body, "-")
		first[group] = append(first[group], n)
	}
	require.Len(t, first, groups)
	for group, got := range first {
		for i := range each {
			require.Equal(t, strconv.Itoa(i), got[i], "group %s", group)
		}
	}
}

func TestMap_HoldsTheMaximumConcurrencyAndCanBeDisabled(t *testing.T) {
	t.Parallel()
	q, s, m := mapped(t, lambda.Function{Timeout: 5 * time.Second}, lambda.EventSource{MaximumConcurrency: 2, BatchSize: 1}, "standard", map[string]string{"VisibilityTimeout": "60"})
	for i := range 4 {
		q.send(t, "hang"+strconv.Itoa(i), "")
	}
	require.Eventually(t, func() bool { return len(q.dealtWith()) == 4 }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 2, s.Kill("fn"), "two words a message, two messages at once")
	m.Disable()
	m.Disable()
	m.Enable()
	require.Eventually(t, func() bool { return len(q.dealtWith()) >= 6 }, 20*time.Second, 10*time.Millisecond)

	_, err := s.Map(lambda.EventSource{Function: "fn", BatchSize: 11})
	require.Error(t, err)
	_, err = s.Map(lambda.EventSource{Function: "other"})
	require.ErrorIs(t, err, lambda.ErrNotFound)
}

// unique drops all but the first of equal elements.
func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func TestHandler_ServesInvoke(t *testing.T) {
	t.Parallel()
	s := start(t, lambda.Options{}, lambda.Function{})
	for name, row := range map[string]struct {
		path, kind, body string
		status           int
		want             string
	}{
		"an answer":                {"fn", "", `{}`, 200, `"done"`},
		"no body is an empty one":  {"fn", "RequestResponse", ``, 200, `"done"`},
		"an error of the function": {"fn", "", `{"do":"fail"}`, 200, `as ordered`},
		"an event":                 {"fn", "Event", `{}`, 202, ``},
		"a dry run":                {"fn", "DryRun", `{}`, 204, ``},
		"no such function":         {"other", "", `{}`, 404, `Function not found`},
		"no JSON":                  {"fn", "", `{`, 400, `parse`},
		"an unknown kind":          {"fn", "Maybe", `{}`, 400, `Maybe`},
		"too large a body":         {"fn", "", `"` + strings.Repeat("x", 6<<20) + `"`, 413, `too large`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/2015-03-31/functions/"+row.path+"/invocations", strings.NewReader(row.body))
			r.Header.Set("X-Amz-Invocation-Type", row.kind)
			rec := httptest.NewRecorder()
			s.Handler().ServeHTTP(rec, r)
			require.Equal(t, row.status, rec.Code)
			require.Contains(t, rec.Body.String(), row.want)
			require.Equal(t, strings.Contains(row.body, "fail"), rec.Header().Get("X-Amz-Function-Error") == "Unhandled")
		})
	}
}

// TestProcesses_DieWithTheProgram runs this test once more as a program that starts a function, and kills that.
func TestProcesses_DieWithTheProgram(t *testing.T) {
	const marker = "LAMBDA_TEST_PROGRAM"
	if dir := os.Getenv(marker); dir != "" {
		s, err := lambda.New(lambda.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Create(lambda.Function{Name: "fn", Dir: dir, Timeout: time.Minute}))
		result, err := s.Invoke(t.Context(), "fn", []byte(`{"do":"sleep"}`))
		require.NoError(t, err)
		fmt.Printf("\npid %s\n", result.Payload)
		time.Sleep(time.Minute) // until it is killed
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestProcesses_DieWithTheProgram$")
	cmd.Env = append(os.Environ(), marker+"="+mustBootstrap(t))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var pid string
	for lines := bufio.NewScanner(out); pid == "" && lines.Scan(); {
		pid, _ = strings.CutPrefix(lines.Text(), "pid ")
		if !strings.HasPrefix(lines.Text(), "pid ") {
			pid = ""
		}
	}
	require.NotEmpty(t, pid)
	require.True(t, exists(t, []byte(pid)))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed, so this is an error
	require.Eventually(t, func() bool { return ended(pid) }, 10*time.Second, 10*time.Millisecond)
}

// ended reports whether a process is gone, or dead and not waited for by whoever inherited it.
func ended(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// BenchmarkInvoke measures an invocation of a function that does nothing.
func BenchmarkInvoke(b *testing.B) {
	dir, err := bootstrap()
	require.NoError(b, err)
	run := func(b *testing.B, before func(*lambda.Service)) {
		s, err := lambda.New(lambda.Options{})
		require.NoError(b, err)
		defer s.Stop()
		require.NoError(b, s.Create(lambda.Function{Name: "fn", Dir: dir, Timeout: time.Minute}))
		for b.Loop() {
			before(s)
			_, err := s.Invoke(b.Context(), "fn", []byte(`{}`))
			require.NoError(b, err)
		}
	}
	b.Run("warm", func(b *testing.B) { run(b, func(*lambda.Service) {}) })
	b.Run("cold", func(b *testing.B) { run(b, func(s *lambda.Service) { s.Kill("fn") }) })
}

// BenchmarkMap measures the way of a message from SendMessage to its deletion after a warm invocation.
func BenchmarkMap(b *testing.B) {
	dir, err := bootstrap()
	require.NoError(b, err)
	s, err := lambda.New(lambda.Options{})
	require.NoError(b, err)
	defer s.Stop()
	require.NoError(b, s.Create(lambda.Function{Name: "fn", Dir: dir, Timeout: time.Minute, Env: map[string]string{"COUNT_FILE": os.DevNull}}))
	q := sqs.New(sqs.Options{})
	made, err := q.CreateQueue(b.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("q")})
	require.NoError(b, err)
	_, err = s.Map(lambda.EventSource{Queue: q, QueueURL: *made.QueueUrl, Function: "fn"})
	require.NoError(b, err)
	for b.Loop() {
		done := len(s.Reports("fn"))
		_, err := q.SendMessage(b.Context(), &awssqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: aws.String("m")})
		require.NoError(b, err)
		for len(s.Reports("fn")) == done {
			time.Sleep(50 * time.Microsecond)
		}
	}
}
