package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"turnlog.dev/deploy/config"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/recorder/render"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

// Logs are a tenant's logs, together with what was archived of them, and its
// registry, for programs that look at them.
type Logs struct {
	Turns, Trajectories, DeadLetters journal.Journal
	Registry                         *registry.Stored
	// Partial says that sessions are in an archive that is not read.
	Partial bool
}

// WithLogs opens the logs of a configuration for as long as fn takes; it makes
// and changes nothing. An embedded log can be open in one process at a time:
// stop the other, or give it an address with log.listen and use that as log.url.
func WithLogs(ctx context.Context, cfg config.Config, log *slog.Logger, fn func(Logs) error) error {
	return withConn(ctx, cfg, Options{Log: log}, reading, "reader", func(_ *Stack, l *logs, conn *jet.Conn) error {
		turns, err1 := l.open(ctx, conn, jet.Turns)
		trajectories, err2 := l.open(ctx, conn, l.trajectories())
		letters, err3 := l.open(ctx, conn, jet.DeadLetters)
		sessions, err4 := l.registry(ctx, conn)
		kept, err5 := l.openArchive(ctx, conn)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return err
		}
		return fn(Logs{Turns: kept.turns(turns), Trajectories: kept.trajectories(trajectories, l.trajectories()), DeadLetters: letters, Registry: sessions, Partial: l.partial})
	})
}

// Folder is the configuration of another data folder, with an embedded log and
// shards of its own.
func Folder(cfg config.Config, data string) config.Config {
	cfg.Data, cfg.Log, cfg.Exporter.Dir, cfg.Exporter.S3 = data, config.Default().Log, "", config.S3{}
	cfg.Recorder.Archive = config.Default().Recorder.Archive
	return cfg
}

// RemoveFolder removes a data folder of ours with all that it holds.
func RemoveFolder(data string) error {
	if _, err := os.Stat(filepath.Join(data, dataMarker)); err != nil {
		return fmt.Errorf("data: %s is no data folder of turnlog: %w", data, err)
	}
	return os.RemoveAll(data)
}

// WithNewTrajectories opens the trajectory stream that a configuration names for
// writing, for as long as fn takes; what is missing is made.
func WithNewTrajectories(ctx context.Context, cfg config.Config, log *slog.Logger, fn func(journal.Journal) error) error {
	return withConn(ctx, cfg, Options{Log: log}, writing, "replay", func(_ *Stack, l *logs, conn *jet.Conn) error {
		trajectories, err := l.open(ctx, conn, l.trajectories())
		if errors.Is(err, jet.ErrNoRoom) {
			return fmt.Errorf("%w; ask for less with --log.max-bytes (half of it is for trajectories), remove a stream that is not needed any more (turnlog replay remove), or name a folder", err)
		}
		if err != nil {
			return err
		}
		return fn(trajectories)
	})
}

// WithConn connects to the log's server of a configuration, for as long as fn
// takes.
func WithConn(ctx context.Context, cfg config.Config, log *slog.Logger, fn func(*jet.Conn) error) error {
	return withConn(ctx, cfg, Options{Log: log}, reading, "streams", func(_ *Stack, _ *logs, conn *jet.Conn) error { return fn(conn) })
}

// withConn gives fn a connection to the log's server, with an embedded one
// running for as long as fn takes. The connection's name is for people.
func withConn(ctx context.Context, cfg config.Config, opt Options, how access, name string, fn func(*Stack, *logs, *jet.Conn) error) (err error) {
	s, err := New(cfg, Roles{}, opt)
	if err != nil {
		return err
	}
	g := newGroup()
	defer func() { err = errors.Join(err, g.stop()) }()
	l, err := s.openLogs(ctx, g, how)
	if err != nil {
		return err
	}
	conn, err := l.dial(name)
	if err != nil {
		return err
	}
	return fn(s, l, conn)
}

// RecorderModels are the files that a recorder of this configuration renders
// and tokenizes with.
func RecorderModels(ctx context.Context, cfg config.Config, log *slog.Logger) (*render.Models, error) {
	s, err := New(cfg, Roles{}, Options{Log: log})
	if err != nil {
		return nil, err
	}
	files, err := s.recorderModels(ctx, cfg.Models)
	return render.New(files...), err
}

// Speller returns what spells the ids of a tokenizer with the given
// fingerprint, out of the models of the configuration. Ids of an unknown one
// are shown as numbers.
func Speller(ctx context.Context, cfg config.Config, fingerprint string) (func(ids ...uint32) string, error) {
	for _, c := range cfg.Models {
		if c.Files == "" {
			continue
		}
		f, err := openFiles(ctx, c, Options{})
		if err != nil {
			return nil, err
		}
		if f.Tokenizer.Fingerprint() == fingerprint {
			return func(ids ...uint32) string { return f.Tokenizer.Decode(ids) }, nil
		}
	}
	return func(ids ...uint32) string {
		var b strings.Builder
		for _, id := range ids {
			fmt.Fprintf(&b, "<%d>", id)
		}
		return b.String()
	}, nil
}
