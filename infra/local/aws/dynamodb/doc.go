// Package dynamodb is Amazon DynamoDB in memory: tables with a hash key and perhaps a range key, items, and the
// expression language of conditions, updates, filters and key conditions.
//
// An item whose time to live is over disappears at once; the real service takes its time, so a reader must look at the
// attribute all the same. What the real service refuses is refused here too: reserved words, names and values that an
// expression does not use, attributes that change a key.
//
// Left out: indexes, transactions, streams, capacity, and the older non-expression parameters.
package dynamodb
