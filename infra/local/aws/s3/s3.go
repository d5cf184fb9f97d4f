package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"treadle/infra/local/aws/rpc"
)

// Service holds buckets. Safe for concurrent use.
type Service struct {
	region string

	mu      sync.Mutex
	buckets map[string]map[string]object
}

// object is immutable once stored.
type object struct {
	body        []byte
	etag        string
	modified    time.Time
	contentType string
	encoding    string
	metadata    map[string]string
	checksums   map[string]string // by header, such as x-amz-checksum-crc32
}

// New returns a service without buckets.
func New(region string) *Service {
	return &Service{region: region, buckets: map[string]map[string]object{}}
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// CreateBucket makes a bucket. Making one's own again is no error in us-east-1 only, as in S3.
func (s *Service) CreateBucket(_ context.Context, in *s3.CreateBucketInput, _ ...func(*s3.Options)) (*s3.CreateBucketOutput, error) {
	name := aws.ToString(in.Bucket)
	if !bucketName.MatchString(name) {
		return nil, rpc.Errorf("InvalidBucketName", "The specified bucket is not valid.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.buckets[name]; ok {
		if s.region != "us-east-1" {
			return nil, &types.BucketAlreadyOwnedByYou{Message: aws.String("Your previous request to create the named bucket succeeded and you already own it.")}
		}
	} else {
		s.buckets[name] = map[string]object{}
	}
	return &s3.CreateBucketOutput{Location: aws.String("/" + name)}, nil
}

// bucket returns the objects of a bucket. The lock must be held.
func (s *Service) bucket(name *string) (map[string]object, error) {
	b, ok := s.buckets[aws.ToString(name)]
	if !ok {
		return nil, &types.NoSuchBucket{Message: aws.String("The specified bucket does not exist")}
	}
	return b, nil
}

// HeadBucket says whether a bucket exists.
func (s *Service) HeadBucket(_ context.Context, in *s3.HeadBucketInput, _ ...func(*s3.Options)) (*s3.HeadBucketOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.bucket(in.Bucket); err != nil {
		return nil, &types.NotFound{Message: aws.String("Not Found")}
	}
	return &s3.HeadBucketOutput{BucketRegion: aws.String(s.region)}, nil
}

// PutObject stores an object. IfNoneMatch "*" wants that there is none, IfMatch that it has the entity tag.
func (s *Service) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	var body []byte
	if in.Body != nil {
		var err error
		if body, err = io.ReadAll(in.Body); err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
	}
	sum := md5.Sum(body)
	o := object{
		body:        body,
		etag:        `"` + hex.EncodeToString(sum[:]) + `"`,
		modified:    time.Now().UTC(),
		contentType: cmp.Or(aws.ToString(in.ContentType), "application/octet-stream"),
		encoding:    aws.ToString(in.ContentEncoding),
		metadata:    maps.Clone(in.Metadata),
		checksums:   map[string]string{},
	}
	for header, value := range map[string]*string{
		headerCRC32: in.ChecksumCRC32, headerCRC32C: in.ChecksumCRC32C, headerCRC64: in.ChecksumCRC64NVME,
		headerSHA1: in.ChecksumSHA1, headerSHA256: in.ChecksumSHA256,
	} {
		if value == nil {
			continue
		}
		if got := checksum(header, body); got != *value {
			return nil, rpc.Errorf("BadDigest", "The %s you specified did not match the calculated checksum.", header)
		}
		o.checksums[header] = *value
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.bucket(in.Bucket)
	if err != nil {
		return nil, err
	}
	key := aws.ToString(in.Key)
	if key == "" || len(key) > 1024 {
		return nil, rpc.Errorf("KeyTooLongError", "Your key must have 1 to 1024 bytes.")
	}
	if err := writable(b, key, in.IfMatch, in.IfNoneMatch); err != nil {
		return nil, err
	}
	b[key] = o
	return &s3.PutObjectOutput{
		ETag: aws.String(o.etag), ChecksumCRC32: in.ChecksumCRC32, ChecksumCRC32C: in.ChecksumCRC32C,
		ChecksumCRC64NVME: in.ChecksumCRC64NVME, ChecksumSHA1: in.ChecksumSHA1, ChecksumSHA256: in.ChecksumSHA256,
	}, nil
}

// writable holds a write or a deletion against its conditions.
func writable(b map[string]object, key string, ifMatch, ifNoneMatch *string) error {
	old, exists := b[key]
	switch {
	case ifMatch != nil && !exists:
		return noSuchKey()
	case ifMatch != nil && !matches(*ifMatch, old.etag), ifNoneMatch != nil && *ifNoneMatch == "*" && exists:
		return preconditionFailed()
	case ifNoneMatch != nil && *ifNoneMatch != "*":
		return rpc.Errorf("NotImplemented", "A header you provided implies functionality that is not implemented")
	}
	return nil
}

// matches reports whether a list of entity tags, quoted or not, or "*", holds the tag.
func matches(list, etag string) bool {
	for tag := range strings.SplitSeq(list, ",") {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		if tag == "*" || strings.Trim(tag, `"`) == strings.Trim(etag, `"`) {
			return true
		}
	}
	return false
}

func noSuchKey() error {
	return &types.NoSuchKey{Message: aws.String("The specified key does not exist.")}
}

func preconditionFailed() error {
	return rpc.Errorf("PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
}

// find returns an object that may be read under the conditions.
func (s *Service) find(bucket, key, ifMatch, ifNoneMatch *string, ifModifiedSince *time.Time) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.bucket(bucket)
	if err != nil {
		return object{}, err
	}
	o, ok := b[aws.ToString(key)]
	switch {
	case !ok:
		return object{}, noSuchKey()
	case ifMatch != nil && !matches(*ifMatch, o.etag):
		return object{}, preconditionFailed()
	case ifNoneMatch != nil && matches(*ifNoneMatch, o.etag),
		ifNoneMatch == nil && ifModifiedSince != nil && !o.modified.Truncate(time.Second).After(*ifModifiedSince):
		return object{}, rpc.Errorf("NotModified", "Not Modified")
	}
	return o, nil
}

// GetObject returns an object, or a range of its bytes. An unmet IfNoneMatch is the error NotModified.
func (s *Service) GetObject(_ context.Context, in *s3.GetObjectInput, _ ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	o, err := s.find(in.Bucket, in.Key, in.IfMatch, in.IfNoneMatch, in.IfModifiedSince)
	if err != nil {
		return nil, err
	}
	body, contentRange, err := cut(o.body, aws.ToString(in.Range))
	if err != nil {
		return nil, err
	}
	out := &s3.GetObjectOutput{
		AcceptRanges:  aws.String("bytes"),
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: aws.Int64(int64(len(body))),
		ContentType:   aws.String(o.contentType),
		ETag:          aws.String(o.etag),
		LastModified:  aws.Time(o.modified),
		Metadata:      maps.Clone(o.metadata),
	}
	if o.encoding != "" {
		out.ContentEncoding = aws.String(o.encoding)
	}
	if contentRange != "" {
		out.ContentRange = aws.String(contentRange)
	} else if in.ChecksumMode == types.ChecksumModeEnabled {
		out.ChecksumCRC32, out.ChecksumCRC32C, out.ChecksumCRC64NVME = o.sum(headerCRC32), o.sum(headerCRC32C), o.sum(headerCRC64)
		out.ChecksumSHA1, out.ChecksumSHA256 = o.sum(headerSHA1), o.sum(headerSHA256)
	}
	return out, nil
}

func (o object) sum(header string) *string {
	if value, ok := o.checksums[header]; ok {
		return aws.String(value)
	}
	return nil
}

// cut returns the bytes of one range, such as bytes=0-99, bytes=100- or bytes=-10.
func cut(body []byte, spec string) (part []byte, contentRange string, err error) {
	if spec == "" {
		return body, "", nil
	}
	var first, last int
	size := len(body)
	switch {
	case scans(spec, "bytes=-%d", &last):
		first, last = max(0, size-last), size-1
	case scans(spec, "bytes=%d-%d", &first, &last):
		last = min(last, size-1)
	case scans(spec, "bytes=%d-", &first):
		last = size - 1
	default:
		return body, "", nil // what is no range is ignored
	}
	if first > last {
		return nil, "", rpc.Errorf("InvalidRange", "The requested range is not satisfiable")
	}
	return body[first : last+1], fmt.Sprintf("bytes %d-%d/%d", first, last, size), nil
}

func scans(text, format string, into ...any) bool {
	n, err := fmt.Sscanf(text, format, into...)
	return err == nil && n == len(into)
}

// HeadObject returns what GetObject does, without the body.
func (s *Service) HeadObject(ctx context.Context, in *s3.HeadObjectInput, _ ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	out, err := s.GetObject(ctx, &s3.GetObjectInput{
		Bucket: in.Bucket, Key: in.Key, IfMatch: in.IfMatch, IfNoneMatch: in.IfNoneMatch, IfModifiedSince: in.IfModifiedSince,
		Range: in.Range, ChecksumMode: in.ChecksumMode,
	})
	if err != nil {
		return nil, err
	}
	return &s3.HeadObjectOutput{
		AcceptRanges: out.AcceptRanges, ContentLength: out.ContentLength, ContentType: out.ContentType,
		ContentEncoding: out.ContentEncoding, ContentRange: out.ContentRange, ETag: out.ETag, LastModified: out.LastModified,
		Metadata: out.Metadata, ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C,
		ChecksumCRC64NVME: out.ChecksumCRC64NVME, ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256,
	}, nil
}

// DeleteObject deletes an object. Deleting what is not there is no error.
func (s *Service) DeleteObject(_ context.Context, in *s3.DeleteObjectInput, _ ...func(*s3.Options)) (*s3.DeleteObjectOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.bucket(in.Bucket)
	if err != nil {
		return nil, err
	}
	if in.IfMatch != nil {
		if err := writable(b, aws.ToString(in.Key), in.IfMatch, nil); err != nil {
			return nil, err
		}
	}
	delete(b, aws.ToString(in.Key))
	return &s3.DeleteObjectOutput{}, nil
}

// ListObjectsV2 lists keys in order, a thousand a page, with what lies below a delimiter folded into prefixes.
func (s *Service) ListObjectsV2(_ context.Context, in *s3.ListObjectsV2Input, _ ...func(*s3.Options)) (*s3.ListObjectsV2Output, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.bucket(in.Bucket)
	if err != nil {
		return nil, err
	}
	limit := 1000
	if in.MaxKeys != nil {
		limit = min(limit, max(0, int(*in.MaxKeys)))
	}
	prefix, delimiter := aws.ToString(in.Prefix), aws.ToString(in.Delimiter)
	after := cmp.Or(aws.ToString(in.ContinuationToken), aws.ToString(in.StartAfter))
	out := &s3.ListObjectsV2Output{
		Name: in.Bucket, Prefix: in.Prefix, Delimiter: in.Delimiter, StartAfter: in.StartAfter,
		ContinuationToken: in.ContinuationToken, MaxKeys: aws.Int32(int32(limit)), IsTruncated: aws.Bool(false),
	}
	count, last := 0, ""
	for _, key := range slices.Sorted(maps.Keys(b)) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok || key <= after {
			continue
		}
		folded := ""
		if head, _, found := strings.Cut(rest, delimiter); found && delimiter != "" {
			folded = prefix + head + delimiter
			if folded == last || folded == after {
				continue
			}
		}
		if count == limit {
			out.IsTruncated, out.NextContinuationToken = aws.Bool(true), aws.String(last)
			break
		}
		count++
		if folded != "" {
			out.CommonPrefixes = append(out.CommonPrefixes, types.CommonPrefix{Prefix: aws.String(folded)})
			last = folded
			continue
		}
		o := b[key]
		out.Contents = append(out.Contents, types.Object{
			Key: aws.String(key), ETag: aws.String(o.etag), Size: aws.Int64(int64(len(o.body))),
			LastModified: aws.Time(o.modified), StorageClass: types.ObjectStorageClassStandard,
		})
		last = key
	}
	out.KeyCount = aws.Int32(int32(count))
	return out, nil
}
