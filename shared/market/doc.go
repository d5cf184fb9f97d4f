// Package market says what EC2 has to offer right now: the catalogue of instance types that the function catalog keeps in S3, seen through a
// class, with what nodes taught and less what was refused lately. A warm function keeps one Market, because a region's types take
// megabytes and a while to read.
package market
