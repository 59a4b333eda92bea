package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/natsd"
	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/journal/jet"
)

// logs are the tenant's logs on one server. Each role has a connection of its
// own, as it would in a process of its own.
type logs struct {
	cfg      config.Config
	log      *slog.Logger
	access   access
	room     room
	embedded bool
	// partial is set once it is known that sessions are in an archive that is
	// not read.
	partial  bool
	existing jet.Existing
	synced   jet.SyncProof
	dial     func(name string) (*jet.Conn, error)
}

// access is what a process wants of the logs.
type access bool

// A process that only reads makes nothing and changes nothing.
const (
	reading access = false
	writing access = true
)

// openLogs starts the embedded server, if there is one, and prepares the
// connections. They are closed after everything that is started later, and
// before the server.
func (s *Stack) openLogs(ctx context.Context, g *group, how access) (*logs, error) {
	l := &logs{cfg: s.cfg, log: s.opt.Log, access: how, embedded: s.cfg.Log.URL == ""}
	if len(s.cfg.Log.Monitor) > 0 {
		l.synced = jet.Monitor(&http.Client{Timeout: headerTimeout}, s.cfg.Log.Monitor...)
	}
	if how == reading {
		l.cfg.Log.Listen = "" // it serves nobody else, and makes no secret
	}
	if l.embedded {
		// Before a secret is made, which may be in it.
		if err := openData(l.cfg.Data, how); err != nil {
			return nil, err
		}
	}
	opt := jet.Options{URL: s.cfg.Log.URL, Credentials: s.cfg.Log.Credentials, Logger: s.opt.Log}
	var err error
	if opt.Token, err = logToken(l.cfg.Log); err != nil {
		return nil, err
	}
	if l.embedded {
		srv, err := l.serve(ctx, g, opt.Token)
		if err != nil {
			return nil, err
		}
		opt.InProcess, l.synced = srv, srv.Synced
	} else {
		if opt.TLS, err = clientTLS(s.cfg.Log.TLS); err != nil {
			return nil, err
		}
		l.room.streams = or(s.cfg.Log.MaxBytes, defaultRemoteBytes)
		// Another's log keeps its limits, unless new ones were asked for.
		if s.cfg.Log.MaxBytes == 0 {
			l.existing = jet.KeepLimits
		}
	}
	if how == reading {
		l.existing = jet.ReadOnly
	}
	conns := &connections{}
	l.dial = func(name string) (*jet.Conn, error) {
		opt := opt
		opt.Name = "turnlog " + name
		conn, err := conns.dial(opt)
		if err != nil && !l.embedded {
			err = fmt.Errorf("log.url: %s: %w: is a NATS server running there, and does it take log.credentials, log.token_file and log.tls?", s.cfg.Log.Servers(), err)
		}
		return conn, err
	}
	return l, g.start(ctx, part{name: "log connections", run: conns.run})
}

func or(n, otherwise int64) int64 {
	if n == 0 {
		return otherwise
	}
	return n
}

// defaultRemoteBytes is the room on a server whose disk we cannot see.
const defaultRemoteBytes = 64 << 30

// serve runs the embedded server.
func (l *logs) serve(ctx context.Context, g *group, token string) (*natsd.Server, error) {
	var err error
	if l.room, err = openRoom(l.cfg.Data, l.cfg.Log.MaxBytes); err != nil {
		return nil, err
	}
	certificate, err := serverTLS(l.cfg.Log)
	if err != nil {
		return nil, err
	}
	srv, err := natsd.New(natsd.Config{
		Mode: natsd.Mode(l.cfg.Log.Durability), Dir: filepath.Join(l.cfg.Data, "log"),
		Listen: l.cfg.Log.Listen, Token: token, TLS: certificate, MaxBytes: l.room.server + jet.TrimsBytes,
	}, l.log)
	if err != nil {
		return nil, err
	}
	err = g.start(ctx, part{name: "log", run: srv.Run, ready: srv.Ready})
	if errors.Is(err, natsd.ErrLocked) {
		return nil, fmt.Errorf("%w: stop the turnlog that has it, or start that one with --log.listen HOST:PORT and reach its log from here with --log.url nats://HOST:PORT", err)
	}
	if err != nil {
		return nil, err
	}
	if l.access == writing {
		// Now the folder is locked, and ours alone.
		err = l.room.remember()
	}
	return srv, err
}

// settled says that the streams have the sizes of the configuration. Only a
// process that opens them all knows that.
func (l *logs) settled(r Roles) error {
	if !l.embedded || r != All {
		return nil
	}
	return l.room.settled()
}

// connections are closed when the part that holds them is stopped.
type connections struct{ list []*jet.Conn }

func (c *connections) dial(o jet.Options) (*jet.Conn, error) {
	conn, err := jet.Dial(o)
	if err == nil {
		c.list = append(c.list, conn)
	}
	return conn, err
}

func (c *connections) run(ctx context.Context) error {
	<-ctx.Done()
	for _, conn := range c.list {
		conn.Close()
	}
	return nil
}

// Shares of the room, in percent. Turns and trajectories have nearly all of it;
// a little is left for dead letters and the registry.
const (
	turnsShare        = 49
	trajectoriesShare = 47
	deadLettersShare  = 2
	registryShare     = 2
)

func (l *logs) share(percent int64) int64 { return l.room.streams / 100 * percent }

func (l *logs) replicas() int {
	if l.cfg.Log.Durability == "cluster" {
		return 3
	}
	return 1
}

// open opens one of the tenant's logs on a connection, and makes sure that it
// keeps what it promises.
func (l *logs) open(ctx context.Context, c *jet.Conn, kind jet.Kind) (*jet.Log, error) {
	cfg := jet.DefaultConfig(l.cfg.Tenant, kind)
	cfg.Streams, cfg.Replicas, cfg.Existing = l.cfg.Log.Streams, l.replicas(), l.existing
	share, ok := map[jet.Kind]int64{
		jet.Turns: turnsShare, jet.Trajectories: trajectoriesShare, jet.DeadLetters: deadLettersShare,
	}[kind]
	if !ok {
		share = trajectoriesShare // what a replay makes of the same turns
	}
	cfg.MaxBytes = l.share(share)
	log, err := c.Open(ctx, cfg)
	if errors.Is(err, jet.ErrNoLog) && kind == l.trajectories() && kind != jet.Trajectories {
		return nil, fmt.Errorf("%w: log.trajectories is %q; turnlog replay list shows which there are", err, l.cfg.Log.Trajectories)
	}
	if err != nil {
		return nil, err
	}
	if err := log.Intact(ctx); err != nil {
		return nil, fmt.Errorf("%w; nothing was served from it. Look with turnlog verify, restore the folder from a backup, or begin anew in another one", err)
	}
	return log, log.Verify(ctx, jet.Mode(l.cfg.Log.Durability), l.synced)
}

// trajectories is the trajectory stream that readers want.
func (l *logs) trajectories() jet.Kind {
	if name := l.cfg.Log.Trajectories; name != "" {
		return jet.Named(name)
	}
	return jet.Trajectories
}

// registry opens the table of the tenant's sessions.
func (l *logs) registry(ctx context.Context, c *jet.Conn) (*registry.Stored, error) {
	b, err := c.OpenBucket(ctx, jet.BucketConfig{
		Tenant: l.cfg.Tenant, Name: "sessions", Replicas: l.replicas(), MaxBytes: l.share(registryShare), Existing: l.existing,
	})
	if err != nil {
		return nil, err
	}
	return registry.NewStored(b), nil
}

// dataMarker is a file that tells our data folders from others.
const dataMarker = "turnlog-data"

// openData takes a data folder that is ours, or, for writing, makes one. In
// somebody else's folder nothing is touched.
func openData(dir string, how access) error {
	marker := filepath.Join(dir, dataMarker)
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	if how == reading {
		return fmt.Errorf("data: %s is no data folder of turnlog: choose one with --data", dir)
	}
	// Prompts are nobody else's business.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("data: %s holds other files (%s, ...) and no file %s: choose an empty folder with --data", dir, entries[0].Name(), dataMarker)
	}
	return writeFile(marker, "This folder belongs to turnlog.\n")
}

// writeFile writes a small file whole or not at all.
func writeFile(path, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".turnlog-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
