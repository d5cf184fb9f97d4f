// Package catalog holds the raw facts of EC2's instance types in a region, with their offerings and prices, and turns them
// into the instance types that a NodeClass sees.
//
// A Catalog is one value, written as one compressed object and read whole. It knows nothing of clusters: InstanceTypes adds
// what a class decides (image family, kubelet settings, disks, subnets) and yields capacity, overhead, labels and offerings.
// Both are pure. Package refresh, below this one, makes a Catalog from the APIs of EC2 and Pricing; only the function
// catalog links it.
package catalog
