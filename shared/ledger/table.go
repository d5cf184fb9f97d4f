package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	// patience bounds a call to the table: a launch does not wait longer for news.
	patience = time.Second
	// pause is how long a table that failed is left alone.
	pause     = 30 * time.Second
	maxAnswer = 4 << 20
)

var (
	// errAway says that the table failed of late, or just now.
	errAway = errors.New("ledger table out of reach")
	// errCondition says that the item is not as the writer supposed.
	errCondition = errors.New("condition does not hold")
)

// Table is a DynamoDB table with the hash key scope and the range key id, both strings. It is safe for concurrent use.
type Table struct {
	cfg    aws.Config
	name   string
	url    string
	signer *v4.Signer
	now    func() time.Time
	log    *slog.Logger

	mu        sync.Mutex
	awayUntil time.Time
	away      bool
}

// NewTable returns the table called name, reached with the region, credentials, HTTP client and, where one is set, the endpoint of
// cfg. Trouble with it is logged once, until it has passed. An empty name gives nil: there is no table, which every user of one takes.
func NewTable(cfg aws.Config, name string, now func() time.Time, log *slog.Logger) *Table {
	if name == "" {
		return nil
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = http.DefaultClient
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(cfg.Region, "cn-") {
		domain += ".cn"
	}
	url := "https://dynamodb." + cfg.Region + "." + domain + "/"
	if cfg.BaseEndpoint != nil {
		url = strings.TrimSuffix(*cfg.BaseEndpoint, "/") + "/"
	}
	return &Table{cfg: cfg, name: name, url: url, signer: v4.NewSigner(), now: now, log: log}
}

// row is an item less its scope.
type row struct {
	id      string
	numbers map[string]int64
}

// attributes is an item as DynamoDB writes it: keys are strings, all else numbers.
type attributes map[string]struct {
	N string `json:",omitempty"`
	S string `json:",omitempty"`
}

func (a attributes) row() row {
	r := row{id: a["id"].S, numbers: make(map[string]int64, len(a))}
	for name, value := range a {
		var n int64
		if _, err := fmt.Sscan(value.N, &n); err == nil {
			r.numbers[name] = n
		}
	}
	return r
}

func text(s string) map[string]string { return map[string]string{"S": s} }

func numbers(values map[string]int64) map[string]map[string]string {
	out := make(map[string]map[string]string, len(values))
	for name, n := range values {
		out[name] = map[string]string{"N": fmt.Sprint(n)}
	}
	return out
}

// list returns all items of a scope.
func (t *Table) list(ctx context.Context, scope string) ([]row, error) {
	in := map[string]any{
		"TableName": t.name, "KeyConditionExpression": "#scope = :scope",
		"ExpressionAttributeNames":  map[string]string{"#scope": "scope"},
		"ExpressionAttributeValues": map[string]any{":scope": text(scope)},
	}
	var rows []row
	for {
		var page struct {
			Items            []attributes
			LastEvaluatedKey json.RawMessage
		}
		if err := t.call(ctx, "Query", in, &page); err != nil {
			return nil, fmt.Errorf("read %s: %w", scope, err)
		}
		for _, one := range page.Items {
			rows = append(rows, one.row())
		}
		if len(page.LastEvaluatedKey) == 0 || string(page.LastEvaluatedKey) == "null" {
			return rows, nil
		}
		in["ExclusiveStartKey"] = page.LastEvaluatedKey
	}
}

// update changes an item if a condition holds, and returns it as it is then. Beside errCondition it returns the item as it was.
func (t *Table) update(ctx context.Context, scope, id, change, condition string, values map[string]int64) (row, error) {
	var out struct{ Attributes attributes }
	err := t.call(ctx, "UpdateItem", map[string]any{
		"TableName": t.name, "Key": map[string]any{"scope": text(scope), "id": text(id)},
		"UpdateExpression": change, "ConditionExpression": condition, "ExpressionAttributeValues": numbers(values),
		"ReturnValues": "ALL_NEW", "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
	}, &out)
	if err != nil {
		was, _ := errors.AsType[failure](err)
		return was.Item.row(), fmt.Errorf("write %s %s: %w", scope, id, err)
	}
	return out.Attributes.row(), nil
}

// call makes one call, unless the table failed a moment ago.
func (t *Table) call(ctx context.Context, action string, in, out any) error {
	t.mu.Lock()
	wait := t.now().Before(t.awayUntil)
	t.mu.Unlock()
	if wait {
		return errAway
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := t.send(bounded, action, in, out)
	if ctx.Err() != nil {
		return err // the caller's time is over, which says nothing about the table
	}
	t.judge(ctx, err)
	if err != nil && !errors.Is(err, errCondition) {
		return errors.Join(errAway, err)
	}
	return err
}

// judge notes whether the table can be reached.
func (t *Table) judge(ctx context.Context, err error) {
	t.mu.Lock()
	was := t.away
	t.away = err != nil && !errors.Is(err, errCondition)
	is := t.away
	if is {
		t.awayUntil = t.now().Add(pause)
	}
	t.mu.Unlock()
	switch {
	case is && !was:
		t.log.WarnContext(ctx, "ledger table out of reach, going by what this function knows", "table", t.name, "error", err)
	case was && !is:
		t.log.InfoContext(ctx, "ledger table in reach again", "table", t.name)
	}
}

// failure is an answer that is not a success.
type failure struct {
	Type    string `json:"__type"`
	Message string `json:"message"`
	Item    attributes
}

func (f failure) Error() string { return f.Type + ": " + f.Message }

func (f failure) Is(target error) bool {
	return target == errCondition && strings.HasSuffix(f.Type, "#ConditionalCheckFailedException")
}

func (t *Table) send(ctx context.Context, action string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+action)
	credentials, err := t.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("get credentials: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := t.signer.SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "dynamodb", t.cfg.Region, t.now()); err != nil {
		return fmt.Errorf("sign %s: %w", action, err)
	}
	resp, err := t.cfg.HTTPClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		return json.Unmarshal(answer, out)
	}
	said := failure{Type: "HTTP " + fmt.Sprint(resp.StatusCode)}
	_ = json.Unmarshal(answer, &said) // what is no JSON is told by its status
	return said
}
