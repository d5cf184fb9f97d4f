package dynamodb_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"treadle/infra/local/aws/dynamodb"
)

type item = map[string]types.AttributeValue

func s(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
func n(v string) types.AttributeValue { return &types.AttributeValueMemberN{Value: v} }
func ss(v ...string) types.AttributeValue {
	return &types.AttributeValueMemberSS{Value: v}
}
func ns(v ...string) types.AttributeValue {
	return &types.AttributeValueMemberNS{Value: v}
}
func list(v ...types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberL{Value: v}
}
func m(v item) types.AttributeValue { return &types.AttributeValueMemberM{Value: v} }

// table returns a service with the table t, which has the hash key pk and the range key sk.
func table(t *testing.T) *dynamodb.Service {
	t.Helper()
	service := dynamodb.New("us-east-1", "123456789012")
	_, err := service.CreateTable(t.Context(), &awsdynamodb.CreateTableInput{
		TableName: aws.String("table"), BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange}},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}, {AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeN},
		},
	})
	require.NoError(t, err)
	return service
}

func put(t *testing.T, service *dynamodb.Service, row item) {
	t.Helper()
	_, err := service.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String("table"), Item: row})
	require.NoError(t, err)
}

func get(t *testing.T, service *dynamodb.Service, key item) item {
	t.Helper()
	out, err := service.GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: aws.String("table"), Key: key})
	require.NoError(t, err)
	return out.Item
}

func key(pk, sk string) item { return item{"pk": s(pk), "sk": n(sk)} }

func code(t *testing.T, err error) string {
	t.Helper()
	api, ok := errors.AsType[smithy.APIError](err)
	require.True(t, ok, "%v", err)
	return api.ErrorCode()
}

func TestCondition_DecidesOverTheItemAsItStands(t *testing.T) {
	t.Parallel()
	row := key("a", "1")
	row["count1"], row["note"], row["tags"], row["deep"] = n("5"), s("hello world"), ss("x", "y"), m(item{"in": list(n("1"), m(item{"k": s("v")}))})
	values := item{":5": n("5.0"), ":6": n("6"), ":h": s("hello"), ":x": s("x"), ":v": s("v"), ":N": s("N"), ":yx": ss("y", "x"), ":11": n("11")}
	for expression, want := range map[string]bool{
		"attribute_exists(pk)":                         true,
		"attribute_not_exists(pk)":                     false,
		"attribute_not_exists(absent)":                 true,
		"count1 = :5":                                  true,
		"count1 <> :5":                                 false,
		"count1 < :6":                                  true,
		"count1 >= :6":                                 false,
		"count1 > :h":                                  false,
		"absent = :5":                                  false,
		"absent <> :5":                                 true,
		":6 > count1":                                  true,
		"count1 BETWEEN :5 AND :6":                     true,
		"count1 between :6 and :6":                     false,
		"note IN (:x, :h)":                             false,
		"note IN (:x, :h) OR count1 IN (:6, :5)":       true,
		"begins_with(note, :h)":                        true,
		"begins_with(count1, :h)":                      false,
		"contains(note, :h)":                           true,
		"contains(tags, :x)":                           true,
		"contains(deep.#in, :5)":                       false,
		"tags = :yx":                                   true,
		"attribute_type(count1, :N)":                   true,
		"size(note) = :11":                             true,
		"size(tags) < :5":                              true,
		"deep.#in[1].k = :v":                           true,
		"deep.#in[7].k = :v":                           false,
		"NOT count1 = :5":                              false,
		"NOT (count1 = :6 OR count1 = :5)":             false,
		"count1 = :6 AND count1 = :6 OR count1 = :5":   true,
		"count1 = :6 AND (count1 = :6 OR count1 = :5)": false,
		"attribute_not_exists(pk) OR (count1 < :6 AND NOT attribute_exists(absent))": true,
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			service := table(t)
			put(t, service, row)
			used := item{}
			for name, v := range values {
				if strings.Contains(expression, name) {
					used[name] = v
				}
			}
			in := &awsdynamodb.DeleteItemInput{TableName: aws.String("table"), Key: key("a", "1"), ConditionExpression: &expression, ExpressionAttributeValues: used}
			if strings.Contains(expression, "#in") {
				in.ExpressionAttributeNames = map[string]string{"#in": "in"}
			}
			_, err := service.DeleteItem(t.Context(), in)
			if want {
				require.NoError(t, err)
				require.Nil(t, get(t, service, key("a", "1")))
				return
			}
			require.Equal(t, "ConditionalCheckFailedException", code(t, err))
			require.NotNil(t, get(t, service, key("a", "1")))
		})
	}
}

func TestUpdate_ChangesTheItem(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before     item
		expression string
		values     item
		want       item
	}{
		"set makes an attribute":             {item{}, "SET a = :v", item{":v": s("x")}, item{"a": s("x")}},
		"set copies another attribute":       {item{"b": s("x")}, "SET a = b", nil, item{"a": s("x"), "b": s("x")}},
		"plus":                               {item{"a": n("1.5")}, "SET a = a + :v", item{":v": n("2")}, item{"a": n("3.5")}},
		"minus below zero":                   {item{"a": n("1")}, "SET a = a - :v", item{":v": n("100")}, item{"a": n("-99")}},
		"plus from nothing":                  {item{}, "SET a = if_not_exists(a, :z) + :v", item{":z": n("0"), ":v": n("3")}, item{"a": n("3")}},
		"if_not_exists keeps what is there":  {item{"a": n("7")}, "SET a = if_not_exists(a, :z)", item{":z": n("0")}, item{"a": n("7")}},
		"all changes see the item as it was": {item{"a": n("1"), "b": n("2")}, "SET a = b, b = a", nil, item{"a": n("2"), "b": n("1")}},
		"remove":                             {item{"a": n("1"), "b": n("2")}, "REMOVE a, c", nil, item{"b": n("2")}},
		"add to a number":                    {item{"a": n("1")}, "ADD a :v", item{":v": n("-3")}, item{"a": n("-2")}},
		"add makes a number":                 {item{}, "ADD a :v", item{":v": n("1")}, item{"a": n("1")}},
		"add to a set":                       {item{"a": ss("x")}, "ADD a :v", item{":v": ss("x", "y")}, item{"a": ss("x", "y")}},
		"delete from a set":                  {item{"a": ns("1", "2")}, "DELETE a :v", item{":v": ns("2.0", "3")}, item{"a": ns("1")}},
		"delete the last element":            {item{"a": ns("1")}, "DELETE a :v", item{":v": ns("1")}, item{}},
		"set within a map":                   {item{"a": m(item{"x": n("1")})}, "SET a.y = :v", item{":v": n("2")}, item{"a": m(item{"x": n("1"), "y": n("2")})}},
		"remove within a list":               {item{"a": list(n("0"), n("1"), n("2"))}, "REMOVE a[0], a[1]", nil, item{"a": list(n("2"))}},
		"set within a list":                  {item{"a": list(n("0"), n("1"))}, "SET a[1] = :v, a[9] = :v", item{":v": n("7")}, item{"a": list(n("0"), n("7"), n("7"))}},
		"append to a list":                   {item{"a": list(n("0"))}, "SET a = list_append(a, :v)", item{":v": list(n("1"))}, item{"a": list(n("0"), n("1"))}},
		"sections together":                  {item{"a": n("1"), "b": n("1")}, "set c = :v remove a add b :v", item{":v": n("1")}, item{"b": n("2"), "c": n("1")}},
		"many digits":                        {item{"a": n("0.1")}, "SET a = a + :v", item{":v": n("12345678901234567890")}, item{"a": n("12345678901234567890.1")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := table(t)
			if len(row.before) > 0 {
				before := key("a", "1")
				for name, v := range row.before {
					before[name] = v
				}
				put(t, service, before)
			}
			out, err := service.UpdateItem(t.Context(), &awsdynamodb.UpdateItemInput{
				TableName: aws.String("table"), Key: key("a", "1"), UpdateExpression: &row.expression, ExpressionAttributeValues: row.values, ReturnValues: types.ReturnValueAllNew,
			})
			require.NoError(t, err)
			want := key("a", "1")
			for name, v := range row.want {
				want[name] = v
			}
			require.Equal(t, want, out.Attributes)
			require.Equal(t, want, get(t, service, key("a", "1")))
		})
	}
}

func TestUpdate_RefusesWhatDynamoDBRefuses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		expression string
		names      map[string]string
		values     item
	}{
		"nothing":                        {"", nil, nil},
		"no section":                     {"a = :v", nil, item{":v": n("1")}},
		"a section twice":                {"SET a = :v SET b = :v", nil, item{":v": n("1")}},
		"a reserved word":                {"SET ttl = :v", nil, item{":v": n("1")}},
		"an undefined value":             {"SET a = :v", nil, nil},
		"an undefined name":              {"SET #a = :v", nil, item{":v": n("1")}},
		"an unused value":                {"SET a = :v", nil, item{":v": n("1"), ":w": n("1")}},
		"an unused name":                 {"SET a = :v", map[string]string{"#b": "b"}, item{":v": n("1")}},
		"a key attribute":                {"SET pk = :v", nil, item{":v": s("b")}},
		"overlapping paths":              {"SET a = :v, a.b = :v", nil, item{":v": n("1")}},
		"a sum with text":                {"SET a = note + :v", nil, item{":v": n("1")}},
		"an attribute that is not there": {"SET a = absent", nil, nil},
		"a path through text":            {"SET note.b = :v", nil, item{":v": n("1")}},
		"adding text":                    {"ADD a :v", nil, item{":v": s("x")}},
		"deleting a number":              {"DELETE a :v", nil, item{":v": n("1")}},
		"an empty set":                   {"SET a = :v", nil, item{":v": ss()}},
		"a number that is none":          {"SET a = :v", nil, item{":v": n("one")}},
		"more after the end":             {"SET a = :v )", nil, item{":v": n("1")}},
		"a sign that there is not":       {"SET a = :v ; b", nil, item{":v": n("1")}},
		"an item above 400 KB":           {"SET a = :v", nil, item{":v": s(strings.Repeat("x", 400<<10))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := table(t)
			before := key("a", "1")
			before["note"] = s("x")
			put(t, service, before)
			_, err := service.UpdateItem(t.Context(), &awsdynamodb.UpdateItemInput{
				TableName: aws.String("table"), Key: key("a", "1"), UpdateExpression: &row.expression, ExpressionAttributeNames: row.names, ExpressionAttributeValues: row.values,
			})
			require.Equal(t, "ValidationException", code(t, err))
			require.Equal(t, before, get(t, service, key("a", "1")))
		})
	}
}

func TestWrites_ReturnWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	service := table(t)
	row := key("a", "1")
	row["a"], row["b"] = n("1"), n("1")
	put(t, service, row)
	for returned, want := range map[types.ReturnValue]item{
		types.ReturnValueNone: nil, types.ReturnValueUpdatedOld: {"a": n("1")}, types.ReturnValueUpdatedNew: {"a": n("1")}, types.ReturnValueAllOld: row,
	} {
		out, err := service.UpdateItem(t.Context(), &awsdynamodb.UpdateItemInput{
			TableName: aws.String("table"), Key: key("a", "1"), UpdateExpression: aws.String("SET a = :v"), ExpressionAttributeValues: item{":v": n("1")}, ReturnValues: returned,
		})
		require.NoError(t, err)
		require.Equal(t, want, out.Attributes, returned)
	}
	out, err := service.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String("table"), Item: key("a", "1"), ReturnValues: types.ReturnValueAllOld})
	require.NoError(t, err)
	require.Equal(t, row, out.Attributes)
	_, err = service.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String("table"), Item: key("a", "1"), ReturnValues: types.ReturnValueAllNew})
	require.Equal(t, "ValidationException", code(t, err))
	_, err = service.PutItem(t.Context(), &awsdynamodb.PutItemInput{
		TableName: aws.String("table"), Item: row, ConditionExpression: aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	require.True(t, ok)
	require.Equal(t, key("a", "1"), failed.Item)
}

func TestTimeToLive_EndsItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := table(t)
		_, err := service.UpdateTimeToLive(t.Context(), &awsdynamodb.UpdateTimeToLiveInput{
			TableName: aws.String("table"), TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("end"), Enabled: aws.Bool(true)},
		})
		require.NoError(t, err)
		row := key("a", "1")
		row["end"] = n(strconv.FormatInt(time.Now().Unix()+60, 10))
		put(t, service, row)
		forever := key("b", "1")
		forever["end"] = s("never")
		put(t, service, forever)
		time.Sleep(time.Minute)
		require.NotNil(t, get(t, service, key("a", "1")))
		time.Sleep(time.Second)
		require.Nil(t, get(t, service, key("a", "1")))
		_, err = service.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String("table"), Item: row, ConditionExpression: aws.String("attribute_not_exists(pk)")})
		require.NoError(t, err, "what has ended is in nobody's way")
		require.NotNil(t, get(t, service, key("b", "1")))
	})
}

func TestQuery_ReadsOneHashKeyInOrder(t *testing.T) {
	t.Parallel()
	service := table(t)
	for i := range 12 {
		row := key("a", strconv.Itoa(i))
		row["even"] = &types.AttributeValueMemberBOOL{Value: i%2 == 0}
		put(t, service, row)
	}
	put(t, service, key("b", "1"))
	read := func(change func(*awsdynamodb.QueryInput)) string {
		in := &awsdynamodb.QueryInput{TableName: aws.String("table"), KeyConditionExpression: aws.String("pk = :p"), ExpressionAttributeValues: item{":p": s("a")}}
		change(in)
		var got []string
		pages := awsdynamodb.NewQueryPaginator(service, in)
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			require.NoError(t, err)
			for _, row := range page.Items {
				got = append(got, row["sk"].(*types.AttributeValueMemberN).Value)
			}
			require.EqualValues(t, len(page.Items), page.Count)
		}
		return strings.Join(got, " ")
	}
	require.Equal(t, "0 1 2 3 4 5 6 7 8 9 10 11", read(func(in *awsdynamodb.QueryInput) { in.Limit = aws.Int32(5) }))
	require.Equal(t, "11 10 9 8 7 6 5 4 3 2 1 0", read(func(in *awsdynamodb.QueryInput) { in.Limit, in.ScanIndexForward = aws.Int32(4), aws.Bool(false) }))
	require.Equal(t, "9 10 11", read(func(in *awsdynamodb.QueryInput) {
		in.KeyConditionExpression, in.ExpressionAttributeValues[":n"] = aws.String("pk = :p AND sk >= :n"), n("9")
	}))
	require.Equal(t, "2 3", read(func(in *awsdynamodb.QueryInput) {
		in.KeyConditionExpression = aws.String("(pk = :p) AND sk BETWEEN :n AND :m")
		in.ExpressionAttributeValues[":n"], in.ExpressionAttributeValues[":m"] = n("2"), n("3")
	}))
	require.Equal(t, "0 2 4 6 8 10", read(func(in *awsdynamodb.QueryInput) {
		in.FilterExpression, in.ExpressionAttributeValues[":t"] = aws.String("even = :t"), &types.AttributeValueMemberBOOL{Value: true}
	}))
	for _, bad := range []string{"sk = :p", "pk > :p", "pk = :p AND absent = :p", "pk = :p OR sk = :p", "pk = :p AND pk = :p", "pk = :p AND sk <> :p", "begins_with(pk, :p)"} {
		_, err := service.Query(t.Context(), &awsdynamodb.QueryInput{TableName: aws.String("table"), KeyConditionExpression: &bad, ExpressionAttributeValues: item{":p": s("a")}})
		require.Equal(t, "ValidationException", code(t, err), bad)
	}
	all, err := service.Scan(t.Context(), &awsdynamodb.ScanInput{TableName: aws.String("table"), ProjectionExpression: aws.String("pk")})
	require.NoError(t, err)
	require.Len(t, all.Items, 13)
	require.Equal(t, item{"pk": s("a")}, all.Items[0])
}

func TestKeys_MustBeWhole(t *testing.T) {
	t.Parallel()
	service := table(t)
	for name, bad := range map[string]item{
		"no range key":      {"pk": s("a")},
		"another type":      {"pk": s("a"), "sk": s("1")},
		"an empty hash key": {"pk": s(""), "sk": n("1")},
		"more than the key": {"pk": s("a"), "sk": n("1"), "x": n("1")},
	} {
		_, err := service.GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: aws.String("table"), Key: bad})
		require.Equal(t, "ValidationException", code(t, err), name)
	}
	put(t, service, key("a", "1.0"))
	require.NotNil(t, get(t, service, key("a", "1")), "numbers are one by value")
	_, err := service.GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: aws.String("none"), Key: key("a", "1")})
	require.Equal(t, "ResourceNotFoundException", code(t, err))
}

func TestBatchWrite_PutsAndDeletes(t *testing.T) {
	t.Parallel()
	service := table(t)
	put(t, service, key("a", "0"))
	requests := []types.WriteRequest{{DeleteRequest: &types.DeleteRequest{Key: key("a", "0")}}}
	for i := 1; i < 25; i++ {
		requests = append(requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: key("a", fmt.Sprint(i))}})
	}
	in := &awsdynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"table": requests}}
	_, err := service.BatchWriteItem(t.Context(), in)
	require.NoError(t, err)
	described, err := service.DescribeTable(t.Context(), &awsdynamodb.DescribeTableInput{TableName: aws.String("table")})
	require.NoError(t, err)
	require.EqualValues(t, 24, *described.Table.ItemCount)
	in.RequestItems["table"] = append(requests, requests[0])
	_, err = service.BatchWriteItem(t.Context(), in)
	require.Equal(t, "ValidationException", code(t, err))
}
