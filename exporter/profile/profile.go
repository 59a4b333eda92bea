// Package profile writes folders of Parquet files that particular loaders take
// as they are, from the shards of a pinned manifest.
//
// A folder holds nothing but part-*.parquet and a file whose name begins with a
// dot, which says what it was made from: loaders that take every file of a
// folder refuse others. It is written beside its place and renamed, so that it
// is there whole or not at all.
package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// Name is what a folder is for.
type Name string

// The profiles.
const (
	// Pretok is token ids with labels: SkyRL SFT, TRL SFT and axolotl.
	Pretok Name = "pretok"
	// Chat is conversations, to be tokenized again: verl, prime-rl, slime and
	// OpenRLHF SFT.
	Chat Name = "chat"
	// Prompts is one row a group: what verl, slime, miles and SkyRL roll out.
	Prompts Name = "prompts"
)

// Names are all profiles.
var Names = []Name{Pretok, Chat, Prompts}

// Errors, found with errors.Is.
var (
	// ErrUnknown is a name that is no profile.
	ErrUnknown = errors.New("profile: unknown")
	// ErrExists says that the folder exists already.
	ErrExists = errors.New("profile: the folder exists")
)

// Options say what to write.
type Options struct {
	Profile Name
	// Manifest pins the data set; 0 is the last one.
	Manifest int64
	// Run limits it to one run; empty is all.
	Run string
	// Files is the number of files over which rows are spread, evenly by
	// tokens: a multiple of the ranks that will read them. 0 is one file a
	// shard.
	Files int
}

// Result is what was written.
type Result struct {
	Profile  Name  `json:"profile"`
	Manifest int64 `json:"manifest"`
	Files    int   `json:"files"`
	Rows     int64 `json:"rows"`
	// Skipped are rows or groups without what the profile needs: a
	// conversation.
	Skipped int64 `json:"skipped"`
	// Removed are rows that are to be left out of the loss (remove_sample),
	// which profiles of rows to be trained cannot say.
	Removed int64 `json:"removed"`
}

// Materialize writes the folder dir from the shards in a sink, with the rewards
// and annotations that came later. It fails with ErrExists when dir is there and
// not empty.
func Materialize(ctx context.Context, s sink.Sink, dir string, o Options) (Result, error) {
	if !slices.Contains(Names, o.Profile) {
		return Result{}, fmt.Errorf("%w: %q; there are %v", ErrUnknown, o.Profile, Names)
	}
	state, err := exporter.Manifests(s).LoadAt(ctx, o.Manifest)
	if err != nil {
		return Result{}, err
	}
	if names, err := os.ReadDir(dir); err == nil && len(names) > 0 {
		return Result{}, fmt.Errorf("%w: %s", ErrExists, dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Result{}, fmt.Errorf("profile: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Result{}, fmt.Errorf("profile: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".turnlog-profile-")
	if err != nil {
		return Result{}, fmt.Errorf("profile: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return Result{}, fmt.Errorf("profile: %w", err)
	}
	late, err := exporter.Amendments(ctx, s, state)
	if err != nil {
		return Result{}, err
	}
	m := materializer{late: late, sink: s, dir: temp, options: o, files: shards(state, o.Run), res: Result{Profile: o.Profile, Manifest: state.ID}}
	switch o.Profile {
	case Pretok:
		err = write(ctx, &m, pretok)
	case Chat:
		err = write(ctx, &m, chats)
	case Prompts:
		err = write(ctx, &m, new(prompter).prompts)
	}
	if err != nil {
		return Result{}, err
	}
	return m.res, m.publish(dir)
}

func shards(state *manifest.State, run string) []manifest.File {
	return slices.DeleteFunc(slices.Clone(state.Files), func(f manifest.File) bool {
		return f.Profile != manifest.Traj || run != "" && f.Run != run
	})
}

type materializer struct {
	sink    sink.Sink
	dir     string
	options Options
	files   []manifest.File
	late    *rows.Amendments
	res     Result
}

func (m *materializer) publish(dir string) error {
	about, err := json.Marshal(m.res)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, ".turnlog.json"), append(about, '\n'), 0o644); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	// An empty folder makes way, and nothing else does: os.Rename would refuse it.
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("profile: %s: %w", dir, err)
	}
	if err := os.Rename(m.dir, dir); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

// write makes rows T of the shards' row groups, each of which holds whole
// groups, and spreads them over files.
func write[T any](ctx context.Context, m *materializer, convert func([]*rows.Row) (list []sized[T], skipped int64)) error {
	out := newSpread[T](m)
	defer out.discard()
	for _, f := range m.files {
		for group, err := range exporter.RowGroups(ctx, m.sink, f) {
			if err != nil {
				return err
			}
			for _, r := range group {
				m.late.Apply(r)
			}
			if m.options.Profile != Prompts {
				kept := slices.DeleteFunc(group, func(r *rows.Row) bool { return r.RemoveSample })
				m.res.Removed += int64(len(group) - len(kept))
				group = kept
			}
			list, skipped := convert(group)
			m.res.Skipped += skipped
			if err := out.add(list); err != nil {
				return err
			}
		}
		if m.options.Files == 0 {
			if err := out.finish(); err != nil {
				return err
			}
		}
	}
	return out.finish()
}

// sized is a row and how much of it there is, in tokens.
type sized[T any] struct {
	row    *T
	tokens int64
}
