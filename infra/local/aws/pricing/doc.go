// Package pricing is GetProducts of the AWS Price List for EC2 instances: on-demand Linux prices in one region, in the
// price list's own JSON. Reserved terms and other operating systems are left out.
package pricing
