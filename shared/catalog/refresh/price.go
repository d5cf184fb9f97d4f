package refresh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/pricing/types"
)

// PricingRegion returns the region whose Pricing endpoint knows the prices of region (S-209).
func PricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	default:
		return "us-east-1"
	}
}

// onDemand returns the on-demand prices of Linux: of shared tenancy, and of bare metal, which is only sold as dedicated (S-206).
// What was read before an error is returned with it.
func (r *Refresher) onDemand(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	var errs []error
	for _, sort := range []struct{ tenancy, family string }{
		{"Shared", "Compute Instance"},
		{"Dedicated", "Compute Instance (bare metal)"},
	} {
		if err := r.products(ctx, sort.tenancy, sort.family, out); err != nil {
			errs = append(errs, fmt.Errorf("get prices of %s, %s: %w", strings.ToLower(sort.family), strings.ToLower(sort.tenancy), err))
		}
	}
	if len(out) == 0 && len(errs) == 0 {
		return nil, errors.New("get prices: there are none")
	}
	return out, errors.Join(errs...)
}

func (r *Refresher) products(ctx context.Context, tenancy, family string, out map[string]int64) error {
	in := &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"),
		MaxResults:  aws.Int32(100),
		Filters: []types.Filter{
			equals("regionCode", r.region),
			equals("serviceCode", "AmazonEC2"),
			equals("tenancy", tenancy),
			equals("productFamily", family),
			equals("operatingSystem", "Linux"),
			equals("preInstalledSw", "NA"),
			equals("capacitystatus", "Used"),
			equals("marketoption", "OnDemand"),
		},
	}
	for {
		page, err := r.pricing.GetProducts(ctx, in, patientPricing)
		if err != nil {
			return err
		}
		for _, text := range page.PriceList {
			name, price, err := product(text)
			if err != nil {
				return err
			}
			if price > 0 {
				out[name] = price
			}
		}
		if aws.ToString(page.NextToken) == "" {
			return nil
		}
		in.NextToken = page.NextToken
	}
}

func equals(field, value string) types.Filter {
	return types.Filter{Type: types.FilterTypeTermMatch, Field: aws.String(field), Value: aws.String(value)}
}

// product reads one entry of a price list. China is priced in yuan; all that is compared is priced alike.
func product(text string) (instanceType string, microPerHour int64, err error) {
	var entry struct {
		Product struct {
			Attributes struct {
				InstanceType string `json:"instanceType"`
			} `json:"attributes"`
		} `json:"product"`
		Terms struct {
			OnDemand map[string]struct {
				PriceDimensions map[string]struct {
					Unit         string            `json:"unit"`
					PricePerUnit map[string]string `json:"pricePerUnit"`
				} `json:"priceDimensions"`
			} `json:"OnDemand"`
		} `json:"terms"`
	}
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		return "", 0, fmt.Errorf("read price list: %w", err)
	}
	name := entry.Product.Attributes.InstanceType
	for _, offer := range entry.Terms.OnDemand {
		for _, dimension := range offer.PriceDimensions {
			for _, currency := range []string{"USD", "CNY"} {
				price, given := dimension.PricePerUnit[currency]
				if !given {
					continue
				}
				micro, err := microUSD(price)
				if err != nil {
					return "", 0, fmt.Errorf("read price of %s: %w", name, err)
				}
				microPerHour = max(microPerHour, micro)
			}
		}
	}
	return name, microPerHour, nil
}

// microUSD reads a price such as 0.0416000000 and rounds it to a millionth.
func microUSD(text string) (int64, error) {
	price, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no price", text)
	}
	if price < 0 || price > 1e6 || math.IsNaN(price) {
		return 0, fmt.Errorf("%q is no sensible price", text)
	}
	return int64(math.Round(price * 1e6)), nil
}
