package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// Report is what Check found.
type Report struct {
	// Manifest is the one that was checked.
	Manifest int64
	Files    int
	Rows     int64
	Tokens   int64
	// Faults are one error a fault: a file that is missing or has other bytes
	// than its manifest says, a row that contradicts itself or stands twice, a
	// group that stands in two files.
	Faults []error
}

// Check reads all files of the data set at a manifest (0 is the last one) and
// compares them with what the manifests say. progress, when not nil, is called
// after each file. The error is of the sink or the manifests; what is wrong with
// the files is in the report.
func Check(ctx context.Context, s sink.Sink, id int64, progress func(done, of int)) (Report, error) {
	state, err := Manifests(s).LoadAt(ctx, id)
	if err != nil {
		return Report{}, err
	}
	c := checker{
		sink: s, report: Report{Manifest: state.ID},
		seen: make(map[string]bool), groups: make(map[[2]string]string), blobs: make(map[string]bool),
	}
	for i, f := range state.Files {
		if err := c.file(ctx, f); err != nil {
			return c.report, err
		}
		if progress != nil {
			progress(i+1, len(state.Files))
		}
	}
	return c.report, nil
}

type checker struct {
	sink   sink.Sink
	report Report
	// seen are row ids, groups the file of each run's group.
	seen   map[string]bool
	groups map[[2]string]string
	// blobs are those that were looked at.
	blobs map[string]bool
}

func (c *checker) fault(f manifest.File, format string, args ...any) {
	c.report.Faults = append(c.report.Faults, fmt.Errorf("%s: "+format, append([]any{f.Path}, args...)...))
}

func (c *checker) file(ctx context.Context, f manifest.File) error {
	c.report.Files++
	r, err := c.sink.Open(ctx, f.Path)
	if errors.Is(err, sink.ErrNotFound) {
		c.fault(f, "is missing")
		return nil
	} else if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	in, ok := r.(parquet.Input)
	if ok {
		_, err = io.Copy(sum, r)
	} else {
		in, err = inMemory(io.TeeReader(r, sum))
	}
	if err != nil {
		return fmt.Errorf("exporter: check %s: %w", f.Path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		c.fault(f, "has sha256 %s, its manifest says %s", got, f.SHA256)
		return nil
	}
	switch f.Profile {
	case manifest.Traj:
		c.traj(ctx, f, in)
	case manifest.Rewards:
		return besideRows(ctx, c, f, in, func(*rows.RewardRow) error { return nil })
	case manifest.Annotations:
		return besideRows(ctx, c, f, in, func(*rows.AnnotationRow) error { return nil })
	case manifest.Blobs:
		return besideRows(ctx, c, f, in, func(r *rows.BlobRow) error { return c.blob(ctx, f, r) })
	default:
		c.fault(f, "is of profile %q, which this program does not know", f.Profile)
	}
	return nil
}

func (c *checker) traj(ctx context.Context, f manifest.File, in parquet.Input) {
	var count, tokens, trainable int64
	for group, err := range parquet.Read[rows.Row](ctx, in) {
		if err != nil {
			c.fault(f, "%w", err)
			return
		}
		for _, r := range group {
			count++
			tokens += int64(r.Length)
			trainable += int64(r.TrainableTokens)
			if err := r.Check(); err != nil {
				c.fault(f, "%w", err)
			}
			if c.seen[r.RowID] {
				c.fault(f, "row %s stands twice", r.RowID)
			}
			c.seen[r.RowID] = true
			key := [2]string{r.RunID, r.GroupID}
			if other := c.groups[key]; other != "" && other != f.Path {
				c.fault(f, "group %s stands in %s too", r.GroupID, other)
			}
			c.groups[key] = f.Path
		}
	}
	if count != f.Rows || tokens != f.Tokens || trainable != f.Trainable {
		c.fault(f, "has %d rows, %d tokens and %d trainable ones, its manifest says %d, %d and %d",
			count, tokens, trainable, f.Rows, f.Tokens, f.Trainable)
	}
	c.report.Rows += count
	c.report.Tokens += tokens
}

// besideRows checks a file of what stands beside the rows, and each row of it.
func besideRows[T any](ctx context.Context, c *checker, f manifest.File, in parquet.Input, each func(*T) error) error {
	var count int64
	for group, err := range parquet.Read[T](ctx, in) {
		if err != nil {
			c.fault(f, "%w", err)
			return nil
		}
		count += int64(len(group))
		for _, r := range group {
			if err := each(r); err != nil {
				return err
			}
		}
	}
	if count != f.Rows {
		c.fault(f, "has %d rows, its manifest says %d", count, f.Rows)
	}
	return nil
}
