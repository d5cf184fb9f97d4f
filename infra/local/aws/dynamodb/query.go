package dynamodb

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// maxPage is how many bytes of items one page reads.
const maxPage = 1 << 20

// projection returns what cuts items down to the attributes asked for.
func projection(sc *scope, expression *string) (func(item) item, error) {
	if expression == nil {
		return maps.Clone[item], nil
	}
	paths, err := parse(sc, "ProjectionExpression", *expression, func(p *parser) ([]path, error) {
		var paths []path
		for {
			at, err := p.path()
			if err != nil {
				return nil, err
			}
			paths = append(paths, at)
			if !p.sign(",") {
				return paths, nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for _, at := range paths {
		if len(at) > 1 {
			return nil, invalid("Invalid ProjectionExpression: only whole attributes are served here, not %s", at)
		}
	}
	return func(row item) item {
		out := item{}
		for _, at := range paths {
			if v := at.get(row); v != nil {
				out[at[0].name] = v
			}
		}
		return out
	}, nil
}

// page is one read of many items.
type page struct {
	matches, filter condition // what the page goes over, and what of it is returned
	project         func(item) item
	backward        bool
	after           item
	limit           *int32
	count           bool // items are counted, not returned
}

// read returns one page in the order of the keys, how much it went over, and the key to go on after.
func (t *table) read(p page) (rows []item, scanned int32, count int32, last item, err error) {
	now := time.Now()
	var all []item
	for _, id := range slices.Collect(maps.Keys(t.items)) {
		if row := t.get(id, now); row != nil && p.matches(row) {
			all = append(all, row)
		}
	}
	slices.SortFunc(all, func(a, b item) int {
		n := t.compare(a, b)
		if p.backward {
			return -n
		}
		return n
	})
	if p.after != nil {
		if _, err := t.id(p.after, true); err != nil {
			return nil, 0, 0, nil, invalid("The provided starting key is invalid")
		}
		all = slices.DeleteFunc(all, func(row item) bool {
			n := t.compare(row, p.after)
			return n == 0 || (n < 0) != p.backward
		})
	}
	size := 0
	rows = []item{}
	for i, row := range all {
		scanned++
		size += weigh(row)
		if p.filter(row) {
			count++
			if !p.count {
				rows = append(rows, p.project(row))
			}
		}
		full := p.limit != nil && scanned == *p.limit || size > maxPage
		if full && (i < len(all)-1 || p.limit != nil) {
			last = item{}
			for _, k := range t.keys() {
				last[*k.AttributeName] = row[*k.AttributeName]
			}
			break
		}
	}
	return rows, scanned, count, last, nil
}

// compare orders items by hash key and range key. (The real order of hash keys is no order at all, but a fixed one.)
func (t *table) compare(a, b item) int {
	for _, k := range t.keys() {
		if n, _ := compare(a[*k.AttributeName], b[*k.AttributeName]); n != 0 {
			return n
		}
	}
	return 0
}

func always(item) bool { return true }

func parseFilter(sc *scope, expression *string) (condition, error) {
	if expression == nil {
		return always, nil
	}
	return parse(sc, "FilterExpression", *expression, parseCondition)
}

// Query returns the items of one hash key, in the order of the range key.
func (s *Service) Query(_ context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	if in.IndexName != nil {
		return nil, invalid("The table does not have the specified index: %s", *in.IndexName)
	}
	if in.KeyConditionExpression == nil {
		return nil, invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
	}
	sc := newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues)
	p := page{backward: in.ScanIndexForward != nil && !*in.ScanIndexForward, after: in.ExclusiveStartKey, limit: in.Limit, count: in.Select == types.SelectCount}
	if p.matches, err = parse(sc, "KeyConditionExpression", *in.KeyConditionExpression, t.parseKeyCondition); err != nil {
		return nil, err
	}
	if p.filter, err = parseFilter(sc, in.FilterExpression); err != nil {
		return nil, err
	}
	if p.project, err = projection(sc, in.ProjectionExpression); err != nil {
		return nil, err
	}
	if err := sc.finish(); err != nil {
		return nil, err
	}
	rows, scanned, count, last, err := t.read(p)
	if err != nil {
		return nil, err
	}
	return &dynamodb.QueryOutput{Items: rows, Count: count, ScannedCount: scanned, LastEvaluatedKey: last}, nil
}

// parseKeyCondition wants equality of the hash key, and at most one comparison of the range key.
func (t *table) parseKeyCondition(p *parser) (condition, error) {
	seen := map[string]bool{}
	var all []condition
	for {
		parens := 0
		for p.sign("(") {
			parens++
		}
		name, c, err := t.parseKeyTest(p)
		if err != nil {
			return nil, err
		}
		for range parens {
			if err := p.want(")"); err != nil {
				return nil, err
			}
		}
		if seen[name] {
			return nil, invalid("KeyConditionExpressions must only contain one condition per key")
		}
		seen[name] = true
		all = append(all, c)
		if !p.word("AND") {
			break
		}
	}
	if !seen[*t.hash.AttributeName] {
		return nil, invalid("Query condition missed key schema element: %s", *t.hash.AttributeName)
	}
	return func(row item) bool {
		return !slices.ContainsFunc(all, func(c condition) bool { return !c(row) })
	}, nil
}

// parseKeyTest reads one comparison, and holds what it compares and how against the key.
func (t *table) parseKeyTest(p *parser) (name string, c condition, err error) {
	begins := false
	ahead := *p
	if _, begins = ahead.call("begins_with"); !begins {
		ahead = *p
	}
	at, err := ahead.path()
	if err != nil {
		return "", nil, err
	}
	name = at.String()
	isHash := name == *t.hash.AttributeName
	isRange := t.rangeKey != nil && name == *t.rangeKey.AttributeName
	switch sign := ahead.peek(); {
	case !isHash && !isRange:
		return "", nil, invalid("Query condition missed key schema element; %s is no key", name)
	case isHash && (begins || sign != token{'s', "="}), isRange && sign == token{'s', "<>"}:
		return "", nil, invalid("Query key condition not supported")
	}
	if begins {
		p.call("begins_with")
		c, err = parseFunction(p, "begins_with")
	} else {
		c, err = parseComparison(p)
	}
	return name, c, err
}

// Scan returns the items of a table.
func (s *Service) Scan(_ context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	if cmp.Or(aws.ToInt32(in.TotalSegments), 1) > 1 || in.IndexName != nil {
		return nil, invalid("segments and indexes are not served here")
	}
	sc := newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues)
	p := page{matches: always, after: in.ExclusiveStartKey, limit: in.Limit, count: in.Select == types.SelectCount}
	if p.filter, err = parseFilter(sc, in.FilterExpression); err != nil {
		return nil, err
	}
	if p.project, err = projection(sc, in.ProjectionExpression); err != nil {
		return nil, err
	}
	if err := sc.finish(); err != nil {
		return nil, err
	}
	rows, scanned, count, last, err := t.read(p)
	if err != nil {
		return nil, err
	}
	return &dynamodb.ScanOutput{Items: rows, Count: count, ScannedCount: scanned, LastEvaluatedKey: last}, nil
}
