// Package s3 is Amazon S3 in memory: buckets and whole objects behind the methods of the SDK's client, with entity
// tags, conditional reads and writes, and the checksums and chunked bodies that SDKs send.
//
// Requests must name the bucket in the path, as SDKs do for an endpoint that is an address. Versions, multipart
// uploads, access control and lifecycles are left out.
package s3
