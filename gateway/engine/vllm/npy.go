package vllm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"turnlog.dev/gateway/engine"
)

// errNPY is a file that is no array of the kind that the server sends.
var errNPY = errors.New("not a numpy array of expert ids")

var (
	npyMagic  = []byte("\x93NUMPY")
	npyHeader = regexp.MustCompile(`'descr': *'([^']+)'.*'fortran_order': *False.*'shape': *\(([0-9, ]*)\)`)
	npyTypes  = map[string]struct {
		name string
		size int64
	}{"|u1": {"uint8", 1}, "<u2": {"uint16", 2}, "<i4": {"int32", 4}}
)

// npy reads the format of numpy.save, versions 1 to 3: magic, version, length
// of the header, a Python literal, the numbers.
func npy(b []byte) (*engine.Routed, error) {
	if len(b) < 12 || !bytes.HasPrefix(b, npyMagic) {
		return nil, errNPY
	}
	length, at := int(binary.LittleEndian.Uint16(b[8:])), 10
	if b[6] > 1 {
		length, at = int(binary.LittleEndian.Uint32(b[8:])), 12
	}
	if length < 0 || at+length > len(b) {
		return nil, fmt.Errorf("%w: the header is cut off", errNPY)
	}
	m := npyHeader.FindSubmatch(b[at : at+length])
	if m == nil {
		return nil, fmt.Errorf("%w: header %.100q", errNPY, b[at:at+length])
	}
	kind, ok := npyTypes[string(m[1])]
	if !ok {
		return nil, fmt.Errorf("%w: type %s", errNPY, m[1])
	}
	r := &engine.Routed{Data: b[at+length:], DType: kind.name}
	size := kind.size
	for s := range strings.SplitSeq(string(m[2]), ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: shape %s", errNPY, m[2])
		}
		r.Shape, size = append(r.Shape, n), size*n
	}
	if size != int64(len(r.Data)) {
		return nil, fmt.Errorf("%w: %d bytes for a shape of %v %s", errNPY, len(r.Data), r.Shape, r.DType)
	}
	return r, nil
}
