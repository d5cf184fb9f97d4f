package pricing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"treadle/infra/local/aws/rpc"
)

// Service holds the price list. Safe for concurrent use.
type Service struct {
	region string

	mu       sync.Mutex
	products []product
}

// product is one entry of the list: what filters look at, and its JSON.
type product struct {
	attributes map[string]string
	list       string
}

// New returns a list of the region with prices by instance type, in USD per hour.
func New(region string, prices map[string]float64) *Service {
	s := &Service{region: region}
	s.SetPrices(prices)
	return s
}

// SetPrices replaces all prices, in USD per hour by instance type.
func (s *Service) SetPrices(prices map[string]float64) {
	now := time.Now().UTC()
	var products []product
	for _, typ := range slices.Sorted(maps.Keys(prices)) {
		tenancies := []string{"Shared"}
		if bareMetal(typ) {
			tenancies = append(tenancies, "Dedicated")
		}
		for _, tenancy := range tenancies {
			products = append(products, newProduct(s.region, typ, tenancy, prices[typ], now))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.products = products
}

func bareMetal(typ string) bool { return strings.Contains(typ, ".metal") }

// Codes of the term "on demand" and of its hourly rate, as every entry of the list has them.
const (
	termCode = "JRTCKXETXF"
	rateCode = "6YS6EN2CT7"
)

func newProduct(region, typ, tenancy string, usd float64, published time.Time) product {
	family, prefix := "Compute Instance", "BoxUsage"
	if bareMetal(typ) {
		family = "Compute Instance (bare metal)"
	}
	if tenancy == "Dedicated" {
		prefix = "DedicatedUsage"
	}
	attributes := map[string]string{
		"capacitystatus":  "Used",
		"instanceType":    typ,
		"licenseModel":    "No License required",
		"locationType":    "AWS Region",
		"marketoption":    "OnDemand",
		"operatingSystem": "Linux",
		"operation":       "RunInstances",
		"preInstalledSw":  "NA",
		"regionCode":      region,
		"servicecode":     "AmazonEC2",
		"servicename":     "Amazon Elastic Compute Cloud",
		"tenancy":         tenancy,
		"usagetype":       prefix + ":" + typ,
	}
	sum := sha256.Sum256([]byte(region + typ + tenancy))
	sku := base32.StdEncoding.EncodeToString(sum[:])[:16]
	term, rate := sku+"."+termCode, sku+"."+termCode+"."+rateCode
	list, err := json.Marshal(map[string]any{
		"product":         map[string]any{"productFamily": family, "attributes": attributes, "sku": sku},
		"serviceCode":     "AmazonEC2",
		"version":         published.Format("20060102150405"),
		"publicationDate": published.Format(time.RFC3339),
		"terms": map[string]any{"OnDemand": map[string]any{term: map[string]any{
			"sku": sku, "offerTermCode": termCode, "effectiveDate": published.Format(time.RFC3339), "termAttributes": map[string]any{},
			"priceDimensions": map[string]any{rate: map[string]any{
				"rateCode": rate, "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "appliesTo": []string{},
				"description":  fmt.Sprintf("$%v per On Demand Linux %s Instance Hour", usd, typ),
				"pricePerUnit": map[string]string{"USD": strconv.FormatFloat(usd, 'f', 10, 64)},
			}},
		}}},
	})
	if err != nil {
		panic(err) // strings always encode
	}
	filterable := map[string]string{"productfamily": family}
	for name, value := range attributes {
		filterable[strings.ToLower(name)] = value // field names match in any case
	}
	return product{attributes: filterable, list: string(list)}
}

// Handler serves the list over AWS JSON 1.1.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return rpc.JSON(rpc.Service{
		Name:    "pricing",
		Errors:  pricing.TypeRegistry,
		Hooks:   h,
		Actions: map[string]rpc.Action{"GetProducts": rpc.Bind(s.GetProducts)},
	}, "1.1")
}

// GetProducts returns the entries that meet all filters, by instance type, a hundred a page.
func (s *Service) GetProducts(_ context.Context, in *pricing.GetProductsInput, _ ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	if aws.ToString(in.ServiceCode) != "AmazonEC2" {
		return nil, &types.InvalidParameterException{Message: aws.String("Only the service code AmazonEC2 is known.")}
	}
	for _, f := range in.Filters {
		if f.Field == nil || f.Value == nil || !slices.Contains(f.Type.Values(), f.Type) {
			return nil, &types.InvalidParameterException{Message: aws.String("A filter needs a known type, a field and a value.")}
		}
	}
	start := 0
	if in.NextToken != nil {
		n, err := strconv.Atoi(*in.NextToken)
		if err != nil || n < 0 {
			return nil, &types.InvalidNextTokenException{Message: aws.String("The pagination token is invalid.")}
		}
		start = n
	}
	limit := int(cmp.Or(aws.ToInt32(in.MaxResults), 100))
	if limit < 1 || limit > 100 {
		return nil, &types.InvalidParameterException{Message: aws.String("MaxResults must be between 1 and 100.")}
	}
	s.mu.Lock()
	products := s.products
	s.mu.Unlock()
	out := &pricing.GetProductsOutput{FormatVersion: aws.String("aws_v1"), PriceList: []string{}}
	for i := start; i < len(products); i++ {
		if !products[i].meets(in.Filters) {
			continue
		}
		if len(out.PriceList) == limit {
			out.NextToken = aws.String(strconv.Itoa(i))
			break
		}
		out.PriceList = append(out.PriceList, products[i].list)
	}
	return out, nil
}

func (p product) meets(filters []types.Filter) bool {
	for _, f := range filters {
		have, ok := p.attributes[strings.ToLower(*f.Field)]
		want := *f.Value
		switch f.Type {
		case types.FilterTypeContains:
			ok = ok && strings.Contains(have, want)
		case types.FilterTypeAnyOf:
			ok = ok && slices.Contains(strings.Split(want, ","), have)
		case types.FilterTypeNoneOf:
			ok = !ok || !slices.Contains(strings.Split(want, ","), have)
		default: // TERM_MATCH and EQUALS
			ok = ok && strings.EqualFold(have, want)
		}
		if !ok {
			return false
		}
	}
	return true
}
