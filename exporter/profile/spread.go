package profile

import (
	"fmt"
	"os"
	"path/filepath"

	"turnlog.dev/exporter/parquet"
)

// rowGroup is the number of rows in a row group, or the tokens with which one
// ends earlier.
const (
	rowGroup       = 128
	rowGroupTokens = 4 << 20
)

// spread writes rows over the files that are open, evenly by tokens.
type spread[T any] struct {
	m     *materializer
	parts []*part[T]
}

type part[T any] struct {
	file    *os.File
	writer  *parquet.Writer[T]
	pending []*T
	open    int64 // tokens of pending
	tokens  int64 // of all rows
}

func newSpread[T any](m *materializer) *spread[T] { return &spread[T]{m: m} }

func (s *spread[T]) add(list []sized[T]) error {
	if len(list) == 0 {
		return nil
	}
	for len(s.parts) < max(1, s.m.options.Files) {
		if err := s.begin(); err != nil {
			return err
		}
	}
	for _, r := range list {
		p := s.parts[0]
		for _, other := range s.parts[1:] {
			if other.tokens < p.tokens {
				p = other
			}
		}
		p.pending = append(p.pending, r.row)
		p.open += r.tokens
		p.tokens += r.tokens
		s.m.res.Rows++
		if len(p.pending) == rowGroup || p.open >= rowGroupTokens {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *spread[T]) begin() error {
	f, err := os.Create(filepath.Join(s.m.dir, fmt.Sprintf("part-%05d.parquet", s.m.res.Files)))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	w, err := parquet.NewWriter[T](f, parquet.Zstd)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	s.parts = append(s.parts, &part[T]{file: f, writer: w})
	s.m.res.Files++
	return nil
}

func (p *part[T]) flush() error {
	if len(p.pending) == 0 {
		return nil
	}
	err := p.writer.Write(p.pending)
	p.pending, p.open = nil, 0
	return err
}

// finish ends and verifies the open files.
func (s *spread[T]) finish() error {
	for _, p := range s.parts {
		if err := p.flush(); err != nil {
			return err
		}
		digest, err := p.writer.Close(
			parquet.Pair{Key: "turnlog.profile", Value: string(s.m.options.Profile)},
			parquet.Pair{Key: "turnlog.manifest", Value: fmt.Sprint(s.m.res.Manifest)})
		if err != nil {
			return err
		}
		if err := parquet.Verify(p.file, p.writer.Size(), digest); err != nil {
			return fmt.Errorf("profile: %s: %w", filepath.Base(p.file.Name()), err)
		}
		if err := p.file.Close(); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	s.parts = nil
	return nil
}

// discard closes what an error left open; the folder is removed.
func (s *spread[T]) discard() {
	for _, p := range s.parts {
		_ = p.file.Close()
	}
}
