package stack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/recorder/archive"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

// ArchiveFolder is where the store of shards has the archive, unless it has a
// folder of its own.
const ArchiveFolder = "archive"

// archived is a tenant's archive together with the logs that it belongs to. Nil
// is none: then every log is as it is.
type archived struct {
	*archive.Archive
	store archive.Store
}

// openArchive opens the archive of the configuration, and makes sure that it is
// the one that the log's sessions are in.
func (l *logs) openArchive(ctx context.Context, c *jet.Conn) (*archived, error) {
	if l.cfg.Recorder.Archive.After == 0 {
		return nil, l.unarchived(ctx, c)
	}
	store, err := openArchiveStore(l.cfg)
	if err != nil {
		return nil, err
	}
	if err := l.sameArchive(ctx, c, store); err != nil {
		return nil, err
	}
	a := &archived{archive.New(store), store}
	return a, a.Check(ctx)
}

// unarchived refuses to serve a log without the archive that its sessions are
// in: their ids would be opened again. Who only reads is told, and sees what is
// in the log.
func (l *logs) unarchived(ctx context.Context, c *jet.Conn) error {
	bucket, err := c.OpenBucket(ctx, jet.BucketConfig{Tenant: l.cfg.Tenant, Name: jet.TrimsBucket, Existing: jet.ReadOnly})
	if errors.Is(err, jet.ErrNoLog) {
		return nil
	}
	if err != nil {
		return err
	}
	_, revision, err := bucket.Get(ctx, archiveOfLog)
	if err == nil && revision > 0 && l.access == reading {
		l.partial = true
		l.log.Warn("sessions of this log are in an archive, which is not read: set recorder.archive.after as it was")
		return nil
	}
	if err == nil && revision > 0 {
		err = errors.New("recorder.archive.after is 0, and sessions of this log are in an archive: set it as it was; a long one, such as 100000h, moves no more")
	}
	return err
}

func openArchiveStore(cfg config.Config) (archive.Store, error) {
	if dir := cfg.Recorder.Archive.Dir; dir != "" {
		s, err := local.New(dir)
		return archiveStore{sink: s}, err
	}
	s, err := OpenShards(cfg)
	return archiveStore{s, ArchiveFolder + "/"}, err
}

// Keys of an archive's name: in its store, and in the log that it belongs to.
const (
	archiveID    = "archive.id"
	archiveOfLog = "archive"
)

// sameArchive compares the name in the store with the one in the log. Processes
// with stores of their own would each trim what the others cannot find.
func (l *logs) sameArchive(ctx context.Context, c *jet.Conn, store archive.Store) error {
	here, err := archiveName(ctx, store, l.access)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	bucket, err := c.OpenBucket(ctx, jet.BucketConfig{
		Tenant: l.cfg.Tenant, Name: jet.TrimsBucket, Replicas: l.replicas(), MaxBytes: jet.TrimsBytes, Existing: l.existing,
	})
	if errors.Is(err, jet.ErrNoLog) {
		return nil // nothing was trimmed
	}
	if errors.Is(err, jet.ErrNoRoom) {
		return fmt.Errorf("%w; remove a stream that is not needed any more (turnlog replay list, turnlog replay remove)", err)
	}
	if err != nil {
		return err
	}
	for {
		there, revision, err := bucket.Get(ctx, archiveOfLog)
		switch {
		case err != nil:
			return err
		case revision > 0 && !bytes.Equal(there, here):
			return fmt.Errorf("recorder.archive: the sessions of this log are in another archive (%s) than the one that is configured (%s): "+
				"give all processes the same recorder.archive.dir, or the same store of shards", there, cmp.Or(string(here), "none yet"))
		case revision > 0 || l.access == reading:
			return nil
		}
		if _, err := bucket.Put(ctx, archiveOfLog, here, 0); err != nil {
			return err
		}
	}
}

// archiveName reads the name of the archive in a store; who writes gives one to
// a new archive.
func archiveName(ctx context.Context, store archive.Store, how access) ([]byte, error) {
	for {
		r, err := store.Open(ctx, archiveID)
		if err == nil {
			defer r.Close()
			return io.ReadAll(r)
		}
		if !errors.Is(err, archive.ErrNotFound) {
			return nil, err
		}
		if how == reading {
			return nil, nil
		}
		name := []byte(rand.Text())
		err = store.PutExclusive(ctx, archiveID, bytes.NewReader(name), int64(len(name)))
		if err != nil && !errors.Is(err, archive.ErrExists) {
			return nil, err
		}
	}
}

// turns and trajectories are the logs together with what was archived of them.
func (a *archived) turns(l *jet.Log) journal.Journal { return a.wrap(l, archive.Turns) }

// A stream that a replay made has nothing in the archive, which is the
// recorder's.
func (a *archived) trajectories(l *jet.Log, kind jet.Kind) journal.Journal {
	if kind != jet.Trajectories {
		return l
	}
	return a.wrap(l, archive.Trajectories)
}

// reader is turns, or nil without an archive.
func (a *archived) reader(l *jet.Log) journal.Journal {
	if a == nil {
		return nil
	}
	return a.turns(l)
}

func (a *archived) wrap(l *jet.Log, which archive.Log) journal.Journal {
	if a == nil {
		return l
	}
	return a.Wrap(l, which, l.Stream)
}

// archiver moves sessions from the logs to the archive.
func (s *Stack) archiver(a *archived, turns, trajectories *jet.Log, sessions archive.Registry) (*archive.Archiver, error) {
	d := archive.Deps{
		Archive: a.Archive, Turns: a.turns(turns), Trajectories: a.trajectories(trajectories, jet.Trajectories), Registry: sessions,
		Now: turns.Now, Logger: s.opt.Log, Fault: func(p archive.Point) { s.opt.Fault("archive." + string(p)) },
	}
	cfg := archiveConfig(s.cfg)
	if !cfg.KeepTrajectories {
		out, err := OpenShards(s.cfg)
		if err != nil {
			return nil, err
		}
		d.Exported = exportedTo(out)
	}
	return archive.NewArchiver(cfg, d)
}

// exportedTo asks the manifests of a store of shards how far its exporter is.
func exportedTo(out sink.Sink) func(context.Context) (archive.Exported, error) {
	manifests := exporter.Manifests(out)
	return func(ctx context.Context) (archive.Exported, error) {
		state, err := manifests.Load(ctx)
		if err != nil {
			return nil, err
		}
		type place struct {
			stream string
			after  uint64
		}
		cursor := map[int]place{}
		for _, p := range state.Cursor {
			cursor[p.Partition] = place{p.Stream, p.After}
		}
		settled := map[string]uint64{}
		for _, g := range state.Settled {
			for _, s := range g.Sessions {
				settled[s.Session] = max(settled[s.Session], s.Through)
			}
		}
		return func(session string, partition int, stream string, position uint64) bool {
			at := cursor[partition]
			return at.stream == stream && (position <= at.after || position <= settled[session])
		}, nil
	}
}

// WithArchiver lets do use an archiver that is not running. For a dry run the
// log is only read: not even the archive gets its name.
func WithArchiver(ctx context.Context, cfg config.Config, opt Options, dry bool, do func(*archive.Archiver) error) error {
	if cfg.Recorder.Archive.After == 0 {
		return errors.New("recorder.archive.after is 0: say how long a session stays in the log after its last event, such as --recorder.archive.after 72h")
	}
	how := writing
	if dry {
		how = reading
	}
	return withConn(ctx, cfg, opt, how, "archiver", func(s *Stack, l *logs, conn *jet.Conn) error {
		turns, err1 := l.open(ctx, conn, jet.Turns)
		trajectories, err2 := l.open(ctx, conn, jet.Trajectories)
		sessions, err3 := l.registry(ctx, conn)
		kept, err4 := l.openArchive(ctx, conn)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return err
		}
		a, err := s.archiver(kept, turns, trajectories, sessions)
		if err != nil {
			return err
		}
		return do(a)
	})
}

// archiveStore is a store of shards, or a part of one, as an archive's.
type archiveStore struct {
	sink   sink.Sink
	prefix string
}

func (s archiveStore) PutExclusive(ctx context.Context, key string, body io.Reader, size int64) error {
	err := s.sink.PutExclusive(ctx, s.prefix+key, body, size)
	if errors.Is(err, sink.ErrExists) {
		return fmt.Errorf("%w: %w", archive.ErrExists, err)
	}
	return err
}

func (s archiveStore) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := s.sink.Open(ctx, s.prefix+key)
	if errors.Is(err, sink.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", archive.ErrNotFound, err)
	}
	return r, err
}

func (s archiveStore) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for info, err := range s.sink.List(ctx, s.prefix+prefix) {
			if err != nil {
				yield("", err)
				return
			}
			if !yield(info.Key[len(s.prefix):], nil) {
				return
			}
		}
	}
}

func (s archiveStore) Delete(ctx context.Context, key string) error {
	return s.sink.Delete(ctx, s.prefix+key)
}
