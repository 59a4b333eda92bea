package jet

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"
)

// BucketConfig describes a small table of a tenant: projections that are read
// as a whole or by key.
type BucketConfig struct {
	Tenant, Name string
	Replicas     int
	MaxBytes     int64
	Existing     Existing
}

// Bucket is a table on the log's server. Its values can be made again from the
// log; it is safe for concurrent use by any number of processes.
type Bucket struct {
	name string
	js   jetstream.JetStream
	kv   jetstream.KeyValue
}

// OpenBucket makes the bucket, or finds it.
func (c *Conn) OpenBucket(ctx context.Context, cfg BucketConfig) (*Bucket, error) {
	if !name.MatchString(cfg.Tenant) || !name.MatchString(cfg.Name) {
		return nil, fmt.Errorf("journal: bucket %s of tenant %s: not 1 to 64 letters, digits, _ or -", cfg.Name, cfg.Tenant)
	}
	b := &Bucket{name: "tl-" + cfg.Tenant + "-" + cfg.Name, js: c.js}
	var err error
	if cfg.Existing != SetLimits {
		b.kv, err = c.js.KeyValue(ctx, b.name)
	}
	missing := errors.Is(err, jetstream.ErrBucketNotFound)
	switch {
	case missing && cfg.Existing == ReadOnly:
		return nil, fmt.Errorf("%w: no bucket %s", ErrNoLog, b.name)
	case missing, cfg.Existing == SetLimits:
		b.kv, err = c.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: b.name, History: 1, Replicas: cfg.Replicas, MaxBytes: cfg.MaxBytes, Storage: jetstream.FileStorage,
		})
	}
	if noRoom(err) {
		return nil, fmt.Errorf("%w for bucket %s of %d bytes: %w", ErrNoRoom, b.name, cfg.MaxBytes, err)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: bucket %s: %w", b.name, err)
	}
	return b, nil
}

// Put stores value under key if the key's revision is still the given one (0:
// the key is not there), and reports whether it did.
func (b *Bucket) Put(ctx context.Context, key string, value []byte, revision uint64) (bool, error) {
	var err error
	if revision == 0 {
		_, err = b.kv.Create(ctx, key, value)
	} else {
		_, err = b.kv.Update(ctx, key, value, revision)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, jetstream.ErrKeyExists), isWrongRevision(err):
		return false, nil
	}
	return false, fmt.Errorf("journal: bucket %s: put %s: %w", b.name, key, err)
}

func isWrongRevision(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// Get returns the value of a key and its revision; revision 0 if there is none.
func (b *Bucket) Get(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	e, err := b.kv.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("journal: bucket %s: get %s: %w", b.name, key, err)
	}
	return e.Value(), e.Revision(), nil
}

// Remove removes a key and all that its place took. A key that is not there is
// no error.
func (b *Bucket) Remove(ctx context.Context, key string) error {
	stream, err := b.js.Stream(ctx, "KV_"+b.name)
	if err == nil {
		// Without a marker, as many of which would fill the bucket again.
		err = stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+b.name+"."+key))
	}
	if err != nil {
		return fmt.Errorf("journal: bucket %s: remove %s: %w", b.name, key, err)
	}
	return nil
}

// Used returns how many bytes the bucket holds, and how many it can.
func (b *Bucket) Used(ctx context.Context) (bytes, room int64, err error) {
	stream, err := b.js.Stream(ctx, "KV_"+b.name)
	if err != nil {
		return 0, 0, fmt.Errorf("journal: bucket %s: %w", b.name, err)
	}
	info := stream.CachedInfo()
	return int64(info.State.Bytes), info.Config.MaxBytes, nil
}

// All yields all values, in no order that means anything. It ends after an
// error.
func (b *Bucket) All(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		w, err := b.kv.WatchAll(ctx, jetstream.IgnoreDeletes())
		if err != nil {
			yield(nil, fmt.Errorf("journal: bucket %s: %w", b.name, err))
			return
		}
		defer func() { _ = w.Stop() }()
		for {
			select {
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			case e := <-w.Updates():
				// The watcher sends nil after the last value that was there.
				if e == nil || !yield(e.Value(), nil) {
					return
				}
			}
		}
	}
}
