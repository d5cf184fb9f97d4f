package dynamodb

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"treadle/infra/local/aws/rpc"
)

// Service holds tables. Safe for concurrent use.
type Service struct {
	region, account string

	mu     sync.Mutex
	tables map[string]*table
}

// table is one table. The service's lock guards it.
type table struct {
	described types.TableDescription
	hash      types.AttributeDefinition
	rangeKey  *types.AttributeDefinition
	ttl       string // attribute that holds the end of an item's life, in seconds; empty when off
	items     map[string]item
}

// New returns a service without tables.
func New(region, account string) *Service {
	return &Service{region: region, account: account, tables: map[string]*table{}}
}

// Handler serves the tables over AWS JSON 1.0.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return rpc.JSON(rpc.Service{
		Name:   "dynamodb",
		Errors: dynamodb.TypeRegistry,
		Hooks:  h,
		Unions: rpc.Union[types.AttributeValue](
			&types.AttributeValueMemberB{}, &types.AttributeValueMemberBOOL{}, &types.AttributeValueMemberBS{},
			&types.AttributeValueMemberL{}, &types.AttributeValueMemberM{}, &types.AttributeValueMemberN{},
			&types.AttributeValueMemberNS{}, &types.AttributeValueMemberNULL{}, &types.AttributeValueMemberS{},
			&types.AttributeValueMemberSS{},
		),
		Actions: map[string]rpc.Action{
			"BatchWriteItem":     rpc.Bind(s.BatchWriteItem),
			"CreateTable":        rpc.Bind(s.CreateTable),
			"DeleteItem":         rpc.Bind(s.DeleteItem),
			"DeleteTable":        rpc.Bind(s.DeleteTable),
			"DescribeTable":      rpc.Bind(s.DescribeTable),
			"DescribeTimeToLive": rpc.Bind(s.DescribeTimeToLive),
			"GetItem":            rpc.Bind(s.GetItem),
			"ListTables":         rpc.Bind(s.ListTables),
			"PutItem":            rpc.Bind(s.PutItem),
			"Query":              rpc.Bind(s.Query),
			"Scan":               rpc.Bind(s.Scan),
			"UpdateItem":         rpc.Bind(s.UpdateItem),
			"UpdateTimeToLive":   rpc.Bind(s.UpdateTimeToLive),
		},
	}, "1.0")
}

// table finds a table by name or ARN. The lock must be held.
func (s *Service) table(name *string) (*table, error) {
	n := aws.ToString(name)
	t, ok := s.tables[n[strings.LastIndexByte(n, '/')+1:]]
	if !ok {
		return nil, &types.ResourceNotFoundException{Message: aws.String("Requested resource not found")}
	}
	return t, nil
}

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

// CreateTable makes a table, which is active at once.
func (s *Service) CreateTable(_ context.Context, in *dynamodb.CreateTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := aws.ToString(in.TableName)
	switch {
	case !tableName.MatchString(name):
		return nil, invalid("TableName must be at least 3 characters long and at most 255 characters long")
	case s.tables[name] != nil:
		return nil, &types.ResourceInUseException{Message: aws.String("Table already exists: " + name)}
	case len(in.GlobalSecondaryIndexes) > 0 || len(in.LocalSecondaryIndexes) > 0:
		return nil, invalid("indexes are not served here")
	}
	t := &table{items: map[string]item{}}
	for i, k := range in.KeySchema {
		definition, ok := definitionOf(in.AttributeDefinitions, k.AttributeName)
		if !ok {
			return nil, invalid("One or more parameter values were invalid: Some index key attributes are not defined in AttributeDefinitions. Keys: [%s]", aws.ToString(k.AttributeName))
		}
		switch {
		case i == 0 && k.KeyType == types.KeyTypeHash:
			t.hash = definition
		case i == 1 && k.KeyType == types.KeyTypeRange:
			t.rangeKey = &definition
		default:
			return nil, invalid("Invalid KeySchema: a hash key and perhaps a range key are wanted")
		}
	}
	if len(in.KeySchema) == 0 || len(in.AttributeDefinitions) != len(in.KeySchema) {
		return nil, invalid("One or more parameter values were invalid: Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
	}
	t.described = types.TableDescription{
		TableName: in.TableName, TableArn: aws.String("arn:aws:dynamodb:" + s.region + ":" + s.account + ":table/" + name),
		TableId: aws.String(rpc.NewID()), TableStatus: types.TableStatusActive, CreationDateTime: aws.Time(time.Now()),
		KeySchema: in.KeySchema, AttributeDefinitions: in.AttributeDefinitions,
		BillingModeSummary: &types.BillingModeSummary{BillingMode: cmp.Or(in.BillingMode, types.BillingModeProvisioned)},
	}
	s.tables[name] = t
	return &dynamodb.CreateTableOutput{TableDescription: t.describe()}, nil
}

func definitionOf(definitions []types.AttributeDefinition, name *string) (types.AttributeDefinition, bool) {
	i := slices.IndexFunc(definitions, func(d types.AttributeDefinition) bool {
		return aws.ToString(d.AttributeName) == aws.ToString(name)
	})
	if i < 0 {
		return types.AttributeDefinition{}, false
	}
	return definitions[i], true
}

func (t *table) describe() *types.TableDescription {
	d := t.described
	d.ItemCount = aws.Int64(int64(len(t.items)))
	return &d
}

// DescribeTable returns a table.
func (s *Service) DescribeTable(_ context.Context, in *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	return &dynamodb.DescribeTableOutput{Table: t.describe()}, nil
}

// ListTables returns the names of all tables. It never pages.
func (s *Service) ListTables(context.Context, *dynamodb.ListTablesInput, ...func(*dynamodb.Options)) (*dynamodb.ListTablesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &dynamodb.ListTablesOutput{TableNames: slices.Sorted(maps.Keys(s.tables))}, nil
}

// DeleteTable deletes a table with all its items.
func (s *Service) DeleteTable(_ context.Context, in *dynamodb.DeleteTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DeleteTableOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	delete(s.tables, *t.described.TableName)
	return &dynamodb.DeleteTableOutput{TableDescription: t.describe()}, nil
}

// UpdateTimeToLive names the attribute that ends an item's life, or switches that off.
func (s *Service) UpdateTimeToLive(_ context.Context, in *dynamodb.UpdateTimeToLiveInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	spec := in.TimeToLiveSpecification
	if spec == nil || spec.AttributeName == nil || spec.Enabled == nil {
		return nil, invalid("TimeToLiveSpecification needs AttributeName and Enabled")
	}
	if *spec.Enabled == (t.ttl != "") {
		return nil, invalid("TimeToLive is already enabled or disabled as asked")
	}
	t.ttl = ""
	if *spec.Enabled {
		t.ttl = *spec.AttributeName
	}
	return &dynamodb.UpdateTimeToLiveOutput{TimeToLiveSpecification: spec}, nil
}

// DescribeTimeToLive returns the attribute that ends an item's life.
func (s *Service) DescribeTimeToLive(_ context.Context, in *dynamodb.DescribeTimeToLiveInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	d := &types.TimeToLiveDescription{TimeToLiveStatus: types.TimeToLiveStatusDisabled}
	if t.ttl != "" {
		d.TimeToLiveStatus, d.AttributeName = types.TimeToLiveStatusEnabled, aws.String(t.ttl)
	}
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: d}, nil
}

// keys returns the definitions of the key attributes.
func (t *table) keys() []types.AttributeDefinition {
	if t.rangeKey == nil {
		return []types.AttributeDefinition{t.hash}
	}
	return []types.AttributeDefinition{t.hash, *t.rangeKey}
}

// id returns what tells an item from all others, from an item or a key. An exact key must have nothing else.
func (t *table) id(row item, exact bool) (string, error) {
	var b strings.Builder
	for _, k := range t.keys() {
		v, ok := row[*k.AttributeName]
		if !ok || v == nil {
			return "", invalid("The provided key element does not match the schema: %s is missing", *k.AttributeName)
		}
		if kind(v) != string(k.AttributeType) {
			return "", invalid("One or more parameter values were invalid: Type mismatch for key %s expected: %s actual: %s", *k.AttributeName, k.AttributeType, kind(v))
		}
		var text string
		switch x := v.(type) {
		case *types.AttributeValueMemberS:
			text = x.Value
		case *types.AttributeValueMemberB:
			text = string(x.Value)
		case *types.AttributeValueMemberN:
			n, ok := number(v)
			if !ok {
				return "", invalid("A value provided cannot be converted into a number")
			}
			text = n.RatString()
		}
		if text == "" {
			return "", invalid("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: %s", *k.AttributeName)
		}
		b.WriteString(strconv.Itoa(len(text)) + ":" + text)
	}
	if exact && len(row) != len(t.keys()) {
		return "", invalid("The provided key element does not match the schema")
	}
	return b.String(), nil
}

// get returns an item that is alive, or nil.
func (t *table) get(id string, now time.Time) item {
	row := t.items[id]
	if row == nil || !t.expired(row, now) {
		return row
	}
	delete(t.items, id)
	return nil
}

func (t *table) expired(row item, now time.Time) bool {
	n, ok := row[t.ttl].(*types.AttributeValueMemberN)
	if !ok || t.ttl == "" {
		return false
	}
	end, err := strconv.ParseFloat(n.Value, 64)
	return err == nil && end < float64(now.Unix())
}

// maxItem is the largest item, in bytes of its values and names.
const maxItem = 400 << 10

func weigh(row item) int {
	n := 0
	for name, v := range row {
		n += len(name) + weighValue(v)
	}
	return n
}

func weighValue(v value) int {
	switch x := v.(type) {
	case *types.AttributeValueMemberM:
		return 3 + weigh(x.Value)
	case *types.AttributeValueMemberL:
		n := 3
		for _, e := range x.Value {
			n += 1 + weighValue(e)
		}
		return n
	case *types.AttributeValueMemberN:
		return len(x.Value)/2 + 1
	}
	if list := members(v); list != nil {
		n := 0
		for _, e := range list {
			n += weighValue(e)
		}
		return n
	}
	if n, ok := size(v); ok {
		return n
	}
	return 1
}

// check refuses values that no item may hold.
func check(row item) error {
	if weigh(row) > maxItem {
		return invalid("Item size has exceeded the maximum allowed size")
	}
	for _, v := range row {
		if err := checkValue(v); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(v value) error {
	switch x := v.(type) {
	case nil:
		return invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
	case *types.AttributeValueMemberN:
		if _, ok := number(v); !ok {
			return invalid("A value provided cannot be converted into a number")
		}
	case *types.AttributeValueMemberM:
		return check(x.Value)
	case *types.AttributeValueMemberL:
		for _, e := range x.Value {
			if err := checkValue(e); err != nil {
				return err
			}
		}
	case *types.AttributeValueMemberSS, *types.AttributeValueMemberNS, *types.AttributeValueMemberBS:
		list := members(v)
		if len(list) == 0 {
			return invalid("One or more parameter values were invalid: An number set  may not be empty")
		}
		for i, e := range list {
			if contains(list[:i], e) {
				return invalid("One or more parameter values were invalid: Input collection contains duplicates.")
			}
		}
	}
	return nil
}

// write is what the three operations that write one item have in common.
type write struct {
	condition   *string
	names       map[string]string
	values      map[string]value
	onFailure   types.ReturnValuesOnConditionCheckFailure
	change      *string             // update expression; only of an update
	next        func(item) item     // the item that comes to stand; nil deletes
	returned    types.ReturnValue   // what the caller wants to see
	mayReturn   []types.ReturnValue // besides NONE
	requireKeys item                // what the key attributes must stay, of an update
}

// write runs a write under its condition, and returns the attributes that the caller asked for. The lock must be held.
func (t *table) write(id string, w write) (item, error) {
	returned := cmp.Or(w.returned, types.ReturnValueNone)
	if returned != types.ReturnValueNone && !slices.Contains(w.mayReturn, returned) {
		return nil, invalid("ReturnValues can only be one of %v", w.mayReturn)
	}
	sc := newScope(w.names, w.values)
	holds := func(item) bool { return true }
	var changes update
	var err error
	if w.condition != nil {
		if holds, err = parse(sc, "ConditionExpression", *w.condition, parseCondition); err != nil {
			return nil, err
		}
	}
	if w.change != nil {
		if changes, err = parse(sc, "UpdateExpression", *w.change, parseUpdate); err != nil {
			return nil, err
		}
		for _, c := range changes {
			if _, isKey := w.requireKeys[c.at[0].name]; isKey {
				return nil, invalid("One or more parameter values were invalid: Cannot update attribute %s. This attribute is part of the key", c.at[0].name)
			}
		}
	}
	if err := sc.finish(); err != nil {
		return nil, err
	}
	old := t.get(id, time.Now())
	if !holds(old) {
		failed := &types.ConditionalCheckFailedException{Message: aws.String("The conditional request failed")}
		if w.onFailure == types.ReturnValuesOnConditionCheckFailureAllOld {
			failed.Item = maps.Clone(old)
		}
		return nil, failed
	}
	next := w.next(old)
	if w.change != nil {
		if next, err = changes.apply(next); err != nil {
			return nil, err
		}
	}
	if next == nil {
		delete(t.items, id)
	} else {
		if err := check(next); err != nil {
			return nil, err
		}
		t.items[id] = next
	}
	switch returned {
	case types.ReturnValueAllOld:
		return maps.Clone(old), nil
	case types.ReturnValueAllNew:
		return maps.Clone(next), nil
	case types.ReturnValueUpdatedOld:
		return changes.touched(old), nil
	case types.ReturnValueUpdatedNew:
		return changes.touched(next), nil
	}
	return nil, nil
}

// touched returns the top-level attributes that the update names.
func (u update) touched(row item) item {
	out := item{}
	for _, c := range u {
		if v := row[c.at[0].name]; v != nil {
			out[c.at[0].name] = v
		}
	}
	return out
}

// GetItem returns an item, or none. Reads are always consistent.
func (s *Service) GetItem(_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	id, err := t.id(in.Key, true)
	if err != nil {
		return nil, err
	}
	sc := newScope(in.ExpressionAttributeNames, nil)
	project, err := projection(sc, in.ProjectionExpression)
	if err != nil {
		return nil, err
	}
	if err := sc.finish(); err != nil {
		return nil, err
	}
	row := t.get(id, time.Now())
	if row == nil {
		return &dynamodb.GetItemOutput{}, nil
	}
	return &dynamodb.GetItemOutput{Item: project(row)}, nil
}

// PutItem stores an item in place of the one with its key.
func (s *Service) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	id, err := t.id(in.Item, false)
	if err != nil {
		return nil, err
	}
	attributes, err := t.write(id, write{
		condition: in.ConditionExpression, names: in.ExpressionAttributeNames, values: in.ExpressionAttributeValues,
		onFailure: in.ReturnValuesOnConditionCheckFailure, returned: in.ReturnValues, mayReturn: []types.ReturnValue{types.ReturnValueAllOld},
		next: func(item) item { return maps.Clone(in.Item) },
	})
	if err != nil {
		return nil, err
	}
	return &dynamodb.PutItemOutput{Attributes: attributes}, nil
}

// DeleteItem deletes an item. Deleting what is not there is no error.
func (s *Service) DeleteItem(_ context.Context, in *dynamodb.DeleteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	id, err := t.id(in.Key, true)
	if err != nil {
		return nil, err
	}
	attributes, err := t.write(id, write{
		condition: in.ConditionExpression, names: in.ExpressionAttributeNames, values: in.ExpressionAttributeValues,
		onFailure: in.ReturnValuesOnConditionCheckFailure, returned: in.ReturnValues, mayReturn: []types.ReturnValue{types.ReturnValueAllOld},
		next: func(item) item { return nil },
	})
	if err != nil {
		return nil, err
	}
	return &dynamodb.DeleteItemOutput{Attributes: attributes}, nil
}

// UpdateItem changes an item by an update expression, or makes it.
func (s *Service) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	id, err := t.id(in.Key, true)
	if err != nil {
		return nil, err
	}
	attributes, err := t.write(id, write{
		condition: in.ConditionExpression, names: in.ExpressionAttributeNames, values: in.ExpressionAttributeValues,
		onFailure: in.ReturnValuesOnConditionCheckFailure, returned: in.ReturnValues,
		mayReturn: []types.ReturnValue{types.ReturnValueAllOld, types.ReturnValueAllNew, types.ReturnValueUpdatedOld, types.ReturnValueUpdatedNew},
		change:    in.UpdateExpression, requireKeys: in.Key,
		next: func(old item) item {
			if old == nil {
				return maps.Clone(in.Key)
			}
			return old
		},
	})
	if err != nil {
		return nil, err
	}
	return &dynamodb.UpdateItemOutput{Attributes: attributes}, nil
}

// BatchWriteItem puts and deletes up to 25 items, none of which depends on another. Nothing is left unprocessed.
func (s *Service) BatchWriteItem(_ context.Context, in *dynamodb.BatchWriteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var todo []func()
	for name, requests := range in.RequestItems {
		t, err := s.table(&name)
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, r := range requests {
			var id string
			switch {
			case r.PutRequest != nil && r.DeleteRequest == nil:
				row := maps.Clone(r.PutRequest.Item)
				if id, err = t.id(row, false); err == nil {
					err = check(row)
				}
				todo = append(todo, func() { t.items[id] = row })
			case r.DeleteRequest != nil && r.PutRequest == nil:
				id, err = t.id(r.DeleteRequest.Key, true)
				todo = append(todo, func() { delete(t.items, id) })
			default:
				err = invalid("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes")
			}
			if err == nil && seen[id] {
				err = invalid("Provided list of item keys contains duplicates")
			}
			if err != nil {
				return nil, err
			}
			seen[id] = true
		}
	}
	if len(todo) == 0 || len(todo) > 25 {
		return nil, invalid("a batch must have 1 to 25 requests, not %d", len(todo))
	}
	for _, do := range todo {
		do()
	}
	return &dynamodb.BatchWriteItemOutput{UnprocessedItems: map[string][]types.WriteRequest{}}, nil
}
