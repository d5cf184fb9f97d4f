package s3

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"treadle/infra/local/aws/rpc"
)

// Handler serves the buckets over S3's REST protocol, with the bucket in the path.
func (s *Service) Handler(h rpc.Hooks) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		action, serve := s.route(r.Method, key)
		keyID, _ := rpc.Credential(r)
		w.Header().Set("X-Amz-Request-Id", rpc.NewID())
		out, err := rpc.Around(h, rpc.Call{Service: "s3", Action: action, AccessKeyID: keyID}, func() (any, error) {
			if serve == nil || bucket == "" || len(unserved(r.URL.Query())) > 0 {
				return nil, rpc.Errorf("NotImplemented", "%s %s is not served here", r.Method, r.URL.RequestURI())
			}
			return serve(r, bucket, key)
		})
		if err != nil {
			writeError(w, r, err)
			return
		}
		_ = out.(reply)(w) // the client may have gone, which is its own affair
	})
}

// reply writes the answer of an operation.
type reply func(http.ResponseWriter) error

type operation func(r *http.Request, bucket, key string) (any, error)

// route names the operation of a request. IAM knows some of them by another name: ListObjectsV2 by s3:ListBucket, and
// HeadObject by s3:GetObject.
func (s *Service) route(method, key string) (action string, serve operation) {
	if key == "" {
		switch method {
		case http.MethodPut:
			return "CreateBucket", s.serveCreateBucket
		case http.MethodHead:
			return "HeadBucket", s.serveHeadBucket
		case http.MethodGet:
			return "ListObjectsV2", s.serveList
		}
		return method, nil
	}
	switch method {
	case http.MethodPut:
		return "PutObject", s.servePut
	case http.MethodGet:
		return "GetObject", s.serveGet
	case http.MethodHead:
		return "HeadObject", s.serveHead
	case http.MethodDelete:
		return "DeleteObject", s.serveDelete
	}
	return method, nil
}

// unserved returns the query parameters that ask for something else than a plain operation.
func unserved(q url.Values) []string {
	var names []string
	for name := range q {
		switch name {
		case "x-id", "list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type", "fetch-owner":
		default:
			if !strings.HasPrefix(name, "X-Amz-") {
				names = append(names, name)
			}
		}
	}
	return names
}

func (s *Service) serveCreateBucket(r *http.Request, bucket, _ string) (any, error) {
	out, err := s.CreateBucket(r.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	if err != nil {
		return nil, err
	}
	return reply(func(w http.ResponseWriter) error {
		w.Header().Set("Location", *out.Location)
		return nil
	}), nil
}

func (s *Service) serveHeadBucket(r *http.Request, bucket, _ string) (any, error) {
	out, err := s.HeadBucket(r.Context(), &s3.HeadBucketInput{Bucket: &bucket})
	if err != nil {
		return nil, err
	}
	return reply(func(w http.ResponseWriter) error {
		w.Header().Set("X-Amz-Bucket-Region", *out.BucketRegion)
		return nil
	}), nil
}

func (s *Service) servePut(r *http.Request, bucket, key string) (any, error) {
	if r.Header.Get("X-Amz-Copy-Source") != "" {
		return nil, rpc.Errorf("NotImplemented", "copying is not served here")
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	in := &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: bytes.NewReader(body),
		IfMatch: header(r, "If-Match"), IfNoneMatch: header(r, "If-None-Match"),
		ContentType:   header(r, "Content-Type"),
		ChecksumCRC32: header(r, headerCRC32), ChecksumCRC32C: header(r, headerCRC32C), ChecksumCRC64NVME: header(r, headerCRC64),
		ChecksumSHA1: header(r, headerSHA1), ChecksumSHA256: header(r, headerSHA256),
		Metadata: map[string]string{},
	}
	encoding := strings.Trim(strings.ReplaceAll(r.Header.Get("Content-Encoding"), "aws-chunked", ""), ", ")
	if encoding != "" {
		in.ContentEncoding = &encoding
	}
	for name := range r.Header {
		if meta, ok := strings.CutPrefix(strings.ToLower(name), "x-amz-meta-"); ok {
			in.Metadata[meta] = r.Header.Get(name)
		}
	}
	out, err := s.PutObject(r.Context(), in)
	if err != nil {
		return nil, err
	}
	return reply(func(w http.ResponseWriter) error {
		set(w, "ETag", out.ETag)
		set(w, headerCRC32, out.ChecksumCRC32)
		set(w, headerCRC32C, out.ChecksumCRC32C)
		set(w, headerCRC64, out.ChecksumCRC64NVME)
		set(w, headerSHA1, out.ChecksumSHA1)
		set(w, headerSHA256, out.ChecksumSHA256)
		return nil
	}), nil
}

func (s *Service) serveGet(r *http.Request, bucket, key string) (any, error) {
	in := &s3.GetObjectInput{
		Bucket: &bucket, Key: &key, Range: header(r, "Range"), IfMatch: header(r, "If-Match"), IfNoneMatch: header(r, "If-None-Match"),
		ChecksumMode: types.ChecksumMode(r.Header.Get("X-Amz-Checksum-Mode")),
	}
	if t, err := http.ParseTime(r.Header.Get("If-Modified-Since")); err == nil {
		in.IfModifiedSince = &t
	}
	out, err := s.GetObject(r.Context(), in)
	if err != nil {
		return nil, err
	}
	return reply(func(w http.ResponseWriter) error {
		set(w, "ETag", out.ETag)
		set(w, "Accept-Ranges", out.AcceptRanges)
		set(w, "Content-Type", out.ContentType)
		set(w, "Content-Encoding", out.ContentEncoding)
		set(w, "Content-Range", out.ContentRange)
		set(w, headerCRC32, out.ChecksumCRC32)
		set(w, headerCRC32C, out.ChecksumCRC32C)
		set(w, headerCRC64, out.ChecksumCRC64NVME)
		set(w, headerSHA1, out.ChecksumSHA1)
		set(w, headerSHA256, out.ChecksumSHA256)
		w.Header().Set("Last-Modified", out.LastModified.Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.FormatInt(*out.ContentLength, 10))
		for name, value := range out.Metadata {
			w.Header().Set("X-Amz-Meta-"+name, value)
		}
		if out.ContentRange != nil {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, err := io.Copy(w, out.Body)
		return err
	}), nil
}

// serveHead answers as serveGet does: net/http leaves out the body of an answer to HEAD.
func (s *Service) serveHead(r *http.Request, bucket, key string) (any, error) {
	return s.serveGet(r, bucket, key)
}

func (s *Service) serveDelete(r *http.Request, bucket, key string) (any, error) {
	if _, err := s.DeleteObject(r.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key, IfMatch: header(r, "If-Match")}); err != nil {
		return nil, err
	}
	return reply(func(w http.ResponseWriter) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}), nil
}

// listResult is the XML of a list.
type listResult struct {
	XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name                  string
	Prefix                string
	Delimiter             string `xml:",omitempty"`
	StartAfter            string `xml:",omitempty"`
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	EncodingType          string `xml:",omitempty"`
	KeyCount              int32
	MaxKeys               int32
	IsTruncated           bool
	Contents              []listedObject
	CommonPrefixes        []listedPrefix
}

type listedObject struct {
	Key          string
	LastModified string
	ETag         string
	Size         int64
	StorageClass string
}

type listedPrefix struct{ Prefix string }

func (s *Service) serveList(r *http.Request, bucket, _ string) (any, error) {
	q := r.URL.Query()
	if q.Get("list-type") != "2" {
		return nil, rpc.Errorf("NotImplemented", "only version 2 of the list is served here")
	}
	in := &s3.ListObjectsV2Input{
		Bucket: &bucket, Prefix: param(q, "prefix"), Delimiter: param(q, "delimiter"),
		StartAfter: param(q, "start-after"), ContinuationToken: param(q, "continuation-token"),
	}
	if q.Has("max-keys") {
		n, err := strconv.ParseInt(q.Get("max-keys"), 10, 32)
		if err != nil {
			return nil, rpc.Errorf("InvalidArgument", "Provided max-keys not an integer or within integer range")
		}
		in.MaxKeys = aws.Int32(int32(n))
	}
	out, err := s.ListObjectsV2(r.Context(), in)
	if err != nil {
		return nil, err
	}
	encode := func(s string) string { return s }
	if q.Get("encoding-type") == "url" {
		encode = url.QueryEscape
	}
	result := listResult{
		Name: bucket, Prefix: encode(q.Get("prefix")), Delimiter: encode(q.Get("delimiter")), StartAfter: encode(q.Get("start-after")),
		ContinuationToken: q.Get("continuation-token"), NextContinuationToken: aws.ToString(out.NextContinuationToken),
		EncodingType: q.Get("encoding-type"), KeyCount: *out.KeyCount, MaxKeys: *out.MaxKeys, IsTruncated: *out.IsTruncated,
	}
	for _, o := range out.Contents {
		result.Contents = append(result.Contents, listedObject{
			encode(*o.Key), o.LastModified.Format("2006-01-02T15:04:05.000Z"), *o.ETag, *o.Size, string(o.StorageClass),
		})
	}
	for _, p := range out.CommonPrefixes {
		result.CommonPrefixes = append(result.CommonPrefixes, listedPrefix{encode(*p.Prefix)})
	}
	return reply(func(w http.ResponseWriter) error {
		w.Header().Set("Content-Type", "application/xml")
		return xml.NewEncoder(w).Encode(result)
	}), nil
}

func header(r *http.Request, name string) *string {
	if value := r.Header.Get(name); value != "" {
		return &value
	}
	return nil
}

func param(q url.Values, name string) *string {
	if !q.Has(name) {
		return nil
	}
	return aws.String(q.Get(name))
}

func set(w http.ResponseWriter, name string, value *string) {
	if value != nil {
		w.Header().Set(name, *value)
	}
}

// errorBody is the XML of an error.
type errorBody struct {
	XMLName             xml.Name `xml:"Error"`
	Code, Message       string
	Resource, RequestId string
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	code, message := "InternalError", err.Error()
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	status := http.StatusBadRequest
	switch code {
	case "NoSuchKey", "NoSuchBucket", "NotFound":
		status = http.StatusNotFound
	case "NotModified":
		w.Header().Set("ETag", r.Header.Get("If-None-Match"))
		w.WriteHeader(http.StatusNotModified) // without a body
		return
	case "PreconditionFailed":
		status = http.StatusPreconditionFailed
	case "BucketAlreadyOwnedByYou", "ConditionalRequestConflict":
		status = http.StatusConflict
	case "AccessDenied":
		status = http.StatusForbidden
	case "InvalidRange":
		status = http.StatusRequestedRangeNotSatisfiable
	case "NotImplemented":
		status = http.StatusNotImplemented
	case "SlowDown":
		status = http.StatusServiceUnavailable
	case "InternalError":
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(errorBody{Code: code, Message: message, Resource: r.URL.Path, RequestId: w.Header().Get("X-Amz-Request-Id")}) // as above
}
