// Package local keeps a sink in a directory of a POSIX file system.
//
// A value is written to a temporary file in the folder of its key, synced, and
// then given its name: by link(2), which fails when the name exists, or by
// rename(2) when it may replace. The folder is synced last. Temporary files
// begin with ".tmp-"; those that a crash left behind are removed by New once
// they are an hour old.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"turnlog.dev/exporter/sink"
)

const (
	tempPrefix = ".tmp-"
	tempGrace  = time.Hour
)

// Sink is a directory. It implements sink.Sink.
type Sink struct{ root string }

var _ sink.Sink = (*Sink)(nil)

// New returns a sink in root, which is created when missing.
func New(root string) (*Sink, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("sink/local: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("sink/local: %w", err)
	}
	s := &Sink{abs}
	if err := s.removeStale(time.Now().Add(-tempGrace)); err != nil {
		return nil, fmt.Errorf("sink/local: %w", err)
	}
	return s, nil
}

// Path is the file that holds the value of a key.
func (s *Sink) Path(key string) string { return filepath.Join(s.root, filepath.FromSlash(key)) }

// PutExclusive implements sink.Sink.
func (s *Sink) PutExclusive(ctx context.Context, key string, body io.Reader, size int64) error {
	return s.put(ctx, key, body, size, func(temp, path string) error {
		if err := os.Link(temp, path); errors.Is(err, fs.ErrExist) {
			return sink.ErrExists
		} else if err != nil {
			return err
		}
		return os.Remove(temp)
	})
}

// Put implements sink.Sink.
func (s *Sink) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	return s.put(ctx, key, body, size, os.Rename)
}

func (s *Sink) put(ctx context.Context, key string, body io.Reader, size int64, publish func(temp, path string) error) error {
	if err := sink.CheckKey(key); err != nil {
		return err
	}
	path := s.Path(key)
	if err := s.makeFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sink/local: put %s: %w", key, err)
	}
	temp, err := write(ctx, filepath.Dir(path), body, size)
	if err != nil {
		return fmt.Errorf("sink/local: put %s: %w", key, err)
	}
	if err := publish(temp, path); err != nil {
		err = errors.Join(err, os.Remove(temp))
		if errors.Is(err, sink.ErrExists) {
			// Whoever put it may have died before it was there for good, and our
			// caller goes on with it.
			if serr := syncFolder(filepath.Dir(path)); serr != nil {
				err = serr
			}
		}
		return fmt.Errorf("sink/local: put %s: %w", key, err)
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sink/local: put %s: %w", key, err)
	}
	return nil
}

// write leaves a synced temporary file with the size bytes of body.
func write(ctx context.Context, folder string, body io.Reader, size int64) (name string, err error) {
	f, err := os.CreateTemp(folder, tempPrefix)
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	n, err := io.Copy(f, io.LimitReader(body, size+1))
	switch {
	case err != nil:
		return "", err
	case n != size:
		return "", fmt.Errorf("the body has %d bytes or more, not %d", n, size)
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	if err := f.Chmod(0o644); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// makeFolder creates a folder and makes the new names durable.
func (s *Sink) makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	if folder != s.root {
		if err := s.makeFolder(filepath.Dir(folder)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(filepath.Dir(folder))
}

func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open implements sink.Sink.
func (s *Sink) Open(_ context.Context, key string) (io.ReadCloser, error) {
	if err := sink.CheckKey(key); err != nil {
		return nil, err
	}
	f, err := os.Open(s.Path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", sink.ErrNotFound, key)
	} else if err != nil {
		return nil, fmt.Errorf("sink/local: open %s: %w", key, err)
	}
	return f, nil
}

// List implements sink.Sink.
func (s *Sink) List(ctx context.Context, prefix string) iter.Seq2[sink.Info, error] {
	return func(yield func(sink.Info, error) bool) {
		err := s.walk(ctx, prefix, "", yield)
		if err != nil && !errors.Is(err, fs.SkipAll) {
			yield(sink.Info{}, fmt.Errorf("sink/local: list %s: %w", prefix, err))
		}
	}
}

// walk lists one folder. Names are compared as parts of keys, so that a folder
// "a" comes after a file "a-b": its keys begin with "a/".
func (s *Sink) walk(ctx context.Context, prefix, folder string, yield func(sink.Info, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(s.root, filepath.FromSlash(folder)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range sorted(entries) {
		key := folder + e.Name()
		if e.IsDir() {
			key += "/"
			if !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key) {
				continue
			}
			if err := s.walk(ctx, prefix, key, yield); err != nil {
				return err
			}
			continue
		}
		if strings.HasPrefix(e.Name(), tempPrefix) || !strings.HasPrefix(key, prefix) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since
		} else if err != nil {
			return err
		}
		if !yield(sink.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil) {
			return fs.SkipAll
		}
	}
	return nil
}

// Delete implements sink.Sink.
func (s *Sink) Delete(_ context.Context, key string) error {
	if err := sink.CheckKey(key); err != nil {
		return err
	}
	path := s.Path(key)
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("sink/local: delete %s: %w", key, err)
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sink/local: delete %s: %w", key, err)
	}
	return nil
}

func (s *Sink) removeStale(before time.Time) error {
	return filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), tempPrefix) {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // published or removed since
		} else if err != nil || info.ModTime().After(before) {
			return err
		}
		return os.Remove(path)
	})
}
