// Package natsd runs a NATS server with JetStream inside the process: the log
// of the all-in-one binary and of tests. To everything else it is a server like
// any other; only the connection need not go through a port.
package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Errors of Run, found with errors.Is.
var (
	// ErrLocked says that another process has the data folder open.
	ErrLocked = errors.New("natsd: the data folder is in use")
	// ErrForeign says that the data folder holds something that this program
	// did not put there. Nothing was changed.
	ErrForeign = errors.New("natsd: the data folder holds something else")
	// ErrCorrupt says that the data folder is damaged. Nothing was changed.
	ErrCorrupt = errors.New("natsd: the data folder is damaged")
)

// startLimit bounds the recovery of the store: seconds for millions of entries.
const startLimit = 5 * time.Minute

// Server is an embedded server. Run it, wait until it is ready, then connect.
type Server struct {
	cfg    Config
	logger *slog.Logger
	ready  chan struct{} // closed when started, or when Run has failed

	mu     sync.Mutex
	err    error // why Run ended; read after ready
	server *server.Server
}

// New returns a server that is not running. It touches nothing.
func New(cfg Config, logger *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, logger: logger, ready: make(chan struct{})}, nil
}

// Run opens the data folder, serves until ctx ends, and closes the folder so
// that the next start need not repair anything. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	err := s.run(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil { // never became ready
		s.err = err
		close(s.ready)
	}
	return err
}

func (s *Server) run(ctx context.Context) error {
	folder, err := openFolder(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer folder.close()

	fatal := make(chan error, 1)
	srv, err := server.NewServer(s.cfg.options())
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	srv.SetLoggerV2(&serverLog{s.logger, fatal}, false, false, false)
	srv.Start()
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	if err := await(ctx, srv, fatal); err != nil {
		return err
	}
	if err := folder.recovered(srv); err != nil {
		return err
	}
	s.mu.Lock()
	s.server = srv
	close(s.ready)
	s.mu.Unlock()
	s.logger.DebugContext(ctx, "log server ready", "mode", string(s.cfg.Mode), "listen", s.cfg.Listen)

	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return err
	}
}

// await returns when the server takes connections, or why it never will.
func await(ctx context.Context, srv *server.Server, fatal <-chan error) error {
	ready := make(chan bool, 1)
	go func() { ready <- srv.ReadyForConnections(startLimit) }()
	select {
	case err := <-fatal:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case ok := <-ready:
		select {
		case err := <-fatal:
			return err
		default:
		}
		if !ok || !srv.JetStreamEnabled() {
			return fmt.Errorf("natsd: not ready after %s", startLimit)
		}
		return nil
	}
}

// Ready waits until connections are taken. It fails if Run has failed or ctx
// ends first.
func (s *Server) Ready(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ready:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.err
	}
}

// InProcessConn connects to the server without a port. The server must be
// ready.
func (s *Server) InProcessConn() (net.Conn, error) {
	select {
	case <-s.ready:
	default:
		return nil, errors.New("natsd: not ready")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil, s.err
	}
	return s.server.InProcessConn()
}

// Synced returns nil if what the server acknowledges is on disk: its word for
// a start check.
func (s *Server) Synced(context.Context) error {
	if !s.cfg.Mode.SyncAlways() {
		return fmt.Errorf("natsd: mode %s does not sync before it acknowledges", s.cfg.Mode)
	}
	return nil
}

// URL is where the server listens, or empty if it does not. The server must be
// ready.
func (s *Server) URL() string {
	if s.cfg.Listen == "" {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return ""
	}
	return s.server.ClientURL()
}

// MonitorURL is where the server can be monitored, or empty. The server must be
// ready.
func (s *Server) MonitorURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Monitor == "" || s.server == nil {
		return ""
	}
	return "http://" + s.server.MonitorAddr().String()
}

// serverLog sends the server's own lines to slog, and what would end a process
// of its own to Run.
type serverLog struct {
	logger *slog.Logger
	fatal  chan<- error
}

func (l *serverLog) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Errorf("natsd: "+format, v...):
	default: // the first one tells why
	}
}

func (l *serverLog) line(level slog.Level, format string, v []any) {
	if l.logger.Enabled(context.Background(), level) {
		l.logger.Log(context.Background(), level, "nats server", "line", fmt.Sprintf(format, v...))
	}
}

func (l *serverLog) Errorf(format string, v ...any)  { l.line(slog.LevelError, format, v) }
func (l *serverLog) Warnf(format string, v ...any)   { l.line(slog.LevelWarn, format, v) }
func (l *serverLog) Noticef(format string, v ...any) { l.line(slog.LevelDebug, format, v) }
func (l *serverLog) Debugf(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }
func (l *serverLog) Tracef(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }

var _ server.Logger = (*serverLog)(nil)
