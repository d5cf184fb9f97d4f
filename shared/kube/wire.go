package kube

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
)

// Kubernetes' protobuf is an envelope (four bytes of magic and a runtime.Unknown whose field 2 is the object) around plain
// protobuf messages. The readers below take it apart without building Kubernetes' types: a LIST as a stream, item by item,
// and an item field by field, so that only what a noun holds is ever decoded.

const magic = "k8s\x00"

var errMalformed = errors.New("malformed protobuf")

const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5

	// maxItem bounds a single object; etcd refuses anything larger than 1.5 MiB by default.
	maxItem = 16 << 20
)

// field is one field of a message: num for varints, bytes for everything with a length.
type field struct {
	number int
	num    uint64
	bytes  []byte
}

// int is the value of a signed field, which protobuf writes as its two's complement.
func (f field) int() int64 { return int64(f.num) } //nolint:gosec // see above

// fields calls each for every field of a message in its order. It copies nothing.
func fields(msg []byte, each func(field) error) error {
	for len(msg) > 0 {
		f, n := nextField(msg)
		if n <= 0 {
			return errMalformed
		}
		msg = msg[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// nextField reads the field at the start of msg and returns its length; zero or less: malformed.
func nextField(msg []byte) (field, int) {
	tag, n := binary.Uvarint(msg)
	if n <= 0 {
		return field{}, 0
	}
	f := field{number: int(tag >> 3)}
	switch tag & 7 {
	case wireVarint:
		num, m := binary.Uvarint(msg[n:])
		if m <= 0 {
			return field{}, 0
		}
		f.num = num
		return f, n + m
	case wireBytes:
		size, m := binary.Uvarint(msg[n:])
		if m <= 0 || size > math.MaxInt32 {
			return field{}, 0
		}
		end := n + m + int(size)
		if end > len(msg) {
			return field{}, 0
		}
		f.bytes = msg[n+m : end]
		return f, end
	case wireFixed8:
		return f, fits(msg, n+8)
	case wireFixed4:
		return f, fits(msg, n+4)
	default:
		return field{}, 0
	}
}

func fits(msg []byte, n int) int {
	if n > len(msg) {
		return 0
	}
	return n
}

// mask names the fields of a message that are wanted; a nil mask under a number takes that field whole. A message of which
// nothing is wanted, or not the field under needs, is left out of its parent.
type mask map[int]mask

// needs is no field number: the one field of the mask under it is what makes a message worth keeping.
const needs = -1

// prune appends to dst the message that is left of msg when only the fields of m are kept.
func (m mask) prune(dst, msg []byte) ([]byte, error) {
	for len(msg) > 0 {
		f, n := nextField(msg)
		if n <= 0 {
			return dst, errMalformed
		}
		whole := msg[:n]
		msg = msg[n:]
		sub, wanted := m[f.number]
		switch {
		case !wanted:
		case sub == nil:
			dst = append(dst, whole...)
		default:
			start := len(dst)
			var err error
			if dst, err = sub.prune(dst, f.bytes); err != nil {
				return dst, err
			}
			if len(dst) == start || !sub.satisfied(dst[start:]) {
				dst = dst[:start]
				continue
			}
			dst = prefix(dst, start, f.number)
		}
	}
	return dst, nil
}

// satisfied reports whether a pruned message has the field that the mask needs.
func (m mask) satisfied(msg []byte) bool {
	for number := range m[needs] {
		found := false
		_ = fields(msg, func(f field) error { // it was read once already
			found = found || f.number == number
			return nil
		})
		return found
	}
	return true
}

// prefix makes a field of what dst holds from start on.
func prefix(dst []byte, start, number int) []byte {
	var head [2 * binary.MaxVarintLen64]byte
	size := len(dst) - start
	h := appendHead(head[:0], number, size)
	dst = append(dst, h...)
	copy(dst[start+len(h):], dst[start:start+size])
	copy(dst[start:], h)
	return dst
}

// appendField writes a field that has a length.
func appendField(dst []byte, f field) []byte {
	return append(appendHead(dst, f.number, len(f.bytes)), f.bytes...)
}

// appendHead writes what stands before the bytes of a field; neither number nor size is negative.
func appendHead(dst []byte, number, size int) []byte {
	dst = binary.AppendUvarint(dst, uint64(number)<<3|wireBytes) //nolint:gosec // see above
	return binary.AppendUvarint(dst, uint64(size))               //nolint:gosec // see above
}

// unwrap returns the object inside an envelope.
func unwrap(envelope []byte) ([]byte, error) {
	body, ok := bytes.CutPrefix(envelope, []byte(magic))
	if !ok {
		return nil, errMalformed
	}
	var object []byte
	err := fields(body, func(f field) error {
		if f.number == 2 {
			object = f.bytes
		}
		return nil
	})
	return object, err
}

// listMeta is what a LIST says about itself.
type listMeta struct {
	version   uint64
	remaining int64 // items that a limit cut off
}

// readProtoList calls each for every item of a LIST; the bytes are only valid during the call.
func readProtoList(r io.Reader, each func(item []byte) error) (listMeta, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(in, head); err != nil {
		return listMeta{}, fmt.Errorf("read magic: %w", noEOF(err))
	}
	if string(head) != magic {
		return listMeta{}, errMalformed
	}
	var meta listMeta
	for {
		number, size, err := readHead(in)
		if errors.Is(err, io.EOF) {
			return meta, nil
		}
		if err == nil && number == 2 {
			meta, err = readProtoItems(in, size, each)
		} else if err == nil {
			_, err = io.CopyN(io.Discard, in, size)
		}
		if err != nil {
			return meta, noEOF(err)
		}
	}
}

// readProtoItems reads the object of a LIST, which is the next size bytes.
func readProtoItems(r io.Reader, size int64, each func(item []byte) error) (listMeta, error) {
	limited := &io.LimitedReader{R: r, N: size}
	in := bufio.NewReaderSize(limited, 64<<10)
	var (
		meta listMeta
		buf  []byte
	)
	for {
		number, size, err := readHead(in)
		if errors.Is(err, io.EOF) && limited.N == 0 {
			return meta, nil
		}
		if err != nil {
			return meta, noEOF(err)
		}
		if size > maxItem {
			return meta, errMalformed
		}
		buf = grow(buf, int(size))
		if _, err := io.ReadFull(in, buf); err != nil {
			return meta, noEOF(err)
		}
		switch number {
		case 1:
			meta, err = decodeListMeta(buf)
		case 2:
			err = each(buf)
		}
		if err != nil {
			return meta, err
		}
	}
}

// readHead reads the number and the size of the next field of a message in which every field has a length. io.EOF: there is
// none.
func readHead(in *bufio.Reader) (number int, size int64, err error) {
	tag, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, 0, err
	}
	if tag&7 != wireBytes {
		return 0, 0, errMalformed
	}
	n, err := binary.ReadUvarint(in)
	if err == nil && n > math.MaxInt64 {
		err = errMalformed
	}
	return int(tag >> 3), int64(n), noEOF(err) //nolint:gosec // checked above
}

func decodeListMeta(msg []byte) (listMeta, error) {
	var m listMeta
	err := fields(msg, func(f field) (err error) {
		switch f.number {
		case 2:
			m.version, err = parseVersion(string(f.bytes))
		case 4:
			m.remaining = f.int()
		}
		return err
	})
	return m, err
}

// noEOF turns an end in the middle of something into what it is.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func grow(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n, n+n/4)
	}
	return buf[:n]
}

// watchEvent is one event of a watch, its object in the encoding of its kind.
type watchEvent struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	object []byte
}

// readProtoEvent reads the next event: a length of four bytes, then a metav1.WatchEvent.
func readProtoEvent(in io.Reader) (watchEvent, error) {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return watchEvent{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxItem {
		return watchEvent{}, errMalformed
	}
	msg := make([]byte, n)
	if _, err := io.ReadFull(in, msg); err != nil {
		return watchEvent{}, noEOF(err)
	}
	var ev watchEvent
	err := fields(msg, func(f field) error {
		switch f.number {
		case 1:
			ev.kind = string(f.bytes)
		case 2:
			return fields(f.bytes, func(f field) (err error) {
				if f.number == 1 {
					ev.object, err = unwrap(f.bytes)
				}
				return err
			})
		}
		return nil
	})
	return ev, err
}

// decodeProtoStatus reads a metav1.Status.
func decodeProtoStatus(msg []byte) (wireStatus, error) {
	s := wireStatus{Code: http.StatusInternalServerError}
	err := fields(msg, func(f field) error {
		switch f.number {
		case 3:
			s.Message = string(f.bytes)
		case 4:
			s.Reason = string(f.bytes)
		case 6:
			s.Code = int(f.int())
		}
		return nil
	})
	return s, err
}
