// Package refresh makes a catalogue from EC2's and Pricing's APIs.
//
// Types and the zones that offer them are required: without them there is no catalogue. Prices are not: where a source of prices
// is out of reach, as Pricing is from an isolated network, those of the previous catalogue stay or a table serves, and the caller
// is told. Only the function catalog links this package.
package refresh
