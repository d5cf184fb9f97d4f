// Package store keeps Treadle's two kinds of S3 objects: which clusters are served and how to reach them, and the catalogue of
// instance types.
//
// Objects are read and written by signed HTTP requests. A function that needs one object would pay for the S3 SDK with four
// megabytes and several milliseconds of every cold start; the request is one header away from net/http.
package store
