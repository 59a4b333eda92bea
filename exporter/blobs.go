package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// ContentFolder has what turns refer to, such as routed experts: a value for each
// content, named by its sha256.
const ContentFolder = "blobs"

// ContentKey is where the content with a sha256, in hex, is.
func ContentKey(sum string) string { return path.Join(ContentFolder, sum[:min(2, len(sum))], sum) }

// blob checks that what a row refers to is there, unless it is in another store.
func (c *checker) blob(ctx context.Context, f manifest.File, r *rows.BlobRow) error {
	key := ContentKey(r.SHA256)
	if c.blobs[key] || !strings.HasSuffix(r.URI, "/"+key) {
		return nil
	}
	c.blobs[key] = true
	in, err := c.sink.Open(ctx, key)
	if errors.Is(err, sink.ErrNotFound) {
		c.fault(f, "row %s refers to %s, which is missing", r.RowID, key)
		return nil
	} else if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	if n, err := io.Copy(sum, in); err != nil {
		return fmt.Errorf("exporter: check %s: %w", key, err)
	} else if got := hex.EncodeToString(sum.Sum(nil)); got != r.SHA256 || n != r.Bytes {
		c.fault(f, "row %s refers to %s, which has %d bytes with sha256 %s instead of %d", r.RowID, key, n, got, r.Bytes)
	}
	return nil
}

// Swept is what Sweep found.
type Swept struct {
	// Kept are blobs that are named, or too young to be judged.
	Kept, Removed           int
	KeptBytes, RemovedBytes int64
}

// Sweep removes the blobs that nothing names. A blob is written before the turn
// that names it, so that none younger than before is judged. named adds the sums,
// in hex, that the log names; it is called after the blobs were listed. What any
// file of rows names stays as well, whether a manifest lists it or not. With dry it
// only says what it would remove.
//
// A turn that comes to name an old blob has it written again, which makes it young.
func Sweep(ctx context.Context, s sink.Sink, before time.Time, named func(context.Context, map[string]bool) error, dry bool) (Swept, error) {
	var swept Swept
	var old []sink.Info
	for info, err := range s.List(ctx, ContentFolder+"/") {
		if err != nil {
			return swept, fmt.Errorf("exporter: sweep: %w", err)
		}
		sum := path.Base(info.Key)
		if raw, err := hex.DecodeString(sum); err == nil && len(raw) == sha256.Size && info.Key == ContentKey(sum) && info.Modified.Before(before) {
			old = append(old, info)
			continue
		}
		swept.keep(info)
	}
	if len(old) == 0 {
		return swept, nil
	}
	sums := map[string]bool{}
	if err := named(ctx, sums); err != nil {
		return swept, err
	}
	if err := namedByRows(ctx, s, sums); err != nil {
		return swept, err
	}
	for _, info := range old {
		gone, err := !sums[path.Base(info.Key)], error(nil)
		if gone && !dry {
			gone, err = remove(ctx, s, info.Key, before)
		}
		if err != nil {
			return swept, fmt.Errorf("exporter: sweep: %w", err)
		}
		if !gone {
			swept.keep(info)
			continue
		}
		swept.Removed++
		swept.RemovedBytes += info.Size
	}
	return swept, nil
}

func (s *Swept) keep(info sink.Info) {
	s.Kept++
	s.KeptBytes += info.Size
}

// remove deletes a value that is still as old as it was.
func remove(ctx context.Context, s sink.Sink, key string, before time.Time) (bool, error) {
	for info, err := range s.List(ctx, key) {
		if err != nil {
			return false, err
		}
		if info.Key == key && info.Modified.Before(before) {
			return true, s.Delete(ctx, key)
		}
	}
	return false, nil
}

func namedByRows(ctx context.Context, s sink.Sink, sums map[string]bool) error {
	for info, err := range s.List(ctx, BlobsFolder+"/") {
		if err != nil {
			return fmt.Errorf("exporter: sweep: %w", err)
		}
		if path.Ext(info.Key) != ".parquet" {
			continue
		}
		r, err := s.Open(ctx, info.Key)
		if errors.Is(err, sink.ErrNotFound) {
			continue // collected meanwhile
		}
		if err != nil {
			return fmt.Errorf("exporter: sweep: %w", err)
		}
		in, err := inMemory(r)
		r.Close()
		if err != nil {
			return fmt.Errorf("exporter: sweep %s: %w", info.Key, err)
		}
		for group, err := range parquet.Read[rows.BlobRow](ctx, in) {
			if err != nil {
				return fmt.Errorf("exporter: sweep: %s cannot be read, and may name blobs: %w", info.Key, err)
			}
			for _, row := range group {
				sums[row.SHA256] = true
			}
		}
	}
	return nil
}
