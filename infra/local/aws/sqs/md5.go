package sqs

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// md5Of is the digest that SDKs compare to see that a body arrived whole.
func md5Of(body string) string {
	sum := md5.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}

// md5OfAttributes is the digest over attributes by name: name, type and value, each after its length; the value after
// a byte that says whether it is text or binary.
func md5OfAttributes(attributes map[string]types.MessageAttributeValue) string {
	h := md5.New()
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		writeSized(h, name)
		writeSized(h, aws.ToString(a.DataType))
		if strings.HasPrefix(aws.ToString(a.DataType), "Binary") {
			h.Write([]byte{2})
			writeSized(h, string(a.BinaryValue))
		} else {
			h.Write([]byte{1})
			writeSized(h, aws.ToString(a.StringValue))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeSized(h hash.Hash, s string) {
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
	h.Write([]byte(s))
}

// wanted reports whether a receiver asked for the attribute: by name, by prefix.*, or all.
func wanted(names []string, name string) bool {
	return slices.ContainsFunc(names, func(asked string) bool {
		prefix, isPrefix := strings.CutSuffix(asked, ".*")
		return asked == name || asked == "All" || isPrefix && strings.HasPrefix(name, prefix)
	})
}
