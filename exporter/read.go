package exporter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// RowGroups yields the row groups of a shard, each of which holds whole groups.
// It ends after an error.
func RowGroups(ctx context.Context, s sink.Sink, f manifest.File) iter.Seq2[[]*rows.Row, error] {
	return read[rows.Row](ctx, s, f)
}

// BesideRows yields what a file holds that stands beside rows, row group by row
// group. It ends after an error; a file of rows gives nothing.
func BesideRows(ctx context.Context, s sink.Sink, f manifest.File) iter.Seq2[rows.Beside, error] {
	return func(yield func(rows.Beside, error) bool) {
		switch f.Profile {
		case manifest.Rewards:
			for group, err := range read[rows.RewardRow](ctx, s, f) {
				if !yield(rows.Beside{Rewards: group}, err) {
					return
				}
			}
		case manifest.Annotations:
			for group, err := range read[rows.AnnotationRow](ctx, s, f) {
				if !yield(rows.Beside{Annotations: group}, err) {
					return
				}
			}
		case manifest.Blobs:
			for group, err := range read[rows.BlobRow](ctx, s, f) {
				if !yield(rows.Beside{Blobs: group}, err) {
					return
				}
			}
		}
	}
}

// Amendments reads what came after the rows of a data set were written.
func Amendments(ctx context.Context, s sink.Sink, state *manifest.State) (*rows.Amendments, error) {
	all := rows.NewAmendments()
	for _, f := range state.Files {
		switch f.Profile {
		case manifest.Rewards:
			for group, err := range read[rows.RewardRow](ctx, s, f) {
				if err != nil {
					return nil, err
				}
				for _, r := range group {
					all.Reward(r)
				}
			}
		case manifest.Annotations:
			for group, err := range read[rows.AnnotationRow](ctx, s, f) {
				if err != nil {
					return nil, err
				}
				for _, r := range group {
					all.Annotation(r)
				}
			}
		}
	}
	return all, nil
}

// read yields the row groups of a file.
func read[T any](ctx context.Context, s sink.Sink, f manifest.File) iter.Seq2[[]*T, error] {
	return func(yield func([]*T, error) bool) {
		r, err := s.Open(ctx, f.Path)
		if err != nil {
			yield(nil, fmt.Errorf("exporter: read a shard: %w", err))
			return
		}
		defer r.Close()
		in, ok := r.(parquet.Input)
		if !ok {
			in, err = inMemory(r)
		}
		if err != nil {
			yield(nil, fmt.Errorf("exporter: read %s: %w", f.Path, err))
			return
		}
		for group, err := range parquet.Read[T](ctx, in) {
			if err != nil {
				err = fmt.Errorf("exporter: read %s: %w", f.Path, err)
			}
			if !yield(group, err) {
				return
			}
		}
	}
}

// inMemory is for sinks whose values cannot be read at any place.
func inMemory(r io.Reader) (parquet.Input, error) {
	b, err := io.ReadAll(r)
	return bytes.NewReader(b), err
}
