package s3

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"treadle/infra/local/aws/rpc"
)

const (
	headerCRC32  = "x-amz-checksum-crc32"
	headerCRC32C = "x-amz-checksum-crc32c"
	headerCRC64  = "x-amz-checksum-crc64nvme"
	headerSHA1   = "x-amz-checksum-sha1"
	headerSHA256 = "x-amz-checksum-sha256"

	// nvme is the polynomial of CRC-64/NVME in the reversed form that hash/crc64 wants.
	nvme = 0x9a6c9329ac4bc9b5
)

// checksum returns the base64 checksum of body for a checksum header.
func checksum(header string, body []byte) string {
	var h hash.Hash
	switch header {
	case headerCRC32:
		h = crc32.NewIEEE()
	case headerCRC32C:
		h = crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case headerCRC64:
		h = crc64.New(crc64.MakeTable(nvme))
	case headerSHA1:
		h = sha1.New()
	case headerSHA256:
		h = sha256.New()
	default:
		return ""
	}
	h.Write(body)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// maxObject is what S3 takes in one piece.
const maxObject = 5 << 30

// readBody returns the object of a request. A body in aws-chunked form is unwrapped, and the trailers behind it become
// headers of the request.
func readBody(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(io.LimitReader(r.Body, maxObject))
	}
	malformed := rpc.Errorf("IncompleteBody", "The chunks of the request body are malformed.")
	in := textproto.NewReader(bufio.NewReader(r.Body))
	var body []byte
	for {
		line, err := in.ReadLine()
		if err != nil {
			return nil, malformed
		}
		size, _, _ := strings.Cut(line, ";") // a signature may follow
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil || n < 0 || n > maxObject {
			return nil, malformed
		}
		if n == 0 {
			break
		}
		chunk := make([]byte, n)
		if _, err := io.ReadFull(in.R, chunk); err != nil {
			return nil, malformed
		}
		body = append(body, chunk...)
		if end, err := in.ReadLine(); err != nil || end != "" {
			return nil, malformed
		}
	}
	for {
		line, err := in.ReadLine()
		if err != nil || line == "" {
			break // an SDK may leave out the empty line at the end
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, malformed
		}
		r.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	want := r.Header.Get("X-Amz-Decoded-Content-Length")
	if want != "" && want != strconv.Itoa(len(body)) {
		return nil, malformed
	}
	return body, nil
}
