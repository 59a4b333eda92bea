package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// partWriter cuts a plan's rows into files: one run each, no group over two
// files or row groups.
type partWriter struct {
	*execution
	number int

	run     string
	staged  *staged[rows.Row]
	file    manifest.File
	pending []*rows.Row
	tokens  int64 // of pending
}

// add takes the rows of one group.
func (p *partWriter) add(ctx context.Context, run string, group []*rows.Row) error {
	if len(group) == 0 {
		return nil
	}
	if p.staged != nil && (run != p.run || p.file.Tokens+p.tokens >= p.plan.Config.FileTokens) {
		if err := p.finish(ctx); err != nil {
			return err
		}
	}
	if p.staged == nil {
		var err error
		if p.staged, err = stage[rows.Row](p.cfg.Temp, p.plan.Config.Compression); err != nil {
			return err
		}
		p.run, p.file = run, manifest.File{
			Profile: manifest.Traj, Run: run, Statuses: make(map[string]int64), Grades: make(map[string]int64),
		}
	}
	var tokens int64
	for _, r := range group {
		tokens += int64(r.Length)
	}
	if len(p.pending) > 0 && (len(p.pending)+len(group) > p.plan.Config.RowGroupRows ||
		p.tokens+tokens > p.plan.Config.RowGroupTokens) {
		if err := p.writeGroup(); err != nil {
			return err
		}
	}
	p.pending = append(p.pending, group...)
	p.tokens += tokens
	p.file.Groups++
	return nil
}

func (p *partWriter) writeGroup() error {
	for _, r := range p.pending {
		p.file.Tokens += int64(r.Length)
		p.file.Trainable += int64(r.TrainableTokens)
		p.file.Statuses[r.Status]++
		p.file.Grades[r.Grade]++
		if r.VersionMin != nil && (p.file.VersionMin == nil || *r.VersionMin < *p.file.VersionMin) {
			p.file.VersionMin = r.VersionMin
		}
		if r.VersionMax != nil && (p.file.VersionMax == nil || *r.VersionMax > *p.file.VersionMax) {
			p.file.VersionMax = r.VersionMax
		}
	}
	err := p.staged.writer.Write(p.pending)
	p.pending, p.tokens = nil, 0
	return err
}

// finish publishes the file that is open.
func (p *partWriter) finish(ctx context.Context) error {
	if p.staged == nil {
		return nil
	}
	defer p.discard()
	if err := p.writeGroup(); err != nil {
		return err
	}
	p.number++
	p.file.Path = fmt.Sprintf("%s/run=%s/dt=%s/part-%012d-%03d-%s.parquet", TrajFolder,
		url.PathEscape(p.run), p.plan.Time.Format(time.DateOnly), p.plan.ID, p.number, p.hash[:8])
	pairs := append(p.metadata(rows.Schema, manifest.Traj),
		parquet.Pair{Key: "turnlog.groups", Value: strconv.FormatInt(p.file.Groups, 10)},
		parquet.Pair{Key: "turnlog.tokens", Value: strconv.FormatInt(p.file.Tokens, 10)})
	if err := publish(ctx, p.Exporter, p.staged, &p.file, pairs); err != nil {
		return err
	}
	p.manifest.Files = append(p.manifest.Files, p.file)
	return nil
}

func (p *partWriter) discard() {
	if p.staged != nil {
		p.staged.discard()
	}
	p.staged, p.pending = nil, nil
}

// metadata is what every file says of itself.
func (x *execution) metadata(schema string, profile manifest.Profile) []parquet.Pair {
	return []parquet.Pair{
		{Key: "turnlog.schema", Value: schema},
		{Key: "turnlog.profile", Value: string(profile)},
		{Key: "turnlog.tenant", Value: x.plan.Config.Tenant},
		{Key: "turnlog.exporter", Value: x.plan.Config.Writer},
		{Key: "turnlog.plan", Value: strconv.FormatInt(x.plan.ID, 10)},
		{Key: "turnlog.plan_sha256", Value: x.hash},
		{Key: "turnlog.config_sha256", Value: x.plan.ConfigHash},
	}
}

// staged is a file that is being written beside the sink, which syncs its own
// copy. It has no name, so that nothing of it outlives the process.
type staged[T any] struct {
	writer *parquet.Writer[T]
	file   *os.File
	sum    hash.Hash
}

func stage[T any](folder, compression string) (*staged[T], error) {
	f, err := nameless(folder)
	if err != nil {
		return nil, fmt.Errorf("exporter: stage: %w", err)
	}
	s := &staged[T]{file: f, sum: sha256.New()}
	if s.writer, err = parquet.NewWriter[T](io.MultiWriter(f, s.sum), parquet.Compression(compression)); err != nil {
		s.discard()
		return nil, fmt.Errorf("exporter: stage: %w", err)
	}
	return s, nil
}

func (s *staged[T]) discard() { s.file.Close() }

// nameless opens a new file that is gone once it is closed.
func nameless(folder string) (*os.File, error) {
	f, err := os.CreateTemp(folder, "turnlog-shard-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// publish ends a staged file, verifies it, and publishes it at its path. A file
// that is there already is taken over if it holds the same rows: an execution
// before this one published it, perhaps with another version of the libraries.
func publish[T any](ctx context.Context, e *Exporter, s *staged[T], file *manifest.File, metadata []parquet.Pair) error {
	digest, err := s.writer.Close(metadata...)
	if err != nil {
		return err
	}
	e.deps.Fault("staged")
	file.Bytes, file.SHA256 = s.writer.Size(), hex.EncodeToString(s.sum.Sum(nil))
	file.Rows, file.RowGroups = digest.Rows, digest.RowGroups
	if err := parquet.Verify(s.file, file.Bytes, digest); err != nil {
		return fmt.Errorf("exporter: %s: %w", file.Path, err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("exporter: stage: %w", err)
	}
	e.deps.Fault("verified")
	err = e.deps.Sink.PutExclusive(ctx, file.Path, s.file, file.Bytes)
	if errors.Is(err, sink.ErrExists) {
		err = e.adopt(ctx, file, digest)
	}
	if err != nil {
		return fmt.Errorf("exporter: publish %s: %w", file.Path, err)
	}
	e.deps.Fault("published")
	e.stats.update(func(s *Stats) { s.Plan.Bytes += file.Bytes })
	return nil
}

// adopt takes over the file at file.Path.
func (e *Exporter) adopt(ctx context.Context, file *manifest.File, want parquet.Digest) error {
	r, err := e.deps.Sink.Open(ctx, file.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	local, err := nameless(e.cfg.Temp)
	if err != nil {
		return err
	}
	defer local.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(local, sum), r)
	if err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) == file.SHA256 {
		return nil
	}
	if err := parquet.Verify(local, n, want); err != nil {
		return fmt.Errorf("%w: %w", ErrDiffers, err)
	}
	file.Bytes, file.SHA256, file.RowGroups = n, hex.EncodeToString(sum.Sum(nil)), slices.Clone(want.RowGroups)
	return nil
}
