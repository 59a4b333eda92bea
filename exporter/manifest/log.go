package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnlog.dev/exporter/sink"
)

// SnapshotEvery is the number of manifests between two snapshots.
const SnapshotEvery = 64

// Log is the log of plans and manifests of one schema in a sink. It has no
// state of its own and is safe for concurrent use.
type Log struct {
	sink   sink.Sink
	folder string
}

// NewLog returns the log in the folder of a schema, such as "schema=traj.v1".
func NewLog(s sink.Sink, schemaFolder string) *Log {
	return &Log{sink: s, folder: path.Join(schemaFolder, Folder)}
}

// Load folds the log up to its last manifest, from the newest snapshot on. It
// fails with ErrFormat, ErrMalformed or ErrGap rather than guess.
func (l *Log) Load(ctx context.Context) (*State, error) { return l.LoadAt(ctx, 0) }

// LoadAt folds the log up to manifest id; 0 is the last one.
func (l *Log) LoadAt(ctx context.Context, id int64) (*State, error) {
	var snapshot, last int64
	for info, err := range l.sink.List(ctx, l.folder+"/") {
		if err != nil {
			return nil, fmt.Errorf("manifest: load: %w", err)
		}
		switch kind, n, ok := parseName(path.Base(info.Key)); {
		case !ok || id > 0 && n > id:
		case kind == "m":
			last = max(last, n)
		case kind == "snap":
			snapshot = max(snapshot, n)
		}
	}
	if id > 0 && last < id {
		return nil, fmt.Errorf("manifest: load %d: %w: the last one is %d", id, ErrGap, last)
	}
	s := new(State)
	if snapshot > 0 {
		var file Snapshot
		if _, err := l.read(ctx, name("snap", snapshot), SnapshotFormat, &file); err != nil {
			return nil, err
		}
		s = &file.State
		if s.ID != snapshot {
			return nil, fmt.Errorf("%w: snapshot %d says %d", ErrMalformed, snapshot, s.ID)
		}
	}
	for s.ID < last {
		m, err := l.Manifest(ctx, s.ID+1)
		if errors.Is(err, sink.ErrNotFound) {
			return nil, fmt.Errorf("%w: %s is missing, %s is there", ErrGap, name("m", s.ID+1), name("m", last))
		} else if err != nil {
			return nil, err
		}
		if err := s.Apply(m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Snapshot is the state at a manifest, so that readers need not fold all.
type Snapshot struct {
	Format string `json:"format"`
	State
}

// Manifest reads one manifest. It fails with sink.ErrNotFound, ErrFormat or
// ErrMalformed.
func (l *Log) Manifest(ctx context.Context, id int64) (*Manifest, error) {
	m := new(Manifest)
	_, err := l.read(ctx, name("m", id), ManifestFormat, m)
	if err == nil && m.ID != id {
		err = fmt.Errorf("%w: manifest %d says %d", ErrMalformed, id, m.ID)
	}
	return m, err
}

// Plan reads one plan and the sha256 of its file. It fails with
// sink.ErrNotFound, ErrFormat or ErrMalformed.
func (l *Log) Plan(ctx context.Context, id int64) (*Plan, string, error) {
	p := new(Plan)
	b, err := l.read(ctx, name("plan", id), PlanFormat, p)
	if err != nil {
		return nil, "", err
	}
	if p.ID != id || p.ConfigHash != p.Config.Hash() {
		return nil, "", fmt.Errorf("%w: plan %d says %d, or its configuration has another hash", ErrMalformed, id, p.ID)
	}
	return p, hash(b), nil
}

// PutPlan publishes a plan. It fails with sink.ErrExists when there is one of
// this number, equal or not.
func (l *Log) PutPlan(ctx context.Context, p *Plan) (string, error) {
	p.Format, p.ConfigHash = PlanFormat, p.Config.Hash()
	b := encode(p)
	return hash(b), l.put(ctx, name("plan", p.ID), b)
}

// PutManifest publishes a manifest. That an equal one exists is success: the
// plan was executed by somebody else.
func (l *Log) PutManifest(ctx context.Context, m *Manifest) error {
	m.Format = ManifestFormat
	b := encode(m)
	err := l.put(ctx, name("m", m.ID), b)
	if !errors.Is(err, sink.ErrExists) {
		return err
	}
	old, err := sink.ReadAll(ctx, l.sink, path.Join(l.folder, name("m", m.ID)))
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if !bytes.Equal(old, b) {
		return fmt.Errorf("%w: another manifest %d exists", ErrMalformed, m.ID)
	}
	return nil
}

// PutSnapshot publishes a snapshot; that one exists is success.
func (l *Log) PutSnapshot(ctx context.Context, s *State) error {
	err := l.put(ctx, name("snap", s.ID), encode(&Snapshot{SnapshotFormat, *s}))
	if errors.Is(err, sink.ErrExists) {
		return nil
	}
	return err
}

func (l *Log) put(ctx context.Context, file string, b []byte) error {
	key := path.Join(l.folder, file)
	if err := l.sink.PutExclusive(ctx, key, bytes.NewReader(b), int64(len(b))); err != nil {
		return fmt.Errorf("manifest: publish %s: %w", file, err)
	}
	return nil
}

func (l *Log) read(ctx context.Context, file, format string, v any) ([]byte, error) {
	b, err := sink.ReadAll(ctx, l.sink, path.Join(l.folder, file))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var head struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, file, err)
	}
	if head.Format != format {
		return nil, fmt.Errorf("%w: %s is %q; this program reads %q", ErrFormat, file, head.Format, format)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, file, err)
	}
	return b, nil
}

// Hash is the sha256 of the plan's file.
func (p *Plan) Hash() string { return hash(encode(p)) }

// Hash is the sha256 of the configuration's JSON.
func (c Config) Hash() string { return hash(encode(c)) }

// encode writes JSON for people and programs: indented, the same bytes for the
// same value, ended by a newline.
func encode(v any) []byte {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err) // the types above are plain data
	}
	return append(b, '\n')
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Orphans returns the data files below the folders that nothing needs any more:
// what no manifest lists, or what one removed, if it is older than before. Two
// kinds are kept, however old they are: files of a plan that is not executed
// yet, and files of every manifest that was the last one at some time since
// before, so that a reader may go on with the manifest that it has pinned.
func (l *Log) Orphans(ctx context.Context, folders []string, before time.Time) ([]sink.Info, error) {
	s, err := l.Load(ctx)
	if err != nil {
		return nil, err
	}
	needed := make(map[string]bool, len(s.Files))
	need := func(files []File) {
		for _, f := range files {
			needed[f.Path] = true
		}
	}
	need(s.Files)
	var old []sink.Info
	for _, folder := range folders {
		for info, err := range l.sink.List(ctx, folder+"/") {
			if err != nil {
				return nil, fmt.Errorf("manifest: orphans: %w", err)
			}
			if path.Ext(info.Key) == ".parquet" && info.Modified.Before(before) && !needed[info.Key] && planOf(info.Key) <= s.ID {
				old = append(old, info)
			}
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	pinned, err := l.lastAt(ctx, before)
	if err != nil {
		return nil, err
	}
	if pinned > 0 {
		state, err := l.LoadAt(ctx, pinned)
		if err != nil {
			return nil, err
		}
		need(state.Files)
	}
	for id := pinned + 1; id <= s.ID; id++ {
		m, err := l.Manifest(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("manifest: orphans: %w", err)
		}
		need(m.Files)
	}
	return slices.DeleteFunc(old, func(o sink.Info) bool { return needed[o.Key] }), nil
}

// lastAt is the number of the manifest that was the last one at a time of the
// sink's clock.
func (l *Log) lastAt(ctx context.Context, at time.Time) (last int64, err error) {
	for info, err := range l.sink.List(ctx, l.folder+"/") {
		if err != nil {
			return 0, fmt.Errorf("manifest: orphans: %w", err)
		}
		if kind, n, ok := parseName(path.Base(info.Key)); ok && kind == "m" && info.Modified.Before(at) {
			last = max(last, n)
		}
	}
	return last, nil
}

// planOf is the number of the plan in a data file's name, or 0.
func planOf(key string) int64 {
	parts := strings.Split(path.Base(key), "-")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
