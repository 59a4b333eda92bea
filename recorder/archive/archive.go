// Package archive takes sessions that are over out of the log and keeps them in
// Parquet segments, where replay, verification and everybody else who reads the
// log through a Journal of this package finds them as if they had stayed.
//
// Nothing leaves the log before it was read back. A round of the Archiver
// chooses sessions that nobody needs any more (judge.go), writes their events to
// one segment for each log, reads the segments back and checks them event by
// event, and publishes a manifest, which makes them count (manifest.go). Only
// then the sessions get a tombstone in the registry, and are trimmed. Whoever
// finds a manifest whose sessions were not trimmed goes on from there, after it
// has read the segments again. README.md of the recorder has the format.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Errors, found with errors.Is.
var (
	// ErrExists says that a key of a Store has a value already.
	ErrExists = errors.New("archive: the key exists")
	// ErrNotFound says that a key of a Store has no value.
	ErrNotFound = errors.New("archive: no such key")
	// ErrDamaged says that the archive does not hold what was written to it.
	// Nothing was trimmed for it.
	ErrDamaged = errors.New("archive: damaged")
)

// Store is where segments and manifests are kept: whole, immutable values under
// keys. A reader sees a value whole or not at all, whatever became of its
// writer. All methods are safe for concurrent use, by other processes too.
type Store interface {
	// PutExclusive stores the size bytes of body, of which there is at least
	// one, unless the key exists: of concurrent writers one wins, and the others
	// get ErrExists. Once it returns nil, the value survives what the storage
	// does. Another error leaves the outcome unknown.
	PutExclusive(ctx context.Context, key string, body io.Reader, size int64) error
	// Open reads a value. It fails with ErrNotFound. A reader that is an
	// io.ReaderAt is read where it is needed, another one whole.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// List yields the keys that begin with prefix, in their order. It ends
	// after an error.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]
	// Delete removes a value. A key that does not exist is no error.
	Delete(ctx context.Context, key string) error
}

// Log names one of a tenant's logs.
type Log string

// The logs that sessions are taken out of.
const (
	Turns        Log = "turns"
	Trajectories Log = "trajectories"
)

// Folders of the store. A name begins with the number of the manifest that it
// belongs to.
const (
	manifests = "manifests/"
	segments  = "segments/"
	// done has an empty sign for each manifest whose sessions were trimmed.
	done = "trimmed/"
)

func manifestKey(number int64) string { return fmt.Sprintf("%s%012d.json", manifests, number) }

func doneKey(number int64) string { return fmt.Sprintf("%s%012d.json", done, number) }

// numberOf is the number in a key of one of the folders, or 0.
func numberOf(key, folder string) (n int64) {
	if _, err := fmt.Sscanf(key, folder+"%012d", &n); err != nil {
		return 0
	}
	return n
}

func read(ctx context.Context, s Store, key string) ([]byte, error) {
	r, err := s.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("archive: read %s: %w", key, err)
	}
	return raw, nil
}
