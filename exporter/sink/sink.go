// Package sink is where shards and manifests are put: a flat space of keys
// with whole, immutable values.
//
// sink/local keeps them in a directory, sink/s3 in a bucket. sink/sinktest
// holds the promises as tests that both pass.
package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

// Errors of a Sink, found with errors.Is.
var (
	// ErrExists says that the key has a value already. Nothing was changed.
	ErrExists = errors.New("sink: the key exists")
	// ErrNotFound says that the key has no value.
	ErrNotFound = errors.New("sink: no such key")
	// ErrKey says that a key is not valid; see CheckKey.
	ErrKey = errors.New("sink: invalid key")
)

// Info describes a value.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
}

// Sink stores values, which are never empty, under keys. A reader sees a value whole or not at all,
// however the writer ended. All methods are safe for concurrent use, by other
// processes too.
type Sink interface {
	// PutExclusive stores the size bytes of body unless the key exists: of any
	// number of concurrent writers one wins and the others get ErrExists. When
	// it returns nil, the value survives what the storage survives. An error
	// that is not ErrExists leaves the outcome unknown: call again, and take
	// ErrExists with equal content for success.
	PutExclusive(ctx context.Context, key string, body io.Reader, size int64) error
	// Put stores the size bytes of body, over an older value if there is one.
	Put(ctx context.Context, key string, body io.Reader, size int64) error
	// Open reads a value. It fails with ErrNotFound.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// List yields the values whose key begins with prefix, in the order of
	// their keys, including all that were put before the call. It ends after an
	// error.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes a value. A key that does not exist is no error.
	Delete(ctx context.Context, key string) error
}

// CheckKey reports a key that some sink could not hold: keys are relative
// slash-separated paths without empty, "." or ".." elements. The error wraps
// ErrKey.
func CheckKey(key string) error {
	for element := range strings.SplitSeq(key, "/") {
		if element == "" || element == "." || element == ".." || strings.ContainsAny(element, "\\\x00") {
			return fmt.Errorf("%w: %q", ErrKey, key)
		}
	}
	return nil
}

// ReadAll reads the value of a key. It fails with ErrNotFound.
func ReadAll(ctx context.Context, s Sink, key string) ([]byte, error) {
	r, err := s.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("sink: read %s: %w", key, err)
	}
	return b, nil
}
