package jet

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// requestTimeout bounds one question to the server. It is longer than an
// election of a cluster's leader usually takes.
const requestTimeout = 5 * time.Second

// InProcess is an embedded server.
type InProcess interface {
	InProcessConn() (net.Conn, error)
}

// Options say where the server is.
type Options struct {
	// InProcess is an embedded server to connect to; it goes before URL.
	InProcess InProcess
	// URL of the servers, with commas between them.
	URL string
	// Name of this client, for the server's own lists.
	Name string
	// Credentials is the path of a NATS credentials file, if any.
	Credentials string
	TLS         *tls.Config
	Logger      *slog.Logger
}

// Conn is a connection to a server. It lasts: when it breaks, it is made again
// for as long as it is not closed.
type Conn struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	logger *slog.Logger
}

// Dial connects.
func Dial(o Options) (*Conn, error) {
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	options := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
		// A buffer would send appends again that were reported as failed.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				logger.Warn("log server disconnected", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { logger.Info("log server connected again") }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			logger.Warn("log server reports an error", "error", err, "subject", subject)
		}),
	}
	if o.InProcess != nil {
		options = append(options, nats.InProcessServer(o.InProcess))
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.TLS != nil {
		options = append(options, nats.Secure(o.TLS))
	}
	nc, err := nats.Connect(o.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("journal: connect: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("journal: connect: %w", err)
	}
	return &Conn{nc: nc, js: js, logger: logger}, nil
}

// Close ends the connection. Appends that wait fail with an unknown outcome.
func (c *Conn) Close() { c.nc.Close() }
